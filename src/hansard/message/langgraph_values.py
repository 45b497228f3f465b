"""Store LangGraph's values as JSON that people can read, and its threads as conversations.

A serializer returns a type and bytes. MessagePack and JSON are stored as the equivalent JSON, so that `jq`,
`hansard show` and `session.scrub` see their content. Bytes that this would not restore, and others, such as
a ciphertext, are stored in base64. `values` describes the notation:

    {"msgpack": {"$ext": [5, ["langchain_core.messages.human", "HumanMessage", {"content": "hi", …}, …]]}}
"""

import base64
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from hansard.errors import InvalidEvent
from hansard.message import origin, values

#: Kinds of a thread's events.
CHECKPOINT: Final = "x.langgraph.checkpoint"
WRITES: Final = "x.langgraph.writes"
REMOVED: Final = "x.langgraph.removed"

#: Metadata of a session that is a thread: the version of the format.
MARK: Final = "langgraph"
FORMAT: Final = 1

#: LangChain's names of roles.
_ROLES: Final = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant"}

#: What a serializer returns: the name of its format, and the bytes.
Typed = tuple[str, bytes]

#: Maximum bytes of JSON whose value is cached.
_SHORT: Final = 4096

_decode = msgspec.msgpack.Decoder().decode
_encode = msgspec.msgpack.Encoder().encode
_decode_json = msgspec.json.Decoder().decode
_encode_json = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def pack(given: Typed) -> dict[str, Any]:
    """Return a serialized value as JSON."""
    kind, data = given
    data = bytes(data)  # some serializers return a bytearray
    if not data:
        return {"type": kind}
    try:
        if kind == "msgpack":
            encoded = values.to_json(_decode(data))
            if _encode(values.from_json(encoded)) == data:
                return {"msgpack": encoded}
        elif kind == "json":
            found = _decode_json(data)
            if _encode_json(found) == data and values.is_json(found):
                return {"json": found}
    except (InvalidEvent, ValueError, TypeError, RecursionError, msgspec.MsgspecError):
        pass
    return {"type": kind, "base64": base64.b64encode(data).decode()}


def unpack(packed: dict[str, Any]) -> Typed:
    """Return the serialized value; the inverse of `pack`."""
    if "msgpack" in packed:
        return "msgpack", _encode(values.from_json(packed["msgpack"]))
    if "json" in packed:
        return "json", _encode_json(packed["json"])
    return packed["type"], base64.b64decode(packed.get("base64", ""))


def typed(packed: bytes) -> Typed:
    """Return the serialized value of JSON text. Short ones are cached: lists are read often."""
    return _typed(packed) if len(packed) <= _SHORT else unpack(_decode_json(packed))


@lru_cache(maxsize=8192)
def _typed(packed: bytes) -> Typed:
    return unpack(_decode_json(packed))


def mark(given: Typed) -> bytes:
    """Return a hash of a serialized value."""
    kind, data = given
    return blake2b(kind.encode() + b"\0" + data, digest_size=16).digest()


def plain_message(native: Any) -> dict[str, Any] | None:
    """Return a message of a graph that is a dict; None if it is not a message."""
    is_message = isinstance(native, dict) and isinstance(native.get("role"), str)
    return dict(values.as_json(native)) if is_message and "content" in native else None


def message_of(member: Callable[[str], Any]) -> dict[str, Any] | None:
    """Return a LangChain message in the common form, given what returns its members.

    None if it removes another message.
    """
    kind = member("type")
    if not isinstance(kind, str) or kind == "remove":
        return None
    message: dict[str, Any] = {"role": _ROLES.get(kind, kind), "content": member("content")}
    made = [call for call in member("tool_calls") or () if isinstance(call, dict)]
    if made:
        message["tool_calls"] = [
            origin.call_of(call.get("id") or "", call.get("name", ""), call.get("args"))
            for call in made
        ]
    for name in ("tool_call_id", "name"):
        if isinstance(found := member(name), str):
            message[name] = found
    return dict(values.as_json(message))


def usage_of(member: Callable[[str], Any]) -> dict[str, Any] | None:
    """Return what to record for a LangChain message that reports usage; None for any other."""
    used, response = member("usage_metadata"), member("response_metadata")
    if not isinstance(used, dict):
        return None
    response = response if isinstance(response, dict) else {}
    given, made = (used.get(f"{name}_token_details") or {} for name in ("input", "output"))
    counts = {
        "input_tokens": used.get("input_tokens"),
        "output_tokens": used.get("output_tokens"),
        "cached_tokens": given.get("cache_read"),
        "cache_write_tokens": given.get("cache_creation"),
        "reasoning_tokens": made.get("reasoning"),
    }
    return origin.usage(response.get("model_name") or response.get("model"), counts)


class MirrorChange(NamedTuple):
    """How a checkpoint changes the conversation.

    Attributes:
        kept: how many of the known messages stay.
        messages: the new ones, and `marks`, their hashes.
        back: the place to which the conversation is reverted first; None if it only continues.
    """

    kept: int
    messages: list[dict[str, Any]]
    marks: list[str]
    back: int | None


def mirror_change(
    known: Sequence[tuple[str, int]], messages: list[dict[str, Any]], *, more: bool
) -> MirrorChange | None:
    """Compare the messages of a checkpoint with the known ones; None if nothing changes.

    Args:
        known: the hash and the place of each message of the conversation.
        messages: those of the checkpoint.
        more: they continue the conversation. Otherwise they are all of it.
    """
    marks = [blake2b(_encode_sorted(one), digest_size=16).hexdigest() for one in messages]
    same = 0 if more else values.common_prefix(marks, [mark for mark, _ in known])
    kept = len(known) if more else same
    back = None
    if kept < len(known):
        back = known[kept - 1][1] if kept else known[0][1] - 1
    change = MirrorChange(kept, messages[same:], marks[same:], back)
    return change if change.messages or back is not None else None
