r"""Values that Python has and JSON has not, as JSON that comes back equal.

A framework keeps what a program gives it: numbers as keys, NaN, bytes, half a character, deep nests.
`to_json` tells these with members that begin with `$`, so that `jq` and `session.scrub` still see every text:

    {1: nan}        {"$map": [[1, {"$float": "nan"}]]}
    b"\x00"         {"$bytes": "AA=="}
    "a\ud83d"       {"$text": ["a", 55357]}
    ("a", {"b"})    {"$tuple": ["a", {"$set": ["b"]}]}

What is too deep for an event is cut into pieces: {"$deep": [piece, …]}, in which {"$at": 2} is the third one.
What is none of these is refused before anything is stored. `readable` is for people and other frameworks.
"""

import base64
import json
import math
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, Literal, TypeVar

import msgspec

from hansard.errors import InvalidEvent

Answer = TypeVar("Answer")
Mode = Literal["json", "python"]

#: An event has at most 128 levels; what goes around a value takes some of them.
_DEEPEST: Final = 100
#: A piece of a deep value. Each mark adds up to two levels to the value that it replaces.
_PIECE: Final = 32

_TOO_DEEP: Final = "value is nested too deep; nothing was stored"

_BYTES, _DEEP, _AT, _FLOAT, _MAP, _SET = "$bytes", "$deep", "$at", "$float", "$map", "$set"
_TEXT, _TIME, _TUPLE = "$text", "$time", "$tuple"

_TAKEN: Final = object()

_HALVES: Final = re.compile("([\ud800-\udfff])")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def is_json(value: Any) -> bool:
    """Return whether a value comes back equal from JSON, and is not too deep for an event."""
    raw = _equal_json(value)
    return raw is not None and (
        raw.count(b"{") + raw.count(b"[") <= _DEEPEST or _depth(value) <= _DEEPEST
    )


def is_json_of_any_depth(value: Any) -> bool:
    """Return whether a value comes back equal from JSON."""
    return _equal_json(value) is not None


def _equal_json(value: Any) -> bytes | None:
    try:
        raw = _encode(value)
        return raw if _decode(raw) == value else None
    except (RecursionError, TypeError, ValueError, OverflowError, msgspec.MsgspecError):
        return None


def _depth(value: object) -> int:
    deepest = 0
    waiting = [(value, 0)]
    while waiting:
        inner, depth = waiting.pop()
        deepest = max(deepest, depth)
        if isinstance(inner, dict | list):
            items = inner.values() if isinstance(inner, dict) else inner
            waiting.extend((item, depth + 1) for item in items)
    return deepest


# -- there and back -----------------------------------------------------------------------------


def to_json(value: Any) -> Any:
    """Return JSON for a value, or raise `InvalidEvent` if no notation is known for a part of it."""
    pieces: list[Any] = [None]
    try:
        pieces[0] = _told(value, 0, pieces)
    except RecursionError:
        raise InvalidEvent(_TOO_DEEP) from None
    return {_DEEP: pieces} if len(pieces) > 1 else pieces[0]


def is_storable(value: Any) -> bool:
    """Return whether `to_json` knows every part of a value."""
    try:
        to_json(value)
    except InvalidEvent:
        return False
    return True


def _told(value: Any, depth: int, pieces: list[Any]) -> Any:  # noqa: C901, PLR0911 - one for each type
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        text = str.__str__(value)
        return text if _is_text(text) else {_TEXT: _halves(text)}
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {_FLOAT: repr(float(value))}
    if isinstance(value, bytes):
        return {_BYTES: base64.b64encode(value).decode()}
    if isinstance(value, datetime):
        return {_TIME: value.isoformat()}
    if depth > _PIECE:
        pieces.append(None)
        place = len(pieces) - 1
        pieces[place] = _told(value, 0, pieces)
        return {_AT: place}
    depth += 1
    if isinstance(value, dict):
        if all(isinstance(name, str) and name[:1] != "$" and _is_text(name) for name in value):
            return {str(name): _told(inner, depth, pieces) for name, inner in value.items()}
        pairs = [[name, inner] for name, inner in value.items()]
        return {_MAP: [[_told(one, depth, pieces) for one in pair] for pair in pairs]}
    if isinstance(value, list | tuple | set | frozenset):
        told = [_told(inner, depth, pieces) for inner in value]
        if isinstance(value, list):
            return told
        return {_TUPLE if isinstance(value, tuple) else _SET: told}
    raise InvalidEvent(
        f"a value of type {type(value).__name__} cannot be stored; nothing was stored. "
        "Convert it to strings, numbers, bytes, lists or dicts"
    )


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _halves(text: str) -> list[str | int]:
    return [ord(one) if _HALVES.match(one) else one for one in _HALVES.split(text) if one]


def from_json(told: Any) -> Any:
    """Return the value that `to_json` told."""
    pieces: list[Any] = []
    if isinstance(told, dict) and told.keys() == {_DEEP}:
        pieces = list(told[_DEEP])
        told = _piece(0, pieces)
    return _meant(told, pieces)


def _piece(place: int, pieces: list[Any]) -> Any:
    """Return a piece of a deep value. Each is taken once: others would make an endless or a huge value."""
    piece, pieces[place] = pieces[place], _TAKEN
    if piece is _TAKEN:
        raise ValueError(f"piece {place} of a value is used twice")
    return piece


def _meant(told: Any, pieces: list[Any]) -> Any:  # noqa: PLR0911 - one for each type
    if isinstance(told, list):
        return [_meant(inner, pieces) for inner in told]
    if not isinstance(told, dict):
        return told
    if len(told) == 1:
        ((name, inner),) = told.items()
        if name == _AT:
            return _meant(_piece(inner, pieces), pieces)
        if name == _MAP:
            return {_meant(key, pieces): _meant(item, pieces) for key, item in inner}
        if name in {_TUPLE, _SET}:
            kind = tuple if name == _TUPLE else set
            return kind(_meant(item, pieces) for item in inner)
        if name in _SIMPLE:
            return _SIMPLE[name](inner)
    return {name: _meant(inner, pieces) for name, inner in told.items()}


_SIMPLE: Final[dict[str, Callable[[Any], Any]]] = {
    _BYTES: base64.b64decode,
    _FLOAT: float,
    _TIME: datetime.fromisoformat,
    _TEXT: lambda parts: "".join(one if isinstance(one, str) else chr(one) for one in parts),
}


def dumped(
    value: Answer, dump: Callable[[Answer, Mode], Any], load: Callable[[Any], Answer]
) -> Any:
    """Return a framework's model as JSON, or as Python values if it would not come back equal from that.

    Args:
        value: the model.
        dump: writes a model as a mode says, "json" or "python", as pydantic does.
        load: makes a model from JSON.
    """
    plain = dump(value, "python")
    try:
        found = dump(value, "json")
        if dump(load(found), "python") == plain:
            return found
    except ValueError:  # a lone surrogate, or what pydantic cannot write as JSON
        return plain
    return plain if is_storable(plain) else found


# -- as a member of an event --------------------------------------------------------------------


def wrap(name: str, value: Any) -> dict[str, Any]:
    """Return the member of an event's data that holds a value, as it is if that is JSON."""
    return {name: value} if is_json(value) else {name: to_json(value), "encoded": True}


def unwrap(data: dict[str, Any], name: str) -> Any:
    """Return the value that `wrap` put into an event's data; None if it was redacted."""
    value = data.get(name)
    return from_json(value) if data.get("encoded") else value


# -- for people ---------------------------------------------------------------------------------


def as_json(value: Any) -> Any:
    """Return a value if it is JSON, and JSON that shows it if it is not."""
    return value if is_json(value) else readable(value)


def readable(value: Any, depth: int = 0) -> Any:  # noqa: PLR0911 - one for each type
    """Return JSON that shows a value, which need not come back from it."""
    if isinstance(value, str):
        return _HALVES.sub("?", value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return f"[{len(value)} bytes]"
    if depth > _PIECE:
        return readable(as_text(value))
    if isinstance(value, dict):
        return {readable(str(name)): readable(inner, depth + 1) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [readable(inner, depth + 1) for inner in value]
    return readable(str(value))


def as_text(value: Any) -> str:
    """Return a value as JSON text, as a chat has the arguments of a call."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str, skipkeys=True)
    except RecursionError:
        raise InvalidEvent(_TOO_DEEP) from None
