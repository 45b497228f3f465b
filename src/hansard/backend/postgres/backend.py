"""A store in PostgreSQL: a schema of tables."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from typing import Final
from weakref import WeakSet, WeakValueDictionary, finalize

from psycopg.types.numeric import Int8

from hansard.backend.contract import (
    INTERNAL,
    Backend,
    Health,
    Hold,
    IndexTables,
    InternalLog,
    Log,
    Stage,
    Watch,
)
from hansard.backend.postgres import schema
from hansard.backend.postgres.append import Writer, deleted
from hansard.backend.postgres.connection import AdvisoryLock, Connections, lock_number
from hansard.backend.postgres.errors import ConnectionLost
from hansard.backend.postgres.index_tables import PURGE, PostgresTables
from hansard.backend.postgres.log import PostgresLog
from hansard.backend.postgres.marks import Marks
from hansard.backend.postgres.notify import Notifier
from hansard.backend.postgres.read import Prefetch, RowReader
from hansard.backend.postgres.schema import session_number
from hansard.backend.postgres.sizes import Stamps
from hansard.backend.postgres.stage import PostgresStage
from hansard.backend.postgres.url import StoreUrl
from hansard.backend.status import DatabaseServer, StoreStatus
from hansard.errors import Closed, HansardError, LockTimeout, ReadOnly, SessionNotFound
from hansard.log import disk, names
from hansard.log.append_request import seq_conflict

#: Maximum sessions per statement.
_PAGE: Final = 5000

_IDS: Final = """
SELECT session, id FROM {schema}.sessions
WHERE session > %(after)s::uuid AND NOT internal AND (deleted_at IS NOT NULL) = %(deleted)s
ORDER BY session LIMIT %(rows)s"""
_SIZES: Final = (
    "SELECT id, last_seq FROM {schema}.sessions WHERE NOT internal AND deleted_at IS NULL"
)
_STAMPS: Final = """
SELECT id, life, rewritten, last_seq FROM {schema}.sessions
WHERE NOT internal AND deleted_at IS NULL AND session = ANY(%(sessions)b::varchar[]::uuid[])"""
_INTERNALS: Final = "SELECT id FROM {schema}.sessions WHERE internal"
_POPULATION: Final = """
SELECT count(*), count(deleted_at), max(deleted_at), bit_xor(hashtextextended(life::text, 0))
FROM {schema}.sessions WHERE NOT internal"""
_DELETE: Final = """
UPDATE {schema}.sessions SET deleted_at = clock_timestamp(), marked = true
WHERE session = %(session)s::uuid AND deleted_at IS NULL
  AND (%(expected)s::bigint IS NULL OR last_seq = %(expected)s::bigint)
RETURNING life"""
_RESTORE: Final = """
UPDATE {schema}.sessions SET deleted_at = NULL, marked = true
WHERE session = %(session)s::uuid AND deleted_at IS NOT NULL RETURNING life"""
_BURY: Final = """
SELECT life FROM {schema}.sessions
WHERE session = %(session)s::uuid AND deleted_at IS NOT NULL FOR UPDATE"""
_REMOVE: Final = tuple(
    f"DELETE FROM {{schema}}.{table} WHERE session = %(session)s::uuid"  # noqa: S608 - names of ours
    for table in ("events", "checkpoints", "sessions")
)
#: Its mark goes with its row, so the index is told here.
_PURGE: Final = (
    """
INSERT INTO {schema}.index_pending (pass, id)
SELECT gen_random_uuid(), id FROM {schema}.sessions WHERE session = %(session)s::uuid""",
    *PURGE,
    *_REMOVE,
)
_PROBE: Final = """
INSERT INTO {schema}.sessions (session, id, before, last_seq, bytes, created, updated)
VALUES (gen_random_uuid(), 'probe', 0, 0, 0, '', '')"""
_DROP: Final = "DELETE FROM {schema}.sessions WHERE session = %(session)s::uuid RETURNING id"
_HOLDER: Final = """
SELECT a.pid, a.application_name, coalesce(host(a.client_addr), 'the same machine')
FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND ((l.classid::bigint << 32) | l.objid::bigint) = %(number)s
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
#: The settings of the server, not of this connection, which turns `synchronous_commit` on.
_SETTINGS: Final = """
SELECT name, CASE name WHEN 'synchronous_commit' THEN reset_val ELSE setting END
FROM pg_catalog.pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit',
    'synchronous_standby_names', 'server_version', 'server_version_num')"""

_SCHEMA: Final = """
SELECT pg_is_in_recovery(), coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint,
       (SELECT max(version) FROM {schema}.migrations)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relkind = 'r'"""

_STANDBYS: Final = """
SELECT application_name, sync_state FROM pg_catalog.pg_stat_replication WHERE sync_state IS NOT NULL"""
_NO_SESSION: Final = "00000000-0000-0000-0000-000000000000"


class PostgresHold(Hold):
    """An advisory lock of the server, which ends with the process that took it."""

    __slots__ = ("__weakref__", "_pid", "_release")

    def __init__(self, lock: AdvisoryLock) -> None:
        self._pid = os.getpid()
        self._release = finalize(self, lock.release)
        self._release.atexit = False

    def check(self) -> None:
        if self._pid != os.getpid():
            raise Closed("opened before a fork, by the parent process; open it in this process")
        if not self._release.alive:
            raise Closed("closed; open it again")

    def close(self) -> None:
        self._release()


def _tell_nobody(session: str) -> None:
    """Ignore that an internal log has grown: no reader waits for it."""


class PostgresBackend(Backend):
    """A store in PostgreSQL."""

    __slots__ = (
        "__weakref__",
        "_holds",
        "_mutex",
        "_stages",
        "_stamps",
        "_writers",
        "connections",
        "durability",
        "finder",
        "notifier",
        "read_only",
        "rows",
        "where",
    )

    def __init__(
        self,
        url: StoreUrl,
        *,
        create: bool = True,
        read_only: bool = False,
        durability: str = "sync",
        lock_timeout: float = 10.0,
    ) -> None:
        self.where = url.where
        self.read_only = read_only
        self.durability = durability
        self.finder = None
        self.connections = Connections(url, read_only=read_only, lock_timeout=lock_timeout)
        try:
            schema.prepare(self.connections, create=create and not read_only)
        except BaseException:
            self.connections.close()
            raise
        self.rows = RowReader(self.connections)
        self.notifier = Notifier(self.connections, f"hansard_{session_number(url.schema)}")
        self._holds: WeakSet[PostgresHold] = WeakSet()
        self._stages: WeakSet[PostgresStage] = WeakSet()
        self._stamps = Stamps(self.connections)
        self._mutex = disk.ForkLock()
        #: One for each session that this process appends to.
        self._writers: WeakValueDictionary[str, Writer] = WeakValueDictionary()

    # -- sessions -------------------------------------------------------------------------------

    def log(self, session_id: str, *, from_trash: bool = False) -> Log:
        names.check_id(session_id)
        return PostgresLog(self, session_id, buried=from_trash)

    def prefetch(self, session_ids: Sequence[str]) -> Backend:
        reader = copy(self)
        reader.rows = Prefetch(self.connections, session_ids)
        return reader

    def internal(self, name: str) -> InternalLog:
        return PostgresLog(self, INTERNAL + name)

    def internals(self) -> list[str]:
        return sorted(str(row[0]) for row in self._run(_INTERNALS))

    def drop_internal(self, name: str) -> bool:
        self.check_writable()
        params: dict[str, object] = {"session": session_number(INTERNAL + name)}
        return self.connections.retry(lambda: self._drop(params))

    def _drop(self, params: dict[str, object]) -> bool:
        with self.connections.transaction() as connection:
            # Its row first: that locks out appends.
            row = connection.execute(self.connections.query(_DROP), params).fetchone()
            connection.execute(self.connections.query(_REMOVE[0]), params)
        return row is not None

    def exclusive(self, name: str, *, timeout: float = 0.0) -> Hold:
        self.check_writable()
        words = ("exclusive", self.connections.url.schema, name)
        lock = AdvisoryLock(self.connections, *words)
        if not lock.acquire(timeout):
            raise self._held(name, lock_number(*words))
        hold = PostgresHold(lock)
        self._holds.add(hold)
        return hold

    def _held(self, name: str, number: int) -> LockTimeout:
        by = ""
        with suppress(HansardError, ConnectionLost):
            for pid, program, host in self.connections.attempt(_HOLDER, {"number": Int8(number)}):
                by = f" by {program!r} (connection {pid}, from {host})"
        return LockTimeout(f"{self.where}: {name!r} is held{by}; close it there, or try again")

    def stage(self, session_id: str, *, before: int = 0) -> Stage:
        names.check_id(session_id)
        self.check_writable()
        stage = PostgresStage(self, session_id, before)
        self._stages.add(stage)
        return stage

    def writer(self, session_id: str) -> Writer:
        """Return the writer of a session, which all threads of this process share."""
        with self._mutex.lock:
            found = self._writers.get(session_id)
            if found is None:
                found = self._writers[session_id] = Writer(
                    self.connections,
                    self.rows,
                    session_id,
                    light=self.durability == "os",
                    tell=_tell_nobody if session_id.startswith(INTERNAL) else self.notifier.tell,
                )
            return found

    def ids(self, *, trash: bool = False) -> Iterator[str]:
        after: object = _NO_SESSION
        while True:
            params = {"after": str(after), "deleted": trash, "rows": Int8(_PAGE)}
            rows = self._run(_IDS, params)
            yield from (str(row[1]) for row in rows)
            if len(rows) < _PAGE:
                return
            after = rows[-1][0]

    def stamps(self, session_ids: Iterable[str] | None = None) -> dict[str, str]:
        if session_ids is None:
            return self._stamps.look()
        wanted = [session_number(session_id) for session_id in session_ids]
        rows = self._run(_STAMPS, {"sessions": wanted}) if wanted else []
        return {str(row[0]): f"{row[1]} {row[2]} {row[3]}" for row in rows}

    def population(self) -> object:
        return self._run(_POPULATION)

    def watch(self) -> Watch:
        return Marks(self)

    def index_storage(self) -> IndexTables:
        return PostgresTables(self.connections)

    # -- the trash ------------------------------------------------------------------------------

    def delete(
        self, session_id: str, *, expected_seq: int | None = None, timeout: float | None = None
    ) -> None:
        names.check_id(session_id)
        self.check_writable()
        session = session_number(session_id)
        expected = None if expected_seq is None else str(expected_seq)
        params: dict[str, object] = {"session": session, "expected": expected}
        uncertain = []

        def attempt() -> bool:
            try:
                return bool(self._in_time(_DELETE, params, timeout))
            except ConnectionLost as found:
                uncertain.append(not found.certain)
                raise

        if not self.connections.retry(attempt):
            row = self.rows.session(session)
            if row is None:
                raise SessionNotFound(f"no session {session_id!r} in this store")
            if row.deleted:
                if any(uncertain):
                    return  # an earlier try deleted it, and its answer was lost
                raise deleted(session_id)
            if expected_seq is not None and row.head.seq != expected_seq:
                raise seq_conflict(session_id, expected_seq, row.head.seq)
            raise LockTimeout(f"{self.where}: session {session_id!r} changed while it was deleted")
        self.notifier.tell(session)

    def _in_time(
        self, text: str, params: dict[str, object], timeout: float | None
    ) -> list[tuple[object, ...]]:
        """Execute a statement once; it waits for a lock for `timeout` seconds at most."""
        if timeout is None:
            return self.connections.attempt(text, params)
        with self.connections.using() as connection, connection.transaction():
            wait = f"{max(1, round(timeout * 1000))}ms"
            connection.execute("SELECT set_config('lock_timeout', %s, true)", (wait,))
            return connection.execute(self.connections.query(text), params).fetchall()

    def restore(self, session_id: str) -> None:
        names.check_id(session_id)
        self.check_writable()
        session = session_number(session_id)
        if not self._run(_RESTORE, {"session": session}):
            raise self._not_in_trash(session_id)
        self.notifier.tell(session)

    def purge(self, session_id: str) -> None:
        names.check_id(session_id)
        self.check_writable()
        session = session_number(session_id)
        if not self.connections.retry(lambda: self._purge(session)):
            raise self._not_in_trash(session_id)
        self.notifier.tell(session)

    def _purge(self, session: str) -> bool:
        params = {"session": session}
        with self.connections.transaction() as connection:
            # Lock its row first: of a concurrent purge and restore, the second finds what the first did.
            if connection.execute(self.connections.query(_BURY), params).fetchone() is None:
                return False
            for text in _PURGE:
                connection.execute(self.connections.query(text), params)
        return True

    def _not_in_trash(self, session_id: str) -> SessionNotFound:
        return SessionNotFound(f"no session {session_id!r} in the trash")

    # -- the store ------------------------------------------------------------------------------

    def probe(self) -> Health:
        self.connections.retry(self._probe)
        return Health(self.where, self.durability, not self.read_only, None)

    def _probe(self) -> None:
        with self.connections.using() as connection:
            if self.read_only:
                connection.execute(self.connections.query(_SIZES + " LIMIT 1"))
            else:
                with connection.transaction(force_rollback=True):
                    connection.execute(self.connections.query(_PROBE))

    def status(self) -> StoreStatus:
        settings: dict[str, str] = dict(self.connections.run(_SETTINGS))
        schema = self.connections.url.schema
        ((standby, size, version),) = self.connections.run(_SCHEMA, {"schema": schema})
        server = DatabaseServer(
            version=settings.pop("server_version"),
            number=int(settings.pop("server_version_num")),
            tables=version or 0,
            schema=schema,
            bytes=size,
            standby=standby,
            followers=dict(self.connections.run(_STANDBYS)),
            **settings,
        )
        return StoreStatus(version=server.tables, server=server)

    def close(self) -> None:
        if self.finder is not None:
            self.finder.close()
        self.connections.close()
        self.notifier.stop()
        for hold in list(self._holds):
            hold.close()
        for stage in list(self._stages):
            stage.discard()

    def check_open(self) -> None:
        """Raise `Closed` if the store was closed."""
        self.connections.check_open()

    def check_writable(self) -> None:
        """Raise `ReadOnly` if the store is read-only."""
        self.check_open()
        if self.read_only:
            raise ReadOnly(
                f"{self.where}: the store is read-only; reopen it without read_only=True"
            )

    def _run(self, text: str, params: dict[str, object] | None = None) -> list[tuple[object, ...]]:
        return self.connections.run(text, params)
