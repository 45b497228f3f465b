"""Hide stored content permanently: redact events, scrub secrets, drop the beginning of a history.

Each appends control events. Views, events and exports show the result, compaction erases the bytes,
and nothing undoes it. Messages are stored unchanged, so secrets are never removed automatically.

Dropping a history removes the content of all events before a seq. Seqs, idempotency keys, snapshot names,
forks and the session's state keep their meaning (docs/decisions/0013-dropping-history.md). The bound moves
back to where it separates no tool call from its result and splits no streamed message. A stream that is not
finished is dropped completely; if its message is added later, views show that.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from hansard import observe
from hansard.backend.contract import AppendRequest, Backend, Log
from hansard.errors import InvalidEvent, SessionNotFound
from hansard.event import codec, kinds, secrets
from hansard.event.event import Event, NewEvent
from hansard.event.kinds import (
    APPLICATION,
    HISTORY_DROPPED,
    MESSAGE_ADDED,
    MESSAGE_PART,
    MESSAGE_REDACTED,
    is_content,
)
from hansard.maintenance import hold
from hansard.maintenance.trash import check_unused
from hansard.message import tool_calls
from hansard.state import lineage
from hansard.state.redaction import Redactions

_MARK: Final = "[redacted]"

#: How JSON writes a character in a string, at any depth: 64 backslashes are six levels of strings in strings.
_ESCAPES: Final = {
    **{
        character: rf"\\{{1,64}}{name}|"
        for character, name in zip("\b\f\n\r\t", "bfnrt", strict=True)
    },
    **dict.fromkeys('"/', r"\\{0,64}"),
    "\\": r"\\{1,64}|",
}

#: Members of hansard's kinds that refer to events, sessions and files. They are not content, and a fork would
#: lose its parent with its name.
_LINKS: Final = frozenset({"created", "fork", "kept", "parent", "stream", "streams"})


def redaction(event: Event, reason: str, instead: dict[str, Any] | None = None) -> NewEvent:
    """Return the event that redacts another one, together with its stream parts."""
    data: dict[str, Any] = {"seq": event.seq, "reason": reason}
    stream = event.data.get("stream")
    if event.kind in {MESSAGE_ADDED, MESSAGE_PART} and isinstance(stream, str):
        data["stream"] = stream
    if instead is not None:
        data |= {"data": instead, "kind": event.kind}
    return NewEvent(MESSAGE_REDACTED, codec.encode(data), control=True)


class ScrubReport(msgspec.Struct, frozen=True):
    """What `scrub` removed, without the removed text.

    Attributes:
        session: the session's id.
        events: the redactions that were appended; empty if nothing was found.
        credentials: number of credentials that were found by their name or shape.
        places: for each given text, in order, the number of places where it was found.
    """

    session: str
    events: list[Event]
    credentials: int
    places: tuple[int, ...]


class Scrubber:
    """Removes credentials, and given texts, from events, and counts them."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.credentials = 0
        self.places = [0] * len(texts)
        # In one pass, so that no text is found in what replaced another one.
        found = (re.escape(_MARK), *(f"({_spellings(text)})" for text in texts))
        self._pattern = re.compile("|".join(found))

    def redactions(self, events: Iterable[Event], reason: str) -> Iterator[NewEvent]:
        """Yield the redactions that remove credentials, and the texts, from all events."""
        streamed: dict[str, tuple[Event, dict[str, list[str]]]] = {}
        for event in events:
            if event.kind == MESSAGE_PART:
                part = kinds.read(MESSAGE_PART, event.raw)
                if part is not None:
                    # Searched as one: a secret may extend over two parts.
                    texts = streamed.setdefault(part.stream, (event, {}))[1]
                    for channel, text in part.channels():
                        texts.setdefault(channel, []).append(text)
            elif event.kind != MESSAGE_REDACTED:
                clean = self._clean(event)
                if clean is not None:
                    yield redaction(event, reason, clean)
        for event, parts in streamed.values():
            joined = ["".join(pieces) for pieces in parts.values()]
            if any(self._without(text) != text for text in joined):
                # The parts only: of the complete message, if there is one, no more than necessary goes.
                yield redaction(event, reason, {"stream": event.data["stream"]})

    def _clean(self, event: Event) -> dict[str, Any] | None:
        """Return an event's data without secrets; None if there are none."""
        data = event.data
        clean: dict[str, Any]
        if event.kind.startswith(APPLICATION):
            clean = self._without(data)
        else:
            # The names of the members, and numbers among them, are hansard's.
            clean = {
                name: value
                if name in _LINKS or isinstance(value, int | float)
                else self._without(value)
                for name, value in data.items()
            }
        if clean != data:
            return clean
        try:
            codec.check_keys(event.raw)
        except InvalidEvent:
            return clean  # a value under a duplicate key was not decoded, and may be a secret
        return None

    def _without(self, value: Any) -> Any:
        """Return a JSON value without secrets."""
        found, count = secrets.redact(value)
        self.credentials += count
        return self._taken(found)

    def _taken(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            return [self._taken(item) for item in value]
        if isinstance(value, dict):
            made: dict[str, Any] = {}
            for key, item in value.items():
                taken = self._text(key)
                taken = key if taken == key else secrets.unused(taken, value, made)
                made[taken] = self._taken(item)
            return made
        if isinstance(value, int | float) and not isinstance(value, bool):
            shown = msgspec.json.encode(value).decode()
            return value if self._text(shown) == shown else _MARK
        return value

    def _text(self, text: str) -> str:
        """Return a text without the given ones."""
        clean = self._replaced(text)
        if clean == text:
            return text
        inner = secrets.read_json(text)
        if inner is not None and secrets.read_json(clean) is None:
            # It was JSON and must stay JSON: the text was in a number, or was a part of its syntax.
            counted = list(self.places)
            clean = self._replaced(msgspec.json.encode(self._taken(inner)).decode())
            clean = _MARK if secrets.read_json(clean) is None else clean
            self.places = counted
        return clean

    def _replaced(self, text: str) -> str:
        def replace(found: re.Match[str]) -> str:
            if found.lastindex is not None:
                self.places[found.lastindex - 1] += 1
            return _MARK

        return self._pattern.sub(replace, text)


def _spellings(text: str) -> str:
    """Return a pattern for a text as it is, and as it is escaped in JSON inside a string, at any depth."""
    pieces = []
    for character in text:
        units = character.encode("utf-16-be", "surrogatepass").hex()
        unicode = "".join(
            rf"\\{{1,64}}u(?i:{units[at : at + 4]})" for at in range(0, len(units), 4)
        )
        short = _ESCAPES.get(character, "")
        pieces.append(f"(?:{short}{re.escape(character)}|{unicode})")
    # A backslash before it belongs to it, if an escape can begin so: what is left stays JSON.
    return (r"\\{0,64}" if text[0] in "bfnrtu" else "") + "".join(pieces)


class DropReport(msgspec.Struct, frozen=True):
    """What `drop_history` removed, or would remove.

    Attributes:
        session: the session's id.
        before: the content of all events before this seq is removed. It may be lower than the requested seq,
            so that no tool call loses its result and no streamed message is split.
        events: number of events whose data this call removed.
        messages: number of messages among them.
        bytes: bytes of data, before compression, that the next compaction erases. Events that a fork inherits
            belong to its parent and do not count.
        seq: the seq of the control event; 0 if there was nothing to drop, or with `dry_run`.
        dry_run: nothing was dropped; the numbers are what would be dropped.
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
    """Append the event that drops the content before a seq; see `Session.drop_history`."""
    reader = own.reader()
    head, first = reader.head(), reader.first()
    if head is None or first is None:
        raise SessionNotFound(f"no session {own.session_id!r} in this store, so no history to drop")
    if type(before) is not int or not 0 <= before <= head.seq + 1:
        raise InvalidEvent(
            f"cannot drop the history before seq {before!r}: last seq of session {own.session_id!r} is "
            f"{head.seq}"
        )
    log = lineage.with_ancestors(backend, reader)
    known = lineage.redactions_of(log)
    erased = known._replace(before=head.seq + 2)
    cuts = _Cuts(known)
    #: Seq, whether it is a message, and own bytes, of each event that a drop changes.
    content: list[tuple[int, bool, int]] = []
    # Events that were dropped earlier have no data.
    for chunk in log.read(after=max(known.before - 1, 0), upto=head.seq):
        for event in chunk.events():
            cuts.add(event)
            raw = known.mask(event).raw
            if is_content(event.kind) and erased.mask(event).raw != raw:
                size = len(raw) if event.seq >= first.seq else 0
                content.append((event.seq, event.kind == MESSAGE_ADDED, size))
    bound = cuts.last_legal(before)
    dropped = [one for one in content if one[0] < bound]
    events, messages = len(dropped), sum(one[1] for one in dropped)
    size = sum(one[2] for one in dropped)
    report = DropReport(own.session_id, bound, events, messages, size, dry_run=dry_run)
    if not events:
        return report
    # A fork that begins before the first removed event loses nothing.
    refusal = f"the history of session {own.session_id!r} cannot be dropped"
    check_unused(backend, own.session_id, head.created, refusal, since=dropped[0][0])
    hold.check_inherited(log, dropped[0][0])
    check = partial(hold.check, backend, own.session_id)
    check()
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
        raise InvalidEvent(f"reason must be a string, got {type(reason).__name__}")
    draft = NewEvent(HISTORY_DROPPED, raw, control=True)
    (event,) = own.append(AppendRequest([draft], check=check))
    # With any durability: a power cut must not undo a drop that was reported.
    own.sync()
    text = "session %r: dropped the content before seq %d; events: %d"
    observe.report("redact", observe.INFO, text, own.session_id, bound, events)
    return msgspec.structs.replace(report, seq=event.seq)


class _Cuts:
    """The ranges of seqs that a bound must not split, collected in one pass over the events."""

    def __init__(self, known: Redactions) -> None:
        self._known = known
        #: First and last seq of events that belong together: a bound is before both or after both.
        self._spans: list[tuple[int, int]] = []
        #: By stream, its first and last seq, and whether it has ended.
        self._streams: dict[str, tuple[int, int, bool]] = {}
        #: The seqs of tool calls without a result so far, by call id.
        self._waiting: dict[str, int] = {}

    def add(self, event: Event) -> None:
        """Add the next event."""
        if event.kind == MESSAGE_PART:
            part = kinds.read(MESSAGE_PART, event.raw)
            if part is not None and part.stream not in self._known.streams:
                self._add_to_stream(part.stream, event.seq, over=part.over)
        elif event.kind == MESSAGE_ADDED:
            added = kinds.read(MESSAGE_ADDED, self._known.mask(event).raw)
            if added is None:
                return
            if added.stream is not None and added.stream not in self._known.streams:
                self._add_to_stream(added.stream, event.seq, over=True)
            answered = tool_calls.results(added.message)
            for call_id in answered:
                if call_id in self._waiting:
                    self._spans.append((self._waiting.pop(call_id), event.seq))
            for call_id in tool_calls.calls(added.message):
                if call_id not in answered:
                    self._waiting[call_id] = event.seq

    def _add_to_stream(self, stream: str, seq: int, *, over: bool) -> None:
        first, _, was_over = self._streams.get(stream, (seq, seq, False))
        self._streams[stream] = (first, seq, over or was_over)

    def last_legal(self, bound: int) -> int:
        """Return the highest seq, at most the given bound, that splits nothing."""
        spans = self._spans + [(first, last) for first, last, _ in self._streams.values()]
        # In descending order: a bound that moves back to the start of one range may be inside ranges that
        # begin earlier, and never inside ranges that begin later.
        for first, last in sorted(spans, reverse=True):
            if first < bound <= last:
                bound = first
        return bound

    def unfinished(self, bound: int) -> list[str]:
        """Return the streams that begin before a bound and have not ended."""
        return [
            stream
            for stream, (first, _, over) in self._streams.items()
            if first < bound and not over
        ]
