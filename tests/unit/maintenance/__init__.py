"""Maintenance of stored sessions."""
