"""One session in PostgreSQL. Nothing is cached: every call asks the server."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

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
    RepairHints,
    RepairReport,
    SavedState,
    attempt,
)
from hansard.backend.postgres.append import LATER, PendingInsert, Writer
from hansard.backend.postgres.compact import DROP_CHECKPOINT, LOAD_CHECKPOINT, compact
from hansard.backend.postgres.read import SessionRow
from hansard.backend.postgres.schema import session_number
from hansard.errors import InvalidEvent
from hansard.event import codec
from hansard.event.event import Event, NewEvent
from hansard.log import format
from hansard.log.store_directory import deleted, not_found
from hansard.log.write_batch import seq_conflict

if TYPE_CHECKING:
    from hansard.backend.postgres.backend import PostgresBackend

#: Maximum findings listed per session.
_MAX_FINDINGS: Final = 1000

#: Events per statement of `salvage`.
_SALVAGED: Final = 200

#: Writes a row without changing it: its commit makes all earlier commits durable.
_SYNC: Final = """
UPDATE {schema}.sessions SET last_seq = last_seq WHERE session = %(session)s::uuid"""

#: Continues an internal log with other events, in the place of all there are. With another life: a reader
#: must not report the earlier events as missing.
_REPLACE: Final = """
WITH s AS (
    UPDATE {schema}.sessions
    SET before = last_seq, last_seq = last_seq + %(count)s::bigint, bytes = %(bytes)s::bigint,
        life = gen_random_uuid(), updated = {later}
    WHERE session = %(session)s::uuid AND last_seq = %(expected)s::bigint AND internal
    RETURNING updated
), c AS (
    DELETE FROM {schema}.events
    WHERE session = %(session)s::uuid AND seq <= %(expected)s::bigint AND EXISTS (SELECT FROM s)
), e AS (
    INSERT INTO {schema}.events (session, seq, append_id, append_count, control, stamp, kind, data)
    SELECT %(session)s::uuid, %(expected)s::bigint + e.place,
           CASE e.place WHEN 1 THEN gen_random_uuid() END,
           CASE e.place WHEN 1 THEN %(count)s::integer END, e.control, s.updated, e.kind, e.data
    FROM s, unnest(%(controls)b::boolean[], %(kinds)b::varchar[], %(datas)b::text[])
            WITH ORDINALITY AS e (control, kind, data, place)
)
SELECT updated FROM s""".replace("{later}", LATER)
_DROP: Final = "DELETE FROM {schema}.sessions WHERE session = %(session)s::uuid RETURNING id"
_EMPTY: Final = "DELETE FROM {schema}.events WHERE session = %(session)s::uuid"


class PostgresLog(InternalLog):
    """A session as rows. `from_trash`: for reading only, also from the trash."""

    def __init__(
        self, backend: "PostgresBackend", session_id: str, *, from_trash: bool = False
    ) -> None:
        self.session_id = session_id
        self._backend = backend
        self._from_trash = from_trash
        self._session = session_number(session_id)
        self._writer: Writer | None = None

    def append(self, request: AppendRequest) -> list[Event]:
        (append,) = self._do((request,))
        return self._events_of(append)

    def append_many(self, requests: Sequence[AppendRequest]) -> list[list[Event] | Exception]:
        return [attempt(self._events_of, append) for append in self._do(requests)]

    def _events_of(self, append: PendingInsert) -> list[Event]:
        try:
            return append.outcome()
        except Exception:
            self._backend.counters.errors += 1
            raise

    def _do(self, requests: Sequence[AppendRequest]) -> list[PendingInsert]:
        self._backend.check_writable()
        appends = [PendingInsert(request) for request in requests]
        wanted = [append for append in appends if append.events is None]
        if wanted:
            if self._writer is None:
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
        if not self._backend.connections.run(_REPLACE, params):
            row = self._row()
            if row is None:
                raise not_found(self.session_id)
            raise seq_conflict(self.session_id, expected_seq, row.head.seq)

    def drop(self) -> bool:
        self._backend.check_writable()
        return self._backend.connections.retry(self._drop)

    def _drop(self) -> bool:
        connections, params = self._backend.connections, {"session": self._session}
        with connections.transaction() as connection:
            # Its row first: that locks out appends.
            row = connection.execute(connections.query(_DROP), params).fetchone()
            connection.execute(connections.query(_EMPTY), params)
        return row is not None

    def sync(self) -> None:
        self._row()
        if not self._backend.read_only:
            self._run(_SYNC)

    def reader(self) -> LogReader:
        self._backend.counters.reads += 1
        return PostgresReader(self._backend, self.session_id, self._row())

    def wait(self, after: int, timeout: float) -> bool:
        def has_grown() -> bool:
            row = self._row()
            return row is not None and row.head.seq > after

        return self._backend.notifier.wait(self._session, has_grown, timeout)

    def salvage(self) -> Iterator[Event | Finding]:
        row = self._row()
        if row is None:
            return
        after = row.before
        while True:
            events = self._backend.rows.events(self._session, after, _SALVAGED)
            for event in events:
                if event.seq != after + 1:
                    yield self._missing(after + 1, event.seq - 1)
                after = event.seq
                try:
                    msgspec.json.decode(event.raw, type=dict)
                    yield event
                except format.DECODE_ERRORS as error:
                    yield self._finding(f"event {event.seq} is not readable: {error}")
            if not events:
                break
        if after < row.head.seq:
            yield self._missing(after + 1, row.head.seq)
        elif after > row.head.seq:
            # Appended since the row was read, or damage.
            row = self._row()
            if row is not None and after > row.head.seq:
                yield self._finding(
                    f"the session's row ends at seq {row.head.seq}, but there are events up to {after}"
                )

    def verify(self) -> list[Finding]:
        if self._row() is None:
            raise not_found(self.session_id)
        findings: list[Finding] = []
        for found in self.salvage():
            if not isinstance(found, Finding):
                try:
                    codec.check_keys(found.raw, f"event {found.seq}")
                    continue
                except InvalidEvent as error:
                    found = self._finding(f"{error}; {DUPLICATE}")  # noqa: PLW2901 - replaced by its finding
            findings.append(found)
            if len(findings) >= _MAX_FINDINGS:
                break
        return findings

    def repair(self, known: RepairHints, *, missing: bool) -> RepairReport:
        self._backend.check_writable()
        if known.wrong_checkpoint:
            self._run(DROP_CHECKPOINT)
        return super().repair(known, missing=missing)

    def compact(
        self,
        filter: CompactionFilter,
        *,
        level: int,
        progress: Callable[[int, int], None] | None = None,
        state: Callable[[int], bytes] | None = None,
        wait: bool = True,
        always: bool = True,
    ) -> CompactionResult:
        # PostgreSQL compresses large rows automatically.
        del level, always
        self._backend.check_writable()
        row = self._row()
        if row is None:
            raise not_found(self.session_id)
        return compact(self._backend, row, filter, progress, state, wait=wait)

    def _run(self, text: str) -> list[tuple[object, ...]]:
        return self._backend.connections.run(text, {"session": self._session})

    def _row(self) -> SessionRow | None:
        """Return the session's row; raise `SessionDeleted` if it is in the trash, unless `from_trash`."""
        row = self._backend.rows.session(self._session)
        if row is not None and row.deleted and not self._from_trash:
            raise deleted(self.session_id)
        return row

    def _missing(self, first: int, last: int) -> Finding:
        what = f"event {first} is" if first == last else f"events {first} to {last} are"
        return self._finding(f"{what} missing")

    def _finding(self, reason: str) -> Finding:
        where = f"{self._backend.where} (session {self.session_id!r})"
        return Finding("damage", where, 0, 0, reason)


class PostgresReader(LogReader):
    """A session at the moment at which its row was read: it yields no later event."""

    __slots__ = ("_backend", "_row", "session_id")

    def __init__(self, backend: "PostgresBackend", session_id: str, row: SessionRow | None) -> None:
        self.session_id = session_id
        self._backend = backend
        self._row = row

    def head(self) -> Head | None:
        return None if self._row is None else self._row.head

    def first(self) -> Event | None:
        if self._row is not None and self._row.first is None:
            raise self._backend.rows.damaged(self._row, "its first event is missing")
        return None if self._row is None else self._row.first

    def checkpoint(self) -> SavedState | None:
        if self._row is None or not self._row.checkpointed:
            return None
        params = {"session": self._row.session, "life": self._row.life}
        rows = self._backend.connections.run(LOAD_CHECKPOINT, params, binary=True)
        where = f"{self._backend.where}/checkpoints (session {self.session_id!r})"
        return SavedState(rows[0][0], rows[0][1], where) if rows else None

    def controls(self, upto: int | None = None, *, after: int = 0) -> list[Event]:
        if self._row is None:
            return []
        begin, end = self._bounds(self._row, after, upto)
        return self._backend.rows.controls(self._row, begin, end)

    def read(
        self, after: int = 0, upto: int | None = None, *, back: bool = False
    ) -> Iterator[Chunk]:
        if self._row is not None:
            begin, end = self._bounds(self._row, after, upto)
            yield from self._backend.rows.chunks(self._row, begin, end, back=back)

    def size(self, *, unpacked: bool = False) -> int:
        del unpacked  # the server does not tell how much it compresses
        return 0 if self._row is None else self._row.size

    def _bounds(self, row: SessionRow, after: int, upto: int | None) -> tuple[int, int]:
        """Return the seqs between which to read."""
        seq = row.head.seq
        return max(after, row.before), seq if upto is None else min(max(upto, 0), seq)
