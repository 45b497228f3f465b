"""Search the index: which messages match, and which session shows them.

A text is stored with the log that it was added to, and is found there: once, however many forks inherit it.
If that session is deleted, or outside of what is searched, the oldest fork inside that shows it is named. A
search of one session finds what that session shows, inherited messages included. What a fork has redacted of
the messages that it inherits, its log says.

The rank of a text depends on that text alone, so a scoped store's ranks tell nothing about others: how often
each word occurs in it, and how long it is. Only the newest hits are ranked, since that takes reading them.
"""

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from unicodedata import category

from hansard.backend.contract import Backend
from hansard.errors import UNREADABLE
from hansard.index import Hit
from hansard.index.listing import SessionFilter, within
from hansard.index.sqlite_storage import Row, Storage
from hansard.message import search_text
from hansard.message.search_text import CLOSE, OPEN, PART
from hansard.state import redaction
from hansard.state.redaction import Redactions

#: Greater than every seq.
_ALL: Final = 1 << 62

#: Hits, and characters, that are ranked, the newest first; all others come after them.
RANKED: Final = 500
_READ: Final = 4 << 20

#: BM25's k1 and b, and the length in characters that counts as usual.
_SATURATION: Final = 1.2
_BY_LENGTH: Final = 0.75
_USUAL: Final = 400

_FOUND: Final = re.compile(f"{OPEN}([^{CLOSE}]*){CLOSE}")

#: Not shown: a terminal would take it for a command.
_CONTROL: Final = re.compile(r"[\s\x00-\x01\x04-\x1f\x7f-\x9f]+")

#: The most words of a query.
MOST: Final = 256

_TOKEN: Final = re.compile(
    r'(?P<minus>-?)"(?P<phrase>[^"]*)(?:"(?P<starred>\*?)|\Z)|(?P<word>[^\s"]+)'
)


class _Term(NamedTuple):
    """A word or phrase, as FTS5 takes it."""

    said: str
    excluded: bool


def expression(text: str) -> str:
    """Return what a user typed as an expression of FTS5; `ValueError` if the text has no word to find.

    Nothing that is typed is a syntax error: each word is quoted, and what is not an operator is a word. All
    words must occur; `OR` between two of them accepts either; `-word` or `NOT word` excludes; `"some words"`
    must be next to each other; `refun*` is the beginning of a word.
    """
    groups: list[list[str]] = []
    excluded: list[str] = []
    either = negative = False
    tokens = list(_TOKEN.finditer(text))
    for place, token in enumerate(tokens):
        word = token["word"]
        more = place + 1 < len(tokens)
        if word == "OR" and more and groups:
            either = True
            continue
        if word == "NOT" and more:
            negative = True
            continue
        if word == "AND" and more and groups:
            continue
        term = _term(token)
        if term is None:
            continue
        if negative or term.excluded:
            excluded.append(term.said)
        elif either:
            groups[-1].append(term.said)
        else:
            groups.append([term.said])
        either = negative = False
    return _joined(groups, excluded, text)


def _joined(groups: list[list[str]], excluded: list[str], text: str) -> str:
    if not groups:
        reason = (
            "say what to look for, and not only what to leave out" if excluded else "no word in it"
        )
        raise ValueError(f"search for {text!r:.60}: {reason}; give a word, such as 'refund'")
    if len(excluded) + sum(map(len, groups)) > MOST:
        raise ValueError(f"search for {text!r:.60}: more than {MOST} words; give fewer")
    wanted = " AND ".join(
        dict.fromkeys(f"({' OR '.join(dict.fromkeys(group))})" for group in groups)
    )
    if not excluded:
        return wanted
    return f"({wanted}) NOT ({' OR '.join(dict.fromkeys(excluded))})"


def _term(token: re.Match[str]) -> _Term | None:
    """Return the term of a token; None if it has no letter or digit."""
    word = token["word"]
    if word is None:
        body, starred, excluded = token["phrase"], bool(token["starred"]), bool(token["minus"])
    else:
        # `--verbose` is an option that a user searches for.
        excluded = word[0] == "-" and word[1:2] not in {"-", ""}
        starred = word.endswith("*")
        body = word[1:] if excluded else word
    if not any(map(_is_word, body)):
        return None
    # A lone surrogate can be typed, and be in no message.
    body = search_text.split(body).encode("utf-8", "replace").decode().replace('"', " ")
    return _Term(f'"{body}" *' if starred else f'"{body}"', excluded)


def _is_word(character: str) -> bool:
    """Return whether FTS5 takes a character for a part of a word."""
    found = category(character)
    return found[0] in "LN" or found == "Co"


class SearchQuery(NamedTuple):
    """What is searched for."""

    #: As FTS5 takes it (`expression`).
    expression: str
    #: Only sessions with this scope and prefix.
    filters: SessionFilter = SessionFilter()
    #: Only what this session shows.
    session: str | None = None
    #: Added at this time or later, and before this time, as events have it.
    since: str | None = None
    until: str | None = None
    role: str | None = None
    limit: int = 20


class _Log(NamedTuple):
    """A log: see the table `index_log`."""

    log: int
    id: str
    created: str
    living: bool
    first: int
    parent: str | None
    at: int


class _Way(NamedTuple):
    """How a session shows the texts of another log: through which forks, and up to which seq."""

    session: _Log
    #: The session itself, then those that it was forked from; the log in question is the one at `depth`.
    forks: list[_Log]
    depth: int
    upto: int


def ask(backend: Backend, storage: Storage, query: SearchQuery) -> list[Hit] | None:
    """Return what was found, the best first; None if the one session that is searched cannot be read."""
    shown = _Shown(backend.unscoped, storage, query)
    if not shown.is_readable():
        return None
    wanted = max(query.limit, RANKED)
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
            return [shown.hit(*hit) for hit in ranked[: query.limit]]
        fetched *= 4


class _Shown:
    """Which sessions show what, among those that are searched."""

    def __init__(self, backend: Backend, storage: Storage, query: SearchQuery) -> None:
        self._backend = backend
        self._storage = storage
        self._query = query
        self._inside, self._range = within("k", query.filters)
        self._redactions: dict[str, Redactions | None] = {}
        self._logs: dict[str, _Log | None] = {}
        #: By log, how other sessions show its texts; in a search of one session, how that does.
        self._ways: dict[int, list[_Way]] = {}
        if query.session is not None:
            self._follow(self._log(query.session), alone=True)
        else:
            for log in self._heirs():
                self._follow(log, alone=False)
        for ways in self._ways.values():
            ways.sort(key=lambda way: (way.session.created, way.session.id))

    def is_readable(self) -> bool:
        """Return whether the one session that is searched can be read."""
        if self._query.session is None:
            return True
        log = self._log(self._query.session)
        return log is not None and log.living

    # -- forks ----------------------------------------------------------------------------------

    def _heirs(self) -> list[_Log]:
        """Return the sessions that were forked from one that is not searched itself."""
        columns = ", ".join(f"k.{column}" for column in _Log._fields)
        if self._range:
            outside = f"NOT p.living OR NOT ({within('p', self._query.filters)[0]})"
            rows = self._storage.all(
                f"SELECT {columns} FROM index_log k JOIN index_log p ON p.id = k.parent "  # noqa: S608 - our own names
                f"WHERE k.living AND {self._inside} AND ({outside})",
                *self._range,
                *self._range,
            )
        else:
            rows = self._storage.all(
                f"SELECT {columns} FROM index_log p JOIN index_log k ON k.parent = p.id "  # noqa: S608 - as above
                "WHERE NOT p.living AND k.living"
            )
        return [_Log(*row) for row in rows]

    def _follow(self, log: _Log | None, *, alone: bool) -> None:
        """Go from a session to its ancestors as long as these are outside; `alone`: to all."""
        if log is None or not log.living:
            return
        forks: list[_Log] = []
        seen: set[int] = set()
        upto = _ALL
        at: _Log | None = log
        while at is not None and at.log not in seen:
            if at is not log or alone:
                if not alone and self._is_searched(at):
                    return  # it shows all of this, and more
                self._ways.setdefault(at.log, []).append(_Way(log, forks, len(forks), upto))
            forks.append(at)
            seen.add(at.log)
            upto = min(upto, at.at)
            at = None if at.parent is None else self._log(at.parent)

    def _is_searched(self, log: _Log) -> bool:
        return log.living and self._query.filters.matches_id(log.id)

    def _log(self, session_id: str) -> _Log | None:
        if session_id not in self._logs:
            row = self._storage.one(
                f"SELECT {', '.join(_Log._fields)} FROM index_log WHERE id = ?",  # noqa: S608 - as above
                session_id,
            )
            self._logs[session_id] = None if row is None else _Log(*row)
        return self._logs[session_id]

    # -- texts ----------------------------------------------------------------------------------

    def rows(self, limit: int) -> list[Row]:
        """Return the texts that match and may be shown, the newest first."""
        conditions, values = self._conditions()
        shown = [(log, max(way.upto for way in ways)) for log, ways in self._ways.items()]
        expression = self._query.expression
        return self._storage.full_text.rows(expression, conditions, values, shown, limit)

    def _conditions(self) -> tuple[str, list[Any]]:
        query = self._query
        inherited = "(w.log IS NOT NULL AND d.seq <= w.upto AND d.seq > 0 AND d.stream = '')"
        if query.session is None:
            parts, values = [f"((k.living AND {self._inside}) OR {inherited})"], list(self._range)
        else:
            parts, values = [f"(k.id = ? OR {inherited})"], [query.session]
        for condition, value in (
            ("{said} >= ?", query.since),
            ("{said} < ?", query.until),
            ("d.seq > 0 AND d.role = ?", query.role),
        ):
            if value is not None:
                parts.append(condition)
                values.append(value)
        return " AND ".join(parts), values

    def place(self, row: Row) -> tuple[int, int]:
        """Return log and seq of the event that a text is of: a fork may have another text for it."""
        log = self._of(row)
        passed = set()
        while 0 < row.seq <= log.first and log.parent is not None:
            passed.add(log.log)
            parent = self._log(log.parent)
            if parent is None:
                break
            if parent.log in passed:
                raise sqlite3.DatabaseError(f"damaged: {parent.id!r} was forked from itself")
            log = parent
        return log.log, row.seq

    def _of(self, row: Row) -> _Log:
        (session_id,) = self._storage.one("SELECT id FROM index_log WHERE log = ?", row.log)
        log = self._log(session_id)
        assert log is not None  # it has texts
        return log

    def session(self, row: Row, place: tuple[int, int]) -> str | None:
        """Return the session that shows a text; None if none does."""
        if place[0] != row.log and self._is_found_there(place):
            return None  # that one is a hit itself
        way = next(self._by(row), None)
        return None if way is None else way.session.id

    def _by(self, row: Row) -> Iterator[_Way]:
        """Yield how a text is shown, by the oldest session first."""
        log = self._of(row)
        if self._query.session is None and self._is_searched(log):
            yield _Way(log, [], 0, _ALL)
            return
        for way in self._ways.get(row.log, ()):
            if row.seq <= way.upto and not self._is_hidden(row, way):
                yield way

    def _is_hidden(self, row: Row, way: _Way) -> bool:
        """Return whether a fork on the way does not show what it inherits."""
        for fork in way.forks[: way.depth]:
            taken = self._taken_by(fork.id)
            if taken is None or row.seq < taken.before or row.seq in taken.seqs:
                return True
        return False

    def _taken_by(self, session_id: str) -> Redactions | None:
        """Return the redactions of a fork; None if it cannot be read."""
        if session_id not in self._redactions:
            try:
                controls = self._backend.log(session_id, from_trash=True).reader().controls()
            except UNREADABLE:
                self._redactions[session_id] = None
            else:
                self._redactions[session_id] = redaction.of(controls)
        return self._redactions[session_id]

    def _is_found_there(self, place: tuple[int, int]) -> bool:
        """Return whether the text that was added at a place matches too, and is shown."""
        log, seq = place
        for text, stream in self._storage.all(
            "SELECT text, stream FROM index_text WHERE log = ? AND seq = ?", log, seq
        ):
            way = next(self._by(Row(text, log, seq, "", "")), None)
            if way is None or (stream and way.depth):
                continue
            if self._storage.full_text.matches(self._query.expression, text):
                return True
        return False

    # -- hits -----------------------------------------------------------------------------------

    def ranked(self, hits: list[tuple[str, Row]]) -> list[tuple[str, Row, float]]:
        """Return hits with their ranks, the best first, of equal ones the newest."""
        found: list[tuple[str, Row, float]] = []
        room = _READ
        # Ties are broken by the session that shows a text, not by one outside that holds it.
        for session_id, row in sorted(hits, key=lambda hit: (hit[0], hit[1].seq)):
            found.append((session_id, row, 0.0))
        found.sort(key=lambda hit: hit[1].time, reverse=True)
        for at, (session_id, row, _) in enumerate(found[:RANKED]):
            if room <= 0:
                break
            text = self._storage.full_text.marked(self._query.expression, row.text)
            room -= len(text)
            found[at] = (session_id, row, rank(text))
        return sorted(found, key=lambda hit: -hit[2])

    def hit(self, session_id: str, row: Row, fits: float) -> Hit:
        """Return what was found, with the words around it."""
        raw = self._storage.full_text.snippet(self._query.expression, row.text)
        snippet, matches = _marked(raw)
        (title,) = self._storage.one("SELECT title FROM index_session WHERE id = ?", session_id)
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
    """Return how well a text matches, by its marks alone: BM25 without what depends on other texts."""
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
