"""A store in PostgreSQL.

Only this package and `index.postgres_storage` import psycopg. Start with `url`, `connection` and `schema`,
then `append`, `read`, `log`; `backend` holds all of them. docs/decisions/0018-postgres.md explains the tables
and the append statement.
"""
