"""LOOKING AFTER IT: verify; later compaction, repair, retention, transfer."""
