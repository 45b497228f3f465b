"""Store what LangGraph holds as JSON that a person can read.

A serializer gives a type and bytes. Bytes that are MessagePack or JSON are stored as the JSON they amount to,
so that `jq`, `hansard show` and `session.scrub` see what is in them; if the same bytes would not come back
from that, or if they are something else, such as a cipher, they are stored in base64. For what MessagePack
has and JSON has not, members that begin with `$` say what is meant:

    {"msgpack": {"$ext": [5, ["langchain_core.messages.human", "HumanMessage", {"content": "hi", …}, …]]}}
"""

import base64
import math
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b, sha256
from typing import Any, Final

import msgspec

#: The kinds of events that a thread consists of.
CHECKPOINT: Final = "x.langgraph.checkpoint"
WRITES: Final = "x.langgraph.writes"
REMOVED: Final = "x.langgraph.removed"

#: The metadata of a session that is a thread: the version of what is stored.
MARK: Final = "langgraph"
FORMAT: Final = 1
#: In the metadata: the thread's id in hexadecimal, if the session's id is a hash of it.
_THREAD: Final = "langgraph_thread"
#: The first character of a session's id that is made of a thread's id.
_CODED: Final = "~"
_LONGEST: Final = 1024

#: What a serializer gives: the name of its format, and the bytes.
Typed = tuple[str, bytes]

#: Deeper values are stored in base64: an event may have 128 levels, and each extension takes two.
_DEEPEST: Final = 50

#: Maximum bytes of JSON that is remembered.
_SHORT: Final = 4096

_BYTES, _EXT, _MAP = "$bytes", "$ext", "$map"

#: What is the same in both.
_SAME: Final = frozenset({str, int, bool, type(None)})

_decode = msgspec.msgpack.Decoder().decode
_encode = msgspec.msgpack.Encoder().encode
_decode_json = msgspec.json.Decoder().decode
_encode_json = msgspec.json.Encoder().encode


class _Untold(Exception):
    """A value that this JSON has no word for."""


def pack(given: Typed) -> dict[str, Any]:
    """Return as JSON what a serializer gave."""
    kind, data = given
    data = bytes(data)  # some give a bytearray
    if not data:
        return {"type": kind}
    try:
        if kind == "msgpack":
            told = _told(_decode(data), 0)
            if _encode(_meant(told)) == data:
                return {"msgpack": told}
        elif kind == "json":
            said = _decode_json(data)
            if _encode_json(said) == data:
                return {"json": _told(said, 0, escape=False)}
    except (_Untold, ValueError, TypeError, RecursionError, msgspec.MsgspecError):
        pass
    return {"type": kind, "base64": base64.b64encode(data).decode()}


def unpack(packed: dict[str, Any]) -> Typed:
    """Return what a serializer gave; the inverse of `pack`."""
    if "msgpack" in packed:
        return "msgpack", _encode(_meant(packed["msgpack"]))
    if "json" in packed:
        return "json", _encode_json(packed["json"])
    return packed["type"], base64.b64decode(packed.get("base64", ""))


def typed(packed: bytes) -> Typed:
    """Return what a serializer gave, from JSON text. Short ones are remembered: lists are read often."""
    return _typed(packed) if len(packed) <= _SHORT else unpack(_decode_json(packed))


@lru_cache(maxsize=8192)
def _typed(packed: bytes) -> Typed:
    return unpack(_decode_json(packed))


def mark(given: Typed) -> bytes:
    """Return a few bytes by which the same value is known again."""
    kind, data = given
    return blake2b(kind.encode() + b"\0" + data, digest_size=16).digest()


def _told(value: Any, depth: int, *, escape: bool = True) -> Any:  # noqa: PLR0911 - one for each type
    """Return a value of MessagePack as JSON."""
    # By the exact type, which is all that a decoder makes: each message has dozens of values.
    kind = type(value)
    if kind in _SAME:
        return value
    if kind is float:
        if math.isfinite(value):
            return value
        raise _Untold
    depth += 1
    if depth > _DEEPEST:
        raise _Untold
    if kind is dict:
        if not escape or all(type(name) is str and name[:1] != "$" for name in value):
            return {
                name: inner if type(inner) in _SAME else _told(inner, depth, escape=escape)
                for name, inner in value.items()
            }
        depth += 2
        return {_MAP: [[_told(name, depth), _told(item, depth)] for name, item in value.items()]}
    if kind is list:
        return [_told(inner, depth, escape=escape) for inner in value]
    if kind is bytes:
        return {_BYTES: base64.b64encode(value).decode()}
    if kind is msgspec.msgpack.Ext:
        return {_EXT: [value.code, _told_inner(bytes(value.data), depth + 1)]}
    raise _Untold


def _told_inner(data: bytes, depth: int) -> Any:
    """Return what an extension holds: MessagePack again, most times, or bytes as such."""
    try:
        # That the whole comes back equal is seen at the end; here, that this much can be told at all.
        return _told(_decode(data), depth)
    except (_Untold, ValueError, TypeError, msgspec.MsgspecError):
        pass
    # As a list of one: what MessagePack amounts to never looks like this.
    return {_EXT: [base64.b64encode(data).decode()]}


def _meant(told: Any) -> Any:
    """Return the value of MessagePack that JSON tells; the inverse of `_told`."""
    kind = type(told)
    if kind is list:
        return [_meant(inner) for inner in told]
    if kind is not dict:
        return told
    if len(told) == 1:
        ((name, inner),) = told.items()
        if name == _BYTES:
            return base64.b64decode(inner)
        if name == _MAP:
            return {_meant(key): _meant(item) for key, item in inner}
        if name == _EXT:
            code, held = inner
            return msgspec.msgpack.Ext(code, _meant_inner(held))
    return {name: inner if type(inner) in _SAME else _meant(inner) for name, inner in told.items()}


def _meant_inner(held: Any) -> bytes:
    if isinstance(held, dict) and len(held.get(_EXT, ())) == 1:
        return base64.b64decode(held[_EXT][0])
    return _encode(_meant(held))


# -- the ids of threads -------------------------------------------------------------------------


def session_id(prefix: str, thread_id: object) -> str:
    """Return the id of a thread's session: the thread's own, or one made of it where no session can have it.

    Two threads never share a session.
    """
    name = str(thread_id)  # some programs use numbers
    own = prefix + name
    coded = name.encode(errors="surrogatepass").hex()
    if (
        name
        and not name.startswith(_CODED)
        and len(own) <= _LONGEST
        and "\0" not in own
        and not any("\ud800" <= character <= "\udfff" for character in name)
    ):
        return own
    if len(prefix) + 1 + len(coded) <= _LONGEST:
        return f"{prefix}{_CODED}{coded}"
    return f"{prefix}{2 * _CODED}{sha256(bytes.fromhex(coded)).hexdigest()}"


def thread_metadata(prefix: str, name: str, thread_id: str) -> dict[str, Any]:
    """Return the metadata by which the session of that name is known as a thread."""
    found: dict[str, Any] = {MARK: FORMAT}
    if name.startswith(prefix + 2 * _CODED):
        found[_THREAD] = thread_id.encode(errors="surrogatepass").hex()
    return found


def thread_id(prefix: str, name: str, metadata: Mapping[str, Any]) -> str:
    """Return the id of the thread whose session has that name and metadata."""
    own = name.removeprefix(prefix)
    if not own.startswith(_CODED):
        return own
    hashed = own.startswith(2 * _CODED)
    coded = str(metadata.get(_THREAD, "")) if hashed else own.removeprefix(_CODED)
    return bytes.fromhex(coded).decode(errors="surrogatepass")
