"""Hostile files to import."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard.event import kinds
from hansard.event.event import Event
from hansard.state import fold
from tests.hostile.forge_files import TIME, ask_everything, exported, nested, with_a_good_session

SAID: dict[str, Any] = {"message": {"role": "user", "content": "hi"}}
HELLO = ("message.added", SAID)


def usage(**numbers: Any) -> tuple[str, Any]:
    """Return an event with the usage of a model call."""
    return "usage.recorded", {"model": "m", **numbers}


def redacted(**data: Any) -> tuple[str, Any]:
    """Return an event that puts something in the place of the first message."""
    return "message.redacted", {"seq": 1, **data}


#: Files that are imported: their content has the form of events.
TAKEN: dict[str, list[tuple[str, Any]]] = {
    "tokens beyond 64 bits": [HELLO, usage(input_tokens=10**30)],
    "tokens whose sum is beyond 64 bits": [usage(input_tokens=2**63 - 1, output_tokens=2**63 - 1)],
    "tokens below zero": [usage(input_tokens=-(2**63), output_tokens=-5)],
    "costs that add up to infinity": [usage(cost=1.7e308), usage(cost=1.7e308)],
    "a cost that is not a number": [usage(cost="NaN"), usage(cost="sNaN")],
    "a cost of a million digits": [usage(cost="0." + "3" * 1_000_000), usage(cost="1e-999999")],
    "costs that add up to nothing": [usage(cost=c * 1.7e308) for c in (1, 1, -1, -1, -1)],
    "a message redacted to a number": [HELLO, redacted(data={"message": 5}, kind="message.added")],
    "a message redacted to nothing": [HELLO, redacted(data={}, kind="message.added")],
    "a message redacted to metadata": [HELLO, redacted(data={"metadata": 5}, kind="metadata.set")],
    "a redaction of itself": [HELLO, ("message.redacted", {"seq": 2})],
    "redactions of nothing": [HELLO, *(("message.redacted", {"seq": n}) for n in (-1, 10**30))],
    "reverts to nowhere": [HELLO, *(("session.reverted", {"seq": n}) for n in (10**25, -(10**25)))],
    "a summary of what is to come": [HELLO, ("summary.added", {"upto": 10**30, **SAID})],
    "a history dropped up to a huge seq": [HELLO, ("history.dropped", {"before": 10**30}), HELLO],
    "a fork in the middle": [HELLO, ("session.forked", {"parent": "good", "seq": 1})],
    "a fork of an invalid id in the middle": [HELLO, ("session.forked", {"parent": "\0", "seq": 1})],
    "deeds of the audit log": [("session.purged", {"session": "good", "seq": 1})],
    "a repair that was none": [("session.repaired", {"lost": [[1, 10**30]], "kept": ["../x"]})],
    "a stream of numbers": [("message.part", {"stream": "s", "message": {"content": 5}})],
    "a title that is an object": [("metadata.set", {"metadata": {"title": {"a": 1}}})],
    "metadata with odd names": [("metadata.set", {"metadata": {"": 1, "\0": 2, "a" * 10**5: 3}})],
    "a workspace with a NUL": [("metadata.set", {"metadata": {"workspace": "a\0b"}})],
    "calls that are none": [
        ("message.added", {"message": {"role": ["x"], "tool_calls": [5, {"id": {}}], "content": 7}})
    ],
    "an integer of 4,000 digits": [("message.added", '{"message":{"n":%s}}' % ("9" * 4000))],
}  # fmt: skip

#: Files that are refused, and the error.
REFUSED: dict[str, tuple[tuple[str, Any], str]] = {
    "an integer of 5,000 digits": (("x.a", '{"n":%s}' % ("9" * 5000)), "out of range"),
    "a number that is infinite": (("x.a", '{"n":1e400}'), "out of range"),
    "an exponent without end": (("x.a", '{"n":1e999999999999}'), "out of range"),
    "a lone surrogate": (("x.a", '{"n":"\\ud800"}'), "line 2"),
    "NaN": (("x.a", '{"n":NaN}'), "line 2"),
    "100,000 levels": (("x.a", f'{{"n":{nested(100_000)}}}'), "deep"),
    "a key twice": (("x.a", '{"a":1,"b":2,"a":3}'), "duplicate key 'a'"),
    "data twice": (("x.a", '{"a":1},"data":{}'), "duplicate key 'data'"),
    "an append without end": (("x.a", '{"a":1},"key":"k","more":18446744073709551616'), "more"),
    "an append of fewer than none": (("x.a", '{"a":1},"key":"k","more":-1'), "more"),
}


@pytest.mark.slow
def test_whatever_a_file_says_other_sessions_do_not_suffer(tmp_path: Path) -> None:
    """N-35, N-64, N-88: what a hostile file brings in breaks no listing, no sums, no view and no search."""
    path = with_a_good_session(tmp_path / "store")
    names = {harm.replace(" ", "-").replace(",", ""): events for harm, events in TAKEN.items()}
    with hansard.open(path, durability="os") as store:
        for name, events in names.items():
            assert store.import_session(exported(events, name)).events == len(events)
    assert ask_everything(path, names) == []


def test_what_stands_in_the_place_of_a_message_is_one_or_nothing(tmp_path: Path) -> None:
    """N-66: an imported redaction cannot replace a message by a number, in no view and no event."""
    with hansard.open(tmp_path / "store", durability="os") as store:
        for name in ("a number", "nothing", "metadata"):
            events = TAKEN[f"a message redacted to {name}"]
            store.import_session(exported([*events, HELLO], name))
            session = store.session(name)
            assert [event.message for event in session.events()] == [None, None, SAID["message"]]
            assert session.messages(view="history") == [SAID["message"]]
            assert json.loads(session.messages_json()) == [SAID["message"]]


def test_no_call_of_a_model_takes_more_than_can_be_added_up(tmp_path: Path) -> None:
    """N-35: tokens and costs beyond a million millions count for nothing in a file."""
    with hansard.open(tmp_path / "store", durability="os") as store:
        store.session("s").record_usage(model="m", input_tokens=10**12, cost=1e12)
        store.import_session(exported([HELLO, usage(input_tokens=10**30, cost=3.0)]))
        assert store.session("evil").usage == {}
        assert store.stats().models["m"].input_tokens == 10**12


def test_what_cannot_be_stored_is_refused_whole(tmp_path: Path) -> None:
    """N-64, N-74, N-88, F-17: hostile JSON in a file is refused with its line, and nothing is left of it."""
    path = with_a_good_session(tmp_path / "store")
    with hansard.open(path, durability="os") as store:
        for event, said in REFUSED.values():
            with pytest.raises(hansard.InvalidExport, match=said) as caught:
                store.import_session(exported([event, HELLO]))
            assert caught.value.line == 2
        assert [info.id for info in store.sessions().items] == ["good"]
    assert sorted(found.name for found in (path / "sessions").iterdir()) == ["good"]
    assert list(path.glob(".tmp-*")) == []


@pytest.mark.parametrize(
    ("kind", "field", "said"),
    [
        ("usage.recorded", "usage", lambda n: {"model": f"m{n}"}),
        ("session.snapshotted", "snapshots", lambda n: {"label": f"l{n}", "seq": 1}),
        ("metadata.set", "metadata", lambda n: {"metadata": {f"k{n}": {"a": n}}}),
        ("message.part", "streams", lambda n: {"stream": f"s{n}", "text": "x"}),
    ],
)
def test_many_names_take_no_square_of_time(
    kind: str, field: str, said: Callable[[int], dict[str, Any]]
) -> None:
    """N-73, N-63: however many names a file brings, what they add up to is copied once, and not for each."""
    events = [Event(n, TIME, kind, json.dumps(said(n)).encode()) for n in range(1, 4)]
    state = fold.apply_all(fold.EMPTY, events[:1])
    before = msgspec.json.encode(state)
    changes: dict[str, Any] = {}
    # A time measurement would be less reliable.
    fold._fold(state, changes, events[1], kinds.read(kind, events[1].raw))
    copied = changes[field]
    fold._fold(state, changes, events[2], kinds.read(kind, events[2].raw))
    assert changes[field] is copied
    assert len(copied) == 3
    assert msgspec.json.encode(state) == before, "the given state stays as it is"
