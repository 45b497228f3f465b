"""Rid a session's rows of what is to be forgotten, and save what its events add up to.

Above: `log`.  Below: `reads`, `connections`, `statements`.
PostgreSQL compresses large rows by itself, so nothing is packed here (docs/decisions/0018-postgres.md has
the figures): a compaction writes anew the rows of events whose data were taken out, and of parts whose
message is whole. The old versions of these rows are gone for every reader when that is committed; the
server frees their place when it vacuums the table, which is asked for here and done in its own time if it
is refused.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
import psycopg
from psycopg.types.numeric import Int8

from hansard.backend.contract import CompactionFilter, CompactionResult
from hansard.backend.postgres import statements
from hansard.backend.postgres.append import deleted
from hansard.backend.postgres.connection import AdvisoryLock, Connection
from hansard.backend.postgres.errors import ConnectionLost
from hansard.backend.postgres.reads import Row, Standing, event_of
from hansard.errors import HansardError, LockTimeout, SessionNotFound
from hansard.event import kinds
from hansard.event.kinds import MESSAGE_ADDED, MESSAGE_PART

if TYPE_CHECKING:
    from hansard.backend.postgres.backend import PostgresBackend

#: A state is saved for sessions of more bytes: others are read in a moment.
_CHECKPOINT: Final = 256 * 1024

#: How often all is looked at once more because somebody came to need what was to be left out.
_TRIES: Final = 5

#: So many rows are looked at, and written, at a time.
_ROWS: Final = 500

#: The rows in which something may have to be forgotten. `said`: whether all before a seq may.
_CANDIDATES: Final = """
SELECT {columns} FROM {schema}.events
WHERE session = %(session)s::uuid AND seq > %(after)s AND seq <= %(upto)s
  AND (kind = 'message.part' OR seq = ANY(%(seqs)b::bigint[]) OR seq < %(bound)s
       OR (%(streams)s AND kind = 'message.added' AND position('"stream":' in data) > 0))
ORDER BY seq LIMIT %(rows)s"""

#: Where streams end; only sessions that have parts are asked.
_ENDS: Final = """
SELECT {columns} FROM {schema}.events
WHERE session = %(session)s::uuid AND seq > %(after)s AND seq <= %(upto)s
  AND (kind = 'message.part' OR (kind = 'message.added' AND position('"stream":' in data) > 0))
ORDER BY seq LIMIT %(rows)s"""

_WRITE: Final = """
UPDATE {schema}.events AS e SET data = n.data
FROM unnest(%(seqs)b::bigint[], %(datas)b::text[]) AS n (seq, data)
WHERE e.session = %(session)s::uuid AND e.seq = n.seq"""

_SHRINK: Final = """
UPDATE {schema}.sessions SET bytes = bytes - %(gone)s, rewritten = rewritten + 1, marked = true
WHERE session = %(session)s::uuid AND life = %(life)s"""

_LOCK: Final = """
SELECT deleted_at IS NOT NULL FROM {schema}.sessions
WHERE session = %(session)s::uuid AND life = %(life)s FOR NO KEY UPDATE"""

_DROP: Final = "DELETE FROM {schema}.checkpoints WHERE session = %(session)s::uuid"

_SAVE: Final = """
INSERT INTO {schema}.checkpoints AS c (session, life, seq, stamp, state)
SELECT session, %(life)s, seq, stamp, %(state)b FROM {schema}.events
WHERE session = %(session)s::uuid AND seq = %(seq)s
ON CONFLICT (session) DO UPDATE
SET life = excluded.life, seq = excluded.seq, stamp = excluded.stamp, state = excluded.state"""

#: Only if the event at its seq is the one that was there: the events may have been restored without it.
_LOAD: Final = """
SELECT c.seq, c.state FROM {schema}.checkpoints AS c
JOIN {schema}.events AS e ON e.session = c.session AND e.seq = c.seq AND e.stamp = c.stamp
WHERE c.session = %(session)s::uuid AND c.life = %(life)s"""

_VACUUM: Final = "VACUUM (TRUNCATE false) {schema}.events"


class _Change(NamedTuple):
    seq: int
    data: bytes
    #: By how many bytes the row gets smaller.
    gone: int
    kind: str


class _Begun(msgspec.Struct, omit_defaults=True):
    """What is left of a part: whose it is, and, of the first one, how the message began."""

    stream: str
    message: dict[str, msgspec.Raw] | None = None


_decode_begun = msgspec.json.Decoder(_Begun).decode


class Compaction:
    """One compaction of one session."""

    def __init__(
        self,
        backend: "PostgresBackend",
        session_id: str,
        session: str,
        standing: Standing,
        filter: CompactionFilter,
    ) -> None:
        self._backend = backend
        self._session_id = session_id
        self._session = session
        self._standing = standing
        self._filter = filter
        #: Streams that are over, with the seq of their end.
        self._ended: dict[str, int] = {}

    def run(
        self,
        progress: Callable[[int, int], None] | None,
        state: Callable[[int], bytes] | None,
        *,
        wait: bool,
    ) -> CompactionResult:
        """Write anew what has to be; return what came of it."""
        with self._exclusive(wait=wait):
            changes = self._settled()
            if changes:
                self._write(changes, progress)
                self._vacuum()
            if state is not None and self._standing.head.size > _CHECKPOINT:
                self._save(state)
        return self._told(changes)

    def plan(self) -> CompactionResult:
        """Say what `run` would write anew; write nothing."""
        return self._told(self._changes())

    def _told(self, changes: list[_Change]) -> CompactionResult:
        if not changes:
            return CompactionResult(0, 0, 0, 0)
        size = self._standing.head.size
        gone = sum(change.gone for change in changes)
        return CompactionResult(size, size - gone, 1, len(changes))

    @contextmanager
    def _exclusive(self, *, wait: bool) -> Iterator[None]:
        """Keep other compactors of the session away."""
        connections = self._backend.connections
        lock = AdvisoryLock(connections, "compact", self._backend.schema, self._session)
        timeout = connections.lock_timeout if wait else 0.0
        if not lock.acquire(timeout):
            raise LockTimeout(
                f"{self._backend.where}: session {self._session_id!r} is being compacted by another process "
                f"for more than {timeout:g} s; nothing was compacted. Retry later"
            )
        try:
            yield
        finally:
            lock.release()

    # -- what to do -----------------------------------------------------------------------------

    def _settled(self) -> list[_Change]:
        """Return what is to be written, when nobody has come to need something else meanwhile."""
        changes = self._changes()
        for _ in range(_TRIES):
            if not self._filter.has_moved():
                break
            changes = self._changes()
        return changes

    def _changes(self) -> list[_Change]:
        filter = self._filter
        if self._ended or self._has_parts():
            self._look_for_ends()
        found = []
        seqs = sorted(filter.seqs)
        for row in self._rows(
            _CANDIDATES,
            {
                "seqs": [Int8(seq) for seq in seqs],
                "bound": Int8(filter.before),
                "streams": bool(filter.streams),
            },
        ):
            data = self._blank(row)
            if data is not None and data != row.data:
                found.append(_Change(row.seq, data, len(row.data) - len(data), row.kind))
        return found

    def _has_parts(self) -> bool:
        return next(self._rows(_ENDS, {}), None) is not None

    def _look_for_ends(self) -> None:
        """Learn which streams are over."""
        for row in self._rows(_ENDS, {}):
            if row.kind == MESSAGE_PART:
                part = kinds.read(MESSAGE_PART, row.data)
                if part is not None and part.over:
                    self._ended[part.stream] = row.seq
            else:
                added = kinds.read(MESSAGE_ADDED, row.data)
                if added is not None and added.stream is not None:
                    self._ended[added.stream] = row.seq

    def _blank(self, row: Row) -> bytes | None:
        """Return what is to stand in the place of an event's data; None if they stay."""
        if row.kind == MESSAGE_PART and row.seq >= self._filter.before:
            part = kinds.read(MESSAGE_PART, row.data)
            if part is None:
                return None
            if part.stream not in self._filter.streams:
                ended = self._ended.get(part.stream)
                if ended is None or not self._filter.drop_part(row.seq, ended):
                    return None
                if part.over or not part.text:
                    return None  # it says what must be known, or was emptied before
                return msgspec.json.encode(_decode_begun(row.data))
        event = event_of(row)
        masked = self._filter.mask(event)
        return None if masked is event else masked.raw

    def _rows(self, text: str, params: dict[str, object]) -> Iterator[Row]:
        """Yield the rows that a statement chooses, some at a time."""
        query = statements.statement(self._backend.schema, text)
        after = self._standing.before
        given = {
            **params,
            "session": self._session,
            "upto": Int8(self._standing.head.seq),
            "rows": Int8(_ROWS),
        }
        while True:
            rows = self._backend.connections.run(
                query, {**given, "after": Int8(after)}, binary=True
            )
            yield from (Row._make(row) for row in rows)
            if len(rows) < _ROWS:
                return
            after = rows[-1][0]

    # -- doing it -------------------------------------------------------------------------------

    def _write(self, changes: list[_Change], progress: Callable[[int, int], None] | None) -> None:
        # Some at a time, so that appends wait for moments only. Whoever dies in between leaves the rest.
        for start in range(0, len(changes), _ROWS):
            some = changes[start : start + _ROWS]
            self._backend.connections.retry(lambda some=some: self._write_some(some))  # type: ignore[misc]
            if progress is not None:
                progress(min(start + _ROWS, len(changes)), len(changes))

    def _write_some(self, changes: list[_Change]) -> None:
        with self._backend.connections.transaction() as connection:
            self._lock(connection)
            # It may hold what is to be forgotten, and must not outlive it; another is written at the end.
            self._execute(connection, _DROP)
            self._execute(
                connection,
                _WRITE,
                seqs=[Int8(change.seq) for change in changes],
                datas=[change.data.decode() for change in changes],
            )
            gone = sum(change.gone for change in changes)
            self._execute(connection, _SHRINK, gone=Int8(gone), life=self._standing.life)

    def _lock(self, connection: Connection) -> None:
        found = self._execute(connection, _LOCK, life=self._standing.life)
        row = found.fetchone()
        if row is None:
            raise SessionNotFound(f"session {self._session_id!r} was purged meanwhile")
        if row[0]:
            raise deleted(self._session_id)

    def _save(self, state: Callable[[int], bytes]) -> None:
        seq = self._standing.head.seq
        saved = state(seq)
        query = statements.statement(self._backend.schema, _SAVE)
        params = {
            "session": self._session,
            "life": self._standing.life,
            "seq": Int8(seq),
            "state": saved,
        }
        self._backend.connections.run(query, params)

    def _vacuum(self) -> None:
        """Ask the server to free the place of what was forgotten; autovacuum does it if this is refused."""
        try:
            with self._backend.connections.using() as connection:
                connection.execute("SET statement_timeout = 0")
                try:
                    connection.execute(
                        statements.statement(self._backend.schema, _VACUUM), prepare=False
                    )
                finally:
                    connection.execute("RESET statement_timeout")
        except (HansardError, ConnectionLost):
            pass

    def _execute(
        self, connection: Connection, text: str, **params: object
    ) -> "psycopg.Cursor[tuple[object, ...]]":
        query = statements.statement(self._backend.schema, text)
        return connection.execute(query, {"session": self._session, **params})


def checkpoint(
    backend: "PostgresBackend", session: str, standing: Standing
) -> tuple[int, bytes] | None:
    """Return the state that the last compaction saved, and its seq."""
    query = statements.statement(backend.schema, _LOAD)
    rows = backend.connections.run(query, {"session": session, "life": standing.life}, binary=True)
    return (rows[0][0], rows[0][1]) if rows else None


def drop_checkpoint(backend: "PostgresBackend", session: str) -> None:
    """Remove it."""
    backend.connections.run(statements.statement(backend.schema, _DROP), {"session": session})
