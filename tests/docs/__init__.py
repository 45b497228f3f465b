"""The pages of the docs are true."""
