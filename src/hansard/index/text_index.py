"""Bring the texts that a search finds up to date with the logs.

The catalog lists which sessions have changed (`index_unread`). Each is read on from the last position, in
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
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from hansard.backend.contract import Backend, Head, Log, LogReader, streamed
from hansard.errors import UNREADABLE, SessionDeleted
from hansard.event.event import Event
from hansard.event.kinds import (
    MESSAGE_ADDED,
    MESSAGE_PART,
    SUMMARY_ADDED,
    SessionForked,
)
from hansard.index.catalog import UNSETTLING, Progress
from hansard.index.sqlite_storage import RESIDUE, Storage, TextLog
from hansard.message import search_text
from hansard.state import lineage, redaction
from hansard.state.fork_graph import ForkGraph
from hansard.state.redaction import Redactions
from hansard.state.view import StreamAssembler

Answer = TypeVar("Answer")

#: Characters that one step reads.
STEP: Final = 8 << 20

#: The cost of an event without text, and of a text that is removed, in characters.
_EVENT: Final = 100

#: Characters, with the cost of each text, that are written together.
_TOGETHER: Final = 256 << 10

#: Sessions of a step that are announced before they are read (`Backend.prefetch`).
_AHEAD: Final = 10_000


def answer(
    backend: Backend,
    storage: Storage,
    question: Callable[[Storage], Answer],
    progress: Progress | None = None,
) -> Answer:
    """Read what is new in all sessions, and ask an index in which no session is partly read.

    `progress` is called with the number of events read, and their total, unless nothing is new.
    """
    storage.prepare_texts()
    with storage.reading():
        if _position(storage) is None:
            return question(storage)
    total = left = 0 if progress is None else _unread(storage)
    while True:
        with storage.changing():
            _advance(backend, storage)
            complete = _position(storage) is None
            if complete:
                # Before another process adds more.
                found = question(storage)
        if progress is not None:
            left = min(left, _unread(storage))
            progress(total - left, total)
        if complete:
            return found


def has_residue(storage: Storage) -> bool:
    """Return whether the index may hold bytes that were erased from the logs."""
    if storage.get(RESIDUE):
        return True
    if not storage.has_texts():
        return False
    # An unfinished stream of a session that has changed may have been discarded.
    row = storage.one(
        "SELECT 1 FROM index_unread u JOIN index_log k ON k.id = u.id "
        "JOIN index_text d ON d.log = k.log WHERE d.stream <> '' LIMIT 1"
    )
    return row is not None


def erase(storage: Storage) -> None:
    """Remove all texts, and how far each log was read, in one transaction; the next search reads the logs."""
    if storage.has_texts():
        with storage.changing():
            storage.drop_texts()
            storage.do("DELETE FROM index_text")
            storage.do("DELETE FROM index_log")
            storage.do(
                "INSERT INTO index_unread SELECT id FROM index_session WHERE TRUE "
                "ON CONFLICT DO NOTHING"
            )


def _advance(backend: Backend, storage: Storage) -> None:
    """Do one step. An index that is the same afterwards is damaged: reading would never end."""
    before = _position(storage)
    if before is None:
        return  # another process did it concurrently
    TextIndexer(backend, storage).run()
    if _position(storage) == before:
        raise sqlite3.DatabaseError(f"damaged: reading makes no progress at {before}")


def _position(storage: Storage) -> tuple[object, ...] | None:
    """Return the next session to read, how far it was read, and how many there are; None if there is none.

    Every step that has something to do changes it.
    """
    row: tuple[object, ...] | None = storage.one(
        "SELECT u.id, k.log, k.seq, (SELECT count(*) FROM index_unread) "
        "FROM index_unread u LEFT JOIN index_log k ON k.id = u.id ORDER BY u.id LIMIT 1"
    )
    return row


def _unread(storage: Storage) -> int:
    """Return the number of events to read, with at least one for each session."""
    (found,) = storage.one(
        "SELECT sum(CASE WHEN s.seq > coalesce(k.seq, 0) THEN s.seq - coalesce(k.seq, 0) ELSE 1 END) "
        "FROM index_unread u LEFT JOIN index_session s ON s.id = u.id "
        "LEFT JOIN index_log k ON k.id = u.id"
    )
    return int(found or 0)


# -- rows ---------------------------------------------------------------------------------------


def find_log(storage: Storage, session_id: str) -> TextLog | None:
    """Return what is stored about a log; None if nothing is."""
    columns = ", ".join(TextLog._fields)
    row = storage.one(f"SELECT {columns} FROM index_log WHERE id = ?", session_id)  # noqa: S608 - our own names
    return None if row is None else TextLog(*row)


class TextRows:
    """The texts that can be found, each a row of `index_text` and one of the full-text table."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        #: Characters that this step may still read.
        self.left = STEP
        (self._last,) = storage.one("SELECT coalesce(max(text), 0) FROM index_text")
        #: Rows that are not written yet, with their texts.
        self._waiting: list[tuple[tuple[Any, ...], str]] = []
        self._cost = 0

    def is_full(self) -> bool:
        """Return whether the step has done enough."""
        return self.left <= 0

    def add(self, log: TextLog, seq: int, time: str, message: object, *, stream: str = "") -> None:
        """Add the text of a message, if it has any; `stream`: it is unfinished."""
        role = message.get("role") if isinstance(message, dict) else None
        role = role if isinstance(role, str) else ""
        self._insert(log, seq, time, role, search_text.of(message), stream)

    def _insert(
        self, log: TextLog, seq: int, time: str, role: str, text: str, stream: str = ""
    ) -> None:
        if not text or text.isspace():
            return
        self._last += 1
        self.left -= len(text)
        self._cost += len(text) + _EVENT
        row = (self._last, log.log, seq, stream, time, role, len(text))
        self._waiting.append((row, search_text.split(text)))
        if self._cost > _TOGETHER:
            self.flush()

    def flush(self) -> None:
        """Write the rows that wait."""
        waiting, self._waiting, self._cost = self._waiting, [], 0
        if waiting:
            self._storage.do_all(
                "INSERT INTO index_text (text, log, seq, stream, time, role, size) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                [row for row, _ in waiting],
            )
            self._storage.add_texts([(row[0], text) for row, text in waiting])

    def set_title(self, log: TextLog, title: str, updated: str) -> None:
        """Make a session found by its title, at the time of its last activity."""
        if title != log.title:
            if log.title:
                self.remove("seq = 0", log)
            self._insert(log, 0, updated, "", title)
            self._storage.do("UPDATE index_log SET title = ? WHERE log = ?", title, log.log)
        elif title:
            retime = "UPDATE index_text SET time = ? WHERE log = ? AND seq = 0"
            self._storage.do(retime, updated, log.log)

    def remove_stream(self, log: TextLog, stream: str) -> None:
        """Remove the text of an unfinished stream."""
        self.remove("stream = ?", log, stream)
        # Compaction removes the parts of a finished stream, and the message may have another text.
        self._storage.put(RESIDUE, 1)

    def remove(self, condition: str, log: TextLog, *values: Any) -> None:
        """Remove texts of a log."""
        self.flush()
        ask = f"SELECT text FROM index_text WHERE log = ? AND {condition}"  # noqa: S608 - our own conditions
        rows = self._storage.all(ask, log.log, *values)
        if rows:
            self.left -= _EVENT * len(rows)
            self._storage.remove_texts([text for (text,) in rows])
            self._storage.do_all("DELETE FROM index_text WHERE text = ?", rows)


# -- logs ---------------------------------------------------------------------------------------


class _Content(msgspec.Struct):
    """The part of an event's data that holds its message."""

    message: Any = None
    stream: Any = None


_decode = msgspec.json.Decoder(_Content).decode

_STREAMS: Final = "SELECT stream, seq FROM index_text WHERE log = ? AND stream <> ''"


class TextIndexer:
    """One step, inside a transaction: reads some of what is new into the rows of the index."""

    def __init__(self, backend: Backend, storage: Storage) -> None:
        # The next ones, in the order in which they are read.
        rows = storage.all("SELECT id FROM index_unread ORDER BY id LIMIT ?", _AHEAD)
        self._backend = backend.unscoped.prefetch([found for (found,) in rows])
        self._graph = ForkGraph(self._backend)
        self._storage = storage
        self._rows = TextRows(storage)
        (self._last_log,) = storage.one("SELECT coalesce(max(log), 0) FROM index_log")

    def run(self) -> None:
        """Read sessions until the step is full or none is left."""
        done = set()
        while not self._rows.is_full():
            row = self._storage.one("SELECT id FROM index_unread ORDER BY id LIMIT 1")
            # A parent can be added again. A damaged list can return what it cannot remove.
            if row is None or row in done:
                break
            done.add(row)
            if self._read(row[0]):
                self._storage.do("DELETE FROM index_unread WHERE id = ?", *row)
        self._rows.flush()

    def _read(self, session_id: str) -> bool:
        """Read what is new in a session; return whether that was all."""
        row = self._storage.one(
            "SELECT title, updated FROM index_session WHERE id = ? AND NOT damaged", session_id
        )
        if row is not None:
            try:
                return self._read_log(self._backend.log(session_id), titled=row)
            except (SessionDeleted, *UNREADABLE):
                self._forget(session_id)  # only some of its texts may be stored
        # In the trash, or damaged: only what forks show of it is found.
        ask = "SELECT coalesce(max(at), 0) FROM index_log WHERE parent = ?"
        (need,) = self._storage.one(ask, session_id)
        try:
            if need:
                self._read_log(self._backend.log(session_id, from_trash=True), upto=need)
        except (SessionDeleted, *UNREADABLE):
            self._forget(session_id)  # the forks cannot be shown either
        log = find_log(self._storage, session_id)
        if log is not None:
            self._change(log, living=False)
        return True

    def _forget(self, session_id: str) -> None:
        """Remove a log and its texts."""
        log = find_log(self._storage, session_id)
        if log is not None:
            self._rows.remove("TRUE", log)
            self._storage.do("DELETE FROM index_log WHERE log = ?", log.log)

    def _read_log(
        self, found: Log, *, titled: tuple[str, str] | None = None, upto: int = 0
    ) -> bool:
        """Read what is new in a log, or what the step may; return whether that was all.

        `titled`: title and last activity of a living session. `upto`: the last seq that forks show, of
        another: all of it is read, so that a session that fails is not read again and again.
        """
        own = found.reader()
        head, first = own.head(), own.first()
        if head is None or first is None:
            raise SessionDeleted(f"session {own.session_id!r} was deleted")
        upto = upto or head.seq
        controls = own.controls()
        taken = redactions = redaction.of(controls)
        forked = lineage.fork_source(first)
        streams: dict[str, int] = {}
        if forked is not None:
            seen = self._graph.seen(own.session_id, first, taken)
            redactions = seen.redactions
            streams = self._graph.new_streams(own.session_id, seen)
        log = find_log(self._storage, own.session_id)
        if log is not None and not _continues(own, head, controls, log):
            self._forget(log.id)
            log = None
        if log is None:
            log = self._begin(own.session_id, head, first, forked)
        # A fork inherits no more than the events before its own, whatever its first event says.
        at = 0 if forked is None else min(forked.seq, log.first, upto)
        living = titled is not None
        if forked is not None and (at, living) != (log.at, log.living):
            self._read_parent(forked.parent)
        reader = _LogReader(self._storage, self._rows, own, log, redactions)
        seq, stamp, complete = reader.read(upto, limited=living)
        self._change(log, living=living, at=at, seq=seq, stamp=stamp, checked=head.seq)
        if complete and forked is not None:
            reader.add_inherited(self._graph, taken, streams)
        if complete and titled is not None:
            self._rows.set_title(log, *titled)
        return complete

    def _begin(
        self, session_id: str, head: Head, first: Event, forked: SessionForked | None
    ) -> TextLog:
        """Add a log of which nothing is read yet."""
        self._last_log += 1
        parent = None if forked is None else forked.parent
        begin = first.seq - 1
        log = TextLog(
            log=self._last_log,
            id=session_id,
            created=head.created,
            living=False,
            first=begin,
            parent=parent,
            at=-1,
            seq=begin,
            stamp="",
            checked=head.seq,
            title="",
        )
        self._storage.upsert("index_log", **log._asdict())
        return log

    def _change(self, log: TextLog, **values: Any) -> None:
        sets = ", ".join(f"{column} = ?" for column in values)
        self._storage.do(
            f"UPDATE index_log SET {sets} WHERE log = ?",  # noqa: S608 - our own names
            *values.values(),
            log.log,
        )

    def _read_parent(self, parent: str) -> None:
        """Read a parent that is in the trash, or unreadable, as far as its forks show it."""
        self._storage.do(
            "INSERT INTO index_unread (id) SELECT ? WHERE NOT EXISTS "
            "(SELECT 1 FROM index_log WHERE id = ? AND living) ON CONFLICT DO NOTHING",
            parent,
            parent,
        )


def _continues(own: LogReader, head: Head, controls: Sequence[Event], log: TextLog) -> bool:
    """Return whether a log is the one that was read, and has only grown; a redacted one is read again."""
    if log.created != head.created or not log.first <= log.seq <= head.seq:
        return False
    if any(event.kind in UNSETTLING for event in controls if event.seq > log.checked):
        return False
    if log.seq == log.first:
        return True
    last = [event for chunk in own.read(log.seq - 1, log.seq) for event in chunk.events()]
    return bool(last) and last[-1].stamp == log.stamp


class _LogReader:
    """Reads one log on from the last position."""

    def __init__(
        self,
        storage: Storage,
        rows: TextRows,
        own: LogReader,
        log: TextLog,
        redactions: Redactions,
    ) -> None:
        self._storage = storage
        self._rows = rows
        self._own = own
        self._log = log
        self._redactions = redactions
        #: Unfinished streams, each with the seq of its last part; those whose parts no other event follows.
        self._unfinished: dict[str, int] = {}
        self._open: dict[str, int] = {}

    def read(self, upto: int, *, limited: bool) -> tuple[int, str, bool]:
        """Read up to a seq, or, if `limited`, until the step is full.

        Return the last seq that was read, its time, and whether nothing is left.
        """
        log, rows = self._log, self._rows
        at, stamp, complete = log.seq, log.stamp, True
        known = {} if at == log.first else dict(self._storage.all(_STREAMS, log.log))
        self._unfinished = known.copy()
        for chunk in self._own.read(at, upto) if at < upto else ():
            events = chunk.events()
            for event in events:
                if self._take(event):
                    at, stamp = event.seq, event.stamp
            rows.left -= _EVENT * len(events)
            if limited and rows.is_full() and not self._open and at < upto:
                complete = False
                break
        for stream, _ in known.items() - self._unfinished.items():
            rows.remove_stream(log, stream)
        for stream, seq in self._unfinished.items() - known.items():
            self._add_stream(self._own, stream, seq, mark=stream)
        return at, stamp, complete

    def _take(self, event: Event) -> bool:
        """Add what an event says; return False if it is a part that may be the last event."""
        ended = None
        if event.kind == MESSAGE_PART:
            part = streamed(self._redactions.mask(event))
            if part is not None and not part.over:
                self._open[part.stream] = event.seq
                return False
            ended = None if part is None else part.stream
        elif event.kind in {MESSAGE_ADDED, SUMMARY_ADDED}:
            ended = self._add(event)
        if self._open:
            self._unfinished |= self._open
            self._open = {}
        if ended is not None:
            self._unfinished.pop(ended, None)
        return True

    def _add(self, event: Event) -> str | None:
        """Add the text of a message; return the stream that it ends, if any."""
        try:
            content = _decode(event.raw)
            stream = content.stream if isinstance(content.stream, str) else None
            masked = self._redactions.mask(event)
            if masked is not event:
                content = _decode(masked.raw)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None  # views ignore data of another shape, too
        self._rows.add(self._log, event.seq, event.stamp, content.message)
        return stream

    def add_inherited(self, graph: ForkGraph, taken: Redactions, streams: dict[str, int]) -> None:
        """Add what a fork shows differently of what it inherits.

        `taken`: the fork's own redactions. `streams`: those that were unfinished where it begins, and their
        last parts. The fork inherits no end of them, and its own forks inherit the text.
        """
        log = self._log
        self._rows.remove("seq > 0 AND seq <= ?", log, log.first)
        for seq, replacement in sorted(taken.seqs.items()):
            holder = graph.holder(log.id, seq) if seq <= log.first else None
            if holder is not None and replacement is not None:
                for chunk in holder.read(seq - 1, seq):
                    for event in chunk.events():
                        if event.kind in {MESSAGE_ADDED, SUMMARY_ADDED}:
                            self._add(event)
        for stream, seq in streams.items():
            holder = graph.holder(log.id, seq)
            if holder is not None:
                self._add_stream(holder, stream, seq)

    def _add_stream(self, reader: LogReader, stream: str, seq: int, *, mark: str = "") -> None:
        """Add the text of an unfinished stream; `seq`: its last part, `mark`: of a log's own stream."""
        parts = StreamAssembler(self._redactions.streams)
        stamp = ""
        for chunk in reader.read_back(upto=seq):
            stamp = stamp or chunk.events()[-1].stamp
            parts.backwards([one for one in chunk.streamed() if one.stream == stream])
            if not parts.cut():
                break
        for last, message in parts.unfinished():
            self._rows.add(self._log, last, stamp, message, stream=mark)
