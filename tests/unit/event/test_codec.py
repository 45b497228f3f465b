"""Data is decoded equal to what was encoded, or refused with the place that JSON cannot hold."""

import datetime as dt
import decimal
import enum
import json
import math
import uuid
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

import hansard
from hansard.errors import InvalidEvent
from hansard.event import codec


class Color(enum.StrEnum):
    """An enum of strings."""

    RED = "red"


class Size(enum.IntEnum):
    """An enum of numbers."""

    BIG = 3


@dataclass
class Point:
    """Not JSON, although msgspec would write it."""

    x: int


class Pair(msgspec.Struct):
    """Not JSON either."""

    x: int


TEXT = 'a\u00e9\u0301\U0001f600\x00\x1f\x7f\u2028\u2029\x85\x0b\x0c\r\n\t"\\/'
ODD = {"": 1, " ": 2, "\n": 3, "\u00e9": 4, "e\u0301": 5, "__class__": 6}

#: Values that must be decoded equal, and of the same type unless a second value has another.
KEPT: list[tuple[str, Any, Any]] = [
    ("null", None, None),
    ("truths", [True, False], [True, False]),
    ("small ints", [0, -1, 1], [0, -1, 1]),
    ("64 bits", [2**63 - 1, -(2**63), 2**64 - 1], [2**63 - 1, -(2**63), 2**64 - 1]),
    ("big ints", [2**64, -(2**64), 10**30, 2**100, 10**400], [2**64, -(2**64), 10**30, 2**100, 10**400]),
    ("floats", [0.1, 1.0, 1e16, 1e22, 1e308, 5e-324], [0.1, 1.0, 1e16, 1e22, 1e308, 5e-324]),
    ("shortest floats", [0.30000000000000004, 1 / 3], [0.30000000000000004, 1 / 3]),
    ("minus zero", -0.0, -0.0),
    ("text", TEXT, TEXT),
    ("nested", {"a": [{"b": [[], {}]}]}, {"a": [{"b": [[], {}]}]}),
    ("odd keys", ODD, ODD),
    ("tuples are lists", (1, (2, [3])), [1, [2, [3]]]),
    ("enums are their values", [Color.RED, Size.BIG], ["red", 3]),
    ("ordered dicts are dicts", OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
]  # fmt: skip

#: Values that JSON cannot hold, and what the error must name.
REFUSED: list[tuple[str, Any, str]] = [
    ("nan", math.nan, r"\['v'\]: nan"),
    ("infinity", math.inf, r"\['v'\]: inf"),
    ("too large a number", 1e400, r"\['v'\]: inf"),
    ("minus infinity inside", [1, {"a": -math.inf}], r"\['v'\]\[1\]\['a'\]: -inf"),
    ("nan next to a tuple", [(1,), math.nan], r"\['v'\]\[1\]: nan"),
    ("bytes", b"x", r"\['v'\]: bytes"),
    ("bytearray", bytearray(b"x"), r"\['v'\]: bytearray"),
    ("set", {1}, r"\['v'\]: set"),
    ("frozenset", frozenset({1}), r"\['v'\]: frozenset"),
    ("datetime", dt.datetime(2026, 1, 1, tzinfo=dt.UTC), r"\['v'\]: datetime"),
    ("date", dt.date(2026, 1, 1), r"\['v'\]: date"),
    ("timedelta", dt.timedelta(1), r"\['v'\]: timedelta"),
    ("decimal", decimal.Decimal("1.5"), r"\['v'\]: Decimal"),
    ("uuid", uuid.UUID(int=1), r"\['v'\]: UUID"),
    ("dataclass", Point(1), r"\['v'\]: Point"),
    ("struct", Pair(1), r"\['v'\]: Pair"),
    ("raw", msgspec.Raw(b"1"), "Raw"),
    ("int keys", {1: "a"}, r"\['v'\]: key 1 is a int"),
    ("int and text keys", {1: "a", "1": "b"}, "key 1 is a int"),
    ("float keys", {1.5: "a"}, "key 1.5 is a float"),
    ("true keys", {True: "a"}, "cannot be written|key True"),
    ("None keys", {None: "a"}, "cannot be written|key None"),
    ("tuple keys", {(1, 2): "a"}, "cannot be written|key"),
    ("lone surrogate", "\ud800", "lone surrogate"),
    ("lone surrogate in a key", {"\udfff": 1}, "lone surrogate"),
    ("object", object(), "cannot be written"),
    ("function", len, "cannot be written"),
    ("complex", 1j, "cannot be written"),
    ("an int of 5,000 digits", 10**5000, "cannot be written"),
]


@pytest.mark.parametrize(
    ("value", "comes_back"), [row[1:] for row in KEPT], ids=[row[0] for row in KEPT]
)
def test_json_comes_back_equal(value: Any, comes_back: Any) -> None:
    """N-64, F-17: JSON values are decoded equal and of the same type, by any parser."""
    raw = codec.encode({"v": value})
    assert repr(codec.decode(raw)["v"]) == repr(comes_back)
    assert json.loads(raw) == {"v": comes_back}
    session = hansard.open("memory:").session("s")
    session.add_message({"v": value})
    assert repr(session.messages()) == repr([{"v": comes_back}])


@pytest.mark.parametrize(
    ("value", "says"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_what_json_cannot_hold_is_refused(value: Any, says: str) -> None:
    """N-64: a value that JSON would change is an `InvalidEvent` that names the place; nothing is stored."""
    session = hansard.open("memory:").session("s")
    for data in ({"v": value}, {"first": [1, (2,)], "v": value}):
        with pytest.raises(InvalidEvent, match=says):
            codec.encode(data)
        with pytest.raises(InvalidEvent):
            session.add_message(data)
        with pytest.raises(InvalidEvent):
            session.patch_metadata(data)
        with pytest.raises(InvalidEvent):
            session.append("x.bad", data)
    assert session.seq == 0


@pytest.mark.parametrize("data", [None, [], "{}", b"{}", 1, [("a", 1)], msgspec.Raw(b"{}")])
def test_data_are_a_dict(data: object) -> None:
    """An event's data must be a mapping, not something similar."""
    with pytest.raises(
        InvalidEvent, match=f"must be a dict that holds JSON, not {type(data).__name__}"
    ):
        codec.encode(data)


def test_data_may_be_another_mapping() -> None:
    """Any mapping is stored as the dict of its members, in their order."""
    assert codec.encode(OrderedDict(b=1, a=2)) == b'{"b":1,"a":2}'


def nested(depth: int, *, lists: bool = False) -> dict[str, Any]:
    """Return a dict with this many levels."""
    value: Any = {} if not lists else []
    for _ in range(depth - 2):
        value = [value] if lists else {"a": value}
    return {"a": value}


@pytest.mark.parametrize("lists", [False, True])
def test_deep_nesting_is_bounded(lists: bool) -> None:
    """N-74, F-17: 128 levels of data are kept; one more, or 10,000, is a clear error and no crash."""
    assert codec.decode(codec.encode(nested(128, lists=lists))) == nested(128, lists=lists)
    for depth in (129, 500, 2_000, 10_000, 100_000):
        with pytest.raises(InvalidEvent, match="levels deep"):
            codec.encode(nested(depth, lists=lists))
    session = hansard.open("memory:").session("s")
    session.append("x.deep", nested(128, lists=lists))
    session.add_message(nested(127, lists=lists))
    session.patch_metadata(nested(127, lists=lists))
    # A message and metadata are a member of the data, which is one level of the 128.
    with pytest.raises(InvalidEvent, match="127 levels"):
        session.add_message(nested(128, lists=lists))
    with pytest.raises(InvalidEvent, match="127 levels"):
        session.patch_metadata(nested(128, lists=lists))
    assert session.seq == 3
    assert session.messages() == [nested(127, lists=lists)]
    assert session.state().metadata == nested(127, lists=lists)


def test_brackets_in_strings_are_not_levels() -> None:
    """Only brackets of JSON count as depth, not those in strings, even with escaped quotes."""
    text = '{["\\' * 500
    data = {"a": text, text: [text], "b": '"', "c": "\\"}
    assert codec.decode(codec.encode(data)) == data


def test_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-74, F-17: data of exactly the limit are kept; a byte more is refused, with both numbers."""
    monkeypatch.setattr(codec, "MAX_BYTES", 1_000)
    exact = {"a": "x" * (1_000 - len('{"a":""}'))}
    assert len(codec.encode(exact)) == 1_000
    with pytest.raises(InvalidEvent, match=r"1,001 bytes as JSON, and at most 1,000"):
        codec.encode({"a": exact["a"] + "x"})
    session = hansard.open("memory:").session("s")
    session.append("x.big", exact)
    with pytest.raises(InvalidEvent, match="bytes as JSON"):
        session.add_message(exact)
    session.add_message({"a": exact["a"][:-16]})
    assert all(len(event.raw) <= 1_000 for event in session.events())
    assert session.seq == 2


def test_equal_compares_json() -> None:
    """N-72: two objects are equal if they are the same JSON, in any order of keys, at every depth."""
    assert codec.equal({"a": 1, "b": {"c": 2, "d": (1,)}}, {"b": {"d": [1], "c": 2}, "a": 1})
    for one, other in ((1, True), (1, 1.0), (0, False), ("1", 1), ([], {}), (None, 0)):
        assert not codec.equal({"v": one}, {"v": other})
