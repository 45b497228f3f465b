"""The rows of the index of texts: write them, and take them out.

Above: `transcript`.  Below: `database`, `text`.
"""

from typing import Any, Final, NamedTuple

import msgspec

from hansard.event.envelope import Event
from hansard.event.kinds import SessionForked
from hansard.index.database import RESIDUE, Database
from hansard.message import search_text as texts

#: Under this key stands whether it is to be seen what is shown of deleted sessions.
UNSETTLED: Final = "unsettled"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Talk(NamedTuple):
    """What is known of a log: see the table `talk`."""

    t: int
    id: str
    created: str
    living: bool
    first: int
    parent: str | None
    at: int
    seq: int
    stamp: str
    checked: int
    bound: int
    title: str


_COLUMNS: Final = ", ".join(Talk._fields)


class Partial:
    """A message that is being streamed."""

    __slots__ = ("_pieces", "changed", "kept", "message", "seq", "stream", "time")

    def __init__(self, stream: str, message: dict[str, Any]) -> None:
        self.stream = stream
        self.message = message
        self.seq = 0
        self.time = ""
        #: The seq of the text that is in the index; 0 if there is none.
        self.kept = 0
        self.changed = False
        self._pieces: list[str] = []

    def add(self, seq: int, time: str, text: str) -> None:
        """Add a part."""
        self.seq, self.time, self.changed = seq, time, True
        self._pieces.append(text)

    @property
    def content(self) -> str:
        """All that was said so far."""
        return "".join(self._pieces)


class Documents:
    """The texts that can be found, each a row of `doc` and of `found`."""

    def __init__(self, database: Database, step: int, removed: int) -> None:
        self._database = database
        #: How many more characters may be written, and how many texts taken out.
        self._room = step
        self._removable = removed
        (self._last,) = database.one("SELECT coalesce(max(d), 0) FROM doc")

    def is_full(self) -> bool:
        """Say whether enough was done for one step."""
        return self._room <= 0 or self._removable <= 0

    def count(self, characters: int) -> None:
        """Note that something was done."""
        self._room -= characters

    # -- logs -----------------------------------------------------------------------------------

    def find(self, session_id: str) -> Talk | None:
        """Return what is known of a log; None if nothing is."""
        row = self._database.one(f"SELECT {_COLUMNS} FROM talk WHERE id = ?", session_id)  # noqa: S608 - our own names
        return None if row is None else Talk(*row)

    def found(self, session_id: str) -> Talk:
        """Return the same of one that is known."""
        talk = self.find(session_id)
        assert talk is not None  # the caller knows it
        return talk

    def deleted(self) -> list[Talk]:
        """Return the logs of deleted sessions."""
        rows = self._database.all(f"SELECT {_COLUMNS} FROM talk WHERE NOT living ORDER BY t")  # noqa: S608 - as above
        return [Talk(*row) for row in rows]

    def begin(
        self, session_id: str, created: str, first: Event | None, forked: SessionForked | None
    ) -> Talk:
        """Get to know a log; none of it is read yet."""
        begin = 0 if first is None else first.seq - 1
        if forked is not None:
            self._database.put(UNSETTLED, 1)
        self._database.do(
            "INSERT INTO talk (id, created, first, parent, at, seq, checked) VALUES (?,?,?,?,?,?,-1)",
            session_id,
            created,
            begin,
            None if forked is None else forked.parent,
            # Whatever the event says, a child has no more than what comes before it.
            0 if forked is None else min(forked.seq, begin),
            begin,
        )
        return self.found(session_id)

    def change(self, talk: Talk, **values: Any) -> None:
        """Note something about a log."""
        sets = ", ".join(f"{column} = ?" for column in values)
        self._database.do(
            f"UPDATE talk SET {sets} WHERE t = ?",  # noqa: S608 - as above
            *values.values(),
            talk.t,
        )

    def empty(self, talk: Talk) -> bool:
        """Forget a log and all its texts; False if some are left for another step."""
        self.change(talk, seq=-1)
        if not self.clear(talk):
            return False
        self._database.do("DELETE FROM talk WHERE t = ?", talk.t)
        return True

    def clear(self, talk: Talk) -> bool:
        """Take out all texts of a log; False if some are left for another step."""
        if not self._remove_where("t = ?", talk.t):
            return False
        self._database.do("DELETE FROM partial WHERE t = ?", talk.t)
        self._database.do("DELETE FROM hidden WHERE t = ?", talk.t)
        return True

    def trim(self, talk: Talk, need: int) -> bool:
        """Take out what others do not show of a log, beyond a seq; False if some is left for another step."""
        if not self._remove_where("t = ? AND (seq > ? OR seq = 0)", talk.t, need):
            return False
        if not self._remove_where("t = ? AND alone", talk.t):
            return False
        self._database.do("DELETE FROM partial WHERE t = ?", talk.t)
        self.change(talk, seq=max(min(talk.seq, need), min(talk.first, need)), title="")
        return True

    # -- texts ----------------------------------------------------------------------------------

    def add(self, talk: Talk, seq: int, time: str, message: object, *, alone: bool = False) -> None:
        """Add the text of a message, if it has any."""
        text = texts.of(message)
        if not text or text.isspace():
            return
        role = message.get("role") if isinstance(message, dict) else None
        self._insert(talk, seq, time, role if isinstance(role, str) else "", text, alone=alone)

    def _insert(
        self, talk: Talk, seq: int, time: str, role: str, text: str, *, alone: bool
    ) -> None:
        self._last += 1
        self._room -= len(text)
        self._database.do(
            "INSERT INTO doc VALUES (?,?,?,?,?,?)", self._last, talk.t, seq, alone, time, role
        )
        self._database.words.add(self._last, texts.split(text))

    def set_title(self, talk: Talk, title: str) -> None:
        """Let a session be found by its title."""
        if title == talk.title:
            return
        self._remove_where("t = ? AND seq = 0", talk.t)
        if title.strip():
            self._insert(talk, 0, "", "", title, alone=True)
        self.change(talk, title=title)

    def remove(self, talk: Talk, seq: int) -> None:
        """Take out the text of a message."""
        self._remove_where("t = ? AND seq = ? AND NOT alone", talk.t, seq)

    def remove_before(self, talk: Talk, bound: int) -> bool:
        """Take out what a log itself has said before a seq; False if some is left for another step."""
        if bound <= talk.first:
            return True
        return self._remove_where(
            "t = ? AND seq > ? AND seq < ? AND NOT alone", talk.t, talk.first, bound
        )

    def remove_inherited(self, talk: Talk) -> None:
        """Take out what a fork shows in the place of what it inherits."""
        self._remove_where("t = ? AND seq > 0 AND seq <= ?", talk.t, talk.first)

    def hide(self, talk: Talk, seqs: list[int]) -> None:
        """Note what a fork does not show of what it inherits."""
        self._database.do_all(
            "INSERT OR IGNORE INTO hidden VALUES (?,?)", [(talk.t, seq) for seq in seqs]
        )

    def _remove_where(self, condition: str, *values: Any, forgotten: bool = True) -> bool:
        """Take out texts, no more than a step may; say whether those were all."""
        limit = max(self._removable, 1)
        rows = self._database.all(
            f"SELECT d FROM doc WHERE {condition} LIMIT ?",  # noqa: S608 - our own conditions
            *values,
            limit + 1,
        )
        some = rows[:limit]
        if some:
            self._removable -= len(some)
            self._database.words.remove(some)
            self._database.do_all("DELETE FROM doc WHERE d = ?", some)
            if forgotten:
                self._database.put(RESIDUE, 1)
        return len(rows) <= limit

    # -- streams --------------------------------------------------------------------------------

    def partials(self, talk: Talk) -> dict[str, Partial]:
        """Return the messages of a log that are being streamed."""
        found: dict[str, Partial] = {}
        for stream, seq, time, message, content in self._database.all(
            "SELECT stream, seq, time, message, content FROM partial WHERE t = ?", talk.t
        ):
            partial = found[stream] = Partial(stream, _decode(message))
            partial.add(seq, time, content)
            partial.kept, partial.changed = seq, False
        return found

    def keep_partial(self, talk: Talk, partial: Partial) -> None:
        """Keep what was streamed so far of a message."""
        if not partial.changed:
            return
        self._take_back(talk, partial, forgotten=False)
        content = partial.content
        self._database.do(
            "INSERT OR REPLACE INTO partial VALUES (?,?,?,?,?,?)",
            talk.t,
            partial.stream,
            partial.seq,
            partial.time,
            _encode(partial.message),
            content,
        )
        message = {**partial.message, "content": content}
        self.add(talk, partial.seq, partial.time, message, alone=True)
        partial.kept, partial.changed = partial.seq, False

    def end_partial(self, talk: Talk, partial: Partial, *, forgotten: bool) -> None:
        """Forget what was streamed of a message: it was added whole, or is gone."""
        self._take_back(talk, partial, forgotten=forgotten)
        self._database.do("DELETE FROM partial WHERE t = ? AND stream = ?", talk.t, partial.stream)

    def _take_back(self, talk: Talk, partial: Partial, *, forgotten: bool) -> None:
        if partial.kept:
            self._remove_where(
                "t = ? AND seq = ? AND alone", talk.t, partial.kept, forgotten=forgotten
            )
