"""Claims about importing OpenClaw's sessions. The files are written by hand: fixtures/README.md."""

import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import importers
from hansard.message import origin
from tests.importers.sources import (
    entry,
    header,
    problems,
    said,
    texts,
    untouched,
    write,
    write_lines,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a directory for a source."""
    return tmp_path / "source"


def sessions(root: Path, agent: str = "main") -> Path:
    """Return the directory of an agent's sessions."""
    return root / "agents" / agent / "sessions"


def index(root: Path, entries: dict[str, Any], agent: str = "main") -> None:
    """Write the index of an agent's sessions."""
    write(sessions(root, agent) / "sessions.json", entries)


def transcript(root: Path, name: str, text: str, agent: str = "main") -> None:
    """Write a transcript of one message."""
    write_lines(sessions(root, agent) / f"{name}.jsonl", header(name), said("a", None, text))


def imported(store: hansard.Store, path: Path) -> importers.Report:
    """Import a source."""
    return importers.import_sessions(store, "openclaw", path)


def test_all_agents_are_found(store: hansard.Store, root: Path) -> None:
    """N-82, N-84: transcripts of every agent are imported: those in the index, and those that a reset left.

    Locks, logs and deleted transcripts are not; the source is unchanged.
    """
    for name in ("main", "helper", "Helper"):
        key = {"sessionId": "s1", "updatedAt": 1, "label": f"of {name}"}
        index(root, {f"agent:{name}:main": key}, name)
        transcript(root, "s1", f"to {name}", name)
    transcript(root, "s0", "earlier")
    deleted = sessions(root) / "s9.jsonl.deleted.2026-01-01"
    write_lines(deleted, header("s9"), said("a", None, "deleted"))
    (sessions(root) / "sessions.json.lock").write_text("1")
    write_lines(sessions(root) / "s1.trajectory.jsonl", {"type": "run"})
    write_lines(root / "cron" / "runs" / "job.jsonl", {"ts": 1, "action": "finished"})
    with untouched(root):
        report = imported(store, root)
    assert report.skipped == []
    found = sorted(one.session for one in report.imported)
    assert found == ["Helper/s1", "helper/s1", "main/s0", "main/s1"]
    assert texts(store, "Helper/s1") == ["to Helper"]
    session = store.session("main/s1")
    assert (session.title, session.metadata["workspace"]) == ("of main", "/home/claw")
    assert session.metadata["openclaw"]["keys"] == ["agent:main:main"]
    assert session.state().created_stamp == "2026-01-02T03:04:05.000000Z"


def test_keys_that_differ_by_case_are_separate(store: hansard.Store, root: Path) -> None:
    """N-83: keys that differ by case have their own sessions; two keys of one transcript are both stored."""
    names = {"agent:main:Telegram": "A", "agent:main:telegram": "b", "AGENT:main:telegram": "b"}
    index(root, {key: {"sessionId": name} for key, name in names.items()})
    transcript(root, "A", "upper")
    transcript(root, "b", "lower")
    assert imported(store, root).skipped == []
    assert (texts(store, "main/A"), texts(store, "main/b")) == (["upper"], ["lower"])
    keys = store.session("main/b").metadata["openclaw"]["keys"]
    assert keys == ["agent:main:telegram", "AGENT:main:telegram"]


def test_the_directory_layout_is_read(store: hansard.Store, root: Path) -> None:
    """N-82: `sessions.d`, with a file or directory per key, is read, and overrides `sessions.json`."""
    index(root, {"agent:main:a": {"sessionId": "s1", "label": "stale"}})
    entries = sessions(root) / "sessions.d"
    write(entries / "agent%3Amain%3Aa.json", {"sessionId": "s1", "label": "fresh"})
    write(entries / "agent--main--b" / "meta.json", {"sessionId": "s2"})
    transcript(root, "s1", "one")
    transcript(root, "s2", "two")
    (entries / "empty").mkdir()
    write(entries / "null.json", None)
    report = imported(store, root)
    assert store.session("main/s1").title == "fresh"
    assert store.session("main/s2").metadata["openclaw"]["keys"] == ["agent:main:b"]
    wrong = [f"agents/main/sessions/sessions.d/{name}" for name in ("empty", "null.json")]
    assert sorted(problems(report)) == wrong


def test_what_is_wrong_with_an_index_is_reported(
    store: hansard.Store, root: Path, tmp_path: Path
) -> None:
    """N-14, N-80, N-81: invalid entries, and transcripts that are missing, outside or links, are reported."""
    secret = write_lines(tmp_path / "secret.jsonl", header("x"), said("a", None, "secret"))
    wrong: dict[str, Any] = {
        "null": None,
        "list": [],
        "nameless": {"updatedAt": 1},
        "missing": {"sessionId": "s0"},
        "outside": {"sessionId": "../../../../secret", "sessionFile": str(secret)},
        "linked": {"sessionId": "s2"},
    }
    moved = {"sessionId": "other", "sessionFile": "/elsewhere/sessions/s1.jsonl"}
    index(root, {**wrong, "moved": moved})
    transcript(root, "s1", "fine")
    (sessions(root) / "s2.jsonl").symlink_to(secret)
    report = imported(store, root)
    assert [one.session for one in report.imported] == ["main/s1"]
    assert store.session("main/s1").metadata["openclaw"]["keys"] == ["moved"]
    named = " ".join(problem.what for problem in report.skipped)
    assert [key for key in wrong if f"'{key}'" not in named] == []
    assert "symbolic link" in named
    assert not store.search("secret")


def test_lines_that_cannot_be_read_are_reported(store: hansard.Store, tmp_path: Path) -> None:
    """N-81: a line that is not JSON, an object or a message, or is torn, is reported by number."""
    lines = [header("s1"), said("a", None, "one"), 7, {"id": "x"}, entry("b", "a"), '{"type":"mess']
    report = imported(store, write_lines(tmp_path / "s1.jsonl", *lines))
    assert problems(report) == [f"s1.jsonl:{number}" for number in (3, 4, 5, 6)]
    assert texts(store, "s1") == ["one"]


def test_a_transcript_without_its_first_line_needs_a_key(store: hansard.Store, root: Path) -> None:
    """N-81: a file without a header is a transcript if a key refers to it, and is reported."""
    index(root, {"k": {"sessionId": "s1"}})
    for name in ("s1", "s2"):
        write_lines(sessions(root) / f"{name}.jsonl", said("a", None, "one"))
    report = imported(store, root)
    assert [one.session for one in report.imported] == ["main/s1"]
    assert [problem.where[-8:] for problem in report.skipped] == ["s1.jsonl", "s2.jsonl"]


def test_a_branch_is_a_revert(store: hansard.Store, tmp_path: Path) -> None:
    """N-84: the model view shows the last branch, the history all; a branch added later is continued."""
    first = [
        header("s1"),
        said("a", None, "one"),
        said("b", "a", "dead end", "assistant"),
        said("c", "a", "two", "assistant"),
    ]
    path = write_lines(tmp_path / "s1.jsonl", *first)
    imported(store, path)
    assert texts(store, "s1", "model") == ["one", "two"]
    assert texts(store, "s1") == ["one", "dead end", "two"]
    report = imported(store, write_lines(path, *first, said("d", "b", "after all")))
    assert [one.outcome for one in report.sessions] == ["continued"]
    assert texts(store, "s1", "model") == ["one", "dead end", "after all"]
    imported(store, write_lines(path, *first, said("d", "b", "after all"), said("e", None, "new")))
    assert texts(store, "s1", "model") == ["new"]


def test_a_compaction_is_a_summary(store: hansard.Store, tmp_path: Path) -> None:
    """N-84: the model view shows the summary and what was kept; the history view shows everything."""
    compaction = {"type": "compaction", "id": "d", "parentId": "c", "summary": "one and two"}
    path = write_lines(
        tmp_path / "s1.jsonl",
        header("s1"),
        said("a", None, "one"),
        said("b", "a", "two", "assistant"),
        said("c", "b", "kept"),
        compaction | {"firstKeptEntryId": "c", "tokensBefore": 9},
        said("e", "d", "on"),
    )
    imported(store, path)
    assert texts(store, "s1", "model") == ["one and two", "kept", "on"]
    assert texts(store, "s1") == ["one", "two", "kept", "on"]


def test_calls_usage_and_other_entries_are_kept(store: hansard.Store, tmp_path: Path) -> None:
    """N-84: tool calls and results are those of a chat, and unpack to what they were; usage is counted.

    Other entries are events; the session's name is its title.
    """
    call = {"type": "toolCall", "id": "c1", "name": "look", "arguments": {"at": "the sky above us"}}
    thought = {"type": "thinking", "thinking": "hm"}
    called = {
        "role": "assistant",
        "content": [thought, {"type": "text", "text": "let me look"}, call],
        "model": "m-1",
        "usage": {"input": 10, "output": 3, "cacheRead": 7, "cost": {"total": 0.5}},
    }
    answered = {
        "role": "toolResult",
        "toolCallId": "c1",
        "toolName": "look",
        "content": [{"type": "text", "text": "clouds"}, {"type": "text", "text": "and rain"}],
        "isError": False,
    }
    run = {"role": "bashExecution", "command": "ls", "output": "a b", "exitCode": 0}
    path = write_lines(
        tmp_path / "s1.jsonl",
        header("s1"),
        {"type": "model_change", "id": "m", "parentId": None, "modelId": "m-1"},
        entry("a", "m", message=called),
        entry("b", "a", message=answered),
        entry("c", "b", message=run),
        {"type": "custom_message", "id": "d", "parentId": "c", "content": "injected"},
        {"type": "session_info", "id": "e", "parentId": "d", "name": "Weather"},
    )
    imported(store, path)
    session = store.session("s1")
    stored = session.messages(view="history")
    assert [origin.unpack(message, "openclaw") for message in stored[:3]] == [called, answered, run]
    chat = [one for message in stored for one in origin.chat(message)]
    assert [(one["role"], one["content"]) for one in chat] == [
        ("assistant", "let me look"),
        ("tool", "clouds\nand rain"),
        ("user", "$ ls\na b"),
        ("user", "injected"),
    ]
    assert chat[0]["tool_calls"][0]["function"]["name"] == "look"
    assert chat[1]["tool_call_id"] == "c1"
    usage = session.state().usage["m-1"]
    assert (usage.input_tokens, usage.output_tokens, usage.cost) == (17, 3, Decimal("0.5"))
    assert usage.cached_tokens == 7
    assert session.title == "Weather"
    kinds = session.state().kinds
    assert (kinds["x.openclaw.model_change"], kinds["x.openclaw.session_info"]) == (1, 1)


def test_a_branched_transcript_names_its_parent(store: hansard.Store, root: Path) -> None:
    """N-84: a transcript that was branched from another is a session that names it."""
    shared = [said("a", None, "one"), said("b", "a", "two", "assistant")]
    write_lines(sessions(root) / "p.jsonl", header("p"), *shared, said("c", "b", "here"))
    child = [header("f", parentSession="/home/claw/p.jsonl"), *shared, said("x", "b", "there")]
    write_lines(sessions(root) / "f.jsonl", *child)
    imported(store, root)
    assert store.session("main/f").metadata["forked_from"] == "main/p"
    assert texts(store, "main/f", "model") == ["one", "two", "there"]


@pytest.mark.parametrize("name", ["../../out", "..", ".", "a/../../../out", "x\0y", os.sep + "out"])
def test_a_file_name_never_leads_out(name: str, tmp_path: Path) -> None:
    """N-1, N-14: a transcript is read only from its index's directory, even if its entry names another."""
    root = tmp_path / "source" / "sessions"
    write_lines(tmp_path / "out.jsonl", header("x"), said("a", None, "secret"))
    write(root / "sessions.json", {"k": {"sessionId": name, "sessionFile": f"../{name}.jsonl"}})
    with hansard.open("memory:") as store, pytest.raises(importers.NothingToImport):
        imported(store, root)
