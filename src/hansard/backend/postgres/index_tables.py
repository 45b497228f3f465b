"""The tables of an index of a store's sessions, and the connection that runs its statements.

The tables hold nothing that the logs do not, and may be emptied at any time. `index.sqlite_storage` says what
each is for, next to the same tables. Texts are `COLLATE "C"`: prefixes are ranges of ids, and the boundary of
a scope.

The statements come from `index`, which alone knows what they mean, without the name of a schema: each
transaction sets its own `search_path`. A process that changes the tables holds an advisory lock until its
commit.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

import psycopg
from psycopg.types.numeric import Int8

from hansard.backend.postgres.connection import (
    Connection,
    Connections,
    DedicatedConnection,
    lock_number,
)
from hansard.backend.postgres.errors import ConnectionLost, to_error
from hansard.errors import HansardError

Answer = TypeVar("Answer")

#: Takes version 1 of a store's tables to version 2.
#:
#: An id may have 4 KiB, more than a B-tree takes: a hash of it is unique.
INDEX: Final = """
ALTER TABLE {schema}.sessions ADD COLUMN marked boolean NOT NULL DEFAULT true;
CREATE INDEX sessions_marked ON {schema}.sessions (session) WHERE marked AND NOT internal;

CREATE TABLE {schema}.index_purged (
    purge uuid PRIMARY KEY DEFAULT gen_random_uuid(), id varchar COLLATE "C" NOT NULL
);

CREATE TABLE {schema}.index_meta (key varchar COLLATE "C" PRIMARY KEY, value varchar COLLATE "C" NOT NULL);

CREATE TABLE {schema}.index_entry (
    id varchar COLLATE "C" NOT NULL,
    info varchar COLLATE "C" NOT NULL,
    crc bigint NOT NULL
);
CREATE UNIQUE INDEX index_entry_unique ON {schema}.index_entry (md5(id));
CREATE INDEX index_entry_id ON {schema}.index_entry USING hash (id);

CREATE TABLE {schema}.index_session (
    n bigint PRIMARY KEY,
    id varchar COLLATE "C" NOT NULL,
    stamp varchar COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    created varchar COLLATE "C" NOT NULL,
    updated varchar COLLATE "C" NOT NULL,
    title varchar COLLATE "C" NOT NULL,
    folded varchar COLLATE "C" NOT NULL,
    messages bigint NOT NULL,
    bytes bigint NOT NULL,
    tokens bigint NOT NULL,
    cost double precision NOT NULL,
    parent varchar COLLATE "C",
    parent_created varchar COLLATE "C" NOT NULL,
    archived boolean NOT NULL,
    damaged boolean NOT NULL,
    workspace varchar COLLATE "C",
    workspace_id varchar COLLATE "C" NOT NULL,
    unsettled bigint NOT NULL,
    state bytea
);
CREATE UNIQUE INDEX index_session_unique ON {schema}.index_session (md5(id));
CREATE INDEX index_session_id ON {schema}.index_session USING hash (id);
CREATE INDEX index_session_created ON {schema}.index_session (created);
CREATE INDEX index_session_updated ON {schema}.index_session (updated);
CREATE INDEX index_session_parent ON {schema}.index_session USING hash (parent) WHERE parent IS NOT NULL;
CREATE INDEX index_session_again ON {schema}.index_session (n) WHERE stamp = '';

CREATE TABLE {schema}.index_label (
    n bigint NOT NULL, key varchar COLLATE "C" NOT NULL, value varchar COLLATE "C" NOT NULL
);
CREATE INDEX index_label_value ON {schema}.index_label (value);
CREATE INDEX index_label_session ON {schema}.index_label (n);

CREATE TABLE {schema}.index_tally (
    n bigint PRIMARY KEY, seq bigint NOT NULL, bytes bigint NOT NULL, saved bigint NOT NULL,
    data varchar COLLATE "C" NOT NULL
);

CREATE TABLE {schema}.index_unread (id varchar COLLATE "C" NOT NULL);
CREATE UNIQUE INDEX index_unread_unique ON {schema}.index_unread (md5(id));

CREATE TABLE {schema}.index_log (
    log bigint PRIMARY KEY,
    id varchar COLLATE "C" NOT NULL,
    created varchar COLLATE "C" NOT NULL,
    living boolean NOT NULL,
    first bigint NOT NULL,
    parent varchar COLLATE "C",
    at bigint NOT NULL,
    seq bigint NOT NULL,
    stamp varchar COLLATE "C" NOT NULL,
    checked bigint NOT NULL,
    title varchar COLLATE "C" NOT NULL
);
CREATE UNIQUE INDEX index_log_unique ON {schema}.index_log (md5(id));
CREATE INDEX index_log_id ON {schema}.index_log USING hash (id);
CREATE INDEX index_log_parent ON {schema}.index_log USING hash (parent) WHERE parent IS NOT NULL;
CREATE INDEX index_log_deleted ON {schema}.index_log (log) WHERE NOT living;

CREATE TABLE {schema}.index_text (
    text bigint PRIMARY KEY, log bigint NOT NULL, seq bigint NOT NULL,
    stream varchar COLLATE "C" NOT NULL, time varchar COLLATE "C" NOT NULL,
    role varchar COLLATE "C" NOT NULL, size bigint NOT NULL
);
CREATE INDEX index_text_place ON {schema}.index_text (log, seq);
CREATE INDEX index_text_stream ON {schema}.index_text (log) WHERE stream <> '';

CREATE TABLE {schema}.index_words (
    text bigint PRIMARY KEY, body varchar COLLATE "C" NOT NULL, words tsvector NOT NULL
);
CREATE INDEX index_words_words ON {schema}.index_words USING gin (words);

-- The server would keep samples of them among its statistics, also after an erasure.
ALTER TABLE {schema}.index_entry ALTER info SET STATISTICS 0;
ALTER TABLE {schema}.index_session
    ALTER title SET STATISTICS 0, ALTER folded SET STATISTICS 0, ALTER state SET STATISTICS 0;
ALTER TABLE {schema}.index_label ALTER key SET STATISTICS 0, ALTER value SET STATISTICS 0;
ALTER TABLE {schema}.index_log ALTER title SET STATISTICS 0;
ALTER TABLE {schema}.index_words ALTER body SET STATISTICS 0, ALTER words SET STATISTICS 0;
"""

_ID: Final = "(SELECT id FROM {schema}.sessions WHERE session = %(session)s::uuid)"
_LOG: Final = f"SELECT log FROM {{schema}}.index_log WHERE id = {_ID}"  # noqa: S608 - our own names
_TEXT: Final = f"SELECT text FROM {{schema}}.index_text WHERE log IN ({_LOG})"  # noqa: S608 - as above
_N: Final = f"SELECT n FROM {{schema}}.index_session WHERE id = {_ID}"  # noqa: S608 - as above

#: Removes the rows of a session that is purged, and notes that the tables must be written again (`residue`).
PURGE: Final = (
    f"DELETE FROM {{schema}}.index_words WHERE text IN ({_TEXT})",  # noqa: S608 - as above
    f"DELETE FROM {{schema}}.index_text WHERE log IN ({_LOG})",  # noqa: S608 - as above
    f"DELETE FROM {{schema}}.index_label WHERE n IN ({_N})",  # noqa: S608 - as above
    f"DELETE FROM {{schema}}.index_tally WHERE n IN ({_N})",  # noqa: S608 - as above
    *(
        f"DELETE FROM {{schema}}.{table} WHERE id = {_ID}"  # noqa: S608 - as above
        for table in ("index_log", "index_session", "index_entry", "index_unread")
    ),
    """
INSERT INTO {schema}.index_meta (key, value)
SELECT 'residue', '1' WHERE EXISTS (SELECT FROM {schema}.index_meta)
ON CONFLICT (key) DO UPDATE SET value = excluded.value""",
)

#: How long to wait for another process that refreshes the index: the first time may take long.
_PATIENCE: Final = "60s"

_SEARCH_PATH: Final = "SET LOCAL search_path = {schema}, pg_temp"
_SNAPSHOT: Final = b"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"


class PostgresTables:
    """A connection to the tables of the index. For one thread at a time: the caller ensures that."""

    __slots__ = ("_connection", "_connections", "_current", "read_only")

    def __init__(self, connections: Connections) -> None:
        self.read_only = connections.read_only
        self._connections = connections
        # Not from the pool, which may have no second connection while sessions are read.
        self._connection = DedicatedConnection(connections)
        #: The connection of the transaction that is open.
        self._current: Connection | None = None

    def trying(self, do: Callable[[], Answer]) -> Answer:
        try:
            return self._connections.retry(do)
        except ConnectionLost as found:
            raise found.error from None

    def run(self, text: str, values: Sequence[Any] = (), *, rows: bool = True) -> list[Any]:
        with self._in_transaction() as connection:
            cursor = connection.execute(text.encode(), values)
            # Without rows there is nothing to wait for: inside `change`, statements are sent together.
            return cursor.fetchall() if rows else []

    def run_all(self, text: str, rows: Sequence[Sequence[Any]]) -> None:
        with self._in_transaction() as connection:
            query = text.encode()
            for values in rows:
                connection.execute(query, values)

    @contextmanager
    def change(self) -> Iterator[None]:
        with self._in_transaction() as connection:
            connection.execute(
                "SELECT set_config('lock_timeout', %s, true), "
                "set_config('statement_timeout', '0', true), "
                # What is derived can be derived again, so it need not wait for the disk.
                "set_config('synchronous_commit', 'off', true)",
                (_PATIENCE,),
            )
            number = Int8(lock_number("index", self._connections.url.schema))
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (number,))
            with connection.pipeline():
                yield

    @contextmanager
    def look(self) -> Iterator[None]:
        with self._in_transaction(_SNAPSHOT):
            yield

    @contextmanager
    def _in_transaction(self, mode: bytes | None = None) -> Iterator[Connection]:
        """Yield the connection inside a transaction, which is the current one if there is one."""
        if self._current is not None:
            try:
                yield self._current
            except psycopg.Error as error:
                raise to_error(self._connections.url, error, self._current) from None
            return
        with self._connection.using() as connection, connection.transaction():
            self._current = connection
            try:
                if mode is not None:
                    connection.execute(mode)
                # Not an option of the session: a pooler may give the connection to another client. Last, so
                # that a temporary table does not take the place of one of ours.
                connection.execute(self._connections.query(_SEARCH_PATH))
                yield connection
            finally:
                self._current = None

    def changing(self) -> bool:
        return self._current is not None

    def rewrite(self, *names: str) -> bool:
        query = self._connections.query
        with (
            suppress(HansardError, ConnectionLost),
            self._connection.using() as connection,
        ):
            return not any(connection.rewrite(query(f"{{schema}}.{name}")) for name in names)
        return False

    def close(self) -> None:
        self._connection.close()
