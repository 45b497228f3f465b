"""Create the tables of a store, and check their version.

A store is a schema: several stores in one database are several schemas, and dropping a schema drops a store.
The tables are created in one transaction, under an advisory lock: of several processes that open a new
store, one creates it. docs/decisions/0018-postgres.md explains the columns.
"""

import hashlib
from typing import Final

import psycopg
from psycopg.types.numeric import Int8

from hansard.backend.postgres.connection import Connection, Connections, lock_number
from hansard.backend.postgres.server_errors import describe
from hansard.backend.postgres.url import StoreUrl
from hansard.errors import BackendUnavailable, StoreNotFound, UnknownFormat

#: The version of the tables.
VERSION: Final = 1

#: Columns that are read as str are `varchar`, those that stay bytes are `text`: PostgreSQL treats both alike,
#: and psycopg loads them differently in binary. Both are `COLLATE "C"`: prefixes are ranges of ids, and
#: the boundary of a scope. An id may have 4 KiB, more than a B-tree takes: a hash of it is unique.
#: `index.sqlite_storage` explains the tables of the index, which hold nothing that the logs do not.
_TABLES: Final = """
CREATE TABLE migrations (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now());

CREATE TABLE sessions (
    session uuid PRIMARY KEY, life uuid NOT NULL DEFAULT gen_random_uuid(), before {int}, last_seq {int},
    bytes {int}, deleted_at timestamptz, rewritten integer NOT NULL DEFAULT 0,
    internal boolean NOT NULL DEFAULT false, marked boolean NOT NULL DEFAULT true, id {str},
    created {str}, updated {str}
) WITH (fillfactor = 50);
CREATE INDEX sessions_marked ON sessions (session) WHERE marked AND NOT internal;

CREATE TABLE events (
    session uuid NOT NULL, seq {int}, append_id uuid, append_count integer, control boolean NOT NULL,
    stamp {str}, kind {str}, key {str_or_null}, data text COLLATE "C" NOT NULL,
    PRIMARY KEY (session, seq)
);
CREATE UNIQUE INDEX events_append ON events (session, append_id) WHERE append_id IS NOT NULL;
CREATE INDEX events_control ON events (session, seq) WHERE control;

CREATE TABLE checkpoints (
    session uuid PRIMARY KEY, life uuid NOT NULL, seq {int}, stamp {str}, state bytea NOT NULL
);

CREATE TABLE index_purged (purge uuid PRIMARY KEY DEFAULT gen_random_uuid(), id {str});
CREATE TABLE index_meta (key {str} PRIMARY KEY, value {str});

CREATE TABLE index_entry (id {str}, info {str}, crc {int});
CREATE UNIQUE INDEX index_entry_unique ON index_entry (md5(id));
CREATE INDEX index_entry_id ON index_entry USING hash (id);

CREATE TABLE index_session (
    n bigint PRIMARY KEY, id {str}, stamp {str}, seq {int}, created {str}, updated {str}, title {str},
    folded {str}, messages {int}, bytes {int}, tokens {int}, cost double precision NOT NULL,
    parent {str_or_null}, parent_created {str}, archived boolean NOT NULL, damaged boolean NOT NULL,
    held boolean NOT NULL,
    workspace {str_or_null}, workspace_id {str}, unsettled {int}, state bytea
);
CREATE UNIQUE INDEX index_session_unique ON index_session (md5(id));
CREATE INDEX index_session_id ON index_session USING hash (id);
CREATE INDEX index_session_created ON index_session (created);
CREATE INDEX index_session_updated ON index_session (updated);
CREATE INDEX index_session_parent ON index_session USING hash (parent) WHERE parent IS NOT NULL;
CREATE INDEX index_session_again ON index_session (n) WHERE stamp = '';

CREATE TABLE index_label (n {int}, key {str}, value {str});
CREATE INDEX index_label_value ON index_label (value);
CREATE INDEX index_label_session ON index_label (n);

CREATE TABLE index_tally (
    n bigint PRIMARY KEY, seq {int}, bytes {int}, saved {int}, data {str}
);

CREATE TABLE index_unread (id {str});
CREATE UNIQUE INDEX index_unread_unique ON index_unread (md5(id));

CREATE TABLE index_log (
    log bigint PRIMARY KEY, id {str}, created {str}, living boolean NOT NULL,
    parent {str_or_null}, at {int}, seq {int}, stamp {str}, title {str}
);
CREATE UNIQUE INDEX index_log_unique ON index_log (md5(id));
CREATE INDEX index_log_id ON index_log USING hash (id);
CREATE INDEX index_log_parent ON index_log USING hash (parent) WHERE parent IS NOT NULL;
CREATE INDEX index_log_deleted ON index_log (log) WHERE NOT living;

CREATE TABLE index_text (
    text bigint PRIMARY KEY, log {int}, seq {int}, time {str}, role {str}, size {int}
);
CREATE INDEX index_text_place ON index_text (log, seq);

CREATE TABLE index_words (text bigint PRIMARY KEY, body {str}, words tsvector NOT NULL);
CREATE INDEX index_words_words ON index_words USING gin (words);

-- Otherwise the statistics of the server contain samples of these columns, also after an erasure.
ALTER TABLE events ALTER data SET STATISTICS 0, ALTER key SET STATISTICS 0;
ALTER TABLE index_entry ALTER info SET STATISTICS 0;
ALTER TABLE checkpoints ALTER state SET STATISTICS 0;
ALTER TABLE index_session
    ALTER title SET STATISTICS 0, ALTER folded SET STATISTICS 0, ALTER state SET STATISTICS 0;
ALTER TABLE index_label ALTER key SET STATISTICS 0, ALTER value SET STATISTICS 0;
ALTER TABLE index_log ALTER title SET STATISTICS 0;
ALTER TABLE index_words ALTER body SET STATISTICS 0, ALTER words SET STATISTICS 0;
"""
_SHORT: Final = {
    "{int}": "bigint NOT NULL",
    "{str}": "{str_or_null} NOT NULL",
    "{str_or_null}": 'varchar COLLATE "C"',
}

_STATE: Final = b"SELECT to_regclass(%(table)s) IS NOT NULL, current_setting('server_encoding')"

#: Last, so that a temporary table does not take the place of one of ours.
SEARCH_PATH: Final = "SET LOCAL search_path = {schema}, pg_temp"


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


def migrate_store(url: StoreUrl) -> list[int]:
    """Check that a store has the current version; return the versions that were applied, so far none."""
    connections = Connections(url, read_only=False, lock_timeout=0.0)
    try:
        prepare(connections, create=False)
    finally:
        connections.close()
    return []


def _prepare(connections: Connections, *, create: bool) -> None:
    url = connections.url
    with connections.using() as connection:
        version = _version(connections, connection)
        if version is None and not create:
            raise StoreNotFound(
                f"{url.where}: no store there; pass create=True, or the right schema"
            )
        if version is None:
            try:
                with connection.transaction():
                    _create(connections, connection)
            except psycopg.errors.InsufficientPrivilege as error:
                raise BackendUnavailable(
                    f"{url.where}: cannot create the tables: {describe(url, error)}; open the store once "
                    "with a role that may. docs/guides/postgres.md lists the grants"
                ) from None
        elif version != VERSION:
            raise UnknownFormat(
                f"{url.where}: unsupported store version {version} (supported: {VERSION}); "
                "upgrade hansard"
            )


def _version(connections: Connections, connection: Connection) -> int | None:
    """Return the version of a store's tables; None if there are none."""
    table = f"{connections.schema}.migrations"
    ((exists, encoding),) = connection.fetch(_STATE, {"table": table})
    if encoding != "UTF8":
        raise BackendUnavailable(
            f"{connections.url.where}: the database has the encoding {encoding}, which cannot store every "
            "text; create one with `CREATE DATABASE … ENCODING 'UTF8'`"
        )
    if not exists:
        return None
    ((version,),) = connection.fetch(
        connections.query("SELECT max(version) FROM {schema}.migrations")
    )
    return int(version or 0)


def _create(connections: Connections, connection: Connection) -> None:
    schema = connections.url.schema
    connection.execute("SELECT set_config('statement_timeout', '0', true)")
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock_number("migrate", schema),))
    # Not `to_regnamespace`, which may be cached from before the lock. Not `IF NOT EXISTS` either: it needs
    # the privilege to create a schema even if the schema exists.
    query = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s"
    if connection.execute(query, (schema,)).fetchone() is None:
        connection.execute(connections.query("CREATE SCHEMA {schema}"))
    if _version(connections, connection) is None:
        connection.execute(connections.query(SEARCH_PATH))
        script = _TABLES
        for short, name in _SHORT.items():
            script = script.replace(short, name)
        connection.execute(script.encode())
        connection.execute("INSERT INTO migrations (version) VALUES (%s)", (Int8(VERSION),))
