"""Bytes on disk, one module at a time."""
