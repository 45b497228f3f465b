"""A store in PostgreSQL: a real server that the tests start themselves."""
