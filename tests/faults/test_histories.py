"""Histories: many processes and threads make all kinds of calls, and every answer is consistent.

The checker finds each kind of violation in a handwritten history, and a store without its lock.
"""

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests.crashlab import histories
from tests.crashlab.faults import APPENDING, BEGINNING
from tests.crashlab.histories import End, History, Operation, Record, Violation
from tests.crashlab.history_values import EMPTY, digest, message, view_digest

S = "steady/0"


class Story:
    """A handwritten history: calls one after the other, one unit of time each."""

    def __init__(self) -> None:
        self.now = 0
        self.operations: list[Operation] = []
        self.sessions: dict[str, End] = {}

    @property
    def next(self) -> str:
        """The name of the next call."""
        return f"w0.0.{len(self.operations) + 1}"

    def ask(
        self, do: str, session: str = S, outcome: Any = "ok", *, result: Any = None, **asked: Any
    ) -> Operation:
        """Add a call and its answer."""
        self.now += 2
        ended = None if outcome == "unknown" else self.now
        one = Operation(
            self.next, do, session, asked, self.now - 1, ended, outcome, result or {}
        )  # fmt: skip
        self.operations.append(one)
        return one

    def say(
        self, result: dict[str, Any], *, size: int = 1, of: str = "", session: str = S, **more: Any
    ) -> Operation:
        """Add the call of an append, and its answer."""
        outcome = more.pop("outcome", "refused" if "error" in result else "ok")
        asked = {"size": size, "key": None, "expected": None, "of": of or self.next, **more}
        return self.ask("append", session, outcome, result=result, **asked)

    def append(
        self,
        session: str = S,
        *,
        size: int = 1,
        kept: bool = True,
        outcome: str = "ok",
        **more: Any,
    ) -> Operation:
        """Add an append of `size` messages, which are stored if `kept`."""
        begin = len(self.events(session)) + 1
        for place in range(size if kept else 0):
            key = None if place else more.get("key")
            self.put(session, message(self.next, place, size, 1), key=key)
        seqs = list(range(begin, begin + size))
        result = {"seqs": seqs, "of": self.next} if outcome == "ok" else {"error": "SeqConflict"}
        return self.say(result, size=size, session=session, outcome=outcome, **more)

    def events(self, session: str = S) -> list[Record]:
        """Return what is stored in a session."""
        return self.sessions.setdefault(session, End([])).events

    def put(self, session: str, said: dict[str, Any], key: str | None = None) -> None:
        """Store a message."""
        events = self.events(session)
        events.append(Record(len(events) + 1, "message.added", {"message": said}, key))

    def put_event(self, session: str, kind: str, **data: Any) -> None:
        """Store another event."""
        self.events(session).append(Record(len(self.events(session)) + 1, kind, data))

    def change(self, place: int, session: str = S, **changes: Any) -> None:
        """Change a stored event."""
        self.events(session)[place - 1] = self.events(session)[place - 1]._replace(**changes)

    def read(self, session: str = S, *, upto: int | None = None) -> Operation:
        """Add a read of the stored events."""
        seen = self.events(session)[:upto]
        result = {"seq": len(seen), "digest": digest(EMPTY, seen)}
        return self.ask("read", session, result=result, after=0)

    def view(self, *places: tuple[str, int]) -> Operation:
        """Add a read of the model view, with messages by operation and place."""
        seen = EMPTY
        for name, place in places:
            seen = view_digest(seen, {"op": name, "place": place})
        return self.ask("view", result={"digest": seen})

    def list(self, **changes: int | None) -> Operation:
        """Add a listing: of all sessions, but for some changes by their first letter."""
        whole = {"s": (S, 8), "f": ("fork/a", 3), "m": ("mortal/0", 2), "n": ("new/1", 1)}
        known = {letter: name for letter, (name, _) in whole.items()}
        seqs = {letter: seq for letter, (_, seq) in whole.items()} | changes
        listed = {known.get(letter, letter): seq for letter, seq in seqs.items() if seq}
        return self.ask("list", "", result={"sessions": listed})

    def while_deleted(self, call: Callable[[], object]) -> None:
        """Add a call between a deletion and its end."""
        self.ask("delete", "mortal/0")
        call()
        self.ask("restore", "mortal/0")

    def fork(self, child: str, at: int | None) -> Operation:
        """Store a fork at seq 2, and add the call that made it."""
        self.sessions[child] = End(self.events()[:2])
        self.put_event(child, "session.forked", parent=S, seq=2)
        return self.ask("fork", child=child, at=at)

    def race(self, outcome: str, *during: Callable[[], object]) -> Operation:
        """Add a fork at seq 1 whose call takes as long as others: "fork/r", which is not stored."""
        self.now += 1
        begin = self.now
        for call in during:
            call()
        result = {"error": "SessionDeleted"} if outcome == "refused" else {}
        one = self.ask("fork", "mortal/0", outcome, result=result, child="fork/r", at=1)
        self.operations[-1] = one._replace(invoked=begin)
        return self.operations[-1]

    def see(self, seq: int, *, deleted: bool = False) -> Operation:
        """Add a listing and a read of "fork/r"."""
        self.list(**{"fork/r": seq}, m=None if deleted else 2)
        seen = {"seq": seq, "digest": "with an unknown time"}
        return self.ask("read", "fork/r", result=seen, after=0)

    def delete(self) -> Operation:
        """Delete the parent of "fork/r"."""
        return self.ask("delete", "mortal/0")

    def purge(self, outcome: str) -> Operation:
        """Delete and purge "fork/r"."""
        self.ask("delete", "fork/r")
        error = {"error": "InUse"} if outcome == "refused" else None
        return self.ask("purge", "fork/r", outcome, result=error)

    def store_fork(self, *, deleted: bool = False) -> End:
        """Store "fork/r", in the trash or not."""
        self.sessions["fork/r"] = End(self.events("mortal/0")[:1], deleted)
        self.put_event("fork/r", "session.forked", parent="mortal/0", seq=1)
        return self.sessions["fork/r"]

    def end(self, *noticed: Violation) -> History:
        """Return the history."""
        return History(self.operations, self.sessions, list(noticed))


def good() -> Story:
    """Return a valid history with some of every call."""
    story = Story()
    story.append()
    story.append(size=3)
    story.append(key="k")
    story.say({"seqs": [5], "of": "w0.0.3"}, key="k", of="w0.0.3")
    story.append(expected=5)
    story.say({"error": "SeqConflict", "actual": 6}, expected=5)
    story.append(outcome="unknown")
    story.append(outcome="unknown", kept=False)
    story.read()
    story.put_event(S, "session.reverted", seq=1)
    story.ask("revert", result={"seq": 8}, to=1)
    story.view(("w0.0.1", 0))
    story.fork("fork/a", 2)
    story.append("mortal/0")
    story.list(m=1, n=None)
    story.ask("delete", "mortal/0")
    story.ask("read", "mortal/0", "refused", result={"error": "SessionDeleted"})
    story.list(m=None, n=None)
    story.ask("restore", "mortal/0")
    story.append("mortal/0")
    story.put_event("new/1", "session.created", metadata={"op": story.next})
    story.ask("create", "new/1", result={"seq": 1})
    story.ask("create", "new/1", "refused", result={"error": "SessionExists"})
    story.ask("search", result={"found": [S]}, word="w0.0.1/0/0")
    story.ask("compact")
    return story


def test_a_history_in_which_all_is_well_has_no_violation() -> None:
    """N-17, N-54, N-56: appends, batches, forks, reverts, deletes, and keys that are used again are valid."""
    story = good()
    assert histories.check(story.end()) == []
    # What was noticed besides is reported, too.
    hung = Violation("hung", "", "still running: w3")
    assert histories.check(story.end(hung)) == [hung]
    # A key of a batch is refused for another size; a refused append may be retried.
    batch = story.append(size=3, key="b")
    story.say({"seqs": [9, 10, 11], "of": batch.id}, size=3, key="b")
    story.say({"error": "InvalidEvent"}, key="b")
    refused = story.say({"error": "LockTimeout"}, key="r")
    story.put(S, message(refused.id, 0, 1, 1), key="r")
    story.say({"seqs": [12], "of": refused.id}, key="r", of=refused.id)
    assert histories.check(story.end()) == []


def show(history: History) -> str:
    """Return the violations as text."""
    return "\n".join(map(str, histories.check(history)))


#: What may come of a fork that is purged concurrently.
FORKS: dict[str, Callable[[Story], object]] = {
    "refused": lambda story: story.race("refused", story.delete),
    "killed": lambda story: story.race("unknown", story.delete),
    "killed, and there": lambda story: (story.store_fork(), story.race("unknown", story.delete)),
    "purged": lambda story: (story.race("ok", story.delete), story.list(**{"fork/r": 2}, m=None),
        story.purge("ok")),
    "purged by one that was killed": lambda story: (story.race("ok", story.delete), story.purge("unknown")),
    "not purged": lambda story: (story.store_fork(deleted=True), story.race("ok", story.delete),
        story.purge("refused")),
}  # fmt: skip


@pytest.mark.parametrize("name", FORKS)
def test_a_fork_may_be_missing_if_it_was_refused_or_purged(name: str) -> None:
    """F-67: a fork whose call was not acknowledged, or that was purged, may be missing."""
    story = good()
    FORKS[name](story)
    story.ask("restore", "mortal/0")
    assert show(story.end()) == ""


#: Forks that are missing, or there, and must not be, and what that is.
WRONG_FORKS: dict[str, tuple[str, Callable[[Story], object]]] = {
    "acknowledged": ("lost", lambda story: story.race("ok", story.delete)),
    "acknowledged, and in the trash": ("vanished",
        lambda story: (story.store_fork(deleted=True), story.race("ok", story.delete))),
    "acknowledged, and not listed": ("vanished",
        lambda story: (story.store_fork(), story.race("ok", story.delete), story.list(m=None))),
    "acknowledged, and its parent was purged": (
        "fork",
        lambda story: (
            story.store_fork(),
            story.race("ok", story.delete),
            story.sessions.update({"mortal/0": End([])}),
        ),
    ),
    "refused, and seen": ("stale", lambda story: story.race("refused", lambda: story.see(2), story.delete)),
    "refused, and there": ("phantom",
        lambda story: (story.store_fork(), story.race("refused", story.delete))),
    "refused, and in the trash": ("phantom",
        lambda story: (story.store_fork(deleted=True), story.race("refused", story.delete))),
    "killed, and an append was acknowledged": ("lost",
        lambda story: story.race("unknown", story.delete, lambda: story.append("fork/r", kept=False))),
    "purged, and there": ("resurrected",
        lambda story: (story.store_fork(), story.race("ok", story.delete), story.purge("ok"))),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_FORKS)
def test_any_other_missing_fork_is_a_violation_and_its_calls_are_told(name: str) -> None:
    """F-67: an acknowledged fork stays, and a refused one leaves nothing. A report shows all calls."""
    kind, spoil = WRONG_FORKS[name]
    story = good()
    spoil(story)
    story.ask("restore", "mortal/0")
    found = [violation for violation in histories.check(story.end()) if violation.kind == kind]
    assert [violation.session for violation in found][:1] == ["fork/r"], found
    told = show(story.end())
    fork = next(one for one in story.operations if one.asked.get("child") == "fork/r")
    assert f"fork {fork.id} mortal/0 {{'child': 'fork/r', 'at': 1}}: {fork.outcome}" in told
    assert ": delete w0.0." in told
    assert "at the end: " in told


def tear(story: Story) -> None:
    """Store two of three events of a batch."""
    for place in range(2):
        story.put(S, message(story.next, place, 3, 1))
    story.say({}, size=3, outcome="unknown")


def reorder(story: Story) -> None:
    """Store a later append before one that was acknowledged earlier."""
    one, other = story.append(), story.append()
    early, late = story.events()[-2:]
    story.events()[-2:] = [late._replace(seq=early.seq), early._replace(seq=late.seq)]
    for place, (call, seqs) in enumerate(
        [(one, other.result["seqs"]), (other, one.result["seqs"])], len(story.operations) - 2
    ):
        story.operations[place] = call._replace(result={**call.result, "seqs": seqs})


#: What is wrong, by the kind of violation that it is.
BAD: dict[str, list[Callable[[Story], object]]] = {
    "lost": [lambda story: story.append(kept=False),
        lambda story: story.ask("revert", result={"seq": 7}, to=3)],
    "twice": [lambda story: story.put(S, message("w0.0.1", 0, 1, 1))],
    "phantom": [lambda story: story.put(S, message("w9.0.1", 0, 1, 1)),
        lambda story: story.append(outcome="refused"), lambda story: story.list(ghost=1)],
    "altered": [
        lambda story: story.change(
            6, data={"message": {**message("w0.0.5", 0, 1, 1), "content": " something else"}}
        )
    ],
    "gap": [lambda story: story.change(8, seq=9)],
    "torn batch": [tear],
    "order": [reorder],
    "not a prefix": [
        lambda story: story.ask("read", result={"seq": 8, "digest": "something else"}, after=0),
    ],
    "stale": [lambda story: story.read(upto=7), lambda story: story.list(s=7),
        lambda story: story.ask("search", result={"found": []}, word="w0.0.1/0/0")],
    "compare-and-set": [lambda story: story.append(expected=3),
        lambda story: story.say({"error": "SeqConflict", "actual": 8}, expected=8)],
    "key": [lambda story: story.append(key="k"),
        lambda story: story.say({"seqs": [6], "of": "w0.0.3"}, key="k", of="w0.0.3"),
        lambda story: story.say({"seqs": [9], "of": story.append(size=2, key="b").id}, key="b"),
        lambda story: story.say({"seqs": [9, 10], "of": story.append(size=2, key="b").id}, key="b"),
        lambda story: story.say({"error": "InvalidEvent"}, key="k"),
        lambda story: story.say({"error": "InvalidEvent"}, key="never stored"),
        lambda story: story.say({"error": "InvalidEvent"})],
    "fork": [lambda story: story.change(1, "fork/a", stamp="another time"),
        lambda story: story.fork("fork/b", 3)],
    "resurrected": [lambda story: story.while_deleted(lambda: story.read("mortal/0")),
        lambda story: story.ask("delete", "mortal/0")],
    "vanished": [lambda story: story.ask("read", S, "refused", result={"error": "SessionDeleted"}),
        lambda story: story.list(s=None)],
    "failed": [lambda story: story.ask("compact", outcome="failed", result={"error": "TypeError"})],
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_the_checker_finds_each_kind_of_violation(kind: str) -> None:
    """N-16, N-17, N-22, N-26: a history with one thing wrong has a violation of that kind."""
    for number, spoil in enumerate(BAD[kind]):
        story = good()
        spoil(story)
        found = histories.check(story.end())
        assert kind in {violation.kind for violation in found}, (number, found)


#: Four processes × two threads, some of which are killed, or kill themselves at a call of the disk.
RUNS: dict[str, dict[str, Any]] = {
    "all calls": {
        "operations": 45,
        "kills": 6,
        # A rare call would be missing in one of a few hundred runs.
        "weights": dict.fromkeys(("list", "fork", "create", "revert", "compact"), 6),
    },
    "compactions": {"operations": 150, "kills": 150, "deaths": APPENDING, "weights": {"compact": 6}},
    "more compactions": {"operations": 150, "kills": 150, "deaths": APPENDING,
        "weights": {"compact": 6, "delete": 0}},
    "forks": {"operations": 40, "kills": 12, "deaths": APPENDING, "weights": histories.FORKING,
        "prepare": "tests.faults.workers:take_time_to_fork"},
    "beginnings": {"operations": 60, "kills": 40, "deaths": BEGINNING,
        "weights": dict.fromkeys(histories.WEIGHTS, 0) | {"create": 4, "begin": 4, "list": 1}},
}  # fmt: skip


def refusals(history: histories.History, do: str) -> set[str | None]:
    """Return the errors of all calls of a kind."""
    return {one.result.get("error") for one in history.operations if one.do == do}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", RUNS)
def test_a_history_with_kills_breaks_no_promise(tmp_path: Path, seed: int, name: str) -> None:
    """N-16, N-17, N-22, N-26, N-27, N-35, N-38, N-39, F-25 to F-31, F-67, F-99: no violation is found."""
    options = {"durability": "os", "lock_timeout": 60.0}

    def run(number: int) -> histories.History:
        place = tmp_path / f"store{number}"
        found = histories.run(
            place, seed=seed + number, options=options, timeout=200.0, **RUNS[name]
        )
        assert show(found) == ""
        return found

    history = run(0)
    assert sum(history.kills.values()) >= RUNS[name]["kills"]
    done = {one.do for one in history.operations if one.outcome == "ok"}
    # The others are kinds of appends.
    asked = {do for do, weight in RUNS[name]["weights"].items() if weight}
    assert done >= asked - {"begin", "keyed", "expecting"}
    if name == "compactions":
        # They died before, during and after their writes. The second leaves a torn tail for others.
        assert {"write before", "write amid", "write after"} <= history.kills.keys()
        assert "unknown" in {one.outcome for one in history.operations if one.do == "append"}
    if name == "forks":
        # In some histories, no purge meets a fork.
        others = (run(number) for number in range(1, 4))
        assert any("InUse" in refusals(one, "purge") for one in chain([history], others))
    if name == "beginnings":
        assert sum(session.startswith(("new/", "begun/")) for session in history.sessions) > 20


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
