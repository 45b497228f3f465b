"""Show the messages along a path.

Above: `session`.  Below: `path`, `projection`, `backend.contract`.
A view is a pure function of the events. *history* is every message; *model* is what a model should be
given. `path` says which parts of the log each one shows; here they are read, forwards or from the end.
"""

from bisect import bisect, bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from operator import itemgetter
from typing import Any, Generic, Literal, TypeVar, get_args

import msgspec

from hansard.backend.contract import Chunk, LogReader, Streamed
from hansard.event import codec
from hansard.event.envelope import Event
from hansard.state import path, projection
from hansard.state.collector import quiet_collector
from hansard.state.path import Path
from hansard.state.projection import Known
from hansard.state.redaction import NOTHING
from hansard.state.streams import Streams

View = Literal["model", "history"]
VIEWS: tuple[str, ...] = get_args(View)

Shown = TypeVar("Shown")


class Take(Generic[Shown]):
    """How messages are wanted: as dicts, or as the JSON bytes that are stored."""

    __slots__ = ("chunk", "from_data", "from_message", "is_message", "joined")

    def __init__(
        self,
        chunk: Callable[[Chunk], list[tuple[int, Shown]]],
        from_data: Callable[[bytes], Shown],
        from_message: Callable[[dict[str, Any]], Shown],
        is_message: Callable[[Shown], bool],
        joined: Callable[[Chunk], Shown | None] = lambda _: None,
    ) -> None:
        self.chunk = chunk
        #: All messages of a chunk as one, if they are wanted so, and nothing is to be left out.
        self.joined = joined
        #: For what stands in the place of a redacted message, and for what was put together.
        self.from_data = from_data
        self.from_message = from_message
        #: Tells a message from what somebody has put in the place of one.
        self.is_message = is_message


class _Data(msgspec.Struct):
    message: msgspec.Raw = msgspec.Raw(b"null")


_data = msgspec.json.Decoder(_Data).decode


def _plain_dict(message: dict[str, Any]) -> dict[str, Any]:
    return message


decoded: Take[dict[str, Any]] = Take(
    lambda chunk: chunk.messages(),
    lambda raw: codec.decode(raw).get("message"),  # type: ignore[arg-type,return-value] # `is_message` tells
    _plain_dict,
    lambda message: type(message) is dict,
)
encoded: Take[bytes] = Take(
    lambda chunk: chunk.messages_json(),
    lambda raw: bytes(_data(raw).message),
    msgspec.json.Encoder().encode,
    lambda message: message[:1] == b"{",
)
#: As `encoded`, but what follows one another in the log may come joined by commas.
joined: Take[bytes] = Take(
    encoded.chunk,
    encoded.from_data,
    encoded.from_message,
    encoded.is_message,
    lambda chunk: chunk.messages_joined(),
)


def path_of(
    log: LogReader,
    *,
    view: View = "model",
    upto: int | None = None,
    known_of: Callable[[LogReader], Known] = projection.known_of,
) -> Path:
    """Return the path of a view at a seq, or at the end of the log.

    `known_of`: returns what the control events add up to, if the caller keeps that between calls.
    """
    head = log.head()
    if head is None:
        return path.history(NOTHING, 0)
    end = head.seq if upto is None else min(upto, head.seq)
    # All of them, also those behind the end: what was redacted later is gone from earlier views too.
    known = known_of(log)
    if view == "history":
        return path.history(known.redactions, end)
    return path.model(known.course, known.redactions, end)


def summary_of(log: LogReader, upto: int | None = None) -> Event | None:
    """Return the event of the summary that the model view begins with at a seq; None if there is none."""
    summary = path_of(log, upto=upto).summary
    return None if summary is None else summary.events()[0]


def show(log: LogReader, take: Take[Shown], way: Path, *, after: int = 0) -> list[Shown]:
    """Return the messages of a view with a higher seq than `after`, in order."""
    streams = Streams(way.redactions.streams)
    found: list[Shown] = []
    #: Where in `found` the messages stand that are behind a part of a streamed one.
    places: dict[int, int] = {}
    with quiet_collector(sum(end - max(begin, after) for begin, end in way.ranges_back())):
        for chunk in chunks(log, way, after):
            whole = None if way.redactions else take.joined(chunk)
            if whole is not None:
                found.append(whole)
                continue
            shown = _visible(chunk, take, way, after)
            said = chunk.streamed()
            if said:
                seqs = [seq for seq, _ in shown]
                places.update((one.seq, len(found) + bisect(seqs, one.seq)) for one in said)
                streams.forwards(said)
            found += [message for _, message in shown]
    # What was begun before `after`.
    _complete(streams, _backwards(log, way, 0, upto=after))
    for seq, message in reversed(streams.unfinished()):
        found.insert(places[seq], take.from_message(message))
    return found


def _visible(chunk: Chunk, take: Take[Shown], way: Path, after: int) -> list[tuple[int, Shown]]:
    """Return the messages of a chunk that may be seen, with their seqs."""
    taken = take.chunk(chunk)
    if taken and taken[0][0] <= after:
        taken = [pair for pair in taken if pair[0] > after]
    hidden = way.redactions.seqs
    gone = way.redactions.gone
    if gone:
        # Taken out while they were being streamed.
        out = {said.seq for said in chunk.streamed() if said.over and said.stream in gone}
        taken = [pair for pair in taken if pair[0] not in out]
    if hidden:
        shown = []
        for seq, message in taken:
            if seq not in hidden:
                shown.append((seq, message))
                continue
            instead = hidden[seq]
            if instead is not None:
                shown.append((seq, take.from_data(instead)))
        taken = shown
    # What is no JSON object is no message, and whoever reads messages counts on getting one.
    is_message = take.is_message
    return [pair for pair in taken if is_message(pair[1])]


def each(log: LogReader, way: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the messages of a view with their seqs, reading no further than the caller."""
    for chunk in chunks(log, way):
        yield from _visible(chunk, decoded, way, 0)


def show_last(
    log: LogReader,
    take: Take[Shown],
    way: Path,
    count: int,
    *,
    after: int = 0,
) -> list[Shown]:
    """Return the last `count` of those messages, in order, reading no more than they need."""
    placed = show_last_placed(log, take, way, count, after=after)
    return [message for _, message in placed]


def show_last_placed(
    log: LogReader,
    take: Take[Shown],
    way: Path,
    count: int,
    *,
    after: int = 0,
) -> list[tuple[int, Shown]]:
    """Return the same, each with its seq."""
    if count == 0:
        return []
    streams = Streams(way.redactions.streams)
    # A message that was never finished is None until its beginning is found.
    pieces: list[list[tuple[int, Shown | None]]] = []
    missing = count
    behind = _backwards(log, way, after)
    for chunk in behind:
        visible = _visible(chunk, take, way, after)
        shown: list[tuple[int, Shown | None]] = [*visible]
        begun = streams.backwards(chunk.streamed())
        if begun:
            shown = sorted([*shown, *((one.seq, None) for one in begun)], key=itemgetter(0))
        pieces.append(shown[-missing:])
        missing -= len(pieces[-1])
        if missing == 0:
            break
    _complete(streams, chain(behind, _backwards(log, way, 0, upto=after)))
    pieces.reverse()
    unfinished = dict(streams.unfinished())
    return [
        (seq, take.from_message(unfinished[seq]) if message is None else message)
        for piece in pieces
        for seq, message in piece
    ]


def _complete(streams: Streams, chunks: Iterable[Chunk]) -> None:
    """Go on backwards until the beginning of every message is found that was never finished."""
    if streams.cut():
        for chunk in chunks:
            streams.complete(chunk.streamed())
            if not streams.cut():
                return


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

    def streamed(self) -> list[Streamed]:
        return [said for said in self._chunk.streamed() if self._holds(said.seq)]


# A chunk is read once, however many ranges lie in it: after many reverts they are many, and short.


def _excerpt(chunk: Chunk, ranges: list[tuple[int, int]]) -> Chunk:
    return chunk if ranges == [chunk.span()] else _Excerpt(chunk, ranges)


def chunks(log: LogReader, way: Path, after: int = 0) -> Iterator[Chunk]:
    """Yield what a view shows, with higher seqs than `after`, in order."""
    if way.summary is not None:
        yield way.summary
    ranges = [(max(begin, after), end) for begin, end in way.ranges() if end > after]
    place = 0
    while place < len(ranges):
        for chunk in log.read(after=ranges[place][0], upto=ranges[-1][1]):
            low, high = chunk.span()
            inside = []
            while place < len(ranges) and ranges[place][0] < high:
                begin, end = ranges[place]
                inside.append((max(begin, low), min(end, high)))
                if end > high:
                    break
                place += 1
            if inside:
                yield _excerpt(chunk, inside)
            if place == len(ranges) or ranges[place][0] > high:
                break
        else:
            return


def _backwards(log: LogReader, way: Path, after: int, upto: int | None = None) -> Iterator[Chunk]:
    """Yield the same from the last chunk to the first, following the path no further than is asked for."""
    ranges = _between(way.ranges_back(), after, upto)
    current = next(ranges, None)
    while current is not None:
        for chunk in log.read_back(upto=current[1], after=after):
            low, high = chunk.span()
            inside = []
            while current is not None and low < min(current[1], high):
                begin, end = current
                inside.append((max(begin, low), min(end, high)))
                if begin < low:
                    break
                current = next(ranges, None)
            if inside:
                yield _excerpt(chunk, inside[::-1])
            if current is None or (low < high and current[1] < low):
                break
        else:
            break
    if way.summary is not None and upto is None:
        yield way.summary


def _between(
    ranges: Iterator[tuple[int, int]], after: int, upto: int | None
) -> Iterator[tuple[int, int]]:
    """Yield what of some ranges, the last one first, lies between two seqs."""
    for begin, end in ranges:
        last = end if upto is None else min(end, upto)
        if end <= after:
            return
        if last > max(begin, after):
            yield max(begin, after), last
