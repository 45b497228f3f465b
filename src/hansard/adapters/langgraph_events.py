"""The events that a thread of LangGraph is stored as.

Above: `langgraph`, `langgraph_thread`, `langgraph_records`.  Below: msgspec.
Three kinds, all of the application's own:

- `x.langgraph.checkpoint`: a checkpoint with the values of the channels that are new in it. A list, such as
  `messages`, is stored as what comes behind the part that it has in common with an earlier one, `base`.
- `x.langgraph.writes`: what one task wrote, for the checkpoint that it began from.
- `x.langgraph.removed`: checkpoints that LangGraph sees no more. Their values stay: others are built on them.
"""

from typing import Final

import msgspec

CHECKPOINT: Final = "x.langgraph.checkpoint"
WRITES: Final = "x.langgraph.writes"
REMOVED: Final = "x.langgraph.removed"

#: What says in a session's metadata that it is a thread, and how it is stored.
MARK: Final = "langgraph"
FORMAT: Final = 1

Version = str | int | float


class Mirrored(msgspec.Struct):
    """Which messages stand behind a checkpoint, one seq after the other: what they are known by."""

    channel: str
    #: So many of those that were mirrored before are still part of the conversation.
    kept: int
    marks: list[str]


class Put(msgspec.Struct, omit_defaults=True):
    """The data of a checkpoint's event."""

    ns: str
    id: str
    versions: dict[str, Version]
    checkpoint: msgspec.Raw
    metadata: msgspec.Raw
    parent: str | None = None
    run: str | None = None
    #: By channel; null: the channel is empty.
    values: dict[str, msgspec.Raw] = {}
    mirrored: Mirrored | None = None


class Written(msgspec.Struct, omit_defaults=True):
    """The data of the event of a task's writes: channels and values."""

    ns: str
    checkpoint: str
    task: str
    path: str
    #: Index, channel, value. A negative index is that of a channel of which only the last write counts.
    writes: list[tuple[int, str, msgspec.Raw]]


class Removed(msgspec.Struct, omit_defaults=True):
    """The data of a removal: ids by namespace, or everything."""

    checkpoints: dict[str, list[str]] = {}
    all: bool = False


class StoredValue(msgspec.Struct, rename={"items": "list"}):
    """A stored value as far as it is a list: what is behind the first `keep` of those of `base`."""

    items: list[msgspec.Raw] | None = None
    base: int = 0
    keep: int = 0


class StoredMetadata(msgspec.Struct):
    """Of an event that sets metadata: the metadata."""

    metadata: dict[str, msgspec.Raw] = {}


read_put = msgspec.json.Decoder(Put).decode
read_written = msgspec.json.Decoder(Written).decode
read_removed = msgspec.json.Decoder(Removed).decode
read_metadata = msgspec.json.Decoder(StoredMetadata).decode
read_value = msgspec.json.Decoder(StoredValue | None).decode
read_packed = msgspec.json.Decoder(dict).decode
