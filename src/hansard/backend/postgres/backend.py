"""A store in PostgreSQL: a schema of tables."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from functools import partial
from typing import Final
from weakref import WeakSet, WeakValueDictionary

from psycopg.types.numeric import Int8

from hansard.backend.contract import (
    INTERNAL,
    Backend,
    Changed,
    Health,
    Hold,
    InternalLog,
    Log,
    Stage,
)
from hansard.backend.postgres import compact, schema
from hansard.backend.postgres.append import Writer, locking
from hansard.backend.postgres.connection import AdvisoryLock, Connections
from hansard.backend.postgres.log import PostgresLog
from hansard.backend.postgres.notify import Notifier
from hansard.backend.postgres.read import Prefetch, RowReader
from hansard.backend.postgres.schema import session_number
from hansard.backend.postgres.server_errors import ConnectionLost
from hansard.backend.postgres.stage import PostgresStage
from hansard.backend.postgres.url import StoreUrl
from hansard.backend.status import DatabaseServer, StoreStatus
from hansard.errors import HansardError, LockTimeout, ReadOnly
from hansard.event.kinds import SessionForked
from hansard.log import disk, names
from hansard.log.store_directory import deleted, not_found
from hansard.log.write_batch import seq_conflict
from hansard.observe import Counters

#: Maximum sessions per statement.
_PAGE: Final = 5000

_IDS: Final = """
SELECT session, id FROM {schema}.sessions
WHERE session > %(after)s::uuid AND NOT internal AND (deleted_at IS NOT NULL) = %(deleted)s
ORDER BY session LIMIT %(rows)s"""
#: The lowest transaction that has not ended, and the rows.
_EVERY: Final = """
SELECT mod(pg_snapshot_xmin(pg_current_snapshot())::text::numeric, 4294967296), s.id,
       concat_ws(' ', s.life, s.rewritten, s.last_seq), s.deleted_at IS NOT NULL
FROM (SELECT) AS one LEFT JOIN {schema}.sessions AS s ON NOT s.internal"""
_SINCE: Final = _EVERY + " AND age(s.xmin) <= age(%(known)s::varchar::xid)"
#: Seconds after which all rows are read again: a server that replaced another may count differently.
_ALL_AGAIN: Final = 60.0
_SOME: Final = _EVERY + " AND s.session = ANY(%(sessions)b::varchar[]::uuid[])"
_INTERNALS: Final = "SELECT id FROM {schema}.sessions WHERE internal"
_DELETE: Final = """
UPDATE {schema}.sessions SET deleted_at = clock_timestamp(), marked = true
WHERE session = %(session)s::uuid AND deleted_at IS NULL
  AND (%(expected)s::bigint IS NULL OR last_seq = %(expected)s::bigint)
RETURNING life"""
_RESTORE: Final = """
UPDATE {schema}.sessions SET deleted_at = NULL, marked = true
WHERE session = %(session)s::uuid AND deleted_at IS NOT NULL RETURNING life"""
_LOCK_DELETED: Final = b"""
SELECT life FROM sessions WHERE session = %(session)s::uuid AND deleted_at IS NOT NULL FOR UPDATE"""
#: Removes the rows of a session that is purged, and records that the tables must be rewritten (`residue`).
_PURGE: Final = """
WITH purged AS (SELECT id FROM sessions WHERE session = %(session)s::uuid),
l AS (DELETE FROM index_log WHERE id IN (SELECT id FROM purged) RETURNING log),
t AS (DELETE FROM index_text WHERE log IN (SELECT log FROM l) RETURNING text),
w AS (DELETE FROM index_words WHERE text IN (SELECT text FROM t)),
s AS (DELETE FROM index_session WHERE id IN (SELECT id FROM purged) RETURNING n),
b AS (DELETE FROM index_label WHERE n IN (SELECT n FROM s)),
c AS (DELETE FROM index_tally WHERE n IN (SELECT n FROM s)),
e AS (DELETE FROM index_entry WHERE id IN (SELECT id FROM purged)),
u AS (DELETE FROM index_unread WHERE id IN (SELECT id FROM purged)),
p AS (INSERT INTO index_purged (id) SELECT id FROM purged)
INSERT INTO index_meta (key, value) SELECT 'residue', '1' WHERE EXISTS (SELECT FROM index_meta)
ON CONFLICT (key) DO UPDATE SET value = excluded.value"""
_PROBE: Final = """
INSERT INTO {schema}.sessions (session, id, before, last_seq, bytes, created, updated)
VALUES (gen_random_uuid(), 'probe', 0, 0, 0, '', '')"""
#: What a refresh stores in the index; an empty index does not have it.
_MARKED: Final = "marks"
#: Changed sessions and purged ones, with the transaction that wrote each row.
_CHANGED: Final = """
SELECT id, session::varchar, xmin::varchar FROM {schema}.sessions WHERE marked AND NOT internal
UNION ALL SELECT id, purge::varchar, xmin::varchar FROM {schema}.index_purged"""
#: Each append and deletion writes the row again, which changes `xmin`. A locked row is about to change.
_UNMARK: Final = """
WITH k (number, version) AS (
    SELECT * FROM unnest(%(sessions)b::varchar[]::uuid[], %(versions)b::varchar[]::xid[])
), purged AS (DELETE FROM {schema}.index_purged USING k WHERE purge = number)
UPDATE {schema}.sessions SET marked = false WHERE session IN (
    SELECT s.session FROM {schema}.sessions AS s JOIN k ON s.session = k.number AND s.xmin = k.version
    FOR NO KEY UPDATE OF s SKIP LOCKED)"""
_HOLDER: Final = """
SELECT a.application_name, a.pid, coalesce(host(a.client_addr), 'the same machine')
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


class Stamps:
    """The stamp of each session that is not deleted, read again only where it changed.

    `store.follow` asks several times a second. `xmin` of a row is the transaction that wrote it last. A query
    returns the rows of transactions that had not ended at the last query, or that began since. There is no
    index for it, so the server scans the table (docs/decisions/0018-postgres.md). With 100,000 sessions, one
    of them changed, that takes 44 ms instead of 340, and 3 ms of the client's time instead of 103.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._stamps: dict[str, str] = {}
        self._due = 0.0
        self.after_fork()
        disk.reset_after_fork(self)

    def after_fork(self) -> None:
        """Replace the mutex, and read all rows again: another thread may have been updating."""
        self._mutex = threading.Lock()
        self._known = ""

    def look(self) -> dict[str, str]:
        """Return the stamps as of now."""
        with self._mutex:
            now = time.monotonic()
            if not self._known or now >= self._due:
                rows = self._connections.run(_EVERY)
                self._stamps = {}
                self._due = now + _ALL_AGAIN
            else:
                rows = self._connections.run(_SINCE, {"known": self._known})
            for _, session_id, stamp, deleted in rows:
                if deleted:
                    self._stamps.pop(session_id, None)
                elif session_id is not None:  # None: nothing has changed
                    self._stamps[session_id] = stamp
            self._known = str(rows[0][0])
            return dict(self._stamps)


class PostgresBackend(Backend):
    """A store in PostgreSQL."""

    needs_vacuum = True

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
        self.counters = Counters()
        self.read_only = read_only
        self.durability = durability
        self.finder = None
        self.connections = Connections(url, read_only=read_only, lock_timeout=lock_timeout)
        try:
            schema.prepare(self.connections, create=create and not read_only)
        except BaseException:
            self.connections.close()
            raise
        self.index_storage = self.connections
        self.rows = RowReader(self.connections)
        self.notifier = Notifier(self.connections, f"hansard_{session_number(url.schema)}")
        self._locks: WeakSet[AdvisoryLock] = WeakSet()
        self._stages: WeakSet[PostgresStage] = WeakSet()
        self._stamps = Stamps(self.connections)
        self._mutex = disk.ForkLock()
        #: One for each session that this process appends to.
        self._writers: WeakValueDictionary[str, Writer] = WeakValueDictionary()

    def log(self, session_id: str, *, from_trash: bool = False) -> Log:
        names.check_id(session_id)
        return PostgresLog(self, session_id, from_trash=from_trash)

    def prefetch(self, session_ids: Sequence[str]) -> Backend:
        reader = copy(self)
        reader.rows = Prefetch(self.connections, session_ids)
        return reader

    def internal(self, name: str) -> InternalLog:
        return PostgresLog(self, INTERNAL + name)

    def internals(self) -> list[str]:
        return sorted(str(row[0]) for row in self.connections.run(_INTERNALS))

    def exclusive(self, name: str) -> Hold:
        self.check_writable()
        lock = AdvisoryLock(self.connections, "exclusive", name)
        if not lock.acquire(0.0):
            by = ""
            with suppress(HansardError, ConnectionLost):
                for holder in self.connections.attempt(_HOLDER, {"number": lock.number}):
                    by = " by {!r} (connection {}, from {})".format(*holder)
            raise LockTimeout(f"{self.where}: {name!r} is held{by}; close it there, or try again")
        self._locks.add(lock)
        return lock

    def stage(
        self, session_id: str, *, before: int = 0, forked: SessionForked | None = None
    ) -> Stage:
        names.check_id(session_id)
        self.check_writable()
        stage = PostgresStage(self, session_id, before, forked)
        self._stages.add(stage)
        return stage

    def writer(self, session_id: str) -> Writer:
        """Return the writer of a session, which all threads of this process share."""
        with self._mutex.lock:
            found = self._writers.get(session_id)
            if found is None:
                found = self._writers[session_id] = Writer(self, session_id)
            return found

    def ids(self, *, trash: bool = False) -> Iterator[str]:
        after: object = _NO_SESSION
        while True:
            params = {"after": str(after), "deleted": trash, "rows": Int8(_PAGE)}
            rows = self.connections.run(_IDS, params)
            yield from (str(row[1]) for row in rows)
            if len(rows) < _PAGE:
                return
            after = rows[-1][0]

    def stamps(self, session_ids: Iterable[str] | None = None) -> dict[str, str]:
        if session_ids is None:
            return self._stamps.look()
        wanted = [session_number(session_id) for session_id in session_ids]
        rows = self.connections.run(_SOME, {"sessions": wanted}) if wanted else []
        return {found: stamp for _, found, stamp, deleted in rows if found and not deleted}

    def version(self) -> str:
        return "" if self.connections.run(_CHANGED + " LIMIT 1") else _MARKED

    def changed(self, since: str) -> Changed:
        rows = self.connections.run(_CHANGED)
        ids = frozenset(str(row[0]) for row in rows)
        done = partial(self._unmark, rows)
        return Changed(ids, every=since != _MARKED, since=_MARKED, done=done)

    def _unmark(self, rows: list[tuple[object, ...]]) -> None:
        """Remove marks, except of sessions that changed again or are locked."""
        numbers, versions = [row[1] for row in rows], [row[2] for row in rows]
        # If it fails, these sessions are read again.
        with suppress(HansardError, ConnectionLost):
            if rows:
                self.connections.run(_UNMARK, {"sessions": numbers, "versions": versions})

    def delete(
        self,
        session_id: str,
        *,
        expected_seq: int | None = None,
        timeout: float | None = None,
        check: Callable[[], object] = bool,
    ) -> None:
        session = self._to_change(session_id)
        expected = None if expected_seq is None else str(expected_seq)
        params = {"session": session, "expected": expected}
        delete = partial(self._delete, params, timeout, check)
        done, uncertain = self.connections.retry_noting(delete)
        if not done:
            row = self.rows.session(session)
            if row is None:
                raise not_found(session_id)
            if row.deleted or expected_seq is None:
                # It was deleted then, and may have been restored since.
                if not uncertain:
                    raise deleted(session_id)
            elif row.head.seq != expected_seq:
                raise seq_conflict(session_id, expected_seq, row.head.seq)
            else:
                raise LockTimeout(
                    f"{self.where}: session {session_id!r} changed while it was deleted; it was not. Retry"
                )
        self.notifier.tell(session)

    def _to_change(self, session_id: str) -> str:
        """Return the key of a session in the tables; raise if it must not be changed."""
        names.check_id(session_id)
        self.check_writable()
        return session_number(session_id)

    def _delete(
        self, params: dict[str, str | None], timeout: float | None, check: Callable[[], object]
    ) -> bool:
        with locking(self.connections, str(params["session"]), timeout) as connection:
            if connection is None:
                return False
            check()
            query = self.connections.query(_DELETE)
            return connection.execute(query, params).fetchone() is not None

    def restore(self, session_id: str) -> None:
        session = self._to_change(session_id)
        attempt = partial(self.connections.attempt, _RESTORE, {"session": session})
        done, uncertain = self.connections.retry_noting(attempt)
        if not done:
            row = self.rows.session(session) if uncertain else None
            if row is None or row.deleted:
                raise not_found(session_id, "the trash")
        self.notifier.tell(session)

    def purge(self, session_id: str, check: Callable[[], object] = bool) -> None:
        session = self._to_change(session_id)
        done, uncertain = self.connections.retry_noting(partial(self._purge, session, check))
        if not done and not (uncertain and self.rows.session(session) is None):
            raise not_found(session_id, "the trash")
        self.notifier.tell(session)

    def _purge(self, session: str, check: Callable[[], object]) -> bool:
        params = {"session": session}
        with self.connections.own_transaction() as connection:
            connection.execute("SELECT set_config('statement_timeout', '0', true)")
            connection.execute(self.connections.query(schema.SEARCH_PATH))
            # Lock its row first: of a concurrent purge and restore, the second finds what the first did. A
            # fork of it waits, and finds no parent.
            if connection.execute(_LOCK_DELETED, params).fetchone() is None:
                return False
            check()
            # Its mark is deleted with its row, so it is recorded: a concurrent refresh may add rows of it.
            connection.execute(_PURGE, params)
            for table in (b"events", b"checkpoints", b"sessions"):
                connection.execute(
                    b"DELETE FROM %b WHERE session = %%(session)s::uuid" % table, params
                )
        return True

    @contextmanager
    def compacting(self, *, wait: bool = True, vacuum: bool = False) -> Iterator[None]:
        del wait  # a copy of the database sees one moment
        yield
        if vacuum:
            self.check_writable()
            compact.vacuum(self.connections)

    def probe(self) -> Health:
        self.connections.retry(self._probe)
        return Health(self.where, self.durability, not self.read_only, None)

    def _probe(self) -> None:
        with self.connections.using() as connection:
            if self.read_only:
                connection.execute(self.connections.query(_EVERY + " LIMIT 1"))
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
        for lock in list(self._locks):
            lock.close()
        for stage in list(self._stages):
            stage.discard()

    def check_open(self) -> None:
        """Raise if the store was closed."""
        self.connections.check_open()

    def check_writable(self) -> None:
        """Raise `ReadOnly` if the store is read-only."""
        self.check_open()
        if self.read_only:
            raise ReadOnly(
                f"{self.where}: the store is read-only; reopen it without read_only=True"
            )
