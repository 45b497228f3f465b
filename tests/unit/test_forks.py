"""Claims about forks: nothing is copied, nothing leaks, and unreadable parents are reported."""

import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import Session, Store
from hansard.backend.local.backend import LocalBackend, LocalStage
from hansard.backend.memory import MemoryStage
from hansard.log import disk
from tests.format.handwritten_log import TIME, HandwrittenLog

SECRET = {"role": "user", "content": "my word is swordfish"}


def converse(session: Session) -> Session:
    """Say something of every kind; 12 events."""
    session.add_message({"role": "user", "content": "hi"})
    session.set_metadata(title="T", user="u7")
    session.add_message(SECRET)
    session.snapshot("start")
    session.record_usage(model="m", input_tokens=3, output_tokens=4, cost=0.5)
    stream = session.stream(gather=0)
    stream.write("never ")
    stream.write("finished")
    session.append("x.todo", {"n": 1})
    session.summarize(upto=1, message={"role": "system", "content": "greetings"})
    session.add_messages([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])
    session.revert(11)
    return session


@pytest.mark.parametrize(
    ("where", "stage"), [("memory:", MemoryStage), ("store", LocalStage)], ids=["memory", "files"]
)
def test_a_fork_whose_parent_is_replaced_concurrently_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, stage: Any
) -> None:
    """F-67: a fork whose parent is another session by the time it is published leaves nothing."""
    monkeypatch.chdir(tmp_path)
    publish = stage.publish

    def replace_and_publish(self: Any) -> None:
        store.delete("s")
        store.purge("s")
        converse(store.session("s"))
        publish(self)

    with hansard.open(where) as store:
        session = converse(store.session("s"))
        monkeypatch.setattr(stage, "publish", replace_and_publish)
        with pytest.raises(hansard.SessionNotFound, match="'c' needs its parent 's'"):
            session.fork("c")
        assert not store.exists("c")
        assert [*store.trash(), *tmp_path.glob("store/.tmp*")] == []
        assert store.verify().ok


@pytest.mark.parametrize("at", [13, -1, "nowhere", datetime(2026, 1, 1), 1.5, True])  # noqa: DTZ001
def test_a_place_that_is_none_makes_no_child(session: Session, store: Store, at: Any) -> None:
    """N-89: a fork at an invalid point raises, and no child is created."""
    converse(session)
    assert session.seq == 12
    with pytest.raises((hansard.InvalidEvent, ValueError)):
        session.fork("c", at=at)
    assert not store.exists("c")
    assert session.children() == []


def write_fork(root: Path, name: str, parent: str, seq: int, **data: Any) -> None:
    """Write the log of a fork by hand."""
    log = HandwrittenLog.__new__(HandwrittenLog)
    log.data, log.seq = b"", seq
    log.note("header", {"version": 1, "session": name})
    log.record({"parent": parent, "seq": seq, **data}, "session.forked", extra=',"control":true')
    folder = root / "sessions" / name
    folder.mkdir(parents=True)
    (folder / "log.jsonl").write_bytes(log.data)


#: Forks, as name, parent and seq, with the error for session a. `whole` has one event.
BROKEN = {
    "circle": ([("a", "b", 3), ("b", "c", 3), ("c", "a", 3)], "circle"),
    "itself": ([("a", "a", 3)], "circle"),
    "missing": ([("a", "missing", 3)], "'missing' at seq 3, which is missing"),
    "too short": ([("b", "whole", 1), ("a", "b", 3)], "ends at seq 2"),
    "another": ([("a", "whole", 1)], "another session has its id"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_lineage_is_damage(broken: str, tmp_path: Path) -> None:
    """N-52, N-31, N-35: a circle, or a missing, too short or different parent, is reported as damage."""
    root = tmp_path / "s"
    with hansard.open(root, durability="os") as store:
        store.session("good").add_message({"n": 1})
        forks, says = BROKEN[broken]
        began = {"created": TIME.replace("2026", "2025")} if broken == "another" else {}
        for name, parent, seq in forks:
            write_fork(root, name, parent, seq, **began)
        (root / "sessions" / "whole").mkdir()
        whole = HandwrittenLog("whole").message({"n": 1})
        (root / "sessions" / "whole" / "log.jsonl").write_bytes(whole.data)
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
    """N-52: the 1,500th fork of a fork reads as any other, with a bounded number of open files."""
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
        assert disk.files_held() <= disk.file_budget()
        session.redact(1)
        assert session.messages(last=2) == said[1:]
