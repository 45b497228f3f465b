"""Ask the index for words: in which messages they stand, and which session shows them.

Above: `finder`.  Below: `indexing` (what is kept), `query`, `database`.
A text is kept with the log that it was said in, and is found there: once, however many forks inherit it.
Where that session is deleted, or outside of what is searched, the oldest fork inside that shows it is named.
Who asks for one session is answered from what that session shows, inherited messages included.

How well a text fits is counted from that text alone, so that a scoped store's ranks tell nothing of others:
how often each word is in it, and how long it is. That takes reading it, so only the newest hits are ranked.
"""

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from hansard.index.database import Database
from hansard.index.entry import Hit
from hansard.index.listing import SessionFilter, within
from hansard.index.words import Row
from hansard.message.search_text import CLOSE, OPEN, PART

#: Behind every seq.
_ALL: Final = 1 << 62

#: The newest hits are ranked, up to so many and to so many characters; all others come after them.
RANKED: Final = 500
_READ: Final = 4 << 20

#: BM25's k1 and b, and the length in characters that counts as usual.
_SATURATION: Final = 1.2
_BY_LENGTH: Final = 0.75
_USUAL: Final = 400

_FOUND: Final = re.compile(f"{OPEN}([^{CLOSE}]*){CLOSE}")

#: What is not shown: a terminal would take it for a command.
_CONTROL: Final = re.compile(r"[\s\x00-\x01\x04-\x1f\x7f-\x9f]+")


class Sought(NamedTuple):
    """What is looked for."""

    #: As FTS5 takes it: `query.expression`.
    expression: str
    #: Only sessions with this scope and prefix.
    filters: SessionFilter = SessionFilter()
    #: Only what this session shows.
    session: str | None = None
    #: Said at this time or later, and before this time: as events have it.
    since: str | None = None
    until: str | None = None
    role: str | None = None
    limit: int = 20


class _Talk(NamedTuple):
    """A log: see the table `talk`."""

    t: int
    id: str
    created: str
    living: bool
    first: int
    parent: str | None
    at: int
    bound: int


class _Way(NamedTuple):
    """How a session shows what was said in another log: through which forks, and up to which seq."""

    session: _Talk
    #: The session itself, then those that it was forked from; the log in question is the one at `depth`.
    forks: list[_Talk]
    depth: int
    upto: int


def ask(database: Database, sought: Sought) -> list[Hit] | None:
    """Return what was found, the best first; None if the one session that is searched cannot be read."""
    shown = _Shown(database, sought)
    if not shown.is_readable():
        return None
    wanted = max(sought.limit, RANKED)
    fetched = wanted
    while True:
        rows = shown.rows(fetched + 1)
        named: dict[tuple[int, int], tuple[str, Row]] = {}
        for row in rows[:fetched]:
            place = shown.place(row)
            session_id = None if place in named else shown.session(row, place)
            if session_id is not None:
                named[place] = (session_id, row)
        if len(named) >= wanted or len(rows) <= fetched:
            ranked = shown.ranked(list(named.values())[:wanted])
            return [shown.hit(*hit) for hit in ranked[: sought.limit]]
        fetched *= 4


class _Shown:
    """Which sessions show what, among those that are searched."""

    def __init__(self, database: Database, sought: Sought) -> None:
        self._database = database
        self._sought = sought
        self._inside, self._range = within("k", sought.filters)
        self._hidden: set[tuple[int, int]] | None = None
        self._talks: dict[str, _Talk | None] = {}
        #: By log, how what was said there is shown by others; of one session, how it is shown by that.
        self._ways: dict[int, list[_Way]] = {}
        if sought.session is not None:
            self._follow(self._talk(sought.session), alone=True)
        else:
            for talk in self._heirs():
                self._follow(talk, alone=False)
        for ways in self._ways.values():
            ways.sort(key=lambda way: (way.session.created, way.session.id))

    def is_readable(self) -> bool:
        """Say whether the one session that is searched can be read."""
        if self._sought.session is None:
            return True
        talk = self._talk(self._sought.session)
        return talk is not None and talk.living

    # -- forks ----------------------------------------------------------------------------------

    def _heirs(self) -> list[_Talk]:
        """Return the sessions that were forked from one that is not searched itself."""
        columns = ", ".join(f"k.{column}" for column in _Talk._fields)
        if self._range:
            outside = f"NOT p.living OR NOT ({within('p', self._sought.filters)[0]})"
            rows = self._database.all(
                f"SELECT {columns} FROM talk k JOIN talk p ON p.id = k.parent "  # noqa: S608 - our own names
                f"WHERE k.living AND {self._inside} AND ({outside})",
                *self._range,
                *self._range,
            )
        else:
            rows = self._database.all(
                f"SELECT {columns} FROM talk p JOIN talk k ON k.parent = p.id "  # noqa: S608 - as above
                "WHERE NOT p.living AND k.living"
            )
        return [_Talk(*row) for row in rows]

    def _follow(self, talk: _Talk | None, *, alone: bool) -> None:
        """Go from a session to those that it was forked from, while these are outside; `alone`: to all."""
        if talk is None or not talk.living:
            return
        forks: list[_Talk] = []
        seen: set[int] = set()
        upto = _ALL
        at: _Talk | None = talk
        while at is not None and at.t not in seen:
            if at is not talk or alone:
                if not alone and self._is_searched(at):
                    return  # which shows all of this, and more
                self._ways.setdefault(at.t, []).append(_Way(talk, forks, len(forks), upto))
            forks.append(at)
            seen.add(at.t)
            upto = min(upto, at.at)
            at = None if at.parent is None else self._talk(at.parent)

    def _is_searched(self, talk: _Talk) -> bool:
        return talk.living and self._sought.filters.matches_id(talk.id)

    def _talk(self, session_id: str) -> _Talk | None:
        if session_id not in self._talks:
            row = self._database.one(
                f"SELECT {', '.join(_Talk._fields)} FROM talk WHERE id = ?",  # noqa: S608 - as above
                session_id,
            )
            self._talks[session_id] = None if row is None else _Talk(*row)
        return self._talks[session_id]

    # -- texts ----------------------------------------------------------------------------------

    def rows(self, limit: int) -> list[Row]:
        """Return the texts that fit and may be shown, the best first."""
        conditions, values = self._conditions()
        shown = [(t, max(way.upto for way in ways)) for t, ways in self._ways.items()]
        expression = self._sought.expression
        return self._database.words.rows(expression, conditions, values, shown, limit)

    def _conditions(self) -> tuple[str, list[Any]]:
        sought = self._sought
        inherited = "(w.t IS NOT NULL AND d.seq <= w.upto AND NOT d.alone)"
        if sought.session is None:
            parts, values = [f"((k.living AND {self._inside}) OR {inherited})"], list(self._range)
        else:
            parts, values = [f"(k.id = ? OR {inherited})"], [sought.session]
        for condition, value in (
            ("said >= ?", sought.since),
            ("said < ?", sought.until),
            ("d.seq > 0 AND d.role = ?", sought.role),
        ):
            if value is not None:
                parts.append(condition)
                values.append(value)
        return " AND ".join(parts), values

    def place(self, row: Row) -> tuple[int, int]:
        """Return where a text was said: its log and seq. A fork may show a text of its own in that place."""
        talk = self._of(row)
        passed = set()
        while 0 < row.seq <= talk.first and talk.parent is not None:
            passed.add(talk.t)
            parent = self._talk(talk.parent)
            if parent is None:
                break
            if parent.t in passed:
                raise sqlite3.DatabaseError(f"damaged: {parent.id!r} was forked from itself")
            talk = parent
        return talk.t, row.seq

    def _of(self, row: Row) -> _Talk:
        (session_id,) = self._database.one("SELECT id FROM talk WHERE t = ?", row.t)
        talk = self._talk(session_id)
        assert talk is not None  # it has texts
        return talk

    def session(self, row: Row, place: tuple[int, int]) -> str | None:
        """Return the session that a text is shown by; None if there is none."""
        if place[0] != row.t and self._is_found_there(place):
            return None  # it stands on its own
        way = next(self._by(row), None)
        return None if way is None else way.session.id

    def _by(self, row: Row) -> Iterator[_Way]:
        """Yield the ways in which a text is shown, those of the oldest session first."""
        talk = self._of(row)
        if self._sought.session is None and self._is_searched(talk):
            yield _Way(talk, [], 0, _ALL)
            return
        for way in self._ways.get(row.t, ()):
            if row.seq <= way.upto and not self._is_hidden(row, way):
                yield way

    def _is_hidden(self, row: Row, way: _Way) -> bool:
        """Say whether a fork on the way does not show what it inherits."""
        if self._hidden is None:
            self._hidden = set(self._database.all("SELECT t, seq FROM hidden"))
        return any(
            row.seq < fork.bound or (fork.t, row.seq) in self._hidden
            for fork in way.forks[: way.depth]
        )

    def _is_found_there(self, place: tuple[int, int]) -> bool:
        """Say whether the text that was said in a place fits too, and is shown."""
        t, seq = place
        for d, alone in self._database.all(
            "SELECT d, alone FROM doc WHERE t = ? AND seq = ?", t, seq
        ):
            fits = self._database.words.fits(self._sought.expression, d)
            way = next(self._by(Row(d, t, seq, "", "")), None)
            if fits and way is not None and not (alone and way.depth):
                return True
        return False

    # -- what is shown of them ------------------------------------------------------------------

    def ranked(self, hits: list[tuple[str, Row]]) -> list[tuple[str, Row, float]]:
        """Return hits with their ranks, the best first, of equal ones the newest."""
        found: list[tuple[str, Row, float]] = []
        room = _READ
        # Ties go by the session that shows a text, and not by one outside that has said it.
        for session_id, row in sorted(hits, key=lambda hit: (hit[0], hit[1].seq)):
            found.append((session_id, row, 0.0))
        found.sort(key=lambda hit: hit[1].time, reverse=True)
        for at, (session_id, row, _) in enumerate(found[:RANKED]):
            if room <= 0:
                break
            text = self._database.words.marked(self._sought.expression, row.d)
            room -= len(text)
            found[at] = (session_id, row, rank(text))
        return sorted(found, key=lambda hit: -hit[2])

    def hit(self, session_id: str, row: Row, fits: float) -> Hit:
        """Return what was found, with the words around it."""
        raw = self._database.words.snippet(self._sought.expression, row.d)
        snippet, matches = _marked(raw)
        (title,) = self._database.one("SELECT title FROM session WHERE id = ?", session_id)
        return Hit(
            session_id,
            row.seq,
            row.time,
            row.role,
            snippet,
            matches,
            fits,
            title or None,
        )


def rank(marked: str) -> float:
    """Return how well a text fits, from its marks alone: BM25 without what other texts say."""
    counts = Counter(word.casefold() for word in _FOUND.findall(marked))
    length = len(marked) / _USUAL
    norm = _SATURATION * (1 - _BY_LENGTH + _BY_LENGTH * length)
    return sum(count * (_SATURATION + 1) / (count + norm) for count in counts.values())


def _marked(raw: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Return a snippet without its marks, and where they were."""
    plain = ""
    matches: list[tuple[int, int]] = []
    begin = 0
    for piece in re.split(f"([{OPEN}{CLOSE}])", _CONTROL.sub(" ", raw.replace(PART, "")).strip()):
        if piece == OPEN:
            begin = len(plain)
        elif piece == CLOSE:
            matches.append((begin, len(plain)))
        else:
            plain += piece
    return plain, tuple(matches)
