"""Bring the texts that a search finds up to date with the logs.

The catalog lists which sessions have changed (`index_unread`). Each is read on from where it was left, in
steps: a step is a transaction that ends after some megabytes, so memory is bounded, other processes get
their turn, and an interruption loses one step. A step reads the texts inside the transaction that stores
them.

A text is stored once, with the log that it was added to. A fork adds what it shows differently: messages
that it scrubbed, and streams that were unfinished where it was forked. Texts of a session in the trash stay
until they are erased (`erase`). A rebuilt index has only those that forks of it show.

A stream counts as finished when another event follows it: parts at the end of a log are not read yet. If it
never ends, its parts up to that event are its text.
"""

import sqlite3
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from hansard.backend.contract import Backend, Head, LogReader, StreamPart, streamed
from hansard.errors import UNREADABLE, SessionDeleted
from hansard.event import kinds
from hansard.event.event import Event
from hansard.event.kinds import (
    MESSAGE_ADDED,
    MESSAGE_PART,
    MESSAGE_REDACTED,
    SESSION_REPAIRED,
    SUMMARY_ADDED,
    SessionForked,
)
from hansard.index.sqlite_storage import RESIDUE, Storage
from hansard.message import search_text
from hansard.state import lineage, redaction
from hansard.state.fork_graph import ForkGraph
from hansard.state.redaction import Redactions
from hansard.state.view import StreamAssembler

Progress = Callable[[int, int], None]
Answer = TypeVar("Answer")

#: Characters that one step reads, and texts that it removes.
STEP: Final = 8 << 20
REMOVED: Final = 5_000

#: The cost of an event without text, in characters.
_EVENT: Final = 100

#: Texts, and characters, that are written together.
_TOGETHER: Final = 200
_MOST: Final = 1 << 20

#: Attempts to find nothing new right after everything new was read.
_TRIES: Final = 4

#: Sessions of a step that are announced before they are read (`Backend.prefetch`).
_AHEAD: Final = 10_000

#: The key under which it is noted that forks may lack texts of sessions in the trash.
UNSETTLED: Final = "unsettled"

#: The position when nothing is left to read.
_DONE: Final = ()


def refresh(backend: Backend, storage: Storage, progress: Progress | None = None) -> None:
    """Read what is new in all sessions.

    `progress` is called with the number of events read, and their total, unless nothing is new.
    """
    storage.full_text.prepare()
    meter = None if progress is None else _Meter(storage, progress)
    while _is_behind(storage):
        with storage.changing():
            _advance(backend, storage, meter)
    if meter is not None:
        meter.end()


def answer(
    backend: Backend,
    storage: Storage,
    question: Callable[[Storage], Answer],
    progress: Progress | None = None,
) -> Answer:
    """Bring everything up to date, and ask an index of which nothing is half read."""
    for _ in range(_TRIES):
        refresh(backend, storage, progress)
        with storage.reading():
            if not _is_behind(storage):
                return question(storage)
    # Other processes write all the time: keep them out for a moment.
    with storage.changing():
        while _is_behind(storage):
            _advance(backend, storage, None)
        return question(storage)


def has_residue(storage: Storage) -> bool:
    """Return whether the index may hold bytes that were erased from the logs."""
    if storage.get(RESIDUE):
        return True
    if not storage.full_text.exists():
        return False
    # An unfinished stream of a session that has changed may have been discarded.
    row = storage.one(
        "SELECT 1 FROM index_unread u JOIN index_log k ON k.id = u.id "
        "JOIN index_text d ON d.log = k.log WHERE d.stream <> '' LIMIT 1"
    )
    return row is not None


def erase(storage: Storage) -> None:
    """Remove all texts, and how far each log was read, in one transaction; the next search reads the logs."""
    if storage.full_text.exists():
        with storage.changing():
            storage.full_text.drop()
            storage.do("DELETE FROM index_text")
            storage.do("DELETE FROM index_log")
            storage.do(
                "INSERT INTO index_unread SELECT id FROM index_session WHERE TRUE "
                "ON CONFLICT DO NOTHING"
            )


def _advance(backend: Backend, storage: Storage, meter: "_Meter | None") -> None:
    """Do one step. An index that is the same afterwards is damaged: reading would never end."""
    before = _position(storage)
    if before == _DONE:
        return  # another process did it concurrently
    _Step(backend, storage, meter).run()
    if _position(storage) == before:
        raise sqlite3.DatabaseError(f"damaged: reading makes no progress at {before}")


def _position(storage: Storage) -> tuple[object, ...]:
    """Return how far reading is: every step that has something to do changes it."""
    session_id = _next(storage)
    if session_id is None:
        if not storage.get(UNSETTLED):
            return _DONE
        return None, *storage.one("SELECT count(*), sum(seq) FROM index_log")
    row = storage.one("SELECT log, seq FROM index_log WHERE id = ?", session_id) or (0, 0)
    texts = storage.one("SELECT count(*) FROM index_text WHERE log = ?", row[0])
    return session_id, *row, *texts


def _is_behind(storage: Storage) -> bool:
    return _next(storage) is not None or bool(storage.get(UNSETTLED))


def _next(storage: Storage) -> str | None:
    """Return a session to read; None if there is none."""
    row = storage.one("SELECT id FROM index_unread ORDER BY id LIMIT 1")
    return None if row is None else row[0]


class _Meter:
    """Counts the events that are read, for a caller's `progress`."""

    def __init__(self, storage: Storage, progress: Progress) -> None:
        self._progress = progress
        rows = storage.all(
            "SELECT u.id, coalesce(s.seq, 0), coalesce(k.seq, 0) FROM index_unread u "
            "LEFT JOIN index_session s ON s.id = u.id LEFT JOIN index_log k ON k.id = u.id"
        )
        self._left = {found: max(seq - max(read, 0), 1) for found, seq, read in rows}
        self._total = sum(self._left.values())
        self._done = 0

    def count(self, session_id: str, events: int) -> None:
        """Add events that were read."""
        counted = min(events, self._left.get(session_id, 0))
        if counted:
            self._left[session_id] -= counted
            self._done += counted
            self._progress(self._done, self._total)

    def finish(self, session_id: str) -> None:
        """Count the rest of a session."""
        self.count(session_id, self._left.get(session_id, 0))

    def end(self) -> None:
        """Report that nothing is left, even if another process read it."""
        if self._done < self._total:
            self._progress(self._total, self._total)


class _Step:
    """One transaction: some of what is new."""

    def __init__(self, backend: Backend, storage: Storage, meter: _Meter | None) -> None:
        self._storage = storage
        self._meter = meter
        # The next ones, in the order in which they are read.
        rows = storage.all("SELECT id FROM index_unread ORDER BY id LIMIT ?", _AHEAD)
        self._rows = TextRows(storage)
        self._indexer = TextIndexer(
            backend.unscoped.prefetch([found for (found,) in rows]), self._rows
        )

    def run(self) -> None:
        """Read sessions until the step is full or none is left; then those in the trash that forks need."""
        storage = self._storage
        done = None
        while not self._rows.is_full():
            session_id = _next(storage)
            if session_id is None:
                if storage.get(UNSETTLED) and self._settle():
                    storage.put(UNSETTLED, 0)
                break
            if session_id == done:
                # SQLite searches for it where it should be, and it is elsewhere.
                raise sqlite3.DatabaseError(f"damaged: cannot remove {session_id!r} from a list")
            if self._read(session_id):
                storage.do("DELETE FROM index_unread WHERE id = ?", session_id)
                done = session_id
                if self._meter is not None:
                    self._meter.finish(session_id)
        self._rows.flush()

    def _read(self, session_id: str) -> bool:
        """Read what is new in a session; return whether that was all."""
        row = self._storage.one("SELECT title, damaged FROM index_session WHERE id = ?", session_id)
        damaged = row is not None and row[1]
        if row is not None and not damaged:
            try:
                return self._indexer.read(session_id, row[0], self._count)
            except SessionDeleted:
                pass  # since the catalog was refreshed
            except UNREADABLE:
                damaged = True
        log = self._rows.find(session_id)
        if log is None:
            return True
        if damaged:
            # What cannot be shown is not found, even if it was read once.
            return self._rows.empty(log)
        self._rows.change(log, living=False)
        return True

    def _count(self, session_id: str, events: int) -> None:
        if self._meter is not None:
            self._meter.count(session_id, events)

    def _settle(self) -> bool:
        """Read the sessions in the trash that forks show, as far as they do; return whether that is done."""
        while not self._rows.is_full():
            row = self._storage.one(
                "SELECT c.parent, max(c.at) FROM index_log c LEFT JOIN index_log p ON p.id = c.parent "
                "WHERE c.parent IS NOT NULL AND (p.id IS NULL OR (NOT p.living AND p.seq < c.at)) "
                "GROUP BY c.parent ORDER BY c.parent LIMIT 1"
            )
            if row is None:
                return True
            self._indexer.read_deleted(*row)
        return False


# -- rows ---------------------------------------------------------------------------------------


class TextLog(NamedTuple):
    """What is stored about a log: a row of `index_log`.

    `first` is the seq before its own events, `seq` how far it was read (-1: it is being removed), `checked`
    the last seq whose redactions were known when it was read.
    """

    log: int
    id: str
    created: str
    living: bool
    first: int
    parent: str | None
    at: int
    seq: int
    stamp: str
    checked: int
    title: str


_COLUMNS: Final = ", ".join(TextLog._fields)


class TextRows:
    """The texts that can be found, each a row of `index_text` and one of the full-text table."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        #: Characters that may still be written in this step, and texts that may be removed.
        self._room = STEP
        self._removable = REMOVED
        (self._last,) = storage.one("SELECT coalesce(max(text), 0) FROM index_text")
        (self._last_log,) = storage.one("SELECT coalesce(max(log), 0) FROM index_log")
        #: Rows that are not written yet, with their texts.
        self._waiting: list[tuple[tuple[Any, ...], str]] = []
        self._characters = 0

    def is_full(self) -> bool:
        """Return whether the step has done enough."""
        return self._room <= 0 or self._removable <= 0

    def count(self, characters: int) -> None:
        """Count work that was done."""
        self._room -= characters

    # -- logs -----------------------------------------------------------------------------------

    def find(self, session_id: str) -> TextLog | None:
        """Return what is stored about a log; None if nothing is."""
        row = self._storage.one(f"SELECT {_COLUMNS} FROM index_log WHERE id = ?", session_id)  # noqa: S608 - our own names
        return None if row is None else TextLog(*row)

    def begin(
        self, session_id: str, created: str, first: Event | None, forked: SessionForked | None
    ) -> TextLog:
        """Add a log of which nothing is read yet."""
        begin = 0 if first is None else first.seq - 1
        self._last_log += 1
        # A fork inherits no more than the events before its own, whatever its first event says.
        at = 0 if forked is None else min(forked.seq, begin)
        parent = None if forked is None else forked.parent
        found = TextLog(
            log=self._last_log,
            id=session_id,
            created=created,
            living=False,
            first=begin,
            parent=parent,
            at=at,
            seq=begin,
            stamp="",
            checked=-1,
            title="",
        )
        marks = ", ".join("?" * len(found))
        self._storage.do(f"INSERT INTO index_log ({_COLUMNS}) VALUES ({marks})", *found)  # noqa: S608 - as above
        return found

    def change(self, log: TextLog, **values: Any) -> None:
        """Change columns of a log."""
        sets = ", ".join(f"{column} = ?" for column in values)
        self._storage.do(
            f"UPDATE index_log SET {sets} WHERE log = ?",  # noqa: S608 - as above
            *values.values(),
            log.log,
        )

    def unsettle(self) -> None:
        """Note that forks may lack texts of sessions in the trash."""
        self._storage.put(UNSETTLED, 1)

    def empty(self, log: TextLog) -> bool:
        """Remove a log and its texts; return False if some are left for another step."""
        self.change(log, seq=-1)
        if not self._remove("TRUE", log):
            return False
        self._storage.do("DELETE FROM index_log WHERE log = ?", log.log)
        return True

    # -- texts ----------------------------------------------------------------------------------

    def add(self, log: TextLog, seq: int, time: str, message: object, *, stream: str = "") -> None:
        """Add the text of a message, if it has any; `stream`: it is unfinished."""
        text = search_text.of(message)
        if not text or text.isspace():
            return
        role = message.get("role") if isinstance(message, dict) else None
        self._insert(log, seq, time, role if isinstance(role, str) else "", text, stream)

    def _insert(
        self, log: TextLog, seq: int, time: str, role: str, text: str, stream: str = ""
    ) -> None:
        self._last += 1
        self._room -= len(text)
        self._characters += len(text)
        row = (self._last, log.log, seq, stream, time, role)
        self._waiting.append((row, search_text.split(text)))
        if len(self._waiting) >= _TOGETHER or self._characters > _MOST:
            self.flush()

    def flush(self) -> None:
        """Write the rows that wait."""
        waiting, self._waiting, self._characters = self._waiting, [], 0
        if waiting:
            self._storage.do_all(
                "INSERT INTO index_text (text, log, seq, stream, time, role) VALUES (?,?,?,?,?,?)",
                [row for row, _ in waiting],
            )
            self._storage.full_text.add([(row[0], text) for row, text in waiting])

    def set_title(self, log: TextLog, title: str) -> None:
        """Let a session be found by its title."""
        if title == log.title:
            return
        self._remove("seq = 0", log)
        if title.strip():
            self._insert(log, 0, "", "", title)
        self.change(log, title=title)

    def remove(self, log: TextLog, seq: int) -> None:
        """Remove the text of a message."""
        self._remove("seq = ? AND stream = ''", log, seq)

    def remove_before(self, log: TextLog, bound: int) -> bool:
        """Remove a log's own texts before a seq; return False if some are left for another step."""
        if bound <= log.first:
            return True
        return self._remove("seq > ? AND seq < ? AND stream = ''", log, log.first, bound)

    def remove_inherited(self, log: TextLog) -> None:
        """Remove what a fork shows in place of inherited events."""
        self._remove("seq > 0 AND seq <= ?", log, log.first)

    def streams(self, log: TextLog) -> set[str]:
        """Return the unfinished streams of a log that have a text."""
        rows = self._storage.all(
            "SELECT stream FROM index_text WHERE log = ? AND stream <> ''", log.log
        )
        return {stream for (stream,) in rows}

    def remove_stream(self, log: TextLog, stream: str) -> None:
        """Remove the text of an unfinished stream."""
        self._remove("stream = ?", log, stream)
        # Compaction removes the parts of a finished stream, and the message may say something else.
        self._storage.put(RESIDUE, 1)

    def _remove(self, condition: str, log: TextLog, *values: Any) -> bool:
        """Remove texts of a log, no more than a step may; return whether those were all."""
        self.flush()
        limit = max(self._removable, 1)
        rows = self._storage.all(
            f"SELECT text FROM index_text WHERE log = ? AND {condition} LIMIT ?",  # noqa: S608 - our own conditions
            log.log,
            *values,
            limit + 1,
        )
        some = rows[:limit]
        if some:
            self._removable -= len(some)
            self._storage.full_text.remove([text for (text,) in some])
            self._storage.do_all("DELETE FROM index_text WHERE text = ?", some)
        return len(rows) <= limit


# -- logs ---------------------------------------------------------------------------------------


class _Said(msgspec.Struct):
    """As much of an event's data as it takes to find its message."""

    message: Any = None
    stream: Any = None


_said = msgspec.json.Decoder(_Said).decode

Count = Callable[[str, int], None]


class TextIndexer:
    """Reads logs into the rows of the index."""

    def __init__(self, backend: Backend, rows: TextRows) -> None:
        self._backend = backend
        self._graph = ForkGraph(backend)
        self._rows = rows

    def read(self, session_id: str, title: str, count: Count) -> bool:
        """Read what is new in a session, or as much as the step may; return whether that was all."""
        own = self._backend.log(session_id).reader()
        head, first = own.head(), own.first()
        if head is None or first is None:
            raise SessionDeleted(f"session {session_id!r} was deleted")
        rows = self._rows
        taken = redaction.of(own.controls())
        redactions, streams = self._inherited(own, first, taken)
        log = rows.find(session_id)
        if log is not None and not _continues(own, head, log):
            if not rows.empty(log):
                return False
            log = None
        forked = lineage.fork_source(first)
        if log is None:
            log = rows.begin(session_id, head.created, first, forked)
            rows.change(log, checked=head.seq)
            log = log._replace(checked=head.seq)
        if not log.living:
            at = 0 if forked is None else min(forked.seq, log.first)
            rows.change(log, living=True, at=at)
            if forked is not None:
                rows.unsettle()
        reader = _Reader(self._graph, own, log, redactions, rows)
        if not reader.read(head.seq, count) or not rows.remove_before(log, redactions.before):
            return False
        rows.change(log, checked=head.seq)
        if log.parent is not None:
            reader.add_own_view(taken, streams)
        rows.set_title(log, title)
        return True

    def _inherited(
        self, own: LogReader, first: Event, taken: Redactions
    ) -> tuple[Redactions, dict[str, int]]:
        """Return all redactions of a session, and the unfinished streams that only it inherits."""
        if lineage.fork_source(first) is None:
            return taken, {}
        seen = self._graph.seen(own.session_id, first, taken)
        return seen.redactions, self._graph.new_streams(own.session_id, seen)

    def read_deleted(self, session_id: str, need: int) -> None:
        """Read a session that is not living up to the seq that forks of it show, or as much as a step may."""
        rows = self._rows
        log = rows.find(session_id)
        try:
            own = self._backend.log(session_id, from_trash=True).reader()
            head, first = own.head(), own.first()
            if head is None or first is None:
                raise SessionDeleted(f"session {session_id!r} was deleted")
            forked = lineage.fork_source(first)
            if log is None:
                log = rows.begin(session_id, head.created, first, forked)
            rows.change(log, at=min(log.first if forked is None else forked.seq, need, log.first))
            taken = redaction.of(own.controls())
            redactions, streams = self._inherited(own, first, taken)
            reader = _Reader(self._graph, own, log, redactions, rows)
            if log.seq < need and not reader.read(need, None):
                return
            rows.remove_before(log, redactions.before)
            if log.parent is not None:
                reader.add_own_view(taken, streams)
            rows.change(log, seq=max(log.seq, need), checked=head.seq)
        except UNREADABLE:
            # What cannot be shown is not found; the forks cannot be shown either.
            log = log or rows.begin(session_id, "", None, None)
            rows.change(log, seq=need)


def _continues(own: LogReader, head: Head, log: TextLog) -> bool:
    """Return whether a log is the one that was read, and has only grown."""
    if log.created != head.created or not log.first <= log.seq <= head.seq:
        return False
    if log.seq == log.first:
        return True
    last = [event for chunk in own.read(log.seq - 1, log.seq) for event in chunk.events()]
    return bool(last) and last[-1].stamp == log.stamp


class _Reader:
    """Reads one log on from where it was left."""

    def __init__(
        self, graph: ForkGraph, own: LogReader, log: TextLog, redactions: Redactions, rows: TextRows
    ) -> None:
        self._graph = graph
        self._own = own
        self._log = log
        self._redactions = redactions
        self._rows = rows
        #: Streams that have no end so far: those of earlier steps that have a text, and those of this one.
        self._kept = rows.streams(log)
        self._streams = StreamAssembler(redactions.streams)
        #: By stream, seq and stamp of its last part.
        self._last: dict[str, tuple[int, str]] = {}

    def read(self, upto: int, count: Count | None) -> bool:
        """Read up to a seq, or until the step is full; return whether nothing is left."""
        log, rows = self._log, self._rows
        at, stamp = log.seq, log.stamp
        #: Parts that no other event follows so far.
        parts: list[tuple[Event, StreamPart]] = []
        left = False
        for stream in self._kept & self._redactions.streams:
            rows.remove_stream(log, stream)
        for chunk in self._own.read(at, upto):
            events = chunk.events()
            for event in events:
                part = self._part(event)
                if part is not None and not part.over:
                    parts.append((event, part))
                    continue
                for waiting in parts:
                    self._add_part(*waiting)
                parts = []
                if part is None:
                    self._add(event)
                else:
                    self._add_part(event, part)
                at, stamp = event.seq, event.stamp
            rows.count(_EVENT * len(events))
            if count is not None and events:
                count(log.id, len(events))
            if rows.is_full() and not parts and at < upto:
                left = True
                break
        self._keep_unfinished()
        found = rows.find(log.id)
        assert found is not None  # the caller has added it
        if found.seq < 0:
            return False
        rows.change(log, seq=at, stamp=stamp)
        return not left

    def _add(self, event: Event) -> None:
        kind = event.kind
        if kind in {MESSAGE_ADDED, SUMMARY_ADDED}:
            self._add_message(self._redactions.mask(event))
        elif event.seq <= self._log.checked:
            return
        elif kind == MESSAGE_REDACTED:
            read = kinds.read(MESSAGE_REDACTED, event.raw)
            if read is not None and read.seq > self._log.first:
                self._check(read.seq)
        elif kind == SESSION_REPAIRED:
            # What was read before may have been repaired since: read it again.
            self._rows.change(self._log, seq=-1)

    def _add_message(self, event: Event) -> None:
        try:
            said = _said(event.raw)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return  # views ignore data of another shape, too
        self._rows.add(self._log, event.seq, event.stamp, said.message)
        if isinstance(said.stream, str):
            self._end(said.stream)
            ended = streamed(event)
            if ended is not None:
                self._streams.forwards([ended])

    def _check(self, seq: int) -> None:
        """Store a text again that was read before it was redacted."""
        if seq not in self._redactions.seqs:
            return
        self._rows.remove(self._log, seq)
        if self._redactions.seqs[seq] is not None:
            self._add_again(self._own, seq)

    def _add_again(self, log: LogReader, seq: int) -> None:
        for chunk in log.read(seq - 1, seq):
            for event in chunk.events():
                if event.kind in {MESSAGE_ADDED, SUMMARY_ADDED}:
                    self._add_message(self._redactions.mask(event))

    # -- streams --------------------------------------------------------------------------------

    def _part(self, event: Event) -> StreamPart | None:
        """Return the part of a stream that an event is; None if it is something else."""
        if event.kind != MESSAGE_PART:
            return None
        return streamed(self._redactions.mask(event))

    def _add_part(self, event: Event, part: StreamPart) -> None:
        self._streams.forwards([part])
        if part.over:
            self._end(part.stream)
        else:
            self._last[part.stream] = (event.seq, event.stamp)

    def _end(self, stream: str) -> None:
        self._last.pop(stream, None)
        if stream in self._kept:
            self._kept.discard(stream)
            self._rows.remove_stream(self._log, stream)

    def _keep_unfinished(self) -> None:
        """Store what was streamed of messages without an end, which another event follows."""
        if not self._last:
            return
        if self._streams.cut():
            for chunk in self._own.read_back(self._log.seq, self._log.first):
                self._streams.complete(chunk.streamed())
                if not self._streams.cut():
                    break
        messages = dict(self._streams.unfinished())
        for stream, (seq, stamp) in self._last.items():
            if stream in self._kept:
                self._rows.remove_stream(self._log, stream)
            if seq in messages:
                self._rows.add(self._log, seq, stamp, messages[seq], stream=stream)

    # -- forks ----------------------------------------------------------------------------------

    def add_own_view(self, taken: Redactions, streams: dict[str, int]) -> None:
        """Add what a fork shows differently of what it inherits.

        `taken`: the fork's own redactions. `streams`: unfinished inherited ones, and their last parts.
        """
        log, rows = self._log, self._rows
        rows.remove_inherited(log)
        for seq in sorted(taken.seqs):
            if seq <= log.first and self._redactions.seqs.get(seq) is not None:
                holder = self._graph.holder(log.id, seq)
                if holder is not None:
                    self._add_again(holder, seq)
        for stream, seq in streams.items():
            self._add_inherited_stream(stream, seq)

    def _add_inherited_stream(self, stream: str, seq: int) -> None:
        """Add a message that was being streamed where the fork begins: it inherits no end of it.

        Forks of this one inherit the text. The parts are read in the log that holds the last one.
        """
        holder = self._graph.holder(self._log.id, seq)
        if holder is None:
            return
        parts = StreamAssembler(self._redactions.streams)
        stamp = ""
        for chunk in holder.read_back(upto=seq):
            if not stamp:
                stamp = chunk.events()[-1].stamp
            parts.backwards([one for one in chunk.streamed() if one.stream == stream])
            if not parts.cut():
                break
        for last, message in parts.unfinished():
            self._rows.add(self._log, last, stamp, message)
