"""Maintain stored sessions: compact, verify, repair, redact, prune, delete and diagnose them."""
