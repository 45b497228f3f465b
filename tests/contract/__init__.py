"""The backend contract, run against every backend, and against broken ones."""
