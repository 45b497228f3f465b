"""What two sessions share, and where they differ."""

from pathlib import Path
from typing import Any

import msgspec

import hansard
from hansard.state.compare import Divergence, Place


def says(role: str, content: str) -> dict[str, Any]:
    """Return a message."""
    return {"role": role, "content": content}


def chat_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    """Return a message that calls a tool, as OpenAI's chat has it."""
    function = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": call_id, "type": "function", "function": function}],
    }


def chat_result(call_id: str, content: str) -> dict[str, Any]:
    """Return a tool's answer, as OpenAI's chat has it."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def test_a_fork_shares_what_was_said_before_it(store: hansard.Store) -> None:
    """N-50: the base of a session and its fork is the fork point; later messages are only in one of them."""
    parent = store.session("p")
    parent.add_messages([says("user", "1"), says("assistant", "2"), says("user", "3")])
    fork = parent.fork("f", at=2)
    fork.add_message(says("user", "another"))
    found = parent.compare(fork)
    assert (found.a, found.b) == (Place("p", 3), Place("f", 4))
    assert found.base == Place("p", 2)
    assert found.divergence == Divergence(2, 3, 4)
    assert [said.message["content"] for said in found.only_a] == ["3"]
    assert [said.message["content"] for said in found.only_b] == ["another"]
    assert found.same == 2
    assert not found.equal
    assert parent.compare(fork, at=2, other_at=3).equal
    back = fork.compare(parent)
    assert (back.only_a, back.only_b, back.base) == (found.only_b, found.only_a, found.base)


def test_the_base_is_found_across_generations(store: hansard.Store) -> None:
    """The base of two forks of forks is the last event of their last common ancestor."""
    root = store.session("root")
    root.add_messages([says("user", str(n)) for n in range(10)])
    one = root.fork("one", at=8)  # seq 9
    one.add_messages([says("user", "a"), says("user", "b")])  # 10, 11
    left = one.fork("left", at=11)
    right = one.fork("right", at=10)
    early = one.fork("early", at=4)  # of what `one` had inherited itself
    other = root.fork("other", at=6)
    alone = store.create("alone", metadata={})
    assert left.compare(right).base == Place("one", 10)
    assert left.compare(one).base == Place("one", 11)
    assert left.compare(early).base == Place("root", 4)
    assert early.compare(early).base == Place("early", early.seq)
    assert left.compare(other).base == Place("root", 6)
    assert left.compare(root).base == Place("root", 8)
    assert left.compare(root, at=3).base == Place("root", 3)
    assert left.compare(alone).base is None
    assert left.compare(left, at=10).base == Place("one", 10)


def test_sessions_of_two_stores_are_compared_and_not_related(
    store: hansard.Store, tmp_path: Path
) -> None:
    """A copy in another store compares equal, but has no common base."""
    session = store.session("s")
    session.add_messages([says("user", "1"), says("user", "2")])
    with hansard.open("memory:") as there:
        store.copy_to(there)
        found = session.compare(there.session("s"))
    assert found.equal
    assert found.base is None
    if store.health().where != "memory:":
        # Opened twice, it is one store.
        with hansard.open(store.health().where, read_only=True) as again:
            assert session.compare(again.session("s")).base == Place("s", 2)


def test_members_in_another_order_are_the_same(store: hansard.Store) -> None:
    """N-72: the order of members does not matter; 1 and true differ."""
    one, other = store.session("1"), store.session("2")
    one.add_message({"role": "user", "content": "x", "a": {"b": 1, "c": 2}})
    other.add_message({"a": {"c": 2, "b": 1}, "content": "x", "role": "user"})
    one.set_metadata(k={"x": 1, "y": 2}, flag=1)
    other.set_metadata(k={"y": 2, "x": 1}, flag=True)
    found = one.compare(other)
    assert found.divergence is None
    assert list(found.metadata) == ["flag"]


def test_what_is_in_the_middle_is_found(store: hansard.Store) -> None:
    """One additional message in the middle is one difference."""
    one, other = store.session("1"), store.session("2")
    one.add_messages([says("user", str(n)) for n in range(50)])
    other.add_messages([says("user", str(n)) for n in (*range(20), 99, *range(20, 50))])
    found = one.compare(other)
    assert (found.same, found.only_a) == (50, [])
    assert [(said.seq, said.message["content"]) for said in found.only_b] == [(21, "99")]
    assert found.divergence == Divergence(20, 21, 21)


def test_long_stretches_are_not_aligned(store: hansard.Store) -> None:
    """N-74: two long ranges that differ at both ends count as replaced, so the work stays linear."""
    one, other = store.session("1"), store.session("2")
    shared = [says("user", f"{n % 7}") for n in range(3_000)]
    one.add_messages([says("user", "a"), *shared, says("user", "a")])
    other.add_messages([says("user", "b"), *shared, says("user", "b")])
    found = one.compare(other)
    assert (len(found.only_a), len(found.only_b), found.same) == (3_002, 3_002, 0)


def test_tool_calls_are_compared_by_what_was_asked(store: hansard.Store) -> None:
    """Calls are compared without their ids; other arguments, other results and missing calls are reported."""
    one, other = store.session("1"), store.session("2")
    one.add_messages(
        [
            chat_call("a1", "search", '{"q": "x", "n": 1}'),
            chat_result("a1", "found"),
            chat_call("a2", "read", '{"path": "f"}'),
            chat_result("a2", "old"),
            chat_call("a3", "write", '{"path": "f"}'),
            chat_result("a3", "ok"),
            chat_call("a4", "only_here", "{}"),
        ]
    )
    other.add_messages(
        [
            chat_call("b1", "search", '{"n":1,"q":"x"}'),
            chat_result("b1", "found"),
            chat_call("b2", "read", '{"path": "f"}'),
            chat_result("b2", "new"),
            chat_call("b3", "write", '{"path": "g"}'),
            chat_result("b3", "ok"),
            chat_call("b4", "only_there", "{}"),
        ]
    )
    found = one.compare(other).calls
    told = [(call.what, call.a and call.a.name, call.b and call.b.name) for call in found]
    assert told == [
        ("result", "read", "read"),
        ("arguments", "write", "write"),
        ("only a", "only_here", None),
        ("only b", None, "only_there"),
    ]
    assert found[0].a is not None
    assert (found[0].a.seq, found[0].a.result) == (3, "old")
    assert found[1].b is not None
    assert found[1].b.arguments == {"path": "g"}
    assert found[2].a is not None
    assert found[2].a.result is None


def test_calls_of_two_frameworks_are_the_same_calls(store: hansard.Store) -> None:
    """A call is compared by tool, arguments and result, whichever framework wrote it."""
    one, other = store.session("1"), store.session("2")
    one.add_messages([chat_call("a", "look", '{"id": 1}'), chat_result("a", "here")])
    use = {"type": "tool_use", "id": "u", "name": "look", "input": {"id": 1}}
    answer = {"type": "tool_result", "tool_use_id": "u", "content": "here"}
    other.add_messages(
        [{"role": "assistant", "content": [use]}, {"role": "user", "content": [answer]}]
    )
    found = one.compare(other)
    assert found.calls == []
    assert found.divergence is not None


def test_usage_and_snapshots_are_compared(store: hansard.Store) -> None:
    """Differences in usage and snapshots are reported by name, with both values."""
    session = store.session("s")
    session.add_message(says("user", "1"))
    session.record_usage(model="m", input_tokens=5, output_tokens=1)
    session.snapshot("here")
    found = session.compare(session, at=1)
    assert found.usage["m"].a is msgspec.UNSET
    assert found.usage["m"].b["input_tokens"] == 5
    assert found.snapshots["here"].b == 2
    assert not found.equal
    assert found.divergence is None
