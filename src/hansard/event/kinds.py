"""The kinds of events, and the shape of each one's data.

A kind's name is permanent on disk. A new field has a default; a kind is never reused. Structs show how the
store itself reads an event. Other fields stay in the log and are part of the event's data.
"""

import os
import re
import threading
from collections.abc import Iterable, Iterator
from decimal import Context, Decimal
from functools import cache
from typing import Annotated, Any, Final

import msgspec

from hansard.errors import InvalidEvent
from hansard.event import codec


class MessageAdded(msgspec.Struct, omit_defaults=True):
    """One message, any JSON object, verbatim. Supersedes the parts of the stream it names."""

    message: dict[str, Any]
    stream: str | None = None


class CallPart(msgspec.Struct, omit_defaults=True, frozen=True):
    """A piece of a tool call: its arguments are those of all pieces with the same index, joined."""

    index: int = 0
    id: str = ""
    name: str = ""
    arguments: str = ""


class MessagePart(msgspec.Struct, omit_defaults=True):
    """A piece of a message that is still streaming.

    The first part has the message as far as it is known, without its content. `over`: the message was
    discarded, and views do not show it.
    """

    stream: str
    text: str = ""
    message: dict[str, Any] | None = None
    over: bool = False
    calls: list[CallPart] = []

    def channels(self) -> Iterator[tuple[str, str]]:
        """Yield all that it holds, by name: texts with the same name continue each other."""
        yield "text", self.text
        for call in self.calls:
            for name in ("arguments", "name", "id"):
                yield f"{name} of {call.index}", getattr(call, name)
        if self.message is not None:
            yield "message", codec.encode(self.message).decode()


def assembled(
    begun: dict[str, Any], texts: Iterable[str], calls: Iterable[CallPart]
) -> dict[str, Any]:
    """Return the message that parts add up to, with tool calls as OpenAI's chat has them."""
    message = {**begun, "content": "".join(texts)}
    pieces: dict[int, list[CallPart]] = {}
    for call in calls:
        pieces.setdefault(call.index, []).append(call)
    if pieces:
        message["content"] = message["content"] or None
        message["tool_calls"] = [
            {
                "id": next((one.id for one in found if one.id), ""),
                "type": "function",
                "function": {
                    "name": "".join(one.name for one in found),
                    "arguments": "".join(one.arguments for one in found),
                },
            }
            for _, found in sorted(pieces.items())
        ]
    return message


class MessageRedacted(msgspec.Struct, omit_defaults=True):
    """The message at `seq` is removed from every view, and its stream parts with it.

    `data`: the replacement, if only secrets were removed. `kind`: in that case, the kind of the event.
    """

    seq: int
    reason: str = ""
    stream: str = ""
    data: dict[str, Any] | None = None
    kind: str = ""


class HistoryDropped(msgspec.Struct, omit_defaults=True):
    """All content before the seq `before` is removed from every view; see `is_content`.

    `streams`: unfinished messages that began before it; their parts are removed too.
    `events`, `messages`: how many events were removed, and how many of them were messages.
    """

    before: int
    reason: str = ""
    streams: list[str] = []
    events: int = 0
    messages: int = 0


class MetadataSet(msgspec.Struct, omit_defaults=True):
    """Keys merged into the metadata, as a JSON merge-patch: null removes a key.

    `automatic`: a program chose it; it does not replace a title that a person chose.
    """

    metadata: dict[str, Any]
    automatic: bool = False


class SessionCreated(msgspec.Struct, omit_defaults=True):
    """The session was created explicitly, before its first message."""

    metadata: dict[str, Any] = {}


#: An id that every backend can store (F-5): listings and reads of the parent would fail with another one.
_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=1024, pattern=r"\A[^\0]*\Z")]


class SessionForked(msgspec.Struct, omit_defaults=True):
    """The first event of a fork, which shares its parent's events up to `seq`.

    `created`: when the parent began: a later session of the same name is not the parent.
    `depth`: the number of ancestors. `label`: the snapshot that it was forked at, if it was.
    """

    parent: _Id
    seq: int
    created: str = ""
    depth: int = 1
    label: str = ""


class SessionSnapshotted(msgspec.Struct):
    """A name for a seq."""

    label: str
    seq: int


class SessionReverted(msgspec.Struct):
    """The model view is reverted to `seq`; later events stay in the log."""

    seq: int


class SummaryAdded(msgspec.Struct):
    """A summary of the history up to `upto`; the history view still shows all of it."""

    upto: int
    message: dict[str, Any]


#: Maximum for one call of a model. Sums stay finite and fit into an index: one event from another source must
#: not spoil the sums of a store.
MOST: Final = 10**12
_Tokens = Annotated[int, msgspec.Meta(ge=0, le=MOST)]

#: Adds costs exactly: each has at most 13 digits before the decimal point, and 18 after it.
EXACT: Final = Context(prec=64)
_PLACES: Final = 18


def exact_cost(cost: Decimal) -> Decimal:
    """Return a cost that sums exactly: rounded to 18 decimal places. ValueError if it is above 10¹²."""
    if not cost.is_finite() or cost.copy_abs() > MOST:
        raise ValueError(f"cost must be a number from -10¹² to 10¹², got {cost}")
    (_, _, places) = cost.as_tuple()
    if isinstance(places, int) and places < -_PLACES:
        cost = cost.quantize(Decimal(1).scaleb(-_PLACES), context=EXACT)
    return cost


class UsageRecorded(msgspec.Struct, omit_defaults=True):
    """Tokens and cost of one call of a model; each at most 10¹².

    `cost`: a decimal number, as a string or a number. `response_id`: the response that was counted.
    `calls`: 0 if this adds to what was recorded of the call before.
    """

    model: str
    input_tokens: _Tokens = 0
    output_tokens: _Tokens = 0
    cached_tokens: _Tokens = 0
    cache_write_tokens: _Tokens = 0
    reasoning_tokens: _Tokens = 0
    cost: Decimal | None = None
    response_id: str = ""
    calls: _Tokens = 1

    def __post_init__(self) -> None:
        if self.cost is not None:
            self.cost = exact_cost(self.cost)


class SessionCleared(msgspec.Struct):
    """The model view is empty after this event."""


class SessionArchived(msgspec.Struct, omit_defaults=True):
    """The session is archived, or no longer; it can be read as before."""

    archived: bool = True


class SessionClosed(msgspec.Struct, omit_defaults=True):
    """The conversation is closed, or reopened."""

    closed: bool = True


class SessionHeld(msgspec.Struct, omit_defaults=True):
    """The session is under a legal hold. `fork`: the fork that is held, and needs this session."""

    reason: str = ""
    fork: str = ""


class SessionReleased(msgspec.Struct, omit_defaults=True):
    """The hold is over: the session's own one, or the one for a fork."""

    fork: str = ""


class EventLost(msgspec.Struct, omit_defaults=True):
    """A damaged event that is lost. `kept`: the file next to the log that holds its bytes."""

    kept: str = ""


class SessionRepaired(msgspec.Struct, omit_defaults=True):
    """Damage was repaired: where it was, the ranges of lost seqs, and the files that keep the bytes.

    `unchecked`: seqs of events that look valid and cannot be checked. The seqs of all other events are
    unchanged. Of extensive damage, only the beginning is listed.
    """

    damage: list[dict[str, Any]] = []
    lost: list[tuple[int, int]] = []
    unchecked: list[int] = []
    kept: list[str] = []


EVENT_LOST: Final = "event.lost"
HISTORY_DROPPED: Final = "history.dropped"
MESSAGE_ADDED: Final = "message.added"
MESSAGE_PART: Final = "message.part"
MESSAGE_REDACTED: Final = "message.redacted"
METADATA_SET: Final = "metadata.set"
RETENTION_SET: Final = "retention.set"
SESSION_ARCHIVED: Final = "session.archived"
SESSION_CLEARED: Final = "session.cleared"
SESSION_CLOSED: Final = "session.closed"
SESSION_CREATED: Final = "session.created"
SESSION_DELETED: Final = "session.deleted"
SESSION_FORKED: Final = "session.forked"
SESSION_HELD: Final = "session.held"
SESSION_KEPT: Final = "session.kept"
SESSION_PRUNED: Final = "session.pruned"
SESSION_PURGED: Final = "session.purged"
SESSION_RELEASED: Final = "session.released"
SESSION_REPAIRED: Final = "session.repaired"
SESSION_RESTORED: Final = "session.restored"
SESSION_REVERTED: Final = "session.reverted"
SESSION_SNAPSHOTTED: Final = "session.snapshotted"
SUMMARY_ADDED: Final = "summary.added"
USAGE_RECORDED: Final = "usage.recorded"

#: Not in it: the kinds of the audit log, whose data the store never reads; docs/events.md describes them.
KINDS: Final[dict[str, type[msgspec.Struct]]] = {
    MESSAGE_ADDED: MessageAdded,
    MESSAGE_PART: MessagePart,
    MESSAGE_REDACTED: MessageRedacted,
    HISTORY_DROPPED: HistoryDropped,
    METADATA_SET: MetadataSet,
    SESSION_CREATED: SessionCreated,
    SESSION_FORKED: SessionForked,
    SESSION_SNAPSHOTTED: SessionSnapshotted,
    SESSION_REVERTED: SessionReverted,
    SUMMARY_ADDED: SummaryAdded,
    USAGE_RECORDED: UsageRecorded,
    SESSION_CLEARED: SessionCleared,
    SESSION_ARCHIVED: SessionArchived,
    SESSION_CLOSED: SessionClosed,
    SESSION_HELD: SessionHeld,
    SESSION_RELEASED: SessionReleased,
    SESSION_REPAIRED: SessionRepaired,
    EVENT_LOST: EventLost,
}

#: Control events (docs/format.md, F-19): few, and views and metadata depend on them. Messages, their parts,
#: usage and the application's events are many, and views do not depend on them.
CONTROL: Final = frozenset(KINDS) - {EVENT_LOST, MESSAGE_ADDED, MESSAGE_PART, USAGE_RECORDED}

#: The kinds of the application's events begin with this. The store does not interpret them.
APPLICATION: Final = "x."

_CONTENT: Final = frozenset({MESSAGE_ADDED, MESSAGE_PART, SUMMARY_ADDED})


def is_content(kind: str) -> bool:
    """Return whether dropping history removes events of a kind; the others add up to the state."""
    return kind in _CONTENT or kind.startswith(APPLICATION)


_KIND: Final = r"[!#-\[\]-~]{1,100}"


#: Held while msgspec prepares a struct for its first decoder: other threads and forked children would crash.
_preparing: Final = threading.RLock()
os.register_at_fork(
    before=_preparing.acquire,
    after_in_parent=_preparing.release,
    after_in_child=_preparing.release,
)


@cache
def _decoder(kind: str) -> msgspec.json.Decoder[Any]:
    with _preparing:
        return msgspec.json.Decoder(KINDS[kind])


def read(kind: str, raw: bytes) -> Any:
    """Return an event's data as the struct of its kind; None if they do not have its shape.

    Data in another shape, which a newer version or another program wrote, are ignored like an unknown
    kind. So are data that are nested deeper than can be stored (F-17).
    """
    try:
        return None if codec.is_too_deep(raw) else _decoder(kind).decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def check_kind(kind: object) -> str:
    """Return the kind if a record can hold it (F-13), or raise `InvalidEvent`."""
    if isinstance(kind, str) and re.fullmatch(_KIND, kind):
        return kind
    raise InvalidEvent(
        f"kind {kind!r:.60}: must be 1 to 100 printable ASCII characters without spaces, "
        "quotes or backslashes, such as 'x.todo.done'"
    )
