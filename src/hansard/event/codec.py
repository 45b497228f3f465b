"""Encode data as JSON bytes and decode them, so that what comes out equals what went in.

msgspec writes NaN as null, bytes as base64, and integer keys as strings. So `encode` decodes and compares
what it encoded (1.8 µs for a message of 760 bytes; encoding it takes 0.5), unless all values are strings
under string keys. A difference is an error that names the place.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from hansard.errors import InvalidEvent

#: docs/format.md, F-17.
MAX_BYTES: Final = 64 * 1024 * 1024
MAX_DEPTH: Final = 128

#: F-27: maximum bytes of one append: its data, and for each event the record around them.
MAX_BATCH: Final = 4 * MAX_BYTES
_AROUND: Final = 256

#: Maximum characters of an idempotency key.
_LONGEST_KEY: Final = 1024

#: At least as long as what is around a message: `{"message":` and `}`.
_WRAPPING: Final = 16

Copied = TypeVar("Copied", bound=msgspec.Struct)

#: Possessive: a backtracking pattern would need a hundred bytes for each of a long text.
_TEXTS: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'

#: What an encoder or decoder raises for data that it cannot handle.
_REFUSED: Final = (RecursionError, TypeError, ValueError, OverflowError, msgspec.MsgspecError)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_sorted = msgspec.json.Encoder(order="sorted").encode


def encode(data: object, what: str = "data", *, wrapped: bool = False) -> bytes:
    """Return a JSON object as bytes, or raise `InvalidEvent` if it would not come back equal.

    `wrapped`: it becomes a member of an event's data, to which the limits of F-17 apply.
    """
    if type(data) is not dict:
        if isinstance(data, Mapping):
            return encode(dict(data), what, wrapped=wrapped)
        raise InvalidEvent(f"{what} must be a dict that holds JSON, not {type(data).__name__}")
    # Most messages are strings under names: those always come back equal, and are not deep.
    flat = _only_texts(data)
    try:
        raw = _encode(data)
        same = flat or _decode(raw) == data
    except _REFUSED as error:
        raise _invalid(error, f"{what} cannot be written as JSON") from None
    if not same:
        # Slow, and only for data that are refused or hold a tuple, which JSON shows as a list.
        _explain(data, what)
        check_keys(raw, what)
    if len(raw) > MAX_BYTES - _WRAPPING:
        check_size(raw, what, MAX_BYTES - _WRAPPING * wrapped)
    if not flat:
        _check_depth(raw, what, MAX_DEPTH - wrapped)
    return raw


def _only_texts(data: dict[Any, Any]) -> bool:
    for key, value in data.items():  # noqa: SIM110 - `all` with a generator takes three times as long
        if type(value) is not str or type(key) is not str:
            return False
    return True


def _invalid(error: BaseException, what: str) -> InvalidEvent:
    if isinstance(error, RecursionError):
        return InvalidEvent(f"{what}: nested more than {MAX_DEPTH} levels deep")
    if isinstance(error, UnicodeEncodeError):
        return InvalidEvent(f"{what}: lone surrogate, which is not text: {error.reason}")
    return InvalidEvent(f"{what}: {error}")


def decode(raw: bytes) -> dict[str, Any]:
    """Return a JSON object that `encode` wrote, or raise `InvalidEvent` if it was forged."""
    try:
        data: dict[str, Any] = _decode(raw)
    except _REFUSED as error:
        raise _invalid(error, "stored data is not JSON") from None
    return data


def check(raw: bytes, what: str = "data") -> dict[str, Any]:
    """Return a JSON object from another source, or raise `InvalidEvent` if it cannot be stored."""
    check_size(raw, what)
    try:
        data = _decode(raw)
        _encode(data)  # refuses lone surrogates
    except _REFUSED as error:
        raise _invalid(error, f"{what} is not JSON") from None
    if type(data) is not dict:
        raise InvalidEvent(f"{what} must be a JSON object, not {type(data).__name__}")
    _check_depth(raw, what, MAX_DEPTH)
    return data


def check_keys(raw: bytes, what: str = "data") -> None:
    """Raise `InvalidEvent` if an object in JSON holds the same key twice, at any depth.

    Parsers disagree about which of the two counts, so one of them hides its value from redaction. Bytes
    that are not JSON at all are left for the decoder to report.
    """
    try:
        # msgspec keeps one of two equal keys: what it encodes to the same bytes again has none.
        if _encode(_decode(raw)) == raw:
            return
    except _REFUSED:
        return
    import json  # here: only for what other programs wrote

    try:
        json.loads(raw, object_pairs_hook=unique, parse_int=str, parse_float=str)
    except (RecursionError, ValueError) as error:
        raise _invalid(error, what) from None


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object, as the `object_pairs_hook` of `json`; raise ValueError for a duplicate key."""
    built = dict(pairs)
    if len(built) != len(pairs):
        ((key, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"duplicate key {key!r:.60} in a JSON object")
    return built


def check_size(raw: bytes, what: str, most: int = MAX_BYTES) -> None:
    """Raise `InvalidEvent` if JSON is longer than can be stored."""
    if len(raw) > most:
        raise InvalidEvent(
            f"{what} takes {len(raw):,} bytes as JSON, and at most {most:,} can be stored; "
            "keep large content elsewhere and store a reference to it"
        )


def check_batch(sizes: Iterable[int]) -> None:
    """Raise `InvalidEvent` if events whose data have these sizes are too much for one append."""
    size = sum(size + _AROUND for size in sizes)
    if size > MAX_BATCH:
        raise InvalidEvent(
            f"a batch of {size:,} bytes as JSON is too large: one append takes at most {MAX_BATCH:,}; "
            "nothing was stored. Append it in parts"
        )


def check_key(key: object) -> None:
    """Raise `InvalidEvent` unless every backend can store an idempotency key."""
    if not isinstance(key, str) or not 0 < len(key) <= _LONGEST_KEY or "\0" in key:
        raise InvalidEvent(
            f"key must be a string of 1 to 1,024 characters without NUL, got {key!r:.60}"
        )
    try:
        key.encode()
    except UnicodeEncodeError:
        raise InvalidEvent(f"key {key!r:.60}: holds a lone surrogate, which is not text") from None


def is_too_deep(raw: bytes, deepest: int = MAX_DEPTH) -> bool:
    """Return whether JSON is nested deeper than can be stored. Uses no recursion."""
    # An object with fewer brackets than the limit cannot be deeper: two counts instead of a walk.
    if raw.count(b"{") + raw.count(b"[") <= deepest:
        return False
    depth = 0
    for bracket in re.findall(rb"[\[\]{}]", re.sub(_TEXTS, b"", raw)):
        depth += 1 if bracket in b"{[" else -1
        if depth > deepest:
            return True
    return False


def _check_depth(raw: bytes, what: str, deepest: int) -> None:
    if is_too_deep(raw, deepest):
        raise InvalidEvent(f"{what} is nested more than {deepest} levels deep")


def _explain(data: object, what: str) -> None:
    """Raise `InvalidEvent` for the first value that JSON cannot hold; tuples pass."""
    waiting: list[tuple[str, object]] = [(what, data)]
    while waiting:
        place, value = waiting.pop()
        if value is None or isinstance(value, bool | int | str):
            continue
        if isinstance(value, float):
            if not math.isfinite(value):
                raise InvalidEvent(f"{place}: {value} is not a number that JSON can hold")
        elif isinstance(value, dict):
            for key, item in value.items():
                if not isinstance(key, str):
                    raise InvalidEvent(
                        f"{place}: key {key!r:.40} is a {type(key).__name__}; JSON keys are text"
                    )
                waiting.append((f"{place}[{key!r:.40}]", item))
        elif isinstance(value, list | tuple):
            waiting.extend((f"{place}[{index}]", item) for index, item in enumerate(value))
        else:
            raise InvalidEvent(
                f"{place}: {type(value).__name__} is not JSON; convert it to str, number, list or dict"
            )


def equal(one: object, other: object) -> bool:
    """Return whether two values are the same JSON: 1 is not true, and a tuple is a list."""
    return _sorted(one) == _sorted(other)


def own_copy(value: Copied) -> Copied:
    """Return a copy of a struct of JSON values that shares nothing with it."""
    copied: Copied = msgspec.json.decode(_encode(value), type=type(value))
    return copied
