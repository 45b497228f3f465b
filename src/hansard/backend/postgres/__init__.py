"""WHERE IT LIVES, beyond one machine: a store in PostgreSQL.

Above: `store`.  Below: `backend.contract`, `event`, `log`, and psycopg, which only this package imports.
In the order in which an event meets them: `address` (where), `connections` (how to get there), `schema`
(the tables), `append`, `log`, `reads`; then `cursors`, `staging`, `compaction`, `watch`, and
`backend`, which holds all of them. docs/decisions/0018-postgres.md says why the tables and the statement
are as they are.
"""
