"""Looking after what is stored."""
