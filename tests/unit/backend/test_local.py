"""Claims about the files backend that are not part of the contract."""

import os
import shutil
from pathlib import Path

import pytest

import hansard


def damaged_copy(root: Path, session_id: str, content: bytes | None) -> str:
    """Write a session, then change its log; return the name of its directory."""
    before = set(os.listdir(root / "sessions")) if root.exists() else set()
    with hansard.open(root, durability="os") as store:
        store.session(session_id).add_message({"id": session_id})
    (name,) = set(os.listdir(root / "sessions")) - before
    if content is not None:
        (root / "sessions" / name / "log.jsonl").write_bytes(content)
    return name


def test_a_damaged_session_with_a_long_id_is_listed(tmp_path: Path) -> None:
    """N-31, N-35, N-7: if name and log cannot tell the id, a session is listed by name, and flagged."""
    root = tmp_path / "store"
    damaged_copy(root, "good", None)
    name = damaged_copy(root, "x" * 1024, b"not a log\n")
    with hansard.open(root, durability="os") as store:
        flags = {info.id: bool(info.damaged) for info in store.sessions().items}
        assert flags == {"good": False, name: True}
        report = store.verify()
        assert {one.session: one.ok for one in report.sessions} == {"good": True, name: False}
        # Both by the id that it has and by the one it is listed under.
        for session_id in ("x" * 1024, name):
            assert store.exists(session_id)
            with pytest.raises(hansard.Damaged):
                store.session(session_id).messages()
            with pytest.raises(hansard.Damaged):
                store.session(session_id).add_message({"n": 1})


def test_a_copy_under_a_long_name_is_not_the_original(tmp_path: Path) -> None:
    """N-8, F-24: a log copied over another's long name is flagged there, and the true one listed once."""
    root = tmp_path / "store"
    one = damaged_copy(root, "a" * 600, None)
    two = damaged_copy(root, "b" * 600, None)
    shutil.copy(root / "sessions" / one / "log.jsonl", root / "sessions" / two / "log.jsonl")
    with hansard.open(root, durability="os") as store:
        flags = {info.id: bool(info.damaged) for info in store.sessions().items}
        assert flags == {"a" * 600: False, two: True}
        with pytest.raises(hansard.Damaged, match="log of session"):
            store.session("b" * 600).messages()


def test_a_refused_beginning_is_forgotten(tmp_path: Path) -> None:
    """N-22, N-34: a handle that was refused as a session's first writer continues the other writer's log.

    A handle whose first append met a conflict had framed a header that was never written; what it
    then believed of the log's beginning made a healthy log look damaged to its next keyed append.
    """
    mine, theirs = (hansard.open(tmp_path / "store", durability="os") for _ in range(2))
    with pytest.raises(hansard.SeqConflict):
        mine.session("a").add_message({"n": 0}, key="k", expected_seq=7)
    theirs.session("a").add_message({"n": 1}, key="theirs")
    assert mine.session("a").add_message({"n": 2}, key="k").seq == 2
    assert mine.session("a").add_message({"n": 9}, key="theirs").seq == 1
    assert theirs.session("a").messages() == [{"n": 1}, {"n": 2}]
    mine.close()
    theirs.close()
