"""Create the tables of a store, and migrate older ones.

A store is a schema: several stores in one database are several schemas, and dropping a schema drops a
store. Each entry of `MIGRATIONS` takes the tables from one version to the next, in one transaction, under
an advisory lock: of several processes that open a new store, one creates it.
docs/decisions/0018-postgres.md explains the columns.
"""

import hashlib
from typing import Final

import psycopg
from psycopg.types.numeric import Int8

from hansard.backend.postgres.connection import Connection, Connections, lock_number
from hansard.backend.postgres.errors import describe
from hansard.backend.postgres.index_tables import INDEX
from hansard.backend.postgres.url import StoreUrl
from hansard.errors import BackendUnavailable, StoreNotFound, UnknownFormat

#: Columns that are read as str are `varchar`, those that stay bytes are `text`: PostgreSQL treats both alike,
#: and psycopg loads them differently in binary.
_FIRST: Final = """
CREATE TABLE {schema}.sessions (
    session uuid PRIMARY KEY,
    life uuid NOT NULL DEFAULT gen_random_uuid(),
    before bigint NOT NULL,
    last_seq bigint NOT NULL,
    bytes bigint NOT NULL,
    deleted_at timestamptz,
    rewritten integer NOT NULL DEFAULT 0,
    internal boolean NOT NULL DEFAULT false,
    id varchar COLLATE "C" NOT NULL,
    created varchar COLLATE "C" NOT NULL,
    updated varchar COLLATE "C" NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE {schema}.events (
    session uuid NOT NULL,
    seq bigint NOT NULL,
    append_id uuid,
    append_count integer,
    control boolean NOT NULL,
    stamp varchar COLLATE "C" NOT NULL,
    kind varchar COLLATE "C" NOT NULL,
    key varchar COLLATE "C",
    data text COLLATE "C" NOT NULL,
    PRIMARY KEY (session, seq)
);
-- The server would keep samples of what was said among its statistics, also after an erasure.
ALTER TABLE {schema}.events ALTER data SET STATISTICS 0, ALTER key SET STATISTICS 0;
CREATE UNIQUE INDEX events_append ON {schema}.events (session, append_id) WHERE append_id IS NOT NULL;
CREATE INDEX events_control ON {schema}.events (session, seq) WHERE control;

CREATE TABLE {schema}.checkpoints (
    session uuid PRIMARY KEY,
    life uuid NOT NULL,
    seq bigint NOT NULL,
    stamp varchar COLLATE "C" NOT NULL,
    state bytea NOT NULL
);
"""

#: The first takes an empty schema to version 1, and so on.
MIGRATIONS: Final[tuple[str, ...]] = (_FIRST, INDEX)

#: The version that this hansard supports.
VERSION: Final = len(MIGRATIONS)

#: Seconds that a migration waits for processes that use the tables.
_LOCK_TIMEOUT: Final = 60.0

_STATE: Final = """
SELECT to_regclass(%(table)s) IS NOT NULL, current_setting('server_encoding')"""
_VERSION: Final = "SELECT coalesce(max(version), 0) FROM {schema}.migrations"
_CREATE_MIGRATIONS: Final = """
CREATE TABLE IF NOT EXISTS {schema}.migrations (
    version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())"""
_APPLIED: Final = "INSERT INTO {schema}.migrations (version) VALUES (%(version)s)"


def session_number(session_id: str) -> str:
    """Return a session's key in the tables: 128 bits of a hash of its id.

    An id may have 4,096 bytes; an index entry is limited to 2,700.
    """
    return hash_number(b"session\0" + session_id.encode())


def hash_number(text: bytes) -> str:
    """Return 128 bits of a hash, as hexadecimal digits."""
    return hashlib.sha256(text).hexdigest()[:32]


def prepare(connections: Connections, *, create: bool) -> None:
    """Check that the store exists in the supported version; create it if it is missing."""
    connections.retry(lambda: _prepare(connections, create=create))


def _prepare(connections: Connections, *, create: bool) -> None:
    url = connections.url
    with connections.using() as connection:
        version = _version(connections, connection)
        if version is None:
            if not create:
                raise StoreNotFound(
                    f"{url.where}: no store there; pass create=True, or the right schema"
                )
            _migrate(connections, connection)
        elif version < VERSION:
            raise UnknownFormat(
                f"{url.where}: store version {version} is older than version {VERSION} of this hansard; "
                "run `hansard doctor --migrate` once, when all programs that write to it are of this version"
            )
        else:
            _check_supported(url, version)


def migrate_store(url: StoreUrl) -> list[int]:
    """Migrate an existing store to the current version; return the versions that were applied."""
    connections = Connections(url, read_only=False, lock_timeout=_LOCK_TIMEOUT)
    try:
        return connections.retry(lambda: _migrate_existing(connections))
    finally:
        connections.close()


def _migrate_existing(connections: Connections) -> list[int]:
    url = connections.url
    with connections.using() as connection:
        version = _version(connections, connection)
        if version is None:
            raise StoreNotFound(f"{url.where}: no store there; pass the right schema")
        _check_supported(url, version)
        return _migrate(connections, connection)


def _check_supported(url: StoreUrl, version: int) -> None:
    if version > VERSION:
        raise UnknownFormat(
            f"{url.where}: unsupported store version {version} (supported: {VERSION}); use a newer hansard"
        )


def _version(connections: Connections, connection: Connection) -> int | None:
    """Return the version of a store's tables; None if there are none."""
    table = f"{connections.schema}.migrations"
    ((exists, encoding),) = connection.fetch(_STATE.encode(), {"table": table})
    if encoding != "UTF8":
        raise BackendUnavailable(
            f"{connections.url.where}: the database has the encoding {encoding}, which cannot store every "
            "text; create one with `CREATE DATABASE … ENCODING 'UTF8'`"
        )
    if not exists:
        return None
    ((version,),) = connection.fetch(connections.query(_VERSION))
    return int(version)


def _migrate(connections: Connections, connection: Connection) -> list[int]:
    """Create the tables or migrate them; return the versions that were applied."""
    try:
        with connection.transaction():
            return _apply_migrations(connections, connection)
    except psycopg.errors.InsufficientPrivilege as error:
        url = connections.url
        raise BackendUnavailable(
            f"{url.where}: cannot create the tables: {describe(url, error)}; open the store once with a role "
            "that may. docs/guides/postgres.md lists the grants"
        ) from None


def _apply_migrations(connections: Connections, connection: Connection) -> list[int]:
    schema = connections.url.schema
    connection.execute("SELECT set_config('statement_timeout', '0', true)")
    number = Int8(lock_number("migrate", schema))
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (number,))
    # Not `to_regnamespace`, which may be cached from before the lock. Not `IF NOT EXISTS` either: it needs
    # the privilege to create a schema even if the schema exists.
    query = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s"
    if connection.execute(query, (schema,)).fetchone() is None:
        connection.execute(connections.query("CREATE SCHEMA {schema}"))
    connection.execute(connections.query(_CREATE_MIGRATIONS))
    current = _version(connections, connection) or 0
    applied = []
    for version, script in enumerate(MIGRATIONS[current:], current + 1):
        connection.execute(connections.query(script))
        connection.execute(connections.query(_APPLIED), {"version": version})
        applied.append(version)
    return applied
