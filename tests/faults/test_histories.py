"""Histories: many processes and threads make all kinds of calls, and every answer is consistent.

The checker finds each kind of violation in a handwritten history, and a store without its lock.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.crashlab import histories
from tests.crashlab.histories import End, History, Operation, Record, Violation
from tests.crashlab.history_values import EMPTY, digest, message, view_digest

S = "steady/0"


class Story:
    """A handwritten history: calls one after the other, one unit of time each."""

    def __init__(self) -> None:
        self.now = 0
        self.operations: list[Operation] = []
        self.sessions: dict[str, End] = {}

    def tick(self) -> int:
        """Advance the clock."""
        self.now += 1
        return self.now

    def ask(
        self, do: str, session: str = S, outcome: Any = "ok", *, result: Any = None, **asked: Any
    ) -> Operation:
        """Add a call and its answer."""
        number = len(self.operations) + 1
        begun = self.tick()
        ended = None if outcome == "unknown" else self.tick()
        one = Operation(f"w0.0.{number}", do, session, asked, begun, ended, outcome, result or {})
        self.operations.append(one)
        return one

    def append(
        self,
        session: str = S,
        *,
        size: int = 1,
        key: str | None = None,
        expected: int | None = None,
        of: str = "",
        outcome: Any = "ok",
        kept: bool = True,
    ) -> Operation:
        """Add an append of `size` messages, which are stored if `kept`."""
        name = of or f"w0.0.{len(self.operations) + 1}"
        events = self.sessions.setdefault(session, End([])).events
        begin = len(events) + 1
        if kept:
            for place in range(size):
                self.put(session, message(name, place, size, 1), key=None if place else key)
        seqs = list(range(begin, begin + size))
        result = {"seqs": seqs, "of": name} if outcome == "ok" else {"error": "SeqConflict"}
        asked: dict[str, Any] = {"size": size, "key": key, "expected": expected, "of": name}
        return self.ask("append", session, outcome, result=result, **asked)

    def put(self, session: str, said: dict[str, Any], key: str | None = None) -> None:
        """Store a message."""
        events = self.sessions.setdefault(session, End([])).events
        events.append(Record(len(events) + 1, "message.added", {"message": said}, key))

    def put_event(self, session: str, kind: str, **data: Any) -> None:
        """Store another event."""
        events = self.sessions.setdefault(session, End([])).events
        events.append(Record(len(events) + 1, kind, data))

    def read(self, session: str = S, *, upto: int | None = None) -> Operation:
        """Add a read of the stored events."""
        seen = self.sessions[session].events[:upto]
        return self.ask(
            "read", session, result={"seq": len(seen), "digest": digest(EMPTY, seen)}, after=0
        )

    def view(self, *places: tuple[str, int]) -> Operation:
        """Add a read of the model view, with messages by operation and place."""
        seen = EMPTY
        for name, place in places:
            seen = view_digest(seen, {"op": name, "place": place})
        return self.ask("view", result={"digest": seen})

    def alter(self, seq: int, **changes: Any) -> None:
        """Change a stored message."""
        record = self.sessions[S].events[seq - 1]
        said = {**record.data["message"], **changes}
        self.sessions[S].events[seq - 1] = record._replace(data={"message": said})

    def end(self, *noticed: Violation) -> History:
        """Return the history."""
        return History(self.operations, self.sessions, list(noticed))


def good() -> Story:
    """Return a valid history with some of every call."""
    story = Story()
    story.append()
    story.append(size=3)
    story.append(key="k")
    story.ask(
        "append", result={"seqs": [5], "of": "w0.0.3"}, size=1, key="k", expected=None, of="w0.0.3"
    )
    story.append(expected=5)
    refused = {"error": "SeqConflict", "actual": 6}
    asked: dict[str, Any] = {"size": 1, "key": None, "expected": 5, "of": "w0.0.6"}
    story.ask("append", outcome="refused", result=refused, **asked)
    story.append(outcome="unknown")
    story.append(outcome="unknown", kept=False)
    story.read()
    story.put_event(S, "session.reverted", seq=1)
    story.ask("revert", result={"seq": 8}, to=1)
    story.view(("w0.0.1", 0))
    story.sessions["fork/a"] = End(list(story.sessions[S].events[:2]))
    story.put_event("fork/a", "session.forked", parent=S, seq=2)
    story.ask("fork", child="fork/a", at=2)
    story.append("mortal/0")
    story.ask("list", "", result={"sessions": {S: 8, "fork/a": 3, "mortal/0": 1}})
    story.ask("delete", "mortal/0")
    story.ask("read", "mortal/0", "refused", result={"error": "SessionDeleted"})
    story.ask("list", "", result={"sessions": {S: 8, "fork/a": 3}})
    story.ask("restore", "mortal/0")
    story.append("mortal/0")
    story.put_event("new/1", "session.created", metadata={"op": "w0.0.20"})
    story.ask("create", "new/1", result={"seq": 1})
    story.ask("create", "new/1", "refused", result={"error": "SessionExists"})
    story.ask("search", result={"found": [S]}, word="w0.0.1/0/0")
    story.ask("compact")
    return story


def test_a_history_in_which_all_is_well_has_no_violation() -> None:
    """N-17: a valid history of appends, batches, keys, forks, reverts and deletes has no violation."""
    assert histories.check(good().end()) == []


def test_keys_that_are_used_again_are_no_violation() -> None:
    """N-54, N-56: a retry may get the first event of a batch; a refused append may be retried."""
    story = Story()
    batch = story.append(size=3, key="b")
    asked: dict[str, Any] = {"size": 1, "expected": None}
    story.ask("append", result={"seqs": [1], "of": batch.id}, key="b", of="w0.0.2", **asked)
    refused = {"error": "LockTimeout"}
    story.ask("append", outcome="refused", result=refused, key="r", of="w0.0.3", **asked)
    story.append()
    story.put(S, message("w0.0.3", 0, 1, 1), key="r")
    story.ask("append", result={"seqs": [5], "of": "w0.0.3"}, key="r", of="w0.0.3", **asked)
    assert histories.check(story.end()) == []


def leave_a_gap(story: Story) -> None:
    """Leave a gap before the last seq."""
    last = story.sessions[S].events[-1]
    story.sessions[S].events[-1] = last._replace(seq=last.seq + 1)


def tear(story: Story) -> None:
    """Store two of three events of a batch."""
    for place in range(2):
        story.put(S, message(f"w0.0.{len(story.operations) + 1}", place, 3, 1))
    asked: dict[str, Any] = {
        "size": 3,
        "key": None,
        "expected": None,
        "of": f"w0.0.{len(story.operations) + 1}",
    }
    story.ask("append", outcome="unknown", **asked)


def interleave(story: Story) -> None:
    """Store an event inside a batch."""
    name = f"w0.0.{len(story.operations) + 1}"
    story.put(S, message(name, 0, 2, 1))
    story.put_event(S, "session.reverted", seq=8)
    story.put(S, message(name, 1, 2, 1))
    asked: dict[str, Any] = {"size": 2, "key": None, "expected": None, "of": name}
    story.ask("append", result={"seqs": [9, 11], "of": name}, **asked)
    story.ask("revert", result={"seq": 10}, to=8)


def reorder(story: Story) -> None:
    """Store a later append before one that was acknowledged earlier."""
    first, second = story.append(), story.append()
    events = story.sessions[S].events
    events[-2], events[-1] = (
        events[-1]._replace(seq=events[-2].seq),
        events[-2]._replace(seq=events[-1].seq),
    )
    for one, other in ((first, second), (second, first)):
        place = story.operations.index(one)
        story.operations[place] = one._replace(result={**one.result, "seqs": other.result["seqs"]})


def refuse_for_nothing(story: Story) -> None:
    """Refuse an append although the session is where it was expected."""
    asked: dict[str, Any] = {"size": 1, "key": None, "expected": 8, "of": "w0.0.99"}
    refused = {"error": "SeqConflict", "actual": 8}
    story.ask("append", outcome="refused", result=refused, **asked)


def answer_a_key_otherwise(story: Story) -> None:
    """Answer a retry with another seq."""
    asked: dict[str, Any] = {"size": 1, "key": "k", "expected": None, "of": "w0.0.3"}
    story.ask("append", result={"seqs": [6], "of": "w0.0.3"}, **asked)


def fork_from_another(story: Story) -> None:
    """Change an inherited event of a fork."""
    child = story.sessions["fork/a"].events
    child[0] = child[0]._replace(stamp="another time")


def fork_elsewhere(story: Story) -> None:
    """Fork at another seq than requested."""
    story.sessions["fork/b"] = End(list(story.sessions[S].events[:2]))
    story.put_event("fork/b", "session.forked", parent=S, seq=2)
    story.ask("fork", child="fork/b", at=3)


def read_the_deleted(story: Story) -> None:
    """Read a session that was deleted, and not restored."""
    story.ask("delete", "mortal/0")
    story.read("mortal/0")
    story.ask("restore", "mortal/0")


def list_the_deleted(story: Story) -> None:
    """List a session that was deleted, and not restored."""
    story.ask("delete", "mortal/0")
    listed = {S: 8, "fork/a": 3, "mortal/0": 2, "new/1": 1}
    story.ask("list", "", result={"sessions": listed})
    story.ask("restore", "mortal/0")


def find_the_deleted(story: Story) -> None:
    """Find a text of a session that was deleted, and not restored."""
    story.ask("delete", "mortal/0")
    story.ask("search", "mortal/0", result={"found": ["mortal/0"]}, word="w0.0.13/0/0")
    story.ask("restore", "mortal/0")


def end_in_the_trash(story: Story) -> None:
    """Find a session in the trash that no call deleted."""
    story.sessions[S] = story.sessions[S]._replace(deleted=True)


BAD: list[tuple[str, str, Callable[[Story], object]]] = [
    ("lost", "lose", lambda story: story.append(kept=False)),
    ("lost", "lose a keyed one", lambda story: story.append(key="other", kept=False)),
    ("lost", "lose a revert", lambda story: story.ask("revert", result={"seq": 7}, to=3)),
    ("lost", "lose a child", lambda story: story.ask("fork", child="fork/b", at=None)),
    (
        "lost",
        "lose what was created",
        lambda story: story.ask("create", "new/2", result={"seq": 1}),
    ),
    ("twice", "double", lambda story: story.put(S, message("w0.0.1", 0, 1, 1))),
    ("phantom", "make up", lambda story: story.put(S, message("w9.0.1", 0, 1, 1))),
    ("phantom", "keep what was refused", lambda story: story.append(outcome="refused")),
    ("phantom", "revert unasked", lambda story: story.put_event(S, "session.reverted", seq=2)),
    (
        "phantom",
        "list what is not there",
        lambda story: story.ask(
            "list",
            "",
            result={"sessions": {S: 8, "fork/a": 3, "mortal/0": 2, "new/1": 1, "ghost": 1}},
        ),
    ),
    ("altered", "alter", lambda story: story.alter(6, content=" something else")),
    ("gap", "leave a gap", leave_a_gap),
    ("torn batch", "tear", tear),
    ("torn batch", "interleave", interleave),
    ("order", "reorder", reorder),
    (
        "not a prefix",
        "read something else",
        lambda story: story.ask("read", result={"seq": 8, "digest": "something else"}, after=0),
    ),
    ("not a prefix", "view something else", lambda story: story.view(("w0.0.5", 0), ("w0.0.1", 0))),
    ("stale", "read too little", lambda story: story.read(upto=7)),
    ("stale", "view too early", lambda story: story.view(("w0.0.1", 0), ("w0.0.2", 0))),
    (
        "stale",
        "list too early",
        lambda story: story.ask(
            "list", "", result={"sessions": {S: 7, "fork/a": 3, "mortal/0": 2, "new/1": 1}}
        ),
    ),
    (
        "stale",
        "find too little",
        lambda story: story.ask("search", result={"found": []}, word="w0.0.1/0/0"),
    ),
    ("compare-and-set", "append elsewhere", lambda story: story.append(expected=3)),
    ("compare-and-set", "refuse for nothing", refuse_for_nothing),
    ("key", "use a key twice", lambda story: story.append(key="k")),
    ("key", "answer a key otherwise", answer_a_key_otherwise),
    ("fork", "fork from another", fork_from_another),
    ("fork", "fork elsewhere", fork_elsewhere),
    ("resurrected", "read the deleted", read_the_deleted),
    ("resurrected", "list the deleted", list_the_deleted),
    ("resurrected", "find the deleted", find_the_deleted),
    ("resurrected", "come back", lambda story: story.ask("delete", "mortal/0")),
    (
        "vanished",
        "refuse the living",
        lambda story: story.ask("read", S, "refused", result={"error": "SessionDeleted"}),
    ),
    (
        "vanished",
        "list too few",
        lambda story: story.ask(
            "list", "", result={"sessions": {"fork/a": 3, "mortal/0": 2, "new/1": 1}}
        ),
    ),
    ("vanished", "end in the trash", end_in_the_trash),
    (
        "failed",
        "fail",
        lambda story: story.ask(
            "compact", outcome="failed", result={"error": "TypeError", "says": "what?"}
        ),
    ),
]


@pytest.mark.parametrize(
    ("kind", "spoil"), [(kind, spoil) for kind, _, spoil in BAD], ids=[name for _, name, _ in BAD]
)
def test_the_checker_finds_each_kind_of_violation(
    kind: str, spoil: Callable[[Story], object]
) -> None:
    """N-16, N-17, N-22, N-26: a history with one thing wrong has a violation of that kind."""
    story = good()
    spoil(story)
    found = histories.check(story.end())
    assert kind in {violation.kind for violation in found}, found


def test_what_was_noticed_besides_is_a_violation() -> None:
    """N-17: a hang, and findings of `verify`, are reported, too."""
    hung = Violation("hung", "", "still running: w3")
    damaged = Violation("damaged", S, "checksum mismatch")
    assert histories.check(good().end(hung, damaged)) == [hung, damaged]


def show(history: History) -> str:
    """Return the violations as text."""
    return "\n".join(map(str, histories.check(history)))


@pytest.mark.slow
def test_a_history_with_kills_breaks_no_promise(tmp_path: Path, seed: int) -> None:
    """N-16, N-17, N-22, N-26, N-39: 4 processes × 2 threads make all calls, some are killed; no violation."""
    history = histories.run(
        tmp_path / "store",
        operations=45,
        kills=6,
        seed=seed,
        options={"durability": "os"},
        # What is rare would be missing by chance, once in a few hundred runs.
        weights=dict.fromkeys(("list", "fork", "create", "revert", "compact"), 6),
    )
    assert show(history) == ""
    done = {(one.do, one.outcome) for one in history.operations}
    assert {do for do, outcome in done if outcome == "ok"} >= {
        *("append", "read", "view", "list", "fork", "create", "revert", "compact")
    }
    assert len(history.operations) > 250


@pytest.mark.slow
def test_a_history_without_the_lock_is_found_out(tmp_path: Path, seed: int) -> None:
    """N-17: the same run, with the lock taken out of the workers, shows violations."""
    for attempt in range(40):
        history = histories.run(
            tmp_path / f"store-{attempt}",
            operations=40,
            seed=seed + attempt,
            options={"durability": "os"},
            weights={"list": 0, "search": 0, "fork": 0, "create": 0},
            prepare="tests.faults.workers:take_out_the_lock",
        )
        if histories.check(history):
            return
    pytest.fail("8 threads in 4 processes without a lock: no violation was found in 40 runs")
