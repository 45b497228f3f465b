"""Hostile input to a store, and what it must not cause."""
