"""What a session's events add up to: metadata and state, now, at a seq, and after reopening."""

from typing import Any

import pytest

import hansard
from hansard import Session


def conversation(session: Session) -> None:
    """Append messages among other events."""
    session.set_metadata(title="T")
    for number in range(4):
        session.add_messages([{"n": number}, {"n": -number}])
        session.append("x.todo", {"n": number})


def test_metadata_are_merged(session: Session) -> None:
    """N-42: an update touches the keys that it names, at every depth; None removes."""
    session.set_metadata(title="Refund", user={"id": 7, "tags": ["a"]}, unknown={"x": [1]})
    session.set_metadata(user={"id": 8, "name": None, "tags": ["b"]})
    assert session.metadata == {
        "title": "Refund",
        "user": {"id": 8, "tags": ["b"]},
        "unknown": {"x": [1]},
    }
    session.set_metadata(title=None, absent=None)
    session.add_message({"n": 1})
    session.append("x.todo", {"metadata": {"title": "no"}})
    assert session.metadata == {"user": {"id": 8, "tags": ["b"]}, "unknown": {"x": [1]}}
    assert session.state().metadata == session.metadata


def test_the_same_metadata_are_no_event(session: Session) -> None:
    """N-72: saying again what the metadata say, in any order of keys, appends nothing."""
    session.set_metadata(a=1, b={"c": [1, 2], "d": None, "e": "x"})
    seq = session.seq
    assert session.set_metadata(b={"e": "x", "c": [1, 2]}, a=1) is None
    assert session.set_metadata(b={"c": (1, 2)}) is None
    assert session.set_metadata(absent=None, b={"absent": None}) is None
    assert session.set_metadata() is None
    assert session.patch_metadata({}) is None
    assert session.seq == seq
    assert session.set_metadata(b={"c": [2, 1]}) is not None


def test_a_number_is_not_a_truth(session: Session) -> None:
    """N-64: 1, 1.0 and true are three values: a change from one to another is an event."""
    for number, value in enumerate([1, True, 1.0, 0, False, -0.0, 0.0], 1):
        assert session.set_metadata(flag=value) is not None
        assert session.seq == number
        assert repr(session.metadata["flag"]) == repr(value)


def test_hostile_keys_stay_data(session: Session) -> None:
    """N-15: keys that mean something to Python or to us are plain data, and set nothing."""
    hostile: dict[str, Any] = {
        "__class__": "x",
        "__dict__": {"id": "other"},
        "__proto__": {"a": 1},
        "__reduce__": ["os.system", "true"],
        "id": "other",
        "_log": None,
        "seq": 99,
        "metadata": {"metadata": 1},
        "": "empty",
        "$ref": "#/",
        "a.b": 1,
    }
    session.patch_metadata(hostile)
    session.add_message(hostile)
    session.append("x.hostile", hostile)
    kept = {key: value for key, value in hostile.items() if value is not None}
    assert session.metadata == kept
    assert session.state().metadata == kept
    assert session.messages() == [hostile]
    assert list(session.events())[2].data == hostile
    assert session.id == "s"
    assert session.seq == 3
    assert type(session) is Session


def test_state_is_what_the_events_add_up_to(session: Session) -> None:
    """`state(at)` counts messages and kinds, and has seq, times and metadata, at every seq."""
    assert session.state() == hansard.State()
    conversation(session)
    session.set_metadata(title="U")
    events = list(session.events())
    for at in (*range(len(events) + 2), None, 3):
        upto = events[:at]
        state = session.state(at)
        assert state.seq == len(upto)
        assert state.message_count == len(session.messages(at=at))
        assert sum(state.kinds.values()) == len(upto)
        if upto:
            assert (state.created, state.updated) == (events[0].stamp, upto[-1].stamp)
            assert state.metadata == {"title": "U" if len(upto) == len(events) else "T"}
    for bad in (-1, "now", True):
        with pytest.raises(ValueError, match="at"):
            session.state(bad)
