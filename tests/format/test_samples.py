"""Stores of earlier versions are read unchanged, and can be appended to.

A sample is a store, and `expected.json` next to it: the appended events, and the SHA-256 of every file. It is
made once, by the version that wrote it, and never touched again.
"""

import hashlib
import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.follow import Cursor
from tests.format import handwritten_log

FROZEN = sorted(path.parent for path in Path(__file__).parent.glob("v*/*/expected.json"))
NEW = {"role": "user", "content": "a later version"}


def name(sample: Path) -> str:
    """Return the name of a sample, for people."""
    return f"{sample.parent.name}/{sample.name}"


def expected_of(sample: Path) -> dict[str, Any]:
    """Return the appended events of a sample."""
    found: dict[str, Any] = json.loads((sample / "expected.json").read_text(encoding="utf-8"))
    return found


def checksums(store: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a store."""
    files = sorted(found for found in store.rglob("*") if found.is_file())
    return {
        file.relative_to(store).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
    }


def shown(event: hansard.Event) -> dict[str, Any]:
    """Return an event in the words of `expected.json`."""
    facts = {"seq": event.seq, "time": event.stamp, "kind": event.kind, "key": event.key}
    return {**facts, "data": event.data}


def check(store: hansard.Store, expected: dict[str, Any]) -> None:
    """Fail unless a store has exactly the appended events."""
    alive = {
        key: value for key, value in expected["sessions"].items() if key not in expected["trash"]
    }
    assert [info.id for info in store.sessions().items] == sorted(alive)
    for session_id, facts in alive.items():
        session = store.session(session_id)
        assert [shown(event) for event in session.events()] == facts["events"]
        assert session.messages(view="history") == facts["messages"]
        assert session.messages(last=2, view="history") == facts["messages"][-2:]
        assert session.metadata == facts["metadata"]
        if "model" in facts:
            assert session.messages() == facts["model"]
            assert session.messages(last=3) == facts["model"][-3:]
        assert session.seq == len(facts["events"])
        report = session.verify()
        assert report.ok
        torn = [found.length for found in report.findings if "discarded" not in found.reason]
        assert torn == [facts["torn"]] * bool(facts["torn"])
    for cursor, positions in expected.get("cursors", {}).items():
        assert Cursor(store._backend, cursor).positions == positions
    for session_id in expected["trash"]:
        assert not store.exists(session_id)
        with pytest.raises(hansard.SessionDeleted):
            store.session(session_id).messages()


@pytest.mark.parametrize("sample", FROZEN, ids=name)
def test_a_frozen_sample_is_read_as_it_was_written(sample: Path) -> None:
    """N-43, N-62, F-45, F-46: today's code reads every event of an old store, and changes no file."""
    with hansard.open(sample / "store", read_only=True) as store:
        check(store, expected_of(sample))
    assert checksums(sample / "store") == expected_of(sample)["files"]


def repeat(session: hansard.Session, key: str) -> hansard.Event:
    """Return the first event of the append with a key, for any number of messages."""
    for count in range(1, 100):
        with suppress(hansard.InvalidEvent):
            return session.add_messages([NEW] * count, key=key)[0]
    raise AssertionError(f"key {key} is another kind's")


@pytest.mark.parametrize("sample", FROZEN, ids=name)
def test_a_frozen_sample_can_be_appended_to(sample: Path, tmp_path: Path) -> None:
    """F-26, F-45: today's code continues where an old store ended, and its content stays unchanged."""
    path = tmp_path / "store"
    shutil.copytree(sample / "store", path)
    before = {file: file.read_bytes() for file in path.rglob("log.jsonl")}
    expected = expected_of(sample)
    with hansard.open(path) as store:
        for session_id in expected["trash"]:
            store.restore(session_id)
        for session_id, facts in expected["sessions"].items():
            session = store.session(session_id)
            if facts["shut"]:
                with pytest.raises(hansard.SyncFailed):
                    session.add_message(NEW)
                assert session.verify().ok
            forked = [e["seq"] for e in facts["events"] if e["kind"] == "session.forked"]
            for event in facts["events"]:
                # A fork's keys are its own.
                if event["key"] is not None and event["seq"] > max(forked, default=0):
                    again = repeat(session, event["key"])
                    assert shown(again) == event, "a key of an old append was not found"
            added = session.add_messages([NEW, NEW])
            assert [event.seq for event in added] == [session.seq - 1, session.seq]
            for view in ("messages", "model"):
                if view in facts:
                    facts[view] += [NEW, NEW]
            facts["events"] += [shown(event) for event in added]
            facts["torn"] = 0
    expected["trash"] = []
    with hansard.open(path, read_only=True) as store:
        check(store, expected)
    for file, data in before.items():
        there = file if file.exists() else path / "sessions" / file.parent.name / file.name
        assert there.read_bytes().startswith(data)


@pytest.mark.parametrize("sample", FROZEN, ids=name)
def test_every_checksum_of_a_sample_is_that_of_the_format_page(sample: Path) -> None:
    """F-20: each line's checksum is the CRC-32 of all before it, computed here from the page alone."""
    for log in (sample / "store").rglob("log.jsonl"):
        data = log.read_bytes()
        whole = data[: data.rindex(b"\n") + 1]
        records = [
            line for line in handwritten_log.lines(whole) if "seq" in line and "log" not in line
        ]
        assert records
        assert handwritten_log.lines(whole)[0]["data"]["version"] == 1
