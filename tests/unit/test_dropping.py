"""Dropping the beginning of a history: what it removes, what stays, and what the log records."""

from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import Session, Store
from tests.unit.sample_messages import HIDDEN, said, talk
from tools.crash.erasure import leaks

in_files = pytest.mark.parametrize("store", ["os"], indirect=True)


def numbers(session: Session, **options: Any) -> list[int]:
    """Return the numbers of the messages of a view."""
    return [message["n"] for message in session.messages(**options)]


def count(session: Session, upto: int) -> None:
    """Add numbered messages, whose number is their seq if there are no other events."""
    session.add_messages([{"n": n} for n in range(session.seq + 1, upto + 1)])


@pytest.mark.parametrize("bound", [-1, 7, 1.0, "2", None, True])
def test_a_bound_that_is_no_place_of_the_session_is_refused(store: Store, bound: Any) -> None:
    """N-89: an invalid bound is refused, and nothing is written."""
    session = store.session("s")
    count(session, 5)
    with pytest.raises(ValueError, match="history"):
        session.drop_history(bound)
    with pytest.raises(hansard.InvalidEvent, match="reason"):
        session.drop_history(3, reason=7)  # type: ignore[arg-type]
    assert session.seq == 5


def test_what_does_not_exist_has_no_history_to_drop(store: Store) -> None:
    """N-89: dropping the history of a missing or deleted session raises, and creates nothing."""
    with pytest.raises(hansard.SessionNotFound):
        store.session("missing").drop_history(0)
    assert not store.exists("missing")
    count(store.session("s"), 3)
    store.delete("s")
    with pytest.raises(hansard.SessionDeleted):
        store.session("s").drop_history(2)


def test_no_call_is_cut_from_its_result(store: Store) -> None:
    """N-55: the bound moves back before a call whose result would stay, as often as needed."""
    session = store.session("s")

    def call(*names: str) -> int:
        calls = [{"id": name} for name in names]
        return session.add_message({"role": "assistant", "tool_calls": calls}).seq

    def answer(name: str) -> int:
        return session.add_message({"role": "tool", "tool_call_id": name, "content": "r"}).seq

    session.add_message({"role": "user", "content": "q"})
    first = call("a", "b")
    answer("a")
    second = call("c")
    last = answer("b")
    answer("c")
    free = session.add_message({"role": "user", "content": "r"}).seq
    orphan = answer("not called")
    assert [session.drop_history(n, dry_run=True).before for n in (first, second, last)] == [2] * 3
    assert session.drop_history(free, dry_run=True).before == free
    assert session.drop_history(orphan + 1, dry_run=True).before == orphan + 1
    assert session.drop_history(last).before == first
    assert [problem.call_id for problem in session.pairing()] == ["not called"]


def test_forks_that_have_it_keep_it(store: Store) -> None:
    """N-50, N-51: while a fork, deleted or not, shows some of it, nothing is dropped."""
    session = store.session("s")
    count(session, 20)
    for place in range(1, 8):
        session.fork(f"f{place}", at=place)
    store.delete("f7")
    with pytest.raises(hansard.InUse, match=r"'f1', .*'f5' and 2 more; delete") as caught:
        session.drop_history(10)
    assert caught.value.children == [f"f{place}" for place in range(1, 8)]
    with pytest.raises(hansard.InUse):
        session.drop_history(2, dry_run=True)
    assert session.drop_history(1).events == 0
    assert session.seq == 20
    for place in range(1, 8):
        if place < 7:
            store.delete(f"f{place}")
        store.purge(f"f{place}")
    assert session.drop_history(10).events == 9
    # Its events are dropped already.
    child = session.fork("child", at=5)
    assert child.messages() == []
    assert session.drop_history(15).events == 5


def test_a_fork_that_was_made_concurrently_has_what_its_parent_has(store: Store) -> None:
    """N-28, N-50: what a parent drops disappears in its forks; their own events stay."""
    session = store.session("s")
    count(session, 10)
    child = session.fork("child", at=4)
    child.add_messages([{"n": n} for n in (60, 70, 80)])
    # As if the fork had come between the look at the forks and the event.
    session._record("history.dropped", {"before": 9})
    for _ in range(2):
        assert numbers(session) == [9, 10]
        assert numbers(child) == [60, 70, 80]
        assert [event.seq for event in child.events() if event.message] == [6, 7, 8]
        store.compact()


@in_files
def test_dropped_bytes_are_not_in_the_checkpoint(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-40, N-45: an earlier checkpoint is removed; the new one has no dropped bytes."""
    monkeypatch.setattr("hansard.backend.local.compact.CHECKPOINT", 1)
    session = store.session("s")
    talk(session, 0, 9)
    session.summarize(upto=3, message={"content": HIDDEN})
    stream = session.stream(gather=0)
    stream.write("never finished")
    session.compact()
    checkpoint = tmp_path / "store" / "sessions" / "s" / "checkpoint"
    assert HIDDEN.encode() in checkpoint.read_bytes()
    session.drop_history(session.seq + 1)
    assert session.state().streams == {}
    session.compact()
    assert checkpoint.exists()
    assert not leaks(tmp_path, HIDDEN)
    with hansard.open(tmp_path / "store", read_only=True) as cold:
        assert cold.session("s").state() == session.state()


@in_files
def test_a_scrub_in_a_segment_of_its_own_leaves_nothing_either(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-121, N-66: a redaction that holds the rest of a dropped message is emptied, in any segment."""
    monkeypatch.setattr("hansard.backend.local.compact.LARGEST", 1)
    session = store.session("s")
    for number in range(2):
        session.add_message({"content": f"the word is {HIDDEN}, and swordfish"})
        session.compact()
        session.scrub("swordfish")
        session.compact()
        if number:
            session.drop_history(session.seq)
        else:
            session.redact(1)
        before = said(session)
        assert session.compact().blanked == 2
        assert not leaks(tmp_path, HIDDEN)
        assert said(session) == before
        assert session.verify().ok
        assert session.compact().sessions == 0
