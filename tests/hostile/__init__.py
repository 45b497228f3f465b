"""Hostile input to a store, and its allowed effects."""
