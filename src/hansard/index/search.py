"""Search the index: which messages match, and which session shows them.

A text is stored with the log that it was added to, and is found there: once, however many forks inherit it.
If that session is deleted, or outside of the search, the oldest fork inside that shows it is named. A search
of one session finds what that session shows, including inherited messages. The log of a fork says which
inherited messages the fork has redacted.

The rank of a text depends on how often each word occurs in it, and how long it is. It depends on no other
text, so the ranks of a scoped store reveal nothing about others. Only the newest hits are ranked, because
that reads them.
"""

import re
from collections import Counter
from typing import Final, NamedTuple
from unicodedata import category

from hansard.backend.contract import Backend
from hansard.errors import UNREADABLE
from hansard.index import Hit
from hansard.index.listing import SessionFilter, within
from hansard.index.sqlite_storage import IndexRow, Storage, TextLog
from hansard.index.text_index import find_log
from hansard.message import search_text
from hansard.message.search_text import CLOSE, OPEN, PART
from hansard.state import redaction
from hansard.state.redaction import Redactions

#: Greater than every seq, and than every number of hits.
_ALL: Final = 1 << 62

#: Hits, and characters, that are ranked, the newest first; all others come after them.
RANKED: Final = 200
_READ: Final = 4 << 20

_HIGHLIGHT: Final = "highlight(index_words, 0, ?, ?)"
#: 24: the words of a snippet.
_SNIPPET: Final = "snippet(index_words, 0, ?, ?, '…', 24)"

#: BM25's k1 and b, and the average length in characters.
_SATURATION: Final = 1.2
_BY_LENGTH: Final = 0.75
_AVERAGE: Final = 400

_FOUND: Final = re.compile(f"{OPEN}([^{CLOSE}]*){CLOSE}")

#: Not shown: a terminal would take it for a command.
_CONTROL: Final = re.compile(r"[\s\x00-\x01\x04-\x1f\x7f-\x9f]+")

#: The most words of a query.
MOST: Final = 256

_TOKEN: Final = re.compile(
    r'(?P<minus>-?)"(?P<phrase>[^"]*)(?:"(?P<starred>\*?)|\Z)|(?P<word>[^\s"]+)'
)


def expression(text: str) -> str:
    """Return a user's query as an expression of FTS5; `ValueError` if it has no word to find.

    No query is a syntax error: each word is quoted, and what is not an operator is a word. All words must
    occur; `OR` between two of them accepts either; `-word` or `NOT word` excludes; `"some words"` must be
    adjacent; `refun*` is the beginning of a word.
    """
    groups: list[list[str]] = []
    excluded: list[str] = []
    either = negative = False
    tokens = list(_TOKEN.finditer(text))
    for place, token in enumerate(tokens):
        word = token["word"]
        if place + 1 < len(tokens) and (word == "NOT" or (word in {"OR", "AND"} and groups)):
            either = either or word == "OR"
            negative = negative or word == "NOT"
            continue
        term, minus = _term(token)
        if not term:
            continue
        if negative or minus:
            excluded.append(term)
        elif either:
            groups[-1].append(term)
        else:
            groups.append([term])
        either = negative = False
    if not groups:
        reason = "it only excludes words" if excluded else "no word in it"
        raise ValueError(f"search for {text!r:.60}: {reason}; give a word, such as 'refund'")
    if len(excluded) + sum(map(len, groups)) > MOST:
        raise ValueError(f"search for {text!r:.60}: more than {MOST} words; give fewer")
    wanted = " AND ".join(dict.fromkeys(f"({_either(group)})" for group in groups))
    return f"({wanted}) NOT ({_either(excluded)})" if excluded else wanted


def _either(terms: list[str]) -> str:
    return " OR ".join(dict.fromkeys(terms))


def _term(token: re.Match[str]) -> tuple[str, bool]:
    """Return a word or phrase as FTS5 takes it, and whether it is excluded; empty without a word."""
    word = token["word"]
    if word is None:
        body, starred, minus = token["phrase"], bool(token["starred"]), bool(token["minus"])
    else:
        # `--verbose` is an option that a user searches for.
        minus = word[0] == "-" and word[1:2] not in {"-", ""}
        starred = word.endswith("*")
        body = word[1:] if minus else word
    if not any(map(_is_word, body)):
        return "", minus
    # A lone surrogate can be typed, and be in no message.
    body = search_text.split(body).encode("utf-8", "replace").decode().replace('"', " ")
    return f'"{body}" *' if starred else f'"{body}"', minus


def _is_word(character: str) -> bool:
    """Return whether FTS5 takes a character for a part of a word."""
    found = category(character)
    return found[0] in "LN" or found == "Co"


class SearchQuery(NamedTuple):
    """A search."""

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


class _Way(NamedTuple):
    """How a session shows the texts of another log: through which forks, and up to which seq."""

    session: TextLog
    #: The session itself, then those that it was forked from; the log in question is the one at `depth`.
    forks: list[TextLog]
    depth: int
    upto: int


def ask(backend: Backend, storage: Storage, query: SearchQuery) -> list[Hit] | None:
    """Return the hits, the best first; None if the one session that is searched cannot be read."""
    shown = _Shown(backend.unscoped, storage, query)
    if query.session is not None and not shown.ways:
        return None
    wanted = fetched = min(max(query.limit, RANKED), _ALL)
    while True:
        rows = shown.rows(fetched + 1)
        found = [(shown.session(row.log, row.seq), row) for row in rows[:fetched]]
        named = [(session, row) for session, row in found if session is not None]
        if len(named) >= wanted or len(rows) <= fetched:
            return shown.hits(named[:wanted])
        fetched *= 4


class _Shown:
    """Which sessions show what, among those that are searched."""

    def __init__(self, backend: Backend, storage: Storage, query: SearchQuery) -> None:
        self._backend = backend
        self._storage = storage
        self._query = query
        self._inside, self._range = within("k", query.filters)
        self._redactions: dict[str, Redactions | None] = {}
        self._logs: dict[str, TextLog | None] = {}
        #: By log, how other sessions show its texts; in a search of one session, how that does. Empty then
        #: if that session cannot be read.
        self.ways: dict[int, list[_Way]] = {}
        for log in self._heirs() if query.session is None else [self._log(query.session)]:
            if log is not None and log.living:
                self._follow(log)
        for ways in self.ways.values():
            ways.sort(key=lambda way: (way.session.created, way.session.id))

    def _heirs(self) -> list[TextLog]:
        """Return the sessions that were forked from one that is not searched itself."""
        outside = "NOT p.living"
        if self._range:
            outside += f" OR NOT ({within('p', self._query.filters)[0]})"
        rows = self._storage.all(
            f"SELECT {', '.join(f'k.{column}' for column in TextLog._fields)} "  # noqa: S608 - our own names
            "FROM index_log p JOIN index_log k ON k.parent = p.id "
            f"WHERE ({outside}) AND k.living AND {self._inside}",
            *self._range,
            *self._range,
        )
        return [TextLog(*row) for row in rows]

    def _follow(self, session: TextLog) -> None:
        """Go from a session to its ancestors: as long as these are outside, or to all of the one session."""
        alone = self._query.session is not None
        forks: list[TextLog] = []
        seen: set[int] = set()
        upto = _ALL
        at: TextLog | None = session
        while at is not None and at.log not in seen:
            if at is not session or alone:
                if not alone and self._is_searched(at):
                    return  # it shows all of this, and more
                self.ways.setdefault(at.log, []).append(_Way(session, forks, len(forks), upto))
            forks.append(at)
            seen.add(at.log)
            upto = min(upto, at.at)
            at = None if at.parent is None else self._log(at.parent)

    def _is_searched(self, log: TextLog) -> bool:
        return log.living and self._query.filters.matches_id(log.id)

    def _log(self, session_id: str) -> TextLog | None:
        if session_id not in self._logs:
            self._logs[session_id] = find_log(self._storage, session_id)
        return self._logs[session_id]

    def rows(self, limit: int) -> list[IndexRow]:
        """Return the texts that match and may be shown, the newest first."""
        query = self._query
        shown = [(log, max(way.upto for way in ways)) for log, ways in self.ways.items()]
        if query.session is None:
            inside, values = f"(k.living AND {self._inside})", list(self._range)
        else:
            inside, values = "k.id = ?", [query.session]
        if shown:
            inherited = "(w.log IS NOT NULL AND d.seq <= w.upto AND d.seq > 0)"
            inside = f"({inside} OR {inherited})"
        parts = [inside]
        for condition, value in (
            ("d.time >= ?", query.since),
            ("d.time < ?", query.until),
            ("d.seq > 0 AND d.role = ?", query.role),
        ):
            if value is not None:
                parts.append(condition)
                values.append(value)
        return self._storage.matching_texts(
            query.expression, " AND ".join(parts), values, shown, limit
        )

    def session(self, log: TextLog, seq: int) -> TextLog | None:
        """Return the session that shows a text, the oldest if there are several; None if none does."""
        if self._query.session is None and self._is_searched(log):
            return log
        for way in self.ways.get(log.log, ()):
            if seq <= way.upto and not any(
                self._hides(fork.id, seq) for fork in way.forks[: way.depth]
            ):
                return way.session
        return None

    def _hides(self, session_id: str, seq: int) -> bool:
        """Return whether a fork does not show an inherited message, by its log."""
        if session_id not in self._redactions:
            try:
                controls = self._backend.log(session_id, from_trash=True).reader().controls()
            except UNREADABLE:
                self._redactions[session_id] = None
            else:
                self._redactions[session_id] = redaction.of(controls)
        taken = self._redactions[session_id]
        return taken is None or seq < taken.before or seq in taken.seqs

    def hits(self, found: list[tuple[TextLog, IndexRow]]) -> list[Hit]:
        """Return the best hits: by rank, then by time."""
        # Ties are broken by the session that shows a text, not by one outside that holds it.
        found.sort(key=lambda hit: (hit[0].id, hit[1].seq))
        found.sort(key=lambda hit: hit[1].time, reverse=True)
        texts: list[int] = []
        left = _READ
        for _, row in found[:RANKED]:
            if left > 0:
                texts.append(row.text)
            left -= row.size
        ranks = {text: rank(marked) for text, marked in self._marked(_HIGHLIGHT, texts).items()}
        found.sort(key=lambda hit: -ranks.get(hit[1].text, 0.0))
        best = found[: self._query.limit]
        snippets: dict[int, str] = {}
        for at in range(0, len(best), RANKED):
            snippets |= self._marked(_SNIPPET, [row.text for _, row in best[at : at + RANKED]])
        return [
            Hit(
                session.id,
                row.seq,
                row.time,
                row.role,
                *_unmarked(snippets.get(row.text, "")),
                ranks.get(row.text, 0.0),
                session.title or None,
            )
            for session, row in best
        ]

    def _marked(self, function: str, texts: list[int]) -> dict[int, str]:
        """Return texts, or snippets of them, with marks around each match."""
        expression = self._query.expression
        return self._storage.ask_texts(function, expression, texts, OPEN, CLOSE)


def rank(marked: str) -> float:
    """Return how well a text with marks matches: BM25 without the terms that depend on other texts."""
    counts = Counter(word.casefold() for word in _FOUND.findall(marked))
    length = len(marked) / _AVERAGE
    norm = _SATURATION * (1 - _BY_LENGTH + _BY_LENGTH * length)
    return sum(count * (_SATURATION + 1) / (count + norm) for count in counts.values())


def _unmarked(raw: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Return a snippet without its marks, and start and end of each match."""
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
