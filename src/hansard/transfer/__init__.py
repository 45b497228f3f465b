"""Move sessions between stores and files: export, import, copy, share."""
