"""Claims about the importers: what other programs wrote becomes sessions, whole and once."""
