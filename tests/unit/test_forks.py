"""Claims about forks: nothing is copied, nothing leaks, and what cannot be read is said."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import Session, Store
from hansard.backend.local import LocalBackend
from hansard.log import descriptors, disk
from tests.format.handwritten_log import TIME, HandwrittenLog

SECRET = {"role": "user", "content": "my word is swordfish"}


def converse(session: Session) -> Session:
    """Say something of every kind; 12 events."""
    session.add_message({"role": "user", "content": "hi"})
    session.set_metadata(title="T", user="u7")
    session.add_message(SECRET)
    session.snapshot("start")
    session.record_usage(model="m", input_tokens=3, output_tokens=4, cost=0.5)
    stream = session.stream()
    stream.write("never ")
    stream.write("finished")
    session.append("x.todo", {"n": 1})
    session.summarize(upto=1, message={"role": "system", "content": "greetings"})
    session.add_messages([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])
    session.revert(11)
    return session


def everything(session: Session) -> dict[str, Any]:
    """Return all that can be read of a session."""
    places: list[Any] = [None, 0, 3, 7, session.seq, datetime(2001, 1, 1, tzinfo=UTC)]
    places += session.snapshots
    return {
        "events": list(session.events()),
        "messages": [session.messages(at=place, view=view) for place in places for view in VIEWS],
        "json": session.messages_json(),
        "last": [session.messages(last=count, view="history") for count in range(8)],
        "after": [session.messages(after=seq) for seq in range(session.seq + 1)],
        "window": session.window(turns=1, keep_first=True),
        "state": [session.state(at=place) for place in places],
        "metadata": session.metadata,
        "title": session.title,
        "snapshots": session.snapshots,
        "usage": session.usage,
        "parent": session.parent,
        "seq": session.seq,
    }


VIEWS: tuple[Any, Any] = ("model", "history")

#: Everything that can be done to a session, but for redactions.
MUTATORS: dict[str, Callable[[Session], object]] = {
    "add_message": lambda session: session.add_message({"role": "user", "content": "later"}),
    "add_messages": lambda session: session.add_messages([{"n": 1}, {"n": 2}], key="k"),
    "append": lambda session: session.append("x.todo", {"n": 2}),
    "set_metadata": lambda session: session.set_metadata(flavour="sweet"),
    "set_title": lambda session: session.set_title("Another"),
    "record_usage": lambda session: session.record_usage(model="n", input_tokens=1),
    "snapshot": lambda session: session.snapshot("later"),
    "revert": lambda session: session.revert(1),
    "summarize": lambda session: session.summarize(upto=3, message={"role": "system"}),
    "clear": lambda session: session.clear(),
    "archive": lambda session: session.archive(),
    "close": lambda session: session.close(),
    "stream": lambda session: session.stream().write("x"),
    "finish": lambda session: session.stream().finish({"n": 3}),
    "fork": lambda session: session.fork("another"),
}


def test_a_fork_is_one_event_and_has_all_that_its_parent_had(session: Session) -> None:
    """N-50: a child is one event; each view of it, at each place, is what its parent's was there."""
    converse(session)
    for seq in range(session.seq + 1):
        child = session.fork(f"c{seq}", at=seq)
        assert (child.seq, child.parent) == (seq + 1, "s")
        *inherited, forked = child.events()
        assert inherited == list(session.events())[:seq]
        assert (forked.seq, forked.kind) == (seq + 1, "session.forked")
        for place in range(seq + 1):
            for view in VIEWS:
                expected = session.messages(at=place, view=view)
                assert child.messages(at=place, view=view) == expected
            assert child.state(at=place) == session.state(at=place)
        assert child.messages() == session.messages(at=seq)
        before = session.state(at=seq)
        after = child.state()
        for field in ("metadata", "named", "snapshots", "usage", "streams", "message_count"):
            assert getattr(after, field) == getattr(before, field)


def test_a_fork_can_be_made_at_a_snapshot_and_at_a_time(session: Session) -> None:
    """A label, and a time in any zone, name the same place for a fork as for a view."""
    converse(session)
    events = list(session.events())
    assert session.fork("a", at="start").seq == session.snapshots["start"] + 1
    when = events[-1].time
    last = max(event.seq for event in events if event.time <= when)
    assert session.fork("b", at=when).seq == last + 1
    early = session.fork("c", at=datetime(2001, 1, 1, tzinfo=UTC))
    assert (early.seq, early.messages(), early.metadata) == (1, [], {})


@pytest.mark.parametrize("at", [13, -1, "nowhere", datetime(2026, 1, 1), 1.5, True])  # noqa: DTZ001
def test_a_place_that_is_none_makes_no_child(session: Session, store: Store, at: Any) -> None:
    """N-89: a fork at a place that the session does not have is an error, and no child is there."""
    converse(session)
    assert session.seq == 12
    with pytest.raises((hansard.InvalidEvent, ValueError)):
        session.fork("c", at=at)
    assert not store.exists("c")
    assert session.children() == []


def test_a_child_needs_a_parent_and_a_name_of_its_own(store: Store) -> None:
    """Forking nothing, or to a name that is taken, even in the trash, is refused and changes nothing."""
    with pytest.raises(hansard.SessionNotFound):
        store.session("s").fork("c")
    session = converse(store.session("s"))
    taken = converse(store.session("taken"))
    before = everything(taken)
    for name in ("taken", "s"):
        with pytest.raises(hansard.SessionExists):
            session.fork(name)
    assert everything(taken) == before
    store.delete("taken")
    with pytest.raises(hansard.SessionDeleted):
        session.fork("taken")
    first, second = session.fork(), session.fork()
    assert first.id != second.id
    assert session.children() == sorted([first.id, second.id])


@pytest.mark.parametrize("store", ["memory", "os"], indirect=True)
@pytest.mark.parametrize("what", MUTATORS)
def test_what_one_does_does_not_reach_the_other(what: str, store: Store) -> None:
    """N-50, N-42: nothing done to a parent changes its child or grandchild, nor the other way round."""
    parent = converse(store.session("s"))
    child = parent.fork("c", at=9)
    child.add_message({"role": "user", "content": "mine"})
    grandchild = child.fork("g")
    sibling = parent.fork("b")
    family = [parent, child, grandchild, sibling]
    for one in family:
        others = [other for other in family if other is not one]
        before = [everything(other) for other in others]
        if what != "fork" or one is parent:
            MUTATORS[what](one)
        assert [everything(other) for other in others] == before
        cold = [everything(store.session(other.id)) for other in others]
        assert cold == before


def test_a_redaction_reaches_all_who_inherited_what_it_takes_out(store: Store) -> None:
    """N-50: a parent's redaction holds for all below it at all times; a child's does not for its parent."""
    parent = converse(store.session("s"))
    child = parent.fork("c")
    grandchild = child.fork("g", at=5)
    sibling = parent.fork("b", at=2)
    untouched = everything(sibling)
    child.redact(3)
    assert SECRET in parent.messages(view="history")
    for one in (child, grandchild, store.session("g")):
        assert SECRET not in one.messages(view="history") + one.messages(at=4)
        assert "swordfish" not in repr(list(one.events())) + repr(one.messages_json(at=3))
    assert everything(sibling) == untouched
    parent.redact(1)
    for one in (parent, child, grandchild):
        assert not any(m.get("content") == "hi" for m in one.messages(view="history"))
    # What was streamed goes whole: by any of its parts, from whoever has some of them.
    early = parent.fork("early", at=6)
    assert early.messages(last=1)[0]["content"] == "never "
    parent.redact(7)
    for one in (parent, child, early):
        assert not any("partial" in message for message in one.messages(view="history"))
        assert one.state().streams == {}


def test_a_redaction_reaches_parts_of_a_message_that_was_finished_later(store: Store) -> None:
    """N-50: redacting a finished message takes its parts out of a child that was forked in between."""
    parent = store.session("s")
    stream = parent.stream()
    stream.write("secret")
    child = parent.fork("c")
    seq = stream.finish().seq
    assert child.messages() == [{"role": "assistant", "content": "secret", "partial": True}]
    parent.redact(seq)
    assert child.messages() == child.messages(view="history") == []
    assert "secret" not in repr(list(child.events()))


def test_the_tree_has_no_ghosts(store: Store) -> None:
    """N-51: a deleted child leaves the tree, and comes back; a deleted parent leaves its children whole."""
    parent = converse(store.session("s"))
    child = parent.fork("c", at=9)
    grandchild = child.fork("g")
    before = [everything(child), everything(grandchild)]
    assert (parent.children(), child.children(), grandchild.children()) == (["c"], ["g"], [])
    store.delete("c")
    assert parent.children() == []
    store.restore("c")
    assert parent.children() == ["c"]
    store.delete("s")
    with pytest.raises(hansard.SessionDeleted):
        parent.children()
    cold = [store.session("c"), store.session("g")]
    assert [everything(one) for one in (child, grandchild)] == before
    assert [everything(one) for one in cold] == before
    assert cold[0].parent == "s"
    child.redact(3)
    assert child.add_message({"n": 1}).seq == 12
    store.delete("c")
    assert SECRET not in grandchild.messages(view="history")
    store.restore("s")
    assert parent.children() == []


def test_a_namesake_is_no_child(tmp_path: Path) -> None:
    """N-51: a child of a purged session is not shown below another session that has its name now."""
    with hansard.open(tmp_path / "s", durability="os") as store:
        store.session("s").add_message({"n": 1})
        store.session("s").fork("c")
        store.delete("s")
        store._backend.purge("s")
        assert store.session("s").children() == []
        store.session("s").add_message({"n": 2})
        assert store.session("s").children() == []
        with pytest.raises(hansard.Damaged, match="another session has taken its name"):
            store.session("c").messages()


# -- what cannot be read ------------------------------------------------------------------------


def write_fork(root: Path, name: str, parent: str, seq: int, **data: Any) -> None:
    """Write by hand the log of a session that says it was forked."""
    log = HandwrittenLog.__new__(HandwrittenLog)
    log.data, log.seq = b"", seq
    log.note("header", {"version": 1, "session": name})
    log.record({"parent": parent, "seq": seq, **data}, "session.forked", extra=',"control":true')
    folder = root / "sessions" / name
    folder.mkdir(parents=True)
    (folder / "log.jsonl").write_bytes(log.data)


def break_circle(root: Path) -> str:
    """Three sessions, each forked from the next."""
    for name, parent in (("a", "b"), ("b", "c"), ("c", "a")):
        write_fork(root, name, parent, 3)
    return "circle"


def break_self(root: Path) -> str:
    """A session forked from itself."""
    write_fork(root, "a", "a", 3)
    return "circle"


def break_missing(root: Path) -> str:
    """A parent that is not there."""
    write_fork(root, "a", "nobody", 3)
    return "'nobody' at seq 3, and that is gone"


def break_short(root: Path) -> str:
    """A parent that has fewer events than the child inherits."""
    write_fork(root, "b", "c", 1)
    (root / "sessions" / "c").mkdir()
    (root / "sessions" / "c" / "log.jsonl").write_bytes(HandwrittenLog("c").message({"n": 1}).data)
    write_fork(root, "a", "b", 3)
    return "has only 2 events"


def break_anew(root: Path) -> str:
    """A parent that began at another time."""
    (root / "sessions" / "c").mkdir()
    (root / "sessions" / "c" / "log.jsonl").write_bytes(HandwrittenLog("c").message({"n": 1}).data)
    write_fork(root, "a", "c", 1, created=TIME.replace("2026", "2025"))
    return "another session has taken its name"


@pytest.mark.parametrize(
    "broken", [break_circle, break_self, break_missing, break_short, break_anew]
)
def test_a_broken_lineage_is_damage(broken: Callable[[Path], str], tmp_path: Path) -> None:
    """N-52, N-31, N-35: a circle, or a parent that is gone, too short or another, is said, and flagged."""
    root = tmp_path / "s"
    with hansard.open(root, durability="os") as store:
        store.session("good").add_message({"n": 1})
        says = broken(root)
        session = store.session("a")
        reads: list[Callable[[], object]] = [
            session.messages,
            lambda: session.messages(last=1),
            lambda: list(session.events()),
            session.state,
            lambda: session.metadata,
            lambda: session.snapshots,
        ]
        for read in reads:
            with pytest.raises(hansard.Damaged, match=says):
                read()
        listed = {info.id: info.damaged for info in store.sessions().items}
        assert says in listed["a"]
        assert listed["good"] == ""
        assert store.exists("a")
        assert store.session("good").messages() == [{"n": 1}]


@pytest.mark.slow
def test_a_chain_of_1_500_forks_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-52: the 1,500th fork of a fork reads as any other, with a bounded number of files open."""
    monkeypatch.setattr(disk, "sync", os.fstat)  # 1,500 new files: no power cut comes into it
    with hansard.open(tmp_path / "s", durability="os") as store:
        session = store.session("s0")
        session.add_message({"role": "user", "content": "first"})
        session.set_metadata(title="T")
        for number in range(1, 1_501):
            session = session.fork(f"s{number}")
        session.add_message({"role": "user", "content": "last"})
    with hansard.open(tmp_path / "s", durability="os") as store:
        session = store.session("s1500")
        said = [{"role": "user", "content": "first"}, {"role": "user", "content": "last"}]
        assert session.messages() == said
        assert (session.seq, session.parent) == (1_503, "s1499")
        assert [event.seq for event in session.events(after=1_400)] == list(range(1_401, 1_504))
        backend = store._backend
        assert isinstance(backend, LocalBackend)
        assert descriptors.total() <= descriptors.budget()
        session.redact(1)
        assert session.messages(last=2) == said[1:]
