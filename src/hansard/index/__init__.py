"""The index: listing, search and statistics.

Everything here is derived from the logs and can be deleted at any time. `index` answers the calls of a store,
`sqlite_storage` and `postgres_storage` hold the tables, `catalog` refreshes them from the logs, and
`listing`, `search` and `stats` query them.
"""
