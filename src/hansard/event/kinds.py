"""The kinds of events, and the shape of each one's data.

A kind's name is permanent on disk. A new field has a default; a kind is never reused. Fields that a
struct does not name are kept in the log and handed out with the data: structs
are how the store itself reads an event, not all that an event may say.
"""

import re
from typing import Annotated, Any, Final

import msgspec

from hansard.errors import InvalidEvent
from hansard.event import codec


class MessageAdded(msgspec.Struct, omit_defaults=True):
    """One message, any JSON object, verbatim. Supersedes the parts of the stream it names."""

    message: dict[str, Any]
    stream: str | None = None


class MessagePart(msgspec.Struct, omit_defaults=True):
    """A piece of a message that is still streaming.

    The first one has the message as far as it is known beforehand, without its content. `over`: the
    message was discarded, and there is nothing to show of it.
    """

    stream: str
    text: str = ""
    message: dict[str, Any] | None = None
    over: bool = False


class MessageRedacted(msgspec.Struct, omit_defaults=True):
    """The message at `seq` is gone from every view, and with it what was streamed of it.

    `data`: the replacement, if any; for a message from which only secrets were removed.
    `kind`: the kind of the event at `seq`, if it has `data`.
    """

    seq: int
    reason: str = ""
    stream: str = ""
    data: dict[str, Any] | None = None
    kind: str = ""


class HistoryDropped(msgspec.Struct, omit_defaults=True):
    """All that was said before the seq `before` is gone from every view; see `is_said`.

    `streams`: messages that were begun before it and not finished: what was streamed of them is gone too.
    `events`, `messages`: how many went, the messages among them.
    """

    before: int
    reason: str = ""
    streams: list[str] = []
    events: int = 0
    messages: int = 0


class MetadataSet(msgspec.Struct, omit_defaults=True):
    """Keys merged into the metadata, as a JSON merge-patch: null removes a key.

    `automatic`: a program made it up; a title that a person gave is not overwritten by it.
    """

    metadata: dict[str, Any]
    automatic: bool = False


class SessionCreated(msgspec.Struct, omit_defaults=True):
    """The session was made on purpose, before anything was said in it."""

    metadata: dict[str, Any] = {}


#: An id that every backend can keep (F-5): who follows one that is none would fail, and so would a listing.
_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=1024, pattern=r"\A[^\0]*\Z")]


class SessionForked(msgspec.Struct, omit_defaults=True):
    """The first event of a child: it begins where its parent was at `seq`.

    `created`: when the parent began. A later session of the same name is not the parent. `depth`: how many
    sessions it comes from, one forked from the other.
    """

    parent: _Id
    seq: int
    created: str = ""
    depth: int = 1


class SessionSnapshotted(msgspec.Struct):
    """A label for a seq."""

    label: str
    seq: int


class SessionReverted(msgspec.Struct):
    """The view goes back to `seq`; later events stay in the log."""

    seq: int


class SummaryAdded(msgspec.Struct):
    """A model shortened the history up to `upto`; the history view still shows all of it."""

    upto: int
    message: dict[str, Any]


#: What one call of a model can take. Sums of these stay finite, and within what an index can hold: one event
#: from another source must not spoil the sums of a whole store.
_Tokens = Annotated[int, msgspec.Meta(ge=-(10**12), le=10**12)]
_Cost = Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)]


class UsageRecorded(msgspec.Struct, omit_defaults=True):
    """Tokens and cost of one call of a model; each at most a million millions."""

    model: str
    input_tokens: _Tokens = 0
    output_tokens: _Tokens = 0
    cost: _Cost | None = None


class SessionCleared(msgspec.Struct):
    """The model view is empty after this event."""


class SessionArchived(msgspec.Struct, omit_defaults=True):
    """The session is out of the way, and can be read as before; or it no longer is."""

    archived: bool = True


class SessionClosed(msgspec.Struct, omit_defaults=True):
    """The conversation is closed, or reopened."""

    closed: bool = True


class EventLost(msgspec.Struct, omit_defaults=True):
    """A damaged event that is lost. `kept`: the file next to the log that has its bytes."""

    kept: str = ""


class SessionRepaired(msgspec.Struct, omit_defaults=True):
    """Damage was repaired: where it was, which seqs are lost, first and last, and where the bytes are kept.

    `unchecked`: seqs of events that look whole, and cannot be checked.
    The seqs of all other events stayed as they were. Of much damage, only the beginning is listed.
    """

    damage: list[dict[str, Any]] = []
    lost: list[tuple[int, int]] = []
    unchecked: list[int] = []
    kept: list[str] = []


class SessionDeleted(msgspec.Struct, omit_defaults=True):
    """Of the audit log: a session was about to be moved into the trash. `seq`: its last event."""

    session: str
    seq: int = 0


class SessionPruned(msgspec.Struct, omit_defaults=True):
    """Of the audit log: the same, because nothing had happened in it for so long.

    `older_than` is in seconds; `workspace` is the one that was pruned, null for sessions that belong to
    none; `all_workspaces`: whatever they belong to.
    """

    session: str
    older_than: float
    seq: int = 0
    updated: str = ""
    keep_last: int = 0
    prefix: str = ""
    workspace: str | None = None
    all_workspaces: bool = False


class SessionRestored(msgspec.Struct, omit_defaults=True):
    """Of the audit log: a session was about to be taken out of the trash."""

    session: str
    seq: int = 0


class SessionPurged(msgspec.Struct, omit_defaults=True):
    """Of the audit log: a session was about to be removed from the trash for good.

    `created`: when it had begun. `seq`: its last event; 0 if its log could not be read.
    """

    session: str
    seq: int = 0
    created: str = ""


class SessionKept(msgspec.Struct, omit_defaults=True):
    """Of the audit log: what the event at `record` announced did not come to pass, and why."""

    session: str
    record: int
    reason: str = ""


EVENT_LOST: Final = "event.lost"
HISTORY_DROPPED: Final = "history.dropped"
MESSAGE_ADDED: Final = "message.added"
MESSAGE_PART: Final = "message.part"
MESSAGE_REDACTED: Final = "message.redacted"
METADATA_SET: Final = "metadata.set"
SESSION_ARCHIVED: Final = "session.archived"
SESSION_CLEARED: Final = "session.cleared"
SESSION_CLOSED: Final = "session.closed"
SESSION_CREATED: Final = "session.created"
SESSION_DELETED: Final = "session.deleted"
SESSION_FORKED: Final = "session.forked"
SESSION_KEPT: Final = "session.kept"
SESSION_PRUNED: Final = "session.pruned"
SESSION_PURGED: Final = "session.purged"
SESSION_REPAIRED: Final = "session.repaired"
SESSION_RESTORED: Final = "session.restored"
SESSION_REVERTED: Final = "session.reverted"
SESSION_SNAPSHOTTED: Final = "session.snapshotted"
SUMMARY_ADDED: Final = "summary.added"
USAGE_RECORDED: Final = "usage.recorded"

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
    SESSION_REPAIRED: SessionRepaired,
    EVENT_LOST: EventLost,
    SESSION_DELETED: SessionDeleted,
    SESSION_PRUNED: SessionPruned,
    SESSION_RESTORED: SessionRestored,
    SESSION_PURGED: SessionPurged,
    SESSION_KEPT: SessionKept,
}

#: What is done to whole sessions: kept in the audit log, and in no session's own.
AUDITED: Final = frozenset(
    {SESSION_DELETED, SESSION_PRUNED, SESSION_RESTORED, SESSION_PURGED, SESSION_KEPT}
)

#: Control records (docs/format.md, F-19): few, and a view or the metadata cannot be known without
#: them. Messages, their parts, usage and the application's own events are many, and can.
CONTROL: Final = (
    frozenset(KINDS) - AUDITED - {EVENT_LOST, MESSAGE_ADDED, MESSAGE_PART, USAGE_RECORDED}
)

#: The application's own events begin with this, and are kept, replayed and listed uninterpreted.
APPLICATION: Final = "x."

_SAID: Final = frozenset({MESSAGE_ADDED, MESSAGE_PART, SUMMARY_ADDED})


def is_said(kind: str) -> bool:
    """Return whether events of a kind are content, which dropping history removes.

    What was done to the session stays: it adds up to its state.
    """
    return kind in _SAID or kind.startswith(APPLICATION)


_NAME: Final = re.compile(r"[!#-\[\]-~]{1,100}")
_LONGEST_KEY: Final = 1024


_DECODERS: Final = {kind: msgspec.json.Decoder(shape) for kind, shape in KINDS.items()}


def read(kind: str, raw: bytes) -> Any:
    """Return an event's data as the struct of its kind; None if they do not have its shape.

    What a newer version, or another program, wrote in another shape means nothing to this one, like a
    kind that it does not know. The same holds for what is nested deeper than can be stored (F-17).
    """
    try:
        return None if codec.is_too_deep(raw) else _DECODERS[kind].decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def check_kind(kind: object) -> str:
    """Return the kind if a record can carry it (F-13), or raise `InvalidEvent`."""
    if isinstance(kind, str) and _NAME.fullmatch(kind):
        return kind
    raise InvalidEvent(
        f"kind {kind!r:.60}: must be 1 to 100 printable ASCII characters without spaces, "
        "quotes or backslashes, such as 'x.todo.done'"
    )


def check_key(key: object) -> str:
    """Return an idempotency key that every backend can keep, or raise `InvalidEvent`."""
    if not isinstance(key, str) or not 0 < len(key) <= _LONGEST_KEY or "\0" in key:
        raise InvalidEvent(f"key {key!r:.60}: must be a text of 1 to 1,024 characters without NUL")
    try:
        key.encode()
    except UnicodeEncodeError:
        raise InvalidEvent(f"key {key!r:.60}: holds a lone surrogate, which is not text") from None
    return key
