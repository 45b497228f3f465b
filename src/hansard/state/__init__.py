"""Pure functions from events to states and views."""
