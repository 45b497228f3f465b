"""Compare sessions."""
