"""Drop the beginning of a session's history, for good.

What was said before a seq is taken out as a redaction takes out a message: one event says so, no view shows
it from then on, and compaction removes the bytes. The places stay, so seqs, keys, labels and forks mean what
they meant; and so does what was done to the session, which is its state. The reasons are in
docs/decisions/0013-dropping-history.md.

*Nothing is cut in two.* The bound moves back to where no tool call is cut from its result, and no streamed
message from its beginning. A stream that nobody has gone on with goes as a whole; should its message come
after all, that is shown.
"""

import msgspec

from hansard.backend.contract import AppendRequest, Backend, Log, LogReader
from hansard.errors import InvalidEvent, SessionNotFound
from hansard.event import codec, kinds
from hansard.event.envelope import Event, NewEvent
from hansard.event.kinds import CONTROL, HISTORY_DROPPED, MESSAGE_ADDED, MESSAGE_PART, is_said
from hansard.maintenance.trash import check_unused
from hansard.message import tool_calls
from hansard.state import lineage
from hansard.state.redaction import Redactions


class DropReport(msgspec.Struct, frozen=True):
    """What `drop_history` took out, or would take out.

    Attributes:
        session: whose history it is.
        before: what was said before this seq is out. It may lie before the seq that was asked for, so that no
            call is cut from its result and no streamed message in two.
        events: how many events lost their data, of those that had not before.
        messages: how many of them are messages.
        bytes: how many bytes of data, before compression, the next compaction removes. What a fork inherits
            is its parent's and not counted.
        seq: the event that says so; 0 if there was nothing to drop, or nothing was done.
        dry_run: nothing was dropped; these are the numbers of what would be.
    """

    session: str
    before: int
    events: int = 0
    messages: int = 0
    bytes: int = 0
    seq: int = 0
    dry_run: bool = False


def drop_history(
    backend: Backend, own: Log, before: int, *, reason: str, dry_run: bool
) -> DropReport:
    """Append the event that drops what was said before a seq; return what that is.

    Args:
        backend: where to look for sessions that were forked from this one.
        own: the session itself.
        before: the first seq that is to stay.
        reason: kept with the event.
        dry_run: only look.
    """
    reader = own.reader()
    head, first = reader.head(), reader.first()
    if head is None or first is None:
        raise SessionNotFound(f"no session {own.session_id!r} in this store, so no history to drop")
    if type(before) is not int or not 0 <= before <= head.seq + 1:
        raise InvalidEvent(
            f"cannot drop the history before seq {before!r}: last seq of session {own.session_id!r} is "
            f"{head.seq}"
        )
    whole = lineage.with_ancestors(backend, reader)
    known = lineage.redactions_of(whole)
    cuts = _Cuts(known)
    # What was dropped before has nothing to say.
    for chunk in whole.read(after=max(known.before - 1, 0), upto=head.seq):
        for event in chunk.events():
            cuts.add(event)
    bound = cuts.last_legal(before)
    events, messages, size, lowest = _count(whole, known, bound, first.seq)
    report = DropReport(own.session_id, bound, events, messages, size, dry_run=dry_run)
    if not events:
        return report
    # A fork that begins before all that goes loses nothing.
    refusal = f"the history of session {own.session_id!r} cannot be dropped"
    check_unused(backend, own.session_id, head.created, refusal, since=lowest)
    if dry_run:
        return report
    facts = {
        "before": bound,
        "reason": reason,
        "streams": cuts.unfinished(bound),
        "events": events,
        "messages": messages,
    }
    raw = codec.encode({name: value for name, value in facts.items() if value})
    if kinds.read(HISTORY_DROPPED, raw) is None:
        raise InvalidEvent(f"the reason must be text, not {type(reason).__name__}")
    (event,) = own.append(
        AppendRequest([NewEvent(HISTORY_DROPPED, raw, HISTORY_DROPPED in CONTROL)])
    )
    # Whatever the store's durability: who is told that it is gone must not find it there again.
    own.sync()
    return msgspec.structs.replace(report, seq=event.seq)


def _count(
    whole: LogReader, known: Redactions, bound: int, first: int
) -> tuple[int, int, int, int]:
    """Return what a bound takes out: events, messages, bytes of the session's own, and the lowest seq."""
    after = known._replace(before=bound)
    events = messages = size = lowest = 0
    for chunk in whole.read(after=max(known.before - 1, 0), upto=bound - 1) if bound else ():
        for event in chunk.events():
            shown = known.mask(event)
            if not is_said(event.kind) or after.mask(event).raw == shown.raw:
                continue
            lowest = lowest or event.seq
            events += 1
            messages += event.kind == MESSAGE_ADDED
            size += len(shown.raw) if event.seq >= first else 0
    return events, messages, size, lowest


class _Cuts:
    """The places between which nothing may be cut, found by going once through the events."""

    __slots__ = ("_known", "_spans", "_streams", "_waiting")

    def __init__(self, known: Redactions) -> None:
        self._known = known
        #: First and last seq of what belongs together: no bound lies behind the one and not behind the other.
        self._spans: list[tuple[int, int]] = []
        #: Of each stream the same, and whether it is over.
        self._streams: dict[str, tuple[int, int, bool]] = {}
        #: The calls without a result so far.
        self._waiting: dict[str, int] = {}

    def add(self, event: Event) -> None:
        """Take in the next event."""
        if event.kind == MESSAGE_PART:
            part = kinds.read(MESSAGE_PART, event.raw)
            if part is not None and part.stream not in self._known.streams:
                self._say(part.stream, event.seq, over=part.over)
        elif event.kind == MESSAGE_ADDED:
            added = kinds.read(MESSAGE_ADDED, self._known.mask(event).raw)
            if added is None:
                return
            if added.stream is not None and added.stream not in self._known.streams:
                self._say(added.stream, event.seq, over=True)
            answered = tool_calls.results(added.message)
            for call_id in answered:
                if call_id in self._waiting:
                    self._spans.append((self._waiting.pop(call_id), event.seq))
            for call_id in tool_calls.calls(added.message):
                if call_id not in answered:
                    self._waiting[call_id] = event.seq

    def _say(self, stream: str, seq: int, *, over: bool) -> None:
        first, _, was_over = self._streams.get(stream, (seq, seq, False))
        self._streams[stream] = (first, seq, over or was_over)

    def last_legal(self, bound: int) -> int:
        """Return the last place, not behind a bound, that cuts nothing in two."""
        spans = self._spans + [(first, last) for first, last, _ in self._streams.values()]
        # From the end: a bound that moves back to where one begins may lie inside of those that begin
        # earlier, and never inside of those that begin later.
        for first, last in sorted(spans, reverse=True):
            if first < bound <= last:
                bound = first
        return bound

    def unfinished(self, bound: int) -> list[str]:
        """Return the streams before a bound that are not over: so far, nobody has gone on with them."""
        return [
            stream
            for stream, (first, _, over) in self._streams.items()
            if first < bound and not over
        ]
