"""One session in PostgreSQL.

It keeps nothing: what it says is what the server says now.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from hansard.backend.contract import (
    DUPLICATE,
    AppendRequest,
    Chunk,
    CompactionFilter,
    CompactionResult,
    Finding,
    Head,
    InternalLog,
    LogReader,
    attempt,
)
from hansard.backend.postgres import compact, statements
from hansard.backend.postgres.append import PendingInsert, Writer, deleted, session_number
from hansard.backend.postgres.reads import Purged, Standing
from hansard.errors import InvalidEvent, SessionNotFound
from hansard.event import codec
from hansard.event.envelope import Event, NewEvent
from hansard.log.append_request import seq_conflict

if TYPE_CHECKING:
    from hansard.backend.postgres.backend import PostgresBackend

#: So many findings are listed for one session.
_MAX_FINDINGS: Final = 1000

#: A row that says what it said is a row written: its commit takes all before it to the disk.
_SYNC: Final = """
UPDATE {schema}.sessions SET last_seq = last_seq WHERE session = %(session)s::uuid"""

#: Another life: a reader of the events before must not take them for missing.
_CONTINUE: Final = """
UPDATE {schema}.sessions
SET before = last_seq, last_seq = last_seq + %(count)s::bigint, bytes = %(bytes)s::bigint,
    life = gen_random_uuid(), updated = {later}
WHERE session = %(session)s::uuid AND last_seq = %(expected)s::bigint AND internal
RETURNING updated""".replace("{later}", statements.LATER)
_CLEAR: Final = """
DELETE FROM {schema}.events
WHERE session = %(session)s::uuid AND seq <= %(expected)s::bigint"""
_FILL: Final = """
INSERT INTO {schema}.events (session, seq, append_id, append_count, control, stamp, kind, data)
SELECT %(session)s::uuid, %(expected)s::bigint + e.place,
       CASE e.place WHEN 1 THEN gen_random_uuid() END,
       CASE e.place WHEN 1 THEN %(count)s::integer END, e.control, %(stamp)s, e.kind, e.data
FROM unnest(%(controls)b::boolean[], %(kinds)b::varchar[], %(datas)b::text[])
     WITH ORDINALITY AS e (control, kind, data, place)"""

_FREE: Final = """
SELECT 1 FROM {schema}.sessions WHERE session = %(session)s::uuid FOR NO KEY UPDATE SKIP LOCKED"""


class PostgresLog(InternalLog):
    """A session as rows. `buried`: only to read, and also from the trash."""

    __slots__ = ("__weakref__", "_backend", "_buried", "_session", "_writer", "session_id")

    def __init__(
        self, backend: "PostgresBackend", session_id: str, *, buried: bool = False
    ) -> None:
        self.session_id = session_id
        self._backend = backend
        self._buried = buried
        self._session = session_number(session_id)
        self._writer: Writer | None = None

    # -- writing --------------------------------------------------------------------------------

    def append(self, request: AppendRequest) -> list[Event]:
        (append,) = self._do((request,))
        return append.outcome()

    def append_many(self, requests: Sequence[AppendRequest]) -> list[list[Event] | Exception]:
        return [attempt(PendingInsert.outcome, append) for append in self._do(requests)]

    def _do(self, requests: Sequence[AppendRequest]) -> list[PendingInsert]:
        self._backend.check_writable()
        appends = [PendingInsert(request) for request in requests]
        wanted = [append for append in appends if append.events is None]
        if wanted:
            if self._writer is None or self._writer.pid != os.getpid():
                self._writer = self._backend.writer(self.session_id)
            self._writer.append(wanted)
        return appends

    def replace(self, events: Sequence[NewEvent], *, expected_seq: int) -> None:
        self._backend.check_writable()
        params: dict[str, object] = {
            "session": self._session,
            "expected": str(expected_seq),
            "count": str(len(events)),
            "bytes": str(sum(len(one.data) for one in events)),
            "controls": [one.control for one in events],
            "kinds": [one.kind for one in events],
            "datas": [one.data.decode() for one in events],
        }
        if not self._backend.connections.retry(lambda: self._replace(params)):
            standing = self._standing()
            if standing is None:
                raise SessionNotFound(f"no log {self.session_id!r} in this store")
            raise seq_conflict(self.session_id, expected_seq, standing.head.seq)

    def _replace(self, params: dict[str, object]) -> bool:
        schema = self._backend.schema
        connections = self._backend.connections
        with connections.using() as connection, connection.transaction():
            found = connection.execute(statements.statement(schema, _CONTINUE), params).fetchone()
            if found is not None:
                connection.execute(statements.statement(schema, _CLEAR), params)
                filled = {**params, "stamp": found[0]}
                connection.execute(statements.statement(schema, _FILL), filled)
        return found is not None

    def sync(self) -> None:
        self._standing()
        if not self._backend.read_only:
            self._run(_SYNC)

    # -- reading --------------------------------------------------------------------------------

    def reader(self) -> LogReader:
        return PostgresReader(self._backend, self.session_id, self._session, self._standing())

    def wait(self, after: int, timeout: float) -> bool:
        return self._backend.notifier.wait(self._session, lambda: self._is_behind(after), timeout)

    def _is_behind(self, after: int) -> bool:
        standing = self._standing()
        return standing is not None and standing.head.seq > after

    def is_busy(self) -> bool:
        if self._standing() is None or self._backend.read_only:
            return False
        return not self._run(_FREE)

    # -- looking after it -----------------------------------------------------------------------

    def salvage(self) -> Iterator[Event | Finding]:
        standing = self._standing()
        if standing is None:
            return
        after = standing.before
        while True:
            rows = self._backend.reads.survivors(self._session, after)
            for event in rows:
                if event.seq != after + 1:
                    yield self._missing(after + 1, event.seq - 1)
                after = event.seq
                reason = _unreadable(event)
                yield self._finding(f"event {event.seq} {reason}") if reason else event
            if not rows:
                break
        if after < standing.head.seq:
            yield self._missing(after + 1, standing.head.seq)
        elif after > standing.head.seq:
            # What was appended meanwhile: the row is read before the events.
            again = self._standing()
            if again is not None and after > again.head.seq:
                yield self._finding(
                    f"the session's row says {again.head.seq} and there are events up to {after}"
                )

    def verify(self) -> list[Finding]:
        if self._standing() is None:
            raise SessionNotFound(f"no session {self.session_id!r} in this store")
        findings: list[Finding] = []
        for found in self.salvage():
            if not isinstance(found, Finding):
                try:
                    codec.check_keys(found.raw, f"event {found.seq}")
                    continue
                except InvalidEvent as error:
                    found = self._finding(f"{error}; {DUPLICATE}")  # noqa: PLW2901 - what it is
            findings.append(found)
            if len(findings) >= _MAX_FINDINGS:
                break
        return findings

    def checkpoint_file(self) -> str:
        return f"{self._backend.where}/checkpoints (session {self._session})"

    def drop_checkpoint(self) -> None:
        self._backend.check_writable()
        compact.drop_checkpoint(self._backend, self._session)

    def compact(
        self,
        filter: CompactionFilter,
        *,
        level: int,
        progress: Callable[[int, int], None] | None = None,
        state: Callable[[int], bytes] | None = None,
        wait: bool = True,
        dry_run: bool = False,
    ) -> CompactionResult:
        # PostgreSQL compresses large rows automatically.
        del level
        if not dry_run:
            self._backend.check_writable()
        standing = self._standing()
        if standing is None:
            raise SessionNotFound(f"no session {self.session_id!r} in this store")
        found = compact.Compaction(self._backend, self.session_id, self._session, standing, filter)
        return found.plan() if dry_run else found.run(progress, state, wait=wait)

    def _run(self, text: str) -> list[tuple[object, ...]]:
        query = statements.statement(self._backend.schema, text)
        return self._backend.connections.run(query, {"session": self._session})

    def _standing(self) -> Standing | None:
        """Return the session's row; raises if it is in the trash, and not to be read there."""
        standing = self._backend.reads.standing(self._session)
        if standing is not None:
            self._check(deleted=standing.deleted)
        return standing

    def _check(self, *, deleted: bool) -> None:
        if deleted and not self._buried:
            raise _deleted(self.session_id)

    def _missing(self, first: int, last: int) -> Finding:
        what = f"event {first} is" if first == last else f"events {first} to {last} are"
        return self._finding(f"{what} missing")

    def _finding(self, reason: str) -> Finding:
        where = f"{self._backend.where} (session {self.session_id!r})"
        return Finding("damage", where, 0, 0, reason)


_deleted = deleted


class PostgresReader(LogReader):
    """A session as its row said at one moment: no later event is read."""

    __slots__ = ("_backend", "_session", "_standing", "session_id")

    def __init__(
        self, backend: "PostgresBackend", session_id: str, session: str, standing: Standing | None
    ) -> None:
        self.session_id = session_id
        self._backend = backend
        self._session = session
        self._standing = standing

    def head(self) -> Head | None:
        return None if self._standing is None else self._standing.head

    def first(self) -> Event | None:
        if self._standing is not None and self._standing.first is None:
            raise self._backend.reads.damaged(self._session, "its first event is missing")
        return None if self._standing is None else self._standing.first

    def checkpoint(self) -> tuple[int, bytes] | None:
        standing = self._standing
        if standing is None or not self._backend.reads.may_have_checkpoint(self._session):
            return None
        return compact.checkpoint(self._backend, self._session, standing)

    def controls(self, upto: int | None = None, *, after: int = 0) -> list[Event]:
        if self._standing is None:
            return []
        begin, end = self._bounds(self._standing, after, upto)
        with self._not_purged():
            return self._backend.reads.controls(self._session, self._standing.life, begin, end)

    def read(self, after: int = 0, upto: int | None = None) -> Iterator[Chunk]:
        yield from self._chunks(self._backend.reads.forwards, after, upto)

    def read_back(self, upto: int | None = None, after: int = 0) -> Iterator[Chunk]:
        yield from self._chunks(self._backend.reads.backwards, after, upto)

    def size(self, *, unpacked: bool = False) -> int:
        del unpacked  # what the server compresses it does not tell
        return 0 if self._standing is None else self._standing.size

    def _chunks(
        self,
        read: Callable[[str, UUID, int, int], Iterator[Chunk]],
        after: int,
        upto: int | None,
    ) -> Iterator[Chunk]:
        if self._standing is not None:
            begin, end = self._bounds(self._standing, after, upto)
            with self._not_purged():
                yield from read(self._session, self._standing.life, begin, end)

    def _bounds(self, standing: Standing, after: int, upto: int | None) -> tuple[int, int]:
        """Return between which seqs a reading lies."""
        seq = standing.head.seq
        return max(after, standing.before), seq if upto is None else min(max(upto, 0), seq)

    @contextmanager
    def _not_purged(self) -> Iterator[None]:
        try:
            yield
        except Purged:
            raise SessionNotFound(
                f"session {self.session_id!r} was purged while it was read"
            ) from None


def _unreadable(event: Event) -> str:
    """Return what is wrong with an event's data; empty if nothing is."""
    try:
        msgspec.json.decode(event.raw, type=dict)
    except msgspec.MsgspecError as error:
        return f"cannot be read: {error}"
    return ""
