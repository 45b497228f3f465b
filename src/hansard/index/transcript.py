"""Read the texts of one log into the index: what is new in it, and what was taken out of it.

Above: `indexing`.  Below: `text` (what of a message), `documents` (the rows), `state`, `backend.contract`.
A log is read for itself, without what it inherits. A fork adds what it shows otherwise than those it was
forked from: what it has redacted is hidden, what it has scrubbed stands here as scrubbed, and a message in
whose middle it was forked stands here as far as it inherits it.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from hansard.backend.contract import Backend, Head, LogReader
from hansard.errors import UNREADABLE, SessionDeleted
from hansard.event import kinds
from hansard.event.envelope import Event
from hansard.event.kinds import (
    MESSAGE_ADDED,
    MESSAGE_PART,
    MESSAGE_REDACTED,
    SESSION_REPAIRED,
    SUMMARY_ADDED,
)
from hansard.index.database import Database
from hansard.index.documents import Documents, Partial, Talk
from hansard.state import lineage, redaction
from hansard.state.fork_graph import ForkGraph
from hansard.state.redaction import Redactions
from hansard.state.streams import Streams

Count = Callable[[str, int], None]

#: What an event costs that has no text, in characters.
_EVENT: Final = 100


class _Said(msgspec.Struct):
    """As much of an event's data as it takes to find its message."""

    message: Any = None
    stream: Any = None


_said = msgspec.json.Decoder(_Said).decode


class Transcript:
    """Reads logs into the rows of the index, as much as one step may."""

    def __init__(self, backend: Backend, database: Database, step: int, removed: int) -> None:
        self._backend = backend.whole
        self._graph = ForkGraph(self._backend)
        self._documents = Documents(database, step, removed)

    def is_full(self) -> bool:
        """Say whether the step has done enough."""
        return self._documents.is_full()

    def find(self, session_id: str) -> Talk | None:
        """Return what is known of a log; None if nothing is."""
        return self._documents.find(session_id)

    def deleted(self) -> list[Talk]:
        """Return the logs of deleted sessions of which something is kept."""
        return self._documents.deleted()

    # -- living sessions ------------------------------------------------------------------------

    def read_living(self, session_id: str, talk: Talk | None, title: str, count: Count) -> bool:
        """Read what is new of a session; say whether that was all."""
        own = self._backend.log(session_id).reader()
        head, first = own.head(), own.first()
        if head is None or first is None:
            raise SessionDeleted(f"session {session_id!r} is gone")
        # After the head: what has been taken out by now is away, whenever it was said.
        redactions, begun = self._inherited(own, first)
        if talk is not None and not (talk.living and _goes_on(own, head, talk)):
            if not self._documents.empty(talk):
                return False
            talk = None
        if talk is None:
            talk = self._documents.begin(
                session_id, head.created, first, lineage.fork_source(first)
            )
            self._documents.change(talk, living=True, checked=head.seq)
            talk = talk._replace(living=True, checked=head.seq)
        reader = _Reader(self._graph, own, talk, redactions, self._documents)
        if not reader.read(head.seq, count) or not reader.drop():
            return False
        self._documents.change(talk, checked=head.seq)
        if talk.parent is not None:
            reader.add_own_view(own.controls(), begun, talk.first)
        self._documents.set_title(talk, title)
        return True

    def _inherited(self, own: LogReader, first: Event) -> tuple[Redactions, dict[str, int]]:
        """Return what was taken out of a session, and the unfinished streams that only it inherits."""
        taken = redaction.of(own.controls())
        if lineage.fork_source(first) is None:
            return taken, {}
        seen = self._graph.seen(own.session_id, first, taken)
        return seen.redactions, self._graph.new_streams(own.session_id, seen)

    # -- deleted sessions -----------------------------------------------------------------------

    def add_deleted(self, session_id: str) -> str | None:
        """Get to know a deleted session from which another one was forked; return what it was forked from."""
        try:
            own = self._backend.ancestor(session_id).reader()
            head, first = own.head(), own.first()
        except UNREADABLE:
            head = first = None
        created = head.created if head else ""
        return self._documents.begin(session_id, created, first, lineage.fork_source(first)).parent

    def read_deleted(self, talk: Talk, need: int) -> bool:
        """Keep of a deleted session what is shown of it up to a seq, and no more; say whether it is done."""
        if talk.seq < 0 or not need:
            if not self._documents.empty(talk):
                return False
            if not need:
                return True
            self.add_deleted(talk.id)
        elif not self._documents.trim(talk, need):
            return False
        talk = self._documents.found(talk.id)
        if talk.seq >= need and talk.checked == need:
            return True
        try:
            done = self._read_deleted(talk, need)
        except UNREADABLE:
            # Of what cannot be shown nothing is found.
            done = self._documents.clear(talk)
            if done:
                self._documents.change(talk, seq=need)
        if done:
            self._documents.change(talk, checked=need)
        return done

    def _read_deleted(self, talk: Talk, need: int) -> bool:
        own = self._backend.ancestor(talk.id).reader()
        first = own.first()
        if first is None:
            raise SessionDeleted(f"session {talk.id!r} is gone")
        redactions, _ = self._inherited(own, first)
        reader = _Reader(self._graph, own, talk, redactions, self._documents)
        if (talk.seq < need and not reader.read(need, None)) or not reader.drop():
            return False
        if talk.parent is not None:
            reader.add_own_view(own.controls(), {}, min(talk.first, need))
        return True


def _goes_on(own: LogReader, head: Head, talk: Talk) -> bool:
    """Say whether a log is the one that was read, and has only grown."""
    if talk.created != head.created or not talk.first <= talk.seq <= head.seq:
        return False
    if talk.seq == talk.first:
        return True
    last = [event for chunk in own.read(talk.seq - 1, talk.seq) for event in chunk.events()]
    return bool(last) and last[-1].stamp == talk.stamp


class _Reader:
    """Reads one log on from where it was left."""

    def __init__(
        self,
        graph: ForkGraph,
        own: LogReader,
        talk: Talk,
        redactions: Redactions,
        documents: Documents,
    ) -> None:
        self._graph = graph
        self._own = own
        self._talk = talk
        self._redactions = redactions
        self._documents = documents
        self._partials = documents.partials(talk) if talk.living else {}

    def read(self, upto: int, count: Count | None) -> bool:
        """Read up to a seq, or until the step is full; say which."""
        talk, documents = self._talk, self._documents
        at, stamp = talk.seq, talk.stamp
        for stream in [found for found in self._partials if found in self._redactions.streams]:
            self._end(stream, forgotten=True)
        for chunk in self._own.read(at, upto):
            events = chunk.events()
            if not events:
                continue
            for event in events:
                self._add(event)
            at, stamp = events[-1].seq, events[-1].stamp
            documents.count(_EVENT * len(events))
            if count is not None:
                count(talk.id, len(events))
            if documents.is_full() and at < upto:
                break
        for partial in self._partials.values():
            documents.keep_partial(talk, partial)
        restart = documents.find(talk.id)
        assert restart is not None  # it was made before it is read
        if restart.seq < 0:
            return False
        documents.change(talk, seq=at, stamp=stamp)
        return at >= upto

    def _add(self, event: Event) -> None:
        kind = event.kind
        if kind in {MESSAGE_ADDED, SUMMARY_ADDED}:
            self._add_message(self._redactions.mask(event))
        elif kind == MESSAGE_PART:
            if self._talk.living:
                self._add_part(self._redactions.mask(event))
        elif kind == MESSAGE_REDACTED:
            if event.seq > self._talk.checked and self._talk.living:
                read = kinds.read(MESSAGE_REDACTED, event.raw)
                if read is not None and read.seq > self._talk.first:
                    self._check(read.seq)
        elif kind == SESSION_REPAIRED and event.seq > self._talk.checked and self._talk.living:
            # What was read before may have been mended since: begin anew.
            self._documents.change(self._talk, seq=-1)

    def _add_message(self, event: Event) -> None:
        try:
            said = _said(event.raw)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return  # what has another shape says nothing to a view either
        self._documents.add(self._talk, event.seq, event.stamp, said.message)
        if isinstance(said.stream, str) and said.stream in self._partials:
            self._end(said.stream, forgotten=said.message is None)

    # -- streams --------------------------------------------------------------------------------

    def _add_part(self, event: Event) -> None:
        part = kinds.read(MESSAGE_PART, event.raw)
        if part is None:
            return
        if part.over:
            if part.stream in self._partials:
                self._end(part.stream, forgotten=True)
            return
        partial = self._partials.get(part.stream)
        if partial is None:
            message = {"role": "assistant"} if part.message is None else part.message
            partial = self._partials[part.stream] = Partial(part.stream, message)
        partial.add(event.seq, event.stamp, part.text)

    def _end(self, stream: str, *, forgotten: bool) -> None:
        self._documents.end_partial(self._talk, self._partials.pop(stream), forgotten=forgotten)

    # -- what was taken out ---------------------------------------------------------------------

    def _check(self, seq: int) -> None:
        """Look again at a text that was read before something was taken out of it."""
        instead = self._redactions.seqs.get(seq)
        if instead is None:
            if seq in self._redactions.seqs:
                self._documents.remove(self._talk, seq)
            return
        self._documents.remove(self._talk, seq)
        self._add_again(self._own, seq)

    def _add_again(self, log: LogReader, seq: int) -> None:
        for chunk in log.read(seq - 1, seq):
            for event in chunk.events():
                if event.kind in {MESSAGE_ADDED, SUMMARY_ADDED}:
                    self._add_message(self._redactions.mask(event))

    def drop(self) -> bool:
        """Take out what was said before the seq up to which history was dropped; say whether all of it is."""
        bound = self._redactions.before
        return self._documents.remove_before(self._talk, bound)

    # -- forks ----------------------------------------------------------------------------------

    def add_own_view(self, controls: list[Event], streams: dict[str, int], upto: int) -> None:
        """Add what a fork shows otherwise of what it inherits, up to a seq.

        `controls`: the fork's own control events. `streams`: unfinished inherited ones, and their last
        parts.
        """
        talk, documents = self._talk, self._documents
        taken = redaction.of([event for event in controls if event.seq > talk.first])
        documents.hide(talk, [seq for seq in taken.seqs if seq <= talk.first])
        documents.change(talk, bound=min(taken.before, talk.first + 1))
        documents.remove_inherited(talk)
        for seq in sorted(taken.seqs):
            if seq <= upto and self._redactions.seqs.get(seq) is not None:
                holder = self._graph.holder(talk.id, seq)
                if holder is not None:
                    self._add_again(holder, seq)
        if talk.living:
            self._add_inherited_parts(streams)

    def _add_inherited_parts(self, streams: dict[str, int]) -> None:
        """Add the messages that were being streamed where the fork begins: it inherits no end of them.

        Forks of this one inherit these texts. The parts are read in the log that holds the last one.
        """
        for stream, seq in streams.items():
            log = self._graph.holder(self._talk.id, seq)
            if log is None:
                continue
            parts = Streams(self._redactions.streams)
            stamp = ""
            for chunk in log.read_back(upto=seq):
                if not stamp:
                    stamp = chunk.events()[-1].stamp
                parts.backwards([one for one in chunk.streamed() if one.stream == stream])
                if not parts.cut():
                    break
            for last, message in parts.unfinished():
                self._documents.add(self._talk, last, stamp, message)
