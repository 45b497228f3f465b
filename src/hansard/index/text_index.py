"""Bring the texts that a search finds up to date with the logs.

The catalog lists which sessions have changed (`index_unread`). Each is read from the last position to its
end, in steps. A step is a transaction that ends after some megabytes, so other processes can write between
two steps, and an interruption loses one. A step reads the texts inside the transaction that stores them.

A text is stored once, with the log that it was added to. A fork adds the messages that it scrubbed. Texts of
a session in the trash stay until they are erased (`erase`). A rebuilt index has only those that forks of it
show.
"""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from hansard.backend.contract import Backend, Head, Log, LogReader, Progress
from hansard.errors import UNREADABLE, SessionDeleted
from hansard.event.event import Event
from hansard.event.kinds import MESSAGE_ADDED, SUMMARY_ADDED
from hansard.index.catalog import UNSETTLING
from hansard.index.sqlite_storage import Storage, TextLog
from hansard.message import search_text
from hansard.message.parse import role_of
from hansard.state import lineage, redaction
from hansard.state.redaction import Redactions

Answer = TypeVar("Answer")

#: Characters after which a step begins no other session.
STEP: Final = 8 << 20

#: The cost of an event without text, and of a text that is removed, in characters.
_EVENT: Final = 100

#: Characters, with the cost of each event, that are written together: a fifth faster than chunk by chunk.
_TOGETHER: Final = 256 << 10

#: Sessions of a step that are announced before they are read (`Backend.prefetch`).
_AHEAD: Final = 10_000


class _Content(msgspec.Struct):
    """The part of an event's data that holds its message."""

    message: dict[str, Any]


#: A third of the time of `kinds.read`, which also checks the depth.
_decode = msgspec.json.Decoder(_Content).decode


def answer(
    backend: Backend,
    storage: Storage,
    question: Callable[[Storage], Answer],
    progress: Progress | None = None,
) -> Answer:
    """Read what is new in all sessions, and ask.

    `progress` is called with the number of events read, and their total, unless nothing is new.
    """
    storage.prepare_texts()
    with storage.reading():
        unread = _unread(storage)
        if unread is None:
            return question(storage)
    total = left = unread[0]
    while True:
        with storage.changing():
            before = _unread(storage)
            if before is not None:
                TextIndexer(backend, storage).run()
            unread = _unread(storage)
            if unread is None:
                # Before another process adds more.
                found = question(storage)
            elif unread == before:
                raise sqlite3.DatabaseError(f"damaged: reading makes no progress at {before}")
        if progress is not None:
            left = 0 if unread is None else min(left, unread[0])
            progress(total - left, total)
        if unread is None:
            return found


def _unread(storage: Storage) -> tuple[int, int, str] | None:
    """Return the number of events to read, at least one for each session; None if there is no session.

    With the number of sessions and the next one, so that every step that has something to do changes it.
    """
    events, sessions, first = storage.one(
        "SELECT sum(CASE WHEN s.seq > coalesce(k.seq, 0) THEN s.seq - coalesce(k.seq, 0) ELSE 1 END), "
        "count(*), min(u.id) FROM index_unread u LEFT JOIN index_session s ON s.id = u.id "
        "LEFT JOIN index_log k ON k.id = u.id"
    )
    return (int(events), sessions, first) if sessions else None


def erase(storage: Storage) -> None:
    """Remove all texts, and how far each log was read, in one transaction; the next search reads the logs."""
    with storage.changing():
        storage.drop_texts()
        storage.do("DELETE FROM index_text")
        storage.do("DELETE FROM index_log")
        # SQLite takes ON for a join without the WHERE.
        storage.do(
            "INSERT INTO index_unread SELECT id FROM index_session WHERE TRUE ON CONFLICT DO NOTHING"
        )


def find_log(storage: Storage, session_id: str) -> TextLog | None:
    """Return what is stored about a log; None if nothing is."""
    columns = ", ".join(TextLog._fields)
    row = storage.one(f"SELECT {columns} FROM index_log WHERE id = ?", session_id)  # noqa: S608 - our own names
    return None if row is None else TextLog(*row)


class TextIndexer:
    """One step, inside a transaction: reads some of what is new into the rows of the index."""

    def __init__(self, backend: Backend, storage: Storage) -> None:
        # The next ones, in the order in which they are read.
        rows = storage.all("SELECT id FROM index_unread ORDER BY id LIMIT ?", _AHEAD)
        self._backend = backend.unscoped.prefetch([found for (found,) in rows])
        self._storage = storage
        (self._last_log,) = storage.one("SELECT coalesce(max(log), 0) FROM index_log")
        (self._last_text,) = storage.one("SELECT coalesce(max(text), 0) FROM index_text")
        #: Characters until the step is full, and how many were left when rows were last written.
        self._left = self._written = STEP
        #: Rows that are not written yet, and their texts.
        self._rows: list[tuple[Any, ...]] = []
        self._texts: list[tuple[int, str]] = []

    def run(self) -> None:
        """Read sessions until the step is full or none is left."""
        done = set()
        while self._left > 0:
            row = self._storage.one("SELECT id FROM index_unread ORDER BY id LIMIT 1")
            # A parent can be added again. A damaged list can return what it cannot remove.
            if row is None or row in done:
                break
            done.add(row)
            self._read(row[0])
            self._storage.do("DELETE FROM index_unread WHERE id = ?", *row)
        self._write()

    def _read(self, session_id: str) -> None:
        """Read what is new in a session."""
        row = self._storage.one(
            "SELECT title, updated FROM index_session WHERE id = ? AND NOT damaged", session_id
        )
        if row is not None:
            try:
                self._read_log(self._backend.log(session_id), titled=row)
            except (SessionDeleted, *UNREADABLE):
                self._forget(session_id)  # only some of its texts may be stored
            else:
                return
        # In the trash, or damaged: only what forks show of it is found.
        ask = "SELECT coalesce(max(at), 0) FROM index_log WHERE parent = ?"
        (need,) = self._storage.one(ask, session_id)
        try:
            if need:
                self._read_log(self._backend.log(session_id, from_trash=True), upto=need)
        except (SessionDeleted, *UNREADABLE):
            self._forget(session_id)  # the forks cannot be shown either
        self._storage.do("UPDATE index_log SET living = FALSE WHERE id = ?", session_id)

    def _read_log(
        self, found: Log, *, titled: tuple[str, str] | None = None, upto: int = 0
    ) -> None:
        """Read what is new in a log.

        `titled`: title and last activity of a living session. `upto`: the last seq that forks show, of
        another.
        """
        own = found.reader()
        head, first = own.head(), own.first()
        if head is None or first is None:
            raise SessionDeleted(f"session {own.session_id!r} was deleted")
        upto = upto or head.seq
        controls = own.controls()
        redactions = redaction.of(controls)
        forked = lineage.fork_source(first)
        log = find_log(self._storage, own.session_id)
        if log is not None and not _continues(own, head, controls, log):
            self._forget(log.id)
            log = None
        if log is None:
            self._last_log += 1
            log = TextLog(
                log=self._last_log,
                id=own.session_id,
                created=head.created,
                living=False,
                parent=None if forked is None else forked.parent,
                at=-1,
                seq=first.seq - 1,
                stamp="",
                title="",
            )
            self._storage.upsert("index_log", **log._asdict())
        # A fork inherits no more than the events before its own, even if its first event says more.
        at = 0 if forked is None else min(forked.seq, first.seq - 1, upto)
        living = titled is not None
        if forked is not None and (at, living) != (log.at, log.living):
            # A parent in the trash, or unreadable, is read as far as its forks show it.
            self._storage.do(
                "INSERT INTO index_unread (id) SELECT ? WHERE NOT EXISTS "
                "(SELECT 1 FROM index_log WHERE id = ? AND living) ON CONFLICT DO NOTHING",
                forked.parent,
                forked.parent,
            )
        seq, stamp = log.seq, log.stamp
        for chunk in own.read(seq, upto) if seq < upto else ():
            events = chunk.events()
            self._add(log, events, redactions)
            self._left -= _EVENT * len(events)
            seq, stamp = events[-1].seq, events[-1].stamp
        self._storage.do(
            "UPDATE index_log SET living = ?, at = ?, seq = ?, stamp = ? WHERE log = ?",
            living,
            at,
            seq,
            stamp,
            log.log,
        )
        if forked is not None:
            self._add_replaced(log, own, first, redactions)
        if titled is not None:
            self._set_title(log, *titled)

    # -- rows: each text is one of `index_text`, and one of the full-text table ---------------------

    def _add(self, log: TextLog, events: Sequence[Event], redactions: Redactions) -> None:
        """Add the texts of messages."""
        for event in events:
            if event.kind in {MESSAGE_ADDED, SUMMARY_ADDED}:
                try:
                    message = _decode(redactions.mask(event).raw).message
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                    continue  # redacted, or of a shape that views ignore, too
                role = message.get("role")
                if role == "user":
                    role = role_of(message)  # the tool's, if it holds results
                role = role if isinstance(role, str) else ""
                self._insert(log, event.seq, event.stamp, role, search_text.of(message))

    def _insert(self, log: TextLog, seq: int, time: str, role: str, text: str) -> None:
        """Insert a text that is not empty."""
        if text and not text.isspace():
            self._last_text += 1
            self._left -= len(text)
            self._rows.append((self._last_text, log.log, seq, time, role, len(text)))
            self._texts.append((self._last_text, search_text.split(text)))
            if self._written - self._left > _TOGETHER:
                self._write()

    def _write(self) -> None:
        """Write the rows that wait."""
        if self._rows:
            self._storage.do_all(
                "INSERT INTO index_text (text, log, seq, time, role, size) VALUES (?, ?, ?, ?, ?, ?)",
                self._rows,
            )
            self._storage.add_texts(self._texts)
        self._rows, self._texts, self._written = [], [], self._left

    def _add_replaced(
        self, log: TextLog, own: LogReader, first: Event, redactions: Redactions
    ) -> None:
        """Add the texts with which a fork replaces those of messages that it inherits."""
        self._remove(log, "seq > 0 AND seq < ?", first.seq)
        seqs = redactions.seqs
        replaced = sorted(seq for seq in seqs if seq < first.seq and seqs[seq] is not None)
        if replaced:
            reader = lineage.ForkedReader(self._backend, own, first)
            taken = lineage.redactions_of(reader)
            for seq in replaced:
                for chunk in reader.read(seq - 1, seq):
                    self._add(log, chunk.events(), taken)

    def _set_title(self, log: TextLog, title: str, updated: str) -> None:
        """Make a session found by its title, at the time of its last activity."""
        if title != log.title:
            if log.title:
                self._remove(log, "seq = 0")
            self._insert(log, 0, updated, "", title)
            self._storage.do("UPDATE index_log SET title = ? WHERE log = ?", title, log.log)
        elif title:
            retime = "UPDATE index_text SET time = ? WHERE log = ? AND seq = 0"
            self._storage.do(retime, updated, log.log)

    def _forget(self, session_id: str) -> None:
        """Remove a log and its texts."""
        log = find_log(self._storage, session_id)
        if log is not None:
            self._remove(log, "TRUE")
            self._storage.do("DELETE FROM index_log WHERE log = ?", log.log)

    def _remove(self, log: TextLog, condition: str, *values: Any) -> None:
        """Remove texts of a log."""
        self._write()
        ask = f"SELECT text FROM index_text WHERE log = ? AND {condition}"  # noqa: S608 - our own conditions
        rows = self._storage.all(ask, log.log, *values)
        if rows:
            self._left -= _EVENT * len(rows)
            self._storage.remove_texts([text for (text,) in rows])
            self._storage.do_all("DELETE FROM index_text WHERE text = ?", rows)


def _continues(own: LogReader, head: Head, controls: Sequence[Event], log: TextLog) -> bool:
    """Return whether a log is the one that was read, and has only grown; a redacted one is read again."""
    if log.created != head.created or log.seq > head.seq:
        return False
    if any(event.kind in UNSETTLING for event in controls if event.seq > log.seq):
        return False
    if not log.stamp:
        return True  # nothing was read
    last = [event for chunk in own.read(log.seq - 1, log.seq) for event in chunk.events()]
    return bool(last) and last[-1].stamp == log.stamp
