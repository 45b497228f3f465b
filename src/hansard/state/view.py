"""Read the messages of a view.

A view is a pure function of the events. *history* is every message; *model* is what to give a model. Views
differ in the ranges of the log that they show. A revert leads the model view back to an earlier seq, a clear
empties it, and a summary replaces everything up to a seq. No view, of any time, shows a redacted message or
begins before the bound of a dropped history.

While a message is streamed, its parts are events. When it is complete, one event adds it, and the parts are
ignored. If that event never comes, the view shows the parts as one message, at the last of them, marked as
partial.
"""

import gc
from bisect import bisect, bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from itertools import accumulate, chain
from operator import itemgetter
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar, get_args

import msgspec

from hansard.backend.contract import Chunk, LogReader, StreamPart, between
from hansard.event import codec, kinds
from hansard.event.event import Event
from hansard.state import fold, lineage
from hansard.state.fold import State
from hansard.state.lineage import ForkedReader
from hansard.state.redaction import NOTHING, Redactions

View = Literal["model", "history"]
VIEWS: tuple[str, ...] = get_args(View)

Shown = TypeVar("Shown")

#: Marks a message in a view as unfinished.
PARTIAL: Final = "partial"

#: The message of a stream whose first part is not in the view.
_UNKNOWN: Final = {"role": "assistant"}

#: Pause the garbage collector for more objects than this: 100,000 messages decode in 60 % of the time.
_MANY: Final = 2_000

#: Kinds that change the meaning of earlier events.
_CHANGING: Final = frozenset(
    {kinds.HISTORY_DROPPED, kinds.MESSAGE_REDACTED, kinds.SESSION_REPAIRED}
)


# -- what the control events add up to ----------------------------------------------------------


class _Bound(msgspec.Struct, frozen=True):
    """A clear, or a summary."""

    seq: int
    #: The last seq that it removes from the view.
    upto: int
    #: The highest `upto` of this one and of all before it.
    reach: int
    #: None for a clear.
    summary: Event | None


class Course:
    """The control events that decide the model view, parsed once. Grows; what it holds does not change."""

    __slots__ = ("_bounds", "_reverts")

    def __init__(self, controls: Iterable[Event] = ()) -> None:
        #: The seq of each revert, and the seq that it leads back to.
        self._reverts: list[tuple[int, int]] = []
        self._bounds: list[_Bound] = []
        self.add(controls)

    def add(self, controls: Iterable[Event]) -> None:
        """Add the control events that follow, masked."""
        for event in controls:
            if event.kind == kinds.SESSION_REVERTED:
                reverted = kinds.read(kinds.SESSION_REVERTED, event.raw)
                if reverted is not None:
                    # Always further back: a revert leads to a seq before its own.
                    self._reverts.append((event.seq, min(reverted.seq, event.seq - 1)))
            elif event.kind == kinds.SESSION_CLEARED:
                self._add_bound(event.seq, event.seq, None)
            elif event.kind == kinds.SUMMARY_ADDED:
                added = kinds.read(kinds.SUMMARY_ADDED, event.raw)
                if added is not None and added.upto >= 0:
                    self._add_bound(event.seq, added.upto, event)

    def _add_bound(self, seq: int, upto: int, summary: Event | None) -> None:
        reach = max(upto, self._bounds[-1].reach) if self._bounds else upto
        self._bounds.append(_Bound(seq, upto, reach, summary))

    def ranges_back(self, upto: int) -> Iterator[tuple[int, int]]:
        """Follow reverts back from a seq: yield the ranges that are left, the last one first."""
        end = upto
        while end > 0:
            place = bisect_right(self._reverts, end, key=itemgetter(0))
            begin, target = self._reverts[place - 1] if place else (0, 0)
            if begin < end:
                yield begin, end
            end = target

    def bound(self, upto: int) -> tuple[int, Event | None]:
        """Return the seq after which the model view at a seq begins, and the summary before it.

        Follows the reverts back no further than to the oldest bound that can matter.
        """
        covered, summary = -1, None
        ranges = self.ranges_back(upto)
        current = next(ranges, None)
        for bound in reversed(self._bounds):
            if bound.reach <= covered:
                break
            while current is not None and bound.seq <= current[0]:
                current = next(ranges, None)
            if current is None:
                break
            if bound.seq > current[1]:
                continue  # reverted
            if bound.summary is None:
                return max(bound.seq, covered), summary
            # The summary that covers most counts.
            if bound.upto > covered:
                covered, summary = bound.upto, bound.summary
        return max(covered, 0), summary


class KnownState(NamedTuple):
    """What the control events add up to at one moment. Its dicts are shared: copy what you return."""

    #: The fold of the control events: metadata, title, snapshots.
    state: State
    #: What was redacted, in the session or in its ancestors.
    redactions: Redactions
    #: Which parts of the log the model view shows.
    course: Course


class Projection:
    """What is known of a session's control events. For one thread at a time.

    Reading all of them for each call would take the square of their number. What is known is discarded when
    something was redacted, dropped or repaired. It is also discarded when the last known event differs: then
    the session was purged and its id is used again, or it was restored from a backup.
    """

    __slots__ = ("_known", "_last")

    def __init__(self) -> None:
        self._known = KnownState(fold.EMPTY, NOTHING, Course())
        #: The last known control event of each log: of the ancestors, and of the session.
        self._last: list[tuple[str, Event | None]] = []

    def refresh(self, log: LogReader) -> KnownState:
        """Add the new control events; read all of them if what is known does not hold any more."""
        inherited = log.inherited if isinstance(log, ForkedReader) else []
        own = log.own if isinstance(log, ForkedReader) else log
        logs = [*(part.reader for part in inherited), own]
        new = self._new(logs) if self._last else None
        if new is None:
            self._last = [(one.session_id, None) for one in logs]
            new = [one.controls() for one in logs]
            changed = any(event.kind in _CHANGING for events in new for event in events)
            redactions = lineage.redactions_of(log) if changed else NOTHING
            self._known = KnownState(fold.EMPTY, redactions, Course())
        state, redactions, course = self._known
        added: list[Event] = []
        for place, events in enumerate(new):
            if events:
                self._last[place] = (logs[place].session_id, events[-1])
                shown = place == len(inherited)
                added += events if shown else between(events, 0, inherited[place].upto)
        if added:
            masked = [redactions.mask(event) for event in added]
            course.add(masked)
            self._known = KnownState(fold.apply_all(state, masked), redactions, course)
        return self._known

    def _new(self, logs: list[LogReader]) -> list[list[Event]] | None:
        """Return the new control events of each log; None if what is known does not hold any more."""
        if [name for name, _ in self._last] != [one.session_id for one in logs]:
            return None
        found = []
        for one, (_, last) in zip(logs, self._last, strict=True):
            events = one.controls(after=0 if last is None else last.seq - 1)
            if last is not None:
                if not events or events[0] != last:
                    return None
                events = events[1:]
            if any(event.kind in _CHANGING for event in events):
                return None
            found.append(events)
        return found


# -- which events a view shows ------------------------------------------------------------------


class ViewRanges(msgspec.Struct, frozen=True):
    """What a view shows: a summary if there is one, then the messages of some ranges."""

    course: Course
    #: The view begins after this seq and ends with `upto`.
    after: int
    upto: int
    #: What no view shows.
    redactions: Redactions = NOTHING
    #: The event of the summary that replaces everything before the first range.
    summary: Event | None = None

    def backwards(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of seqs, the last one first; each is (after, upto], without its first seq."""
        after = max(self.after, self.redactions.before - 1)
        for begin, end in self.course.ranges_back(self.upto):
            if end <= after:
                return
            yield max(begin, after), end

    def forwards(self) -> list[tuple[int, int]]:
        """Return the same in order."""
        return [*self.backwards()][::-1]


def model(course: Course, redactions: Redactions, upto: int) -> ViewRanges:
    """Return the ranges of the model view at a seq, given all control events of the session."""
    after, summary = course.bound(upto)
    return ViewRanges(course, after, upto, redactions, summary)


def ranges_of(
    log: LogReader,
    *,
    view: View = "model",
    upto: int | None = None,
    known: KnownState | None = None,
) -> ViewRanges:
    """Return the ranges of a view at a seq, or at the end of the log.

    `known`: what the control events add up to, if the caller keeps that between calls.
    """
    head = log.head()
    if head is None:
        return ViewRanges(Course(), 0, 0)
    end = head.seq if upto is None else min(upto, head.seq)
    # All of them, also those after the end: a later redaction holds for earlier views, too.
    known = known or Projection().refresh(log)
    if view == "history":
        return ViewRanges(Course(), 0, end, known.redactions)
    return model(known.course, known.redactions, end)


# -- the form of messages -----------------------------------------------------------------------


class NumberedMessage(NamedTuple):
    """A message of a view.

    Attributes:
        seq: the seq of the event that added it.
        message: the message.
    """

    seq: int
    message: dict[str, Any]


class MessageFormat(NamedTuple, Generic[Shown]):
    """How to return messages: as dicts, or as the stored JSON."""

    chunk: Callable[[Chunk], list[tuple[int, Shown]]]
    #: For what replaces a redacted message, and for an assembled stream.
    from_data: Callable[[bytes], Shown]
    from_message: Callable[[dict[str, Any]], Shown]
    #: Tells a message from another value in the place of one.
    is_message: Callable[[Shown], bool]


class _Data(msgspec.Struct):
    message: msgspec.Raw = msgspec.Raw(b"null")


_data = msgspec.json.Decoder(_Data).decode


decoded: MessageFormat[dict[str, Any]] = MessageFormat(
    lambda chunk: chunk.messages(),
    lambda raw: codec.decode(raw).get("message"),  # type: ignore[arg-type,return-value] # `is_message` tells
    lambda message: message,
    lambda message: type(message) is dict,
)
encoded: MessageFormat[bytes] = MessageFormat(
    lambda chunk: chunk.messages_json(),
    lambda raw: bytes(_data(raw).message),
    msgspec.json.Encoder().encode,
    lambda message: message[:1] == b"{",
)


# -- streamed messages --------------------------------------------------------------------------


class StreamAssembler:
    """Assembles unfinished streams from their parts, read forwards or backwards; ignores finished ones."""

    __slots__ = ("_hidden", "_over", "_parts")

    def __init__(self, hidden: frozenset[str]) -> None:
        self._hidden = hidden
        self._over: set[str] = set()
        self._parts: dict[str, deque[StreamPart]] = {}

    def forwards(self, parts: list[StreamPart]) -> None:
        """Add the parts that come next."""
        for one in parts:
            if one.over:
                self._over.add(one.stream)
                self._parts.pop(one.stream, None)
            elif one.stream not in self._over and one.stream not in self._hidden:
                self._parts.setdefault(one.stream, deque()).append(one)

    def backwards(self, parts: list[StreamPart]) -> list[StreamPart]:
        """Add the parts that came before; return the last parts of messages that were never finished."""
        last = []
        for one in reversed(parts):
            if one.over:
                self._over.add(one.stream)
            elif one.stream not in self._over and one.stream not in self._hidden:
                if one.stream not in self._parts:
                    last.append(one)
                self._parts.setdefault(one.stream, deque()).appendleft(one)
        last.reverse()
        return last

    def complete(self, parts: list[StreamPart]) -> None:
        """Add earlier parts of messages of which later ones are known."""
        for one in reversed(parts):
            known = self._parts.get(one.stream)
            if known is not None and known[0].message is None and not one.over:
                known.appendleft(one)

    def cut(self) -> bool:
        """Return whether the beginning of a message is still to be found, further back."""
        return any(parts[0].message is None for parts in self._parts.values())

    def unfinished(self) -> list[tuple[int, dict[str, Any]]]:
        """Return the messages that were never finished, each with the seq of its last part, in order."""
        found = [(parts[-1].seq, _message(parts)) for parts in self._parts.values()]
        return sorted(found, key=itemgetter(0))


def _message(parts: deque[StreamPart]) -> dict[str, Any]:
    begun = parts[0].message if parts[0].message is not None else _UNKNOWN
    calls = (call for part in parts for call in part.calls)
    return {**kinds.assembled(begun, (part.text for part in parts), calls), PARTIAL: True}


def unfinished_parts(log: LogReader, stream: str) -> list[StreamPart]:
    """Return the parts of a message that was never finished, in order; none if it was."""
    found: list[StreamPart] = []
    for chunk in log.read(back=True):
        for part in reversed(chunk.streamed()):
            if part.stream == stream:
                if part.over:
                    return []
                found.append(part)
                if part.message is not None:
                    return found[::-1]
    return []


# -- reading ------------------------------------------------------------------------------------


@contextmanager
def gc_paused(count: int) -> Iterator[None]:
    """Pause the garbage collector while many objects are decoded, none of which is garbage."""
    pause = count > _MANY and gc.isenabled()
    if pause:
        gc.disable()
    try:
        yield
    finally:
        if pause:
            if not gc.get_freeze_count():
                # Straight into the oldest generation: otherwise the collector examines all of them three
                # times on their way there, and each time every thread waits.
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def read_all(
    log: LogReader, form: MessageFormat[Shown], ranges: ViewRanges, *, after: int = 0
) -> list[Shown]:
    """Return the messages of a view with a higher seq than `after`, in order."""
    streams = StreamAssembler(ranges.redactions.streams)
    found: list[Shown] = []
    #: By the seq of a stream's part, the index in `found` of the messages after it.
    places: dict[int, int] = {}
    with gc_paused(sum(end - max(begin, after) for begin, end in ranges.backwards())):
        for chunk in chunks(log, ranges, after):
            shown = _visible(chunk, form, ranges, after)
            parts = chunk.streamed()
            if parts:
                seqs = [seq for seq, _ in shown]
                places.update((one.seq, len(found) + bisect(seqs, one.seq)) for one in parts)
                streams.forwards(parts)
            found += [message for _, message in shown]
    # Streams that began before `after`.
    complete(streams, backwards(log, ranges, 0, upto=after))
    for seq, message in reversed(streams.unfinished()):
        found.insert(places[seq], form.from_message(message))
    return found


def read_json(log: LogReader, ranges: ViewRanges, *, after: int = 0) -> bytes:
    """Return the same messages as a JSON array of the stored bytes.

    The array grows while the log is read: a list of messages, joined at the end, takes twice the memory.
    """
    streams = StreamAssembler(ranges.redactions.streams)
    # A comma before each message; that before the first becomes the bracket.
    array = BytesIO()
    #: By the seq of a stream's part, the place in the array of the messages after it.
    places: dict[int, int] = {}
    for chunk in chunks(log, ranges, after):
        together = None if ranges.redactions else chunk.messages_joined()
        if together is not None:
            array.write(b",")
            array.write(together)
            continue
        shown = _visible(chunk, encoded, ranges, after)
        parts = chunk.streamed()
        if parts:
            seqs = [seq for seq, _ in shown]
            ends = [*accumulate((1 + len(message) for _, message in shown), initial=array.tell())]
            places.update((one.seq, ends[bisect(seqs, one.seq)]) for one in parts)
            streams.forwards(parts)
        array.writelines(piece for _, message in shown for piece in (b",", message))
    # Streams that began before `after`.
    complete(streams, backwards(log, ranges, 0, upto=after))
    for seq, message in reversed(streams.unfinished()):
        array.seek(places[seq])
        rest = array.read()
        array.seek(places[seq])
        array.writelines((b",", encoded.from_message(message), rest))
    if not array.tell():
        return b"[]"
    array.write(b"]")
    array.seek(0)
    array.write(b"[")
    return array.getvalue()


def _visible(
    chunk: Chunk, form: MessageFormat[Shown], ranges: ViewRanges, after: int
) -> list[tuple[int, Shown]]:
    """Return the messages of a chunk that may be shown, with their seqs."""
    taken = form.chunk(chunk)
    if taken and taken[0][0] <= after:
        taken = [pair for pair in taken if pair[0] > after]
    hidden = ranges.redactions.seqs
    gone = ranges.redactions.gone
    if gone:
        # Redacted while they were being streamed.
        out = {part.seq for part in chunk.streamed() if part.over and part.stream in gone}
        taken = [pair for pair in taken if pair[0] not in out]
    if hidden:
        shown = []
        for seq, message in taken:
            instead = hidden.get(seq, b"")
            if instead is not None:
                shown.append((seq, form.from_data(instead) if instead else message))
        taken = shown
    # Callers rely on a message being a JSON object.
    is_message = form.is_message
    return [pair for pair in taken if is_message(pair[1])]


def each(log: LogReader, ranges: ViewRanges) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the messages of a view with their seqs, reading no further than the caller."""
    for chunk in chunks(log, ranges):
        yield from _visible(chunk, decoded, ranges, 0)


def read_last(
    log: LogReader,
    form: MessageFormat[Shown],
    ranges: ViewRanges,
    count: int,
    *,
    after: int = 0,
) -> list[tuple[int, Shown]]:
    """Return the last `count` of those messages, each with its seq, in order; read no more than needed."""
    if count == 0:
        return []
    streams = StreamAssembler(ranges.redactions.streams)
    # A message that was never finished is None until its beginning is found.
    pieces: list[list[tuple[int, Shown | None]]] = []
    missing = count
    before = backwards(log, ranges, after)
    for chunk in before:
        visible = _visible(chunk, form, ranges, after)
        shown: list[tuple[int, Shown | None]] = [*visible]
        begun = streams.backwards(chunk.streamed())
        if begun:
            shown = sorted([*shown, *((one.seq, None) for one in begun)], key=itemgetter(0))
        pieces.append(shown[-missing:])
        missing -= len(pieces[-1])
        if missing == 0:
            break
    complete(streams, chain(before, backwards(log, ranges, 0, upto=after)))
    pieces.reverse()
    unfinished = dict(streams.unfinished())
    return [
        (seq, form.from_message(unfinished[seq]) if message is None else message)
        for piece in pieces
        for seq, message in piece
    ]


def complete(streams: StreamAssembler, chunks: Iterable[Chunk]) -> None:
    """Read further back until the beginning of every unfinished message is found."""
    if streams.cut():
        for chunk in chunks:
            streams.complete(chunk.streamed())
            if not streams.cut():
                return


class SummaryChunk(Chunk):
    """The message of a summary, in the place of all that it replaces."""

    __slots__ = ("_event",)

    def __init__(self, event: Event) -> None:
        self._event = event

    def events(self) -> list[Event]:
        return [self._event]

    def added(self) -> list[tuple[int, bytes]]:
        return [(self._event.seq, self._event.raw)]


class _Excerpt(Chunk):
    """The events of a chunk that lie in some ranges."""

    __slots__ = ("_chunk", "_ranges")

    def __init__(self, chunk: Chunk, ranges: list[tuple[int, int]]) -> None:
        self._chunk = chunk
        self._ranges = ranges

    def _holds(self, seq: int) -> bool:
        place = bisect_left(self._ranges, seq, key=itemgetter(1))
        return place < len(self._ranges) and self._ranges[place][0] < seq

    def events(self) -> list[Event]:
        return [event for event in self._chunk.events() if self._holds(event.seq)]

    def messages(self) -> list[tuple[int, dict[str, Any]]]:
        return [pair for pair in self._chunk.messages() if self._holds(pair[0])]

    def messages_json(self) -> list[tuple[int, bytes]]:
        return [pair for pair in self._chunk.messages_json() if self._holds(pair[0])]

    def streamed(self) -> list[StreamPart]:
        return [part for part in self._chunk.streamed() if self._holds(part.seq)]


def chunks(log: LogReader, ranges: ViewRanges, after: int = 0) -> Iterator[Chunk]:
    """Yield what a view shows, with higher seqs than `after`, in order."""
    if ranges.summary is not None:
        yield SummaryChunk(ranges.summary)
    wanted = [(max(begin, after), end) for begin, end in ranges.forwards() if end > after]
    if wanted:
        yield from _read(log, iter(wanted), after, wanted[-1][1], back=False)


def backwards(
    log: LogReader, ranges: ViewRanges, after: int, upto: int | None = None
) -> Iterator[Chunk]:
    """Yield the same from the last chunk to the first, computing no more ranges than needed."""
    yield from _read(log, _between(ranges.backwards(), after, upto), after, upto, back=True)
    if ranges.summary is not None and upto is None:
        yield SummaryChunk(ranges.summary)


def _read(
    log: LogReader,
    wanted: Iterator[tuple[int, int]],
    after: int,
    upto: int | None,
    *,
    back: bool,
) -> Iterator[Chunk]:
    """Yield the chunks of some ranges, which come in the direction of the read.

    A chunk is read once, however many ranges lie in it: after many reverts they are many, and short.
    """
    current = next(wanted, None)
    while current is not None:
        if back:
            upto = current[1]
        else:
            after = current[0]
        for chunk in log.read(after, upto, back=back):
            low, high = chunk.span()
            inside = []
            while current is not None and (
                low < min(current[1], high) if back else current[0] < high
            ):
                begin, end = current
                inside.append((max(begin, low), min(end, high)))
                if begin < low if back else end > high:
                    break  # the rest is in the next chunk
                current = next(wanted, None)
            if inside:
                ordered = inside[::-1] if back else inside
                yield chunk if ordered == [(low, high)] else _Excerpt(chunk, ordered)
            if current is None or (
                low < high and (current[1] < low if back else current[0] > high)
            ):
                break  # nothing of the next chunk is wanted
        else:
            return


def _between(
    ranges: Iterator[tuple[int, int]], after: int, upto: int | None
) -> Iterator[tuple[int, int]]:
    """Yield the parts of some ranges, the last one first, that lie between two seqs."""
    for begin, end in ranges:
        last = end if upto is None else min(end, upto)
        if end <= after:
            return
        if last > max(begin, after):
            yield max(begin, after), last
