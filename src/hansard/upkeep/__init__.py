"""LOOKING AFTER IT: verify, retention, share; later compaction, repair, transfer."""
