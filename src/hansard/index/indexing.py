"""Bring the texts that can be found up to date with the logs.

Above: `finder`.  Below: `transcript` (one log), `database`.
The catalogue says which sessions have changed (`unread`). Each is read from where it was left, in steps: a
step is a transaction that ends after some megabytes, so that memory is bounded, others get their turn, and
whoever is interrupted has lost one step. Several processes share the work of a first time.

A text is kept once, with the log that it was said in. Of a deleted session, what living forks of it show is
kept. What is kept depends on what is in the store, and not on how the index came about: an index that was
made anew finds the same, in the same order.
"""

import sqlite3
from collections.abc import Callable
from typing import Final, TypeVar

from hansard.backend.contract import Backend
from hansard.errors import UNREADABLE, SessionDeleted
from hansard.index.database import Database
from hansard.index.documents import UNSETTLED, Talk
from hansard.index.transcript import Transcript

Progress = Callable[[int, int], None]
Answer = TypeVar("Answer")

#: How often it is tried to find nothing new in the moment after everything new was read.
_TRIES: Final = 4

#: So many sessions of a step are named before they are read (`Backend.ahead`).
_AHEAD: Final = 10_000

#: How far reading is when nothing is left.
_DONE: Final = ()

#: So many characters are read in one step, and so many texts taken out.
STEP: Final = 8 << 20
REMOVED: Final = 5_000


def update(
    backend: Backend,
    database: Database,
    progress: Progress | None = None,
    *,
    known: bool = False,
) -> None:
    """Read what is new of all sessions; `known`: of those of which texts are in the index.

    `progress` is called with the number of events that were read, and of how many, unless nothing is new.
    """
    database.words.prepare()
    meter = None if progress is None else _Meter(database, progress)
    while _is_behind(database, known=known):
        with database.changing():
            _advance(backend, database, meter, known=known)
    if meter is not None:
        meter.end()


def answer(
    backend: Backend,
    database: Database,
    question: Callable[[Database], Answer],
    progress: Progress | None = None,
) -> Answer:
    """Bring everything up to date, and put a question to an index of which nothing is half read."""
    for _ in range(_TRIES):
        update(backend, database, progress)
        with database.reading():
            if not _is_behind(database):
                return question(database)
    # Others are so busy that there is always something new: keep them away for a moment.
    with database.changing():
        while _is_behind(database):
            _advance(backend, database, None)
        return question(database)


def _advance(
    backend: Backend, database: Database, meter: "_Meter | None", *, known: bool = False
) -> None:
    """Go one step on; an index that is the same afterwards is damaged, and would be read for ever."""
    before = _standing(database, known=known)
    if before == _DONE:
        return  # by another, while this one waited for its turn
    _Step(backend, database, meter, known=known).go()
    if _standing(database, known=known) == before:
        raise sqlite3.DatabaseError(f"damaged: reading does not get on from {before}")


def _standing(database: Database, *, known: bool) -> tuple[object, ...]:
    """Return how far reading is: no step that has something to do leaves it as it was."""
    session_id = _next(database, known=known)
    if session_id is None:
        if not database.get(UNSETTLED):
            return _DONE
        return session_id, *database.one("SELECT count(*) FROM doc")
    row = database.one("SELECT t, seq FROM talk WHERE id = ?", session_id) or (0, 0)
    return session_id, *row, *database.one("SELECT count(*) FROM doc WHERE t = ?", row[0])


def _is_behind(database: Database, *, known: bool = False) -> bool:
    return _next(database, known=known) is not None or bool(database.get(UNSETTLED))


def _next(database: Database, *, known: bool) -> str | None:
    """Return a session that is to be read; None if there is none."""
    row = database.one(
        "SELECT u.id FROM unread u JOIN talk t ON t.id = u.id LIMIT 1"
        if known
        else "SELECT id FROM unread ORDER BY id LIMIT 1"
    )
    return None if row is None else row[0]


class _Meter:
    """How far a first time is."""

    def __init__(self, database: Database, progress: Progress) -> None:
        self._progress = progress
        rows = database.all(
            "SELECT u.id, coalesce(s.seq, 0), coalesce(t.seq, 0) FROM unread u "
            "LEFT JOIN session s ON s.id = u.id LEFT JOIN talk t ON t.id = u.id"
        )
        self._left = {found: max(seq - max(read, 0), 1) for found, seq, read in rows}
        self._total = sum(self._left.values())
        self._done = 0

    def count(self, session_id: str, events: int) -> None:
        """Hear that some events were read."""
        counted = min(events, self._left.get(session_id, 0))
        if counted:
            self._left[session_id] -= counted
            self._done += counted
            self._progress(self._done, self._total)

    def finish(self, session_id: str) -> None:
        """Hear that a session was read to its end."""
        self.count(session_id, self._left.get(session_id, 0))

    def end(self) -> None:
        """Hear that nothing is left, be it because another process did it."""
        if self._done < self._total:
            self._progress(self._total, self._total)


class _Step:
    """One transaction: some of what is new."""

    def __init__(
        self, backend: Backend, database: Database, meter: _Meter | None, *, known: bool = False
    ) -> None:
        self._backend = backend
        self._database = database
        self._meter = meter
        self._known = known
        # Those that come next, in the order in which they do.
        rows = database.all("SELECT id FROM unread ORDER BY id LIMIT ?", _AHEAD)
        self._transcript = Transcript(
            backend.whole.ahead([found for (found,) in rows]), database, STEP, REMOVED
        )

    def go(self) -> None:
        """Read sessions until the step is full, or none is left; then see to the deleted ones."""
        database = self._database
        done = None
        while not self._transcript.is_full():
            session_id = _next(database, known=self._known)
            if session_id is None:
                if database.get(UNSETTLED) and self._settle():
                    database.put(UNSETTLED, 0)
                return
            if session_id == done:
                # SQLite looks for it where it should be, and it is somewhere else.
                raise sqlite3.DatabaseError(f"damaged: {session_id!r} cannot be taken from a list")
            if self._read(session_id):
                database.do("DELETE FROM unread WHERE id = ?", session_id)
                done = session_id
                if self._meter is not None:
                    self._meter.finish(session_id)

    def _read(self, session_id: str) -> bool:
        """Read what is new of a session; say whether that was all."""
        database = self._database
        row = database.one("SELECT title FROM session WHERE id = ? AND NOT damaged", session_id)
        talk = self._transcript.find(session_id)
        if row is not None:
            try:
                return self._transcript.read_living(session_id, talk, row[0], self._count)
            except SessionDeleted:
                pass  # since the catalogue was brought up to date
            except UNREADABLE:
                # Of what cannot be shown nothing is found, also not what could once be read.
                talk = self._transcript.find(session_id)
        if talk is not None:
            database.do("UPDATE talk SET living = FALSE WHERE t = ?", talk.t)
            database.put(UNSETTLED, 1)
        return True

    def _count(self, session_id: str, events: int) -> None:
        if self._meter is not None:
            self._meter.count(session_id, events)

    # -- deleted sessions -----------------------------------------------------------------------

    def _settle(self) -> bool:
        """Keep of deleted sessions what forks of them show, and no more; say whether that is done."""
        transcript = self._transcript
        missing = self._database.all(
            "SELECT DISTINCT c.parent FROM talk c LEFT JOIN talk p ON p.id = c.parent "
            "WHERE c.parent IS NOT NULL AND p.id IS NULL"
        )
        for (parent,) in missing:
            while parent is not None and transcript.find(parent) is None:
                parent = transcript.add_deleted(parent)  # noqa: PLW2901 - and its own, and so on
        deleted = {talk.id: talk for talk in transcript.deleted()}
        needed = self._needed(deleted)
        return all(
            transcript.read_deleted(talk, needed.get(talk.id, 0)) for talk in deleted.values()
        )

    def _needed(self, deleted: dict[str, Talk]) -> dict[str, int]:
        """Return up to which seq each of some deleted sessions is shown by others."""
        rows = self._database.all(
            "SELECT p.id, max(c.at) FROM talk p JOIN talk c ON c.parent = p.id "
            "WHERE NOT p.living AND c.living GROUP BY p.id"
        )
        needed: dict[str, int] = dict(rows)
        waiting = list(needed)
        while waiting:
            talk = deleted[waiting.pop()]
            if talk.parent not in deleted:
                continue
            # Shown through the fork, as far as both go.
            upto = min(talk.at, needed[talk.id])
            if upto > needed.get(talk.parent, 0):
                needed[talk.parent] = upto
                waiting.append(talk.parent)
        return needed
