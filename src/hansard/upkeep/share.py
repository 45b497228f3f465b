"""Make of a session what can be shown to others.

Above: `session`.  Below: `event.secrets`, `state.lineage` (what was taken out), `backend.contract`.
What is stored stays as it is; what is handed out is a copy, one JSON object for each event. Whoever shares a
session counts on what is *not* in it, so this reads like a list of ways for a secret to get out: what was
redacted in the log stays away whatever is asked for; a key is looked for in every text, also in the
session's id, in the names of fields and in JSON inside of a text; and a text that came in parts is looked at
as a whole, since a stream breaks off anywhere, also in the middle of a key.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from hansard.backend.contract import Log
from hansard.errors import SessionNotFound
from hansard.event import secrets
from hansard.event.envelope import Event
from hansard.event.kinds import MESSAGE_PART
from hansard.log import format
from hansard.state.lineage import redactions_of
from hansard.state.redaction import Redactions

#: The version of what `share` yields: a first object that says so, then one for each event.
VERSION: Final = 1

Hook = Callable[[dict[str, Any]], dict[str, Any] | None]


def share(
    log: Log, session_id: str, *, redact: bool = True, hook: Hook | None = None
) -> Iterator[dict[str, Any]]:
    """Yield a session as JSON objects: a header, then its events in order.

    Args:
        log: the session, with what it inherits.
        session_id: its id, for the header.
        redact: put `[redacted: …]` in the place of what looks like a credential. What was taken out by
            `session.redact` is blank in any case.
        hook: is called last, with each object, and returns what is to be shared of it; None drops it.
    """
    head = log.head()
    if head is None:
        raise SessionNotFound(f"no session {session_id!r} to share")
    header = {
        "hansard": "export",
        "version": VERSION,
        "session": session_id,
        "exported": format.now().decode(),
        "redacted": redact,
    }
    objects = _objects(log, head.seq, header, redact=redact)
    return objects if hook is None else _hooked(objects, hook)


def _hooked(objects: Iterator[dict[str, Any]], hook: Hook) -> Iterator[dict[str, Any]]:
    for shown in objects:
        changed: object = hook(shown)
        if changed is None:
            continue
        if not isinstance(changed, dict):
            kind = type(changed).__name__
            raise TypeError(
                f"the hook must return the dict to share, or None to drop it, not {kind}"
            )
        yield changed


def _objects(
    log: Log, upto: int, header: dict[str, Any], *, redact: bool
) -> Iterator[dict[str, Any]]:
    # After the seq was read: what has been taken out by now is away, whenever it was said.
    redactions = redactions_of(log)
    parts = _Parts(log, upto, redactions) if redact else None
    yield _redacted(header) if redact else header
    for chunk in log.read(upto=upto):
        for event in chunk.events():
            shown = _shown(redactions.mask(event))
            if parts is not None:
                if event.kind == MESSAGE_PART:
                    parts.put(shown["data"])
                shown = _redacted(shown)
            yield shown


def _shown(event: Event) -> dict[str, Any]:
    shown = {"seq": event.seq, "time": event.stamp, "kind": event.kind, "data": event.data}
    return shown if event.key is None else {**shown, "key": event.key}


def _redacted(shown: dict[str, Any]) -> dict[str, Any]:
    # Item by item: as a dict its own keys would be names, and "key" is none of a credential's.
    return {name: secrets.redact(value)[0] for name, value in shown.items()}


class _Parts:
    """The streamed texts that hold credentials, each put together and redacted as one.

    A first reading finds them; only those are kept, and of the others what is still open.
    """

    __slots__ = ("_texts",)

    def __init__(self, log: Log, upto: int, redactions: Redactions) -> None:
        #: What is left of a text, by its stream; empty once it was put into a part.
        self._texts: dict[str, str] = {}
        open_streams: dict[str, list[str]] = {}
        for chunk in log.read(upto=upto):
            for said in chunk.streamed():
                if said.stream in redactions.streams or said.seq < redactions.before:
                    continue
                open_streams.setdefault(said.stream, []).append(said.text)
                if said.over:
                    self._close(said.stream, open_streams.pop(said.stream))
        for stream, pieces in open_streams.items():
            self._close(stream, pieces)

    def _close(self, stream: str, pieces: list[str]) -> None:
        text, count = secrets.redact_text("".join(pieces))
        if count:
            self._texts[stream] = self._texts.get(stream, "") + text

    def put(self, data: dict[str, Any]) -> None:
        """Put a text that held credentials into the first of its parts, and nothing into the others."""
        stream = data.get("stream")
        if isinstance(stream, str) and stream in self._texts and "text" in data:
            data["text"] = self._texts[stream]
            self._texts[stream] = ""
