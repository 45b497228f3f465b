"""Erase redacted and dropped data from a session's rows, and save its state.

PostgreSQL compresses large rows itself, so a compaction packs nothing (docs/decisions/0018-postgres.md has
the figures): it rewrites the rows of redacted events and of stream parts that are no longer needed. After
the commit no reader sees the old rows. Their bytes stay in the pages of the tables until `vacuum` rewrites
these.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from psycopg.types.numeric import Int8

from hansard.backend.contract import CompactionFilter, CompactionResult, streamed
from hansard.backend.postgres.append import deleted
from hansard.backend.postgres.connection import AdvisoryLock, Connections, DedicatedConnection
from hansard.backend.postgres.read import COLUMNS, SessionRow
from hansard.backend.postgres.server_errors import ConnectionLost
from hansard.errors import BackendUnavailable, LockTimeout, SessionNotFound
from hansard.event.event import Event

if TYPE_CHECKING:
    from hansard.backend.postgres.backend import PostgresBackend

#: Bytes above which the state of a session is saved.
_CHECKPOINT: Final = 256 * 1024

#: Maximum number of times that the changes are computed again because a fork or snapshot needs a part.
_TRIES: Final = 5

#: Seconds between two tries to rewrite a table that an older transaction can see.
_PAUSE: Final = 0.1

#: Maximum rows per statement.
_ROWS: Final = 500

_SELECT: Final = """
SELECT {columns} FROM {schema}.events
WHERE session = %(session)s::uuid AND seq > %(after)s AND seq <= %(upto)s AND ({condition})
ORDER BY seq LIMIT %(rows)s""".replace("{columns}", COLUMNS)

_IN_STREAM: Final = """kind = 'message.added' AND position('"stream":' in data) > 0"""

#: Stream parts, the messages that complete them, and other rows that may have to be rewritten.
_CANDIDATES: Final = _SELECT.replace(
    "{condition}",
    f"kind = 'message.part' OR seq = ANY(%(seqs)b::bigint[]) OR seq < %(bound)s OR {_IN_STREAM}",
)

#: Locks the session's row: appends wait.
_SHRINK: Final = """
UPDATE {schema}.sessions SET bytes = bytes - %(saved)s, rewritten = rewritten + 1, marked = true
WHERE session = %(session)s::uuid AND life = %(life)s AND deleted_at IS NULL RETURNING life"""

_WRITE: Final = """
UPDATE {schema}.events AS e SET data = n.data
FROM unnest(%(seqs)b::bigint[], %(datas)b::text[]) AS n (seq, data)
WHERE e.session = %(session)s::uuid AND e.seq = n.seq"""

DROP_CHECKPOINT: Final = "DELETE FROM {schema}.checkpoints WHERE session = %(session)s::uuid"

_SAVE: Final = """
INSERT INTO {schema}.checkpoints AS c (session, life, seq, stamp, state)
SELECT session, %(life)s, seq, stamp, %(state)b FROM {schema}.events
WHERE session = %(session)s::uuid AND seq = %(seq)s
ON CONFLICT (session) DO UPDATE
SET life = excluded.life, seq = excluded.seq, stamp = excluded.stamp, state = excluded.state"""

#: Only if the event at its seq is still the same: the events may have been restored from a backup.
LOAD_CHECKPOINT: Final = """
SELECT c.seq, c.state FROM {schema}.checkpoints AS c
JOIN {schema}.events AS e ON e.session = c.session AND e.seq = c.seq AND e.stamp = c.stamp
WHERE c.session = %(session)s::uuid AND c.life = %(life)s"""

_TABLES: Final = """
SELECT quote_ident(relname) FROM pg_catalog.pg_class
WHERE relnamespace = to_regnamespace(%(schema)s) AND relkind = 'r' ORDER BY relname"""


class _Change(NamedTuple):
    seq: int
    data: bytes
    #: Bytes by which the row shrinks.
    saved: int


class Compaction:
    """One compaction of one session."""

    def __init__(
        self,
        backend: "PostgresBackend",
        row: SessionRow,
        filter: CompactionFilter,
    ) -> None:
        self._backend = backend
        self._row = row
        self._filter = filter
        #: Finished streams: the seq at which each ended.
        self._ended: dict[str, int] = {}

    def run(
        self,
        progress: Callable[[int, int], None] | None,
        state: Callable[[int], bytes] | None,
        *,
        wait: bool,
    ) -> CompactionResult:
        """Rewrite what has to be; return the result."""
        connections = self._backend.connections
        lock = AdvisoryLock(connections, "compact", self._row.session)
        timeout = connections.lock_timeout if wait else 0.0
        if not lock.acquire(timeout):
            raise LockTimeout(
                f"{self._backend.where}: session {self._row.id!r} is being compacted by another process "
                f"for more than {timeout:g} s; nothing was compacted. Retry later"
            )
        try:
            changes = self._changes()
            for _ in range(_TRIES):
                if not self._filter.has_moved():
                    break
                changes = self._changes()
            self._write(changes, progress)
            if state is not None and self._row.size > _CHECKPOINT:
                seq = self._row.head.seq
                params = {"life": self._row.life, "seq": Int8(seq), "state": state(seq)}
                connections.run(_SAVE, {"session": self._row.session, **params})
        finally:
            lock.close()
        if not changes:
            return CompactionResult(0, 0, 0, 0)
        size, saved = self._row.size, sum(change.saved for change in changes)
        return CompactionResult(size, size - saved, 1, len(changes))

    # -- which rows to rewrite ------------------------------------------------------------------

    def _changes(self) -> list[_Change]:
        for event in self._candidates():
            part = streamed(event)
            if part is not None and part.over:
                self._ended[part.stream] = event.seq
        found = []
        for event in self._candidates():
            data = self._filter.left_of(event, self._ended)
            if data != event.raw:
                found.append(_Change(event.seq, data, len(event.raw) - len(data)))
        return found

    def _candidates(self) -> Iterator[Event]:
        """Yield the rows that may have to be rewritten, at most `_ROWS` per statement."""
        after = self._row.before
        given = {
            "session": self._row.session,
            "upto": Int8(self._row.head.seq),
            "rows": Int8(_ROWS),
            "seqs": [Int8(seq) for seq in sorted(self._filter.seqs)],
            "bound": Int8(self._filter.before),
        }
        while True:
            params = {**given, "after": Int8(after)}
            rows = self._backend.connections.run(_CANDIDATES, params, binary=True)
            yield from (Event(*row[:5]) for row in rows)
            if len(rows) < _ROWS:
                return
            after = rows[-1][0]

    # -- rewriting them -------------------------------------------------------------------------

    def _write(self, changes: list[_Change], progress: Callable[[int, int], None] | None) -> None:
        # In several transactions, so that appends wait only briefly. A crash leaves the rest for next time.
        for start in range(0, len(changes), _ROWS):
            some = changes[start : start + _ROWS]
            self._backend.connections.retry(partial(self._write_some, some))
            if progress is not None:
                progress(min(start + _ROWS, len(changes)), len(changes))

    def _write_some(self, changes: list[_Change]) -> None:
        connections = self._backend.connections
        params = {
            "session": self._row.session,
            "life": self._row.life,
            "saved": Int8(sum(change.saved for change in changes)),
            "seqs": [Int8(change.seq) for change in changes],
            "datas": [change.data.decode() for change in changes],
        }
        with connections.transaction() as connection:
            if connection.execute(connections.query(_SHRINK), params).fetchone() is not None:
                # The saved state may contain what is erased here. `run` saves another.
                connection.execute(connections.query(DROP_CHECKPOINT), params)
                connection.execute(connections.query(_WRITE), params)
                return
        row = self._backend.rows.session(self._row.session)
        if row is not None and row.life == self._row.life:
            raise deleted(self._row.id)
        raise SessionNotFound(f"session {self._row.id!r} was purged during the compaction")


def vacuum(connections: Connections) -> None:
    """Rewrite all tables of a store, so that none of their files contains a byte of an old row.

    Other processes cannot use a table while it is rewritten. Raise if an old row had to stay.
    """
    deadline = time.monotonic() + connections.url.patience
    tables = [str(table) for (table,) in connections.run(_TABLES, {"schema": connections.schema})]
    dedicated = DedicatedConnection(connections)
    try:
        while tables:
            with dedicated.using() as connection:
                connection.execute("SET statement_timeout = 0")
                reason = connection.rewrite(connections.query(f"{{schema}}.{tables[0]}"))
            if not reason:
                del tables[0]
            elif time.monotonic() > deadline:
                raise BackendUnavailable(
                    f"{connections.url.where}: table {tables[0]}: {reason}; the store is compacted, but "
                    "pages may contain erased data. Compact again later, as the owner of the tables"
                )
            else:
                time.sleep(_PAUSE)
    except ConnectionLost as lost:
        raise lost.error from None
    finally:
        dedicated.close()
