"""Take secrets out of what is stored, for good.

Above: `session`.  Below: `event`.
Messages are kept as they were said, so this never happens by itself. It appends redactions, each with what
is to stand in the place of what was said: views, events and exports show that from then on, and compaction
removes the bytes. Nobody can undo it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from hansard.event import codec, kinds, secrets
from hansard.event.envelope import Draft, Event
from hansard.event.kinds import (
    APPLICATION,
    CONTROL,
    MESSAGE_ADDED,
    MESSAGE_PART,
    MESSAGE_REDACTED,
)

_MARK: Final = "[redacted]"

#: Members of hansard's own kinds by which events, sessions and files kept aside are found. Nobody has said
#: them, and a fork whose parent has another name is one that has lost it.
_LINKS: Final = frozenset({"created", "kept", "parent", "stream", "streams"})


def redaction(event: Event, reason: str, instead: dict[str, Any] | None = None) -> Draft:
    """Return the event that takes another one out, and with it what was streamed of it."""
    data: dict[str, Any] = {"seq": event.seq, "reason": reason}
    stream = event.data.get("stream")
    if event.kind in {MESSAGE_ADDED, MESSAGE_PART} and isinstance(stream, str):
        data["stream"] = stream
    if instead is not None:
        data |= {"data": instead, "kind": event.kind}
    return Draft(MESSAGE_REDACTED, codec.encode(data), MESSAGE_REDACTED in CONTROL)


def finishes(part: Event, event: Event) -> bool:
    """Say whether an event adds the whole message of which another is a part."""
    return event.kind == MESSAGE_ADDED and event.data.get("stream") == part.data.get("stream", "")


def scrub(events: Iterable[Event], texts: Sequence[str], reason: str) -> Iterator[Draft]:
    """Yield the redactions that take credentials, and some texts, out of all events."""
    streamed: dict[str, tuple[Event, list[str]]] = {}
    for event in events:
        if event.kind == MESSAGE_PART:
            part = kinds.read(MESSAGE_PART, event.raw)
            if part is not None:
                # Looked at as a whole: a secret may lie across two parts.
                streamed.setdefault(part.stream, (event, []))[1].append(part.text)
        elif event.kind != MESSAGE_REDACTED:
            clean = _clean(event, texts)
            if clean is not None:
                yield redaction(event, reason, clean)
    for event, parts in streamed.values():
        text = "".join(parts)
        if _without(text, texts) is not text:
            # The parts only: of the whole message, if there is one, no more than has to go is gone.
            yield redaction(event, reason, {"stream": event.data["stream"]})


def _clean(event: Event, texts: Sequence[str]) -> dict[str, Any] | None:
    """Return an event's data without secrets; None if there are none."""
    data = event.data
    if event.kind.startswith(APPLICATION):
        clean = _without(data, texts)
    else:
        # The names of the members are hansard's own words, by which the event is understood.
        clean = {
            name: value if name in _LINKS else _without(value, texts)
            for name, value in data.items()
        }
    return None if clean == data else clean


def _without(value: Any, texts: Sequence[str]) -> Any:
    """Return a JSON value without secrets: the same object if there are none."""
    found, count = secrets.redact(value)
    taken = _taken(found, texts)
    return value if not count and taken == found else taken


def _taken(value: Any, texts: Sequence[str]) -> Any:
    if isinstance(value, str):
        for text in texts:
            value = value.replace(text, _MARK)
        return value
    if isinstance(value, list):
        return [_taken(item, texts) for item in value]
    if isinstance(value, dict):
        done: dict[str, Any] = {}
        for key, item in value.items():
            taken = _taken(key, texts)
            if taken != key:
                taken = secrets.unused(taken, value, done)
            done[taken] = _taken(item, texts)
        return done
    return value
