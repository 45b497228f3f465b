"""Look after stored sessions: compact, verify, repair, redact, prune, delete, diagnose."""
