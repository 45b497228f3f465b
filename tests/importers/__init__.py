"""Claims about the importers: what other programs wrote becomes sessions, complete and once."""
