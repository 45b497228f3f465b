"""Transfer of sessions."""
