r"""Encode values that Python has and JSON lacks as JSON that decodes to an equal value.

Frameworks keep any value of a program: numbers as keys, NaN, bytes, lone surrogates, deep nesting. `to_json`
writes these as objects whose member begins with `$`; `jq` and `session.scrub` still see every string:

    {1: nan}        {"$map": [[1, {"$float": "nan"}]]}
    b"\x00"         {"$bytes": "AA=="}
    "a\ud83d"       {"$text": ["a", 55357]}
    ("a", {"b"})    {"$tuple": ["a", {"$set": ["b"]}]}

An extension of MessagePack is {"$ext": [code, content]}; content of another format is {"$ext": [base64]}.
Any other value, and one of more than 100 levels, is refused before anything is stored. `readable` is for
people and other frameworks.
"""

import base64
import json
import math
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypeVar

import msgspec

from hansard.errors import InvalidEvent
from hansard.event import codec

Answer = TypeVar("Answer")
Mode = Literal["json", "python"]

#: An event has at most 128 levels; what contains a value takes some of them.
_DEEPEST: Final = 100
#: Levels that `readable` shows.
_SHOWN: Final = 32

_TOO_DEEP: Final = f"value is nested more than {_DEEPEST} levels deep; nothing was stored"
_FAILURES: Final = (RecursionError, TypeError, ValueError, OverflowError, msgspec.MsgspecError)

#: Types that are the same in JSON.
_SAME: Final = frozenset({int, bool, type(None)})
_SURROGATE: Final = re.compile("([\ud800-\udfff])")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_encode_msgpack = msgspec.msgpack.Encoder().encode
_decode_msgpack = msgspec.msgpack.Decoder().decode


def is_json(value: Any) -> bool:
    """Return whether a value equals its JSON, and is not too deep for an event."""
    try:
        raw = _encode(value)
        return bool(_decode(raw) == value) and not codec.is_too_deep(raw, _DEEPEST)
    except _FAILURES:
        return False


def common_prefix(ours: Sequence[object], theirs: Sequence[object]) -> int:
    """Return how many values at the beginning of two sequences are equal."""
    shortest = min(len(ours), len(theirs))
    if ours[:shortest] == theirs[:shortest]:
        return shortest
    pairs = enumerate(zip(ours, theirs, strict=False))
    return next(place for place, (one, other) in pairs if one != other)


def to_json(value: Any) -> Any:
    """Return JSON for a value, or raise `InvalidEvent` if a part of it has no notation."""
    try:
        encoded = _encoded(value)
        raw = _encode(encoded)
    except RecursionError:
        raise InvalidEvent(_TOO_DEEP) from None
    if codec.is_too_deep(raw, _DEEPEST):
        raise InvalidEvent(_TOO_DEEP)
    return encoded


def is_storable(value: Any) -> bool:
    """Return whether `to_json` accepts a value."""
    try:
        to_json(value)
    except InvalidEvent:
        return False
    return True


def _encoded(value: Any) -> Any:  # noqa: PLR0911 - one for each type
    if type(value) in _SAME or (type(value) is str and value.isascii()):
        return value  # by the exact type: a message of LangGraph has dozens of values
    if isinstance(value, str):
        text = str.__str__(value)
        return text if _is_text(text) else {"$text": _split(text)}
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, datetime):
        return {"$time": value.isoformat()}
    return _encoded_container(value)


def _encoded_container(value: Any) -> Any:
    if isinstance(value, dict):
        if all(isinstance(name, str) and name[:1] != "$" and _is_text(name) for name in value):
            return {
                str(name): inner if type(inner) in _SAME else _encoded(inner)
                for name, inner in value.items()
            }
        return {"$map": [[_encoded(one) for one in pair] for pair in value.items()]}
    if isinstance(value, list | tuple | set | frozenset):
        found = [_encoded(inner) for inner in value]
        if isinstance(value, list):
            return found
        return {"$tuple" if isinstance(value, tuple) else "$set": found}
    if isinstance(value, msgspec.msgpack.Ext):
        return {"$ext": [value.code, _encoded_ext(bytes(value.data))]}
    raise InvalidEvent(
        f"a value of type {type(value).__name__} cannot be stored; nothing was stored. "
        "Convert it to strings, numbers, bytes, lists or dicts"
    )


def _encoded_ext(data: bytes) -> Any:
    try:
        return _encoded(_decode_msgpack(data))
    except (ValueError, TypeError, msgspec.MsgspecError):
        return {"$ext": [base64.b64encode(data).decode()]}


def _is_text(text: str) -> bool:
    return text.isascii() or _SURROGATE.search(text) is None


def _split(text: str) -> list[str | int]:
    return [ord(one) if _SURROGATE.match(one) else one for one in _SURROGATE.split(text) if one]


def from_json(encoded: Any) -> Any:
    """Return the value that `to_json` encoded."""
    if isinstance(encoded, list):
        return [from_json(inner) for inner in encoded]
    if not isinstance(encoded, dict):
        return encoded
    if len(encoded) == 1:
        ((name, inner),) = encoded.items()
        if name in _NOTATIONS:
            return _NOTATIONS[name](inner)
    return {name: from_json(inner) for name, inner in encoded.items()}


def _decoded_ext(inner: Any) -> Any:
    code, held = inner
    if isinstance(held, dict) and len(held.get("$ext", ())) == 1:
        return msgspec.msgpack.Ext(code, base64.b64decode(held["$ext"][0]))
    return msgspec.msgpack.Ext(code, _encode_msgpack(from_json(held)))


_NOTATIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "$map": lambda pairs: {from_json(key): from_json(item) for key, item in pairs},
    "$tuple": lambda items: tuple(map(from_json, items)),
    "$set": lambda items: set(map(from_json, items)),
    "$ext": _decoded_ext,
    "$bytes": base64.b64decode,
    "$float": float,
    "$time": datetime.fromisoformat,
    "$text": lambda parts: "".join(one if isinstance(one, str) else chr(one) for one in parts),
}


def dumped(
    value: Answer, dump: Callable[[Answer, Mode], Any], load: Callable[[Any], Answer]
) -> Any:
    """Return a framework's model as JSON, or as Python values if JSON would not restore it.

    Args:
        value: the model.
        dump: writes a model in a mode, "json" or "python", as pydantic does.
        load: creates a model from JSON.
    """
    plain = dump(value, "python")
    try:
        found = dump(value, "json")
        if dump(load(found), "python") == plain:
            return found
    except ValueError:  # a lone surrogate, or a value that pydantic cannot write as JSON
        return plain
    return plain if is_storable(plain) else found


def escaped(name: str) -> str:
    """Return a framework's name as one part of a session id: without a slash."""
    return name.replace("%", "%25").replace("/", "%2F")


def unescaped(part: str) -> str:
    """Reverse `escaped`."""
    return part.replace("%2F", "/").replace("%25", "%")


def wrap(name: str, value: Any) -> dict[str, Any]:
    """Return the members of an event's data that hold a value; JSON is stored unchanged."""
    return {name: value} if is_json(value) else {name: to_json(value), "encoded": True}


def unwrap(data: dict[str, Any], name: str) -> Any:
    """Return the value that `wrap` put into an event's data; None if it was redacted."""
    value = data.get(name)
    return from_json(value) if data.get("encoded") else value


def as_json(value: Any) -> Any:
    """Return a value if it is JSON, else JSON that shows it."""
    return value if is_json(value) else readable(value)


def readable(value: Any, depth: int = 0) -> Any:  # noqa: PLR0911 - one for each type
    """Return JSON that shows a value; it cannot be decoded."""
    if isinstance(value, str):
        return _SURROGATE.sub("?", value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return f"[{len(value)} bytes]"
    if depth > _SHOWN:
        return readable(compact(value))
    if isinstance(value, dict):
        return {readable(str(name)): readable(inner, depth + 1) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [readable(inner, depth + 1) for inner in value]
    return readable(str(value))


def compact(value: Any) -> str:
    """Return a value as JSON in one line, without escapes of non-ASCII text."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str, skipkeys=True)
    except RecursionError:
        raise InvalidEvent(_TOO_DEEP) from None
