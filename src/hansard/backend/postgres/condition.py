"""Report the state of the server that a store is on, and its settings.

Above: `backend`.  Below: `connections`, `backend.condition`.
Reads only what every role may read.
"""

from typing import Final

from hansard.backend.condition import DatabaseServer, StoreStatus
from hansard.backend.postgres import schema, statements
from hansard.backend.postgres.connection import Connections

#: As the server has them, and not as this connection does, which has asked for more.
_ASK_SETTINGS: Final = """
SELECT name, CASE name WHEN 'synchronous_commit' THEN reset_val ELSE setting END
FROM pg_catalog.pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit',
    'synchronous_standby_names', 'server_version', 'server_version_num')"""

_ASK_PLACE: Final = """
SELECT pg_is_in_recovery(), coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint,
       (SELECT max(version) FROM {schema}.migrations)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relkind = 'r'"""

_ASK_FOLLOWERS: Final = """
SELECT application_name, sync_state FROM pg_catalog.pg_stat_replication WHERE sync_state IS NOT NULL"""


def look(connections: Connections) -> StoreStatus:
    """Return the state of the server."""
    name = connections.url.schema
    said: dict[str, str] = dict(connections.run(_ASK_SETTINGS.encode()))
    place = statements.statement(schema.quoted(name), _ASK_PLACE)
    ((standby, size, version),) = connections.run(place, {"schema": name})
    server = DatabaseServer(
        version=said.pop("server_version"),
        number=int(said.pop("server_version_num")),
        tables=version or 0,
        schema=name,
        bytes=size,
        standby=standby,
        followers=dict(connections.run(_ASK_FOLLOWERS.encode())),
        **said,
    )
    return StoreStatus(version=server.tables, server=server)
