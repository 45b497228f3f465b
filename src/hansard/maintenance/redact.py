"""Remove secrets from what is stored, permanently.

Messages are stored unchanged, so this never happens automatically. It appends redactions, each with the data
that replace the original: views, events and exports show those from then on, and compaction removes the
bytes. It cannot be undone.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from operator import is_
from typing import Any, Final

import msgspec

from hansard.errors import InvalidEvent
from hansard.event import codec, kinds, secrets
from hansard.event.envelope import Event, NewEvent
from hansard.event.kinds import (
    APPLICATION,
    CONTROL,
    MESSAGE_ADDED,
    MESSAGE_PART,
    MESSAGE_REDACTED,
)

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

#: Members of hansard's own kinds by which events, sessions and files kept aside are found. Nobody has said
#: them, and a fork whose parent has another name is one that has lost it.
_LINKS: Final = frozenset({"created", "kept", "parent", "stream", "streams"})


def redaction(event: Event, reason: str, instead: dict[str, Any] | None = None) -> NewEvent:
    """Return the event that takes another one out, and with it what was streamed of it."""
    data: dict[str, Any] = {"seq": event.seq, "reason": reason}
    stream = event.data.get("stream")
    if event.kind in {MESSAGE_ADDED, MESSAGE_PART} and isinstance(stream, str):
        data["stream"] = stream
    if instead is not None:
        data |= {"data": instead, "kind": event.kind}
    return NewEvent(MESSAGE_REDACTED, codec.encode(data), MESSAGE_REDACTED in CONTROL)


def finishes(part: Event, event: Event) -> bool:
    """Say whether an event adds the whole message of which another is a part."""
    return event.kind == MESSAGE_ADDED and event.data.get("stream") == part.data.get("stream", "")


class ScrubReport(msgspec.Struct, frozen=True):
    """What `scrub` removed. It shows none of it.

    Attributes:
        session: the session's id.
        events: the redactions that were appended; empty if nothing was found.
        credentials: how many credentials were found by their name or shape.
        places: for each text that was given, in order, in how many places it was found. 0: it was not found.
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
        streamed: dict[str, tuple[Event, list[str]]] = {}
        for event in events:
            if event.kind == MESSAGE_PART:
                part = kinds.read(MESSAGE_PART, event.raw)
                if part is not None:
                    # Searched as one: a secret may extend over two parts.
                    streamed.setdefault(part.stream, (event, []))[1].append(part.text)
            elif event.kind != MESSAGE_REDACTED:
                clean = self._clean(event)
                if clean is not None:
                    yield redaction(event, reason, clean)
        for event, parts in streamed.values():
            text = "".join(parts)
            if self._without(text) is not text:
                # The parts only: of the complete message, if there is one, no more than necessary goes.
                yield redaction(event, reason, {"stream": event.data["stream"]})

    def _clean(self, event: Event) -> dict[str, Any] | None:
        """Return an event's data without secrets; None if there are none."""
        data = event.data
        clean: dict[str, Any]
        if event.kind.startswith(APPLICATION):
            clean = self._without(data)
        else:
            # The names of the members, and numbers among them, are hansard's own.
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
        """Return a JSON value without secrets: the same object if there are none."""
        found, count = secrets.redact(value)
        self.credentials += count
        return self._taken(found)

    def _taken(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            done = [self._taken(item) for item in value]
            return value if all(map(is_, done, value)) else done
        if isinstance(value, dict):
            return self._dict(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            shown = msgspec.json.encode(value).decode()
            return value if self._text(shown) is shown else _MARK
        return value

    def _dict(self, value: dict[str, Any]) -> dict[str, Any]:
        done: dict[str, Any] = {}
        changed = False
        for key, item in value.items():
            taken = self._text(key)
            if taken is not key:
                taken = secrets.unused(taken, value, done)
            done[taken] = self._taken(item)
            changed = changed or taken is not key or done[taken] is not item
        return done if changed else value

    def _text(self, text: str) -> str:
        """Return a text without the given ones: the same object if they are not in it."""
        clean = self._replaced(text)
        if clean is text:
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
        clean = self._pattern.sub(self._replace, text)
        return text if clean == text else clean

    def _replace(self, found: re.Match[str]) -> str:
        if found.lastindex is not None:
            self.places[found.lastindex - 1] += 1
        return _MARK


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
