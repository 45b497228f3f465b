"""A fork is read like a session that has everything in one log."""

import random
from pathlib import Path

import pytest

import hansard
from hansard import Event, Session, Store
from hansard.backend.contract import LogReader
from hansard.state import lineage


def family(store: Store, rng: random.Random) -> list[Session]:
    """Return some sessions, each forked from one of those before it, at any place of it."""
    sessions = [store.session("s0")]
    sessions[0].add_message({"by": "s0"})
    for number in range(1, 9):
        parent = rng.choice(sessions)
        child = parent.fork(f"s{number}", at=rng.randint(0, parent.seq))
        for one in (parent, child):
            one.add_messages([{"by": one.id}] * rng.randint(1, 3))
            one.set_metadata(turn=number)
        sessions.append(child)
    return sessions


def plainly(session: Session, sessions: dict[str, Session]) -> list[Event]:
    """Return the events of a session from its own records and those of its parents."""
    own = [event for chunk in session._log.reader().read() for event in chunk.events()]
    forked = lineage.fork_source(own[0])
    if forked is None:
        return own
    above = plainly(sessions[forked.parent], sessions)
    return [event for event in above if event.seq <= forked.seq] + own


def events(log: LogReader, after: int = 0, upto: int | None = None) -> list[Event]:
    """Return what `read` yields."""
    return [event for chunk in log.read(after, upto) for event in chunk.events()]


def test_every_range_is_that_of_one_log(store: Store, rng: random.Random) -> None:
    """N-50: each range of a fork, forwards and backwards, and its control events, equal those of one log."""
    sessions = {session.id: session for session in family(store, rng)}
    for session in sessions.values():
        log = session._reader()
        expected = plainly(session, sessions)
        assert [event.seq for event in expected] == list(range(1, session.seq + 1))
        last = session.seq
        for after in range(last + 2):
            for upto in [None, *range(last + 2)]:
                wanted = [
                    event
                    for event in expected
                    if after < event.seq <= (last if upto is None else upto)
                ]
                assert events(log, after, upto) == wanted
                chunks = [chunk.events() for chunk in log.read(after, upto, back=True)]
                assert [event for chunk in reversed(chunks) for event in chunk] == wanted
        for upto in [None, *range(last + 2)]:
            assert log.controls(upto) == [
                event
                for event in expected
                if event.kind != "message.added" and event.seq <= (last if upto is None else upto)
            ]


def test_a_namesake_of_an_ancestor_is_never_read(store: Store) -> None:
    """N-68, N-51: a fork of a purged parent raises, and shows nothing of another session with that id."""
    root = store.session("a")
    root.add_messages([{"n": 1}, {"n": 2}])
    child = root.fork("b")
    child.add_message({"n": 3})
    grandchild = child.fork("c")
    assert child.messages(last=2) == grandchild.messages(last=2) == [{"n": 2}, {"n": 3}]
    store.delete("a")
    assert child.messages() == [{"n": 1}, {"n": 2}, {"n": 3}]
    store._backend.purge("a")
    for says in ("which is missing; restore", "another session has its id"):
        for one in (child, grandchild, store.session("b")):
            for read in (one.messages, one.state, lambda: list(one.events())):  # noqa: B023
                with pytest.raises(hansard.Damaged, match=says):
                    read()
        root.add_messages([{"n": "another's"}] * 5)


def test_a_child_that_was_read_before_sees_what_is_left_of_its_parent(tmp_path: Path) -> None:
    """N-50: after a repair of the parent, an open handle of the child reads what a new one reads."""
    path = tmp_path / "store"
    with hansard.open(path, durability="os") as store, hansard.open(path, durability="os") as other:
        parent = store.session("parent")
        parent.add_message({"n": 1})
        parent.set_title("spoilt")
        parent.add_message({"n": 2})
        parent.snapshot("label")
        child = parent.fork("child")
        child.add_message({"n": 3})
        assert (child.title, child.snapshots) == ("spoilt", {"label": 3})
        log = path / "sessions" / "parent" / "log.jsonl"
        log.write_bytes(log.read_bytes().replace(b"spoilt", b"spoild"))
        assert other.session("parent").repair().lost == [(2, 2)]
        with hansard.open(path, read_only=True) as fresh:
            known = fresh.session("child")
            expected = (known.title, known.snapshots, known.messages(), known.metadata)
        assert expected[0] is None
        assert (child.title, child.snapshots, child.messages(), child.metadata) == expected
        other.session("parent").compact()
        assert (child.title, child.snapshots, child.messages(), child.metadata) == expected
