"""Claims about importing OpenClaw's sessions. The files are written by hand: fixtures/README.md."""

import os
from pathlib import Path

import pytest

import hansard
from hansard import importers
from hansard.importers import openclaw
from hansard.message import origin
from tests.importers.sources import (
    contents,
    entry,
    header,
    problems,
    spoken,
    texts,
    write,
    write_lines,
)


def agent(root: Path, name: str) -> Path:
    """Return the folder of an agent's sessions."""
    return root / "agents" / name / "sessions"


def test_all_agents_are_found_and_nothing_is_touched(store: hansard.Store, tmp_path: Path) -> None:
    """N-82, N-84: the sessions of every agent come in, those of the index and those that a reset has left.

    Locks, logs and what was deleted do not; nothing of the source is touched.
    """
    root = tmp_path / "source"
    for name in ("main", "helper", "Helper"):
        write(
            agent(root, name) / "sessions.json",
            {f"agent:{name}:main": {"sessionId": "s1", "updatedAt": 1, "label": f"of {name}"}},
        )
        write_lines(agent(root, name) / "s1.jsonl", header("s1"), spoken("a", None, f"to {name}"))
    write_lines(agent(root, "main") / "s0.jsonl", header("s0"), spoken("a", None, "earlier"))
    write_lines(
        agent(root, "main") / "s9.jsonl.deleted.2026-01-01", header("s9"), spoken("a", None, "gone")
    )
    (agent(root, "main") / "sessions.json.lock").write_text("1")
    write_lines(agent(root, "main") / "s1.trajectory.jsonl", {"type": "run"})
    write_lines(root / "cron" / "runs" / "job.jsonl", {"ts": 1, "action": "finished"})
    before = contents(root)
    report = importers.import_sessions(store, "openclaw", root)
    assert report.skipped == []
    assert sorted(one.session for one in report.imported) == [
        "Helper/s1",
        "helper/s1",
        "main/s0",
        "main/s1",
    ]
    assert texts(store, "Helper/s1") == ["to Helper"]
    session = store.session("main/s1")
    assert session.title == "of main"
    assert session.metadata["workspace"] == "/home/claw"
    assert session.metadata["openclaw"]["keys"] == ["agent:main:main"]
    assert session.state().created == "2026-01-02T03:04:05.000000Z"
    assert contents(root) == before


def test_a_reset_makes_another_session(store: hansard.Store, tmp_path: Path) -> None:
    """N-84: when a key has got a new transcript, that one is imported, and the old one is known again."""
    folder = agent(tmp_path / "source", "main")
    index = write(folder / "sessions.json", {"agent:main:main": {"sessionId": "s1"}})
    write_lines(folder / "s1.jsonl", header("s1"), spoken("a", None, "old"))
    importers.import_sessions(store, "openclaw", tmp_path / "source")
    write(index, {"agent:main:main": {"sessionId": "s2"}})
    write_lines(folder / "s2.jsonl", header("s2"), spoken("a", None, "new"))
    report = importers.import_sessions(store, "openclaw", tmp_path / "source")
    assert {one.session: one.outcome for one in report.sessions} == {
        "main/s1": "present",
        "main/s2": "imported",
    }
    assert report.skipped == []


def test_keys_that_differ_by_case_are_both_kept(store: hansard.Store, tmp_path: Path) -> None:
    """N-83: keys that differ only by the case of their letters lead to their own sessions.

    Two that lead to one transcript are both written down with it.
    """
    folder = agent(tmp_path / "source", "main")
    write(
        folder / "sessions.json",
        {
            "agent:main:Telegram": {"sessionId": "A"},
            "agent:main:telegram": {"sessionId": "b"},
            "AGENT:main:telegram": {"sessionId": "b"},
        },
    )
    write_lines(folder / "A.jsonl", header("A"), spoken("a", None, "upper"))
    write_lines(folder / "b.jsonl", header("b"), spoken("a", None, "lower"))
    report = importers.import_sessions(store, "openclaw", tmp_path / "source")
    assert report.skipped == []
    assert texts(store, "main/A") == ["upper"]
    assert texts(store, "main/b") == ["lower"]
    keys = store.session("main/b").metadata["openclaw"]["keys"]
    assert keys == ["agent:main:telegram", "AGENT:main:telegram"]


def test_the_folder_layout_is_read(store: hansard.Store, tmp_path: Path) -> None:
    """N-82: `sessions.d`, with a file or a folder for each key, is read as `sessions.json` is.

    Where both are, it is the one that counts.
    """
    folder = agent(tmp_path / "source", "main")
    write(folder / "sessions.json", {"agent:main:a": {"sessionId": "s1", "label": "stale"}})
    write(folder / "sessions.d" / "agent%3Amain%3Aa.json", {"sessionId": "s1", "label": "fresh"})
    write(folder / "sessions.d" / "agent--main--b" / "meta.json", {"sessionId": "s2"})
    for name in ("s1", "s2"):
        write_lines(folder / f"{name}.jsonl", header(name), spoken("a", None, name))
    (folder / "sessions.d" / "empty").mkdir()
    write(folder / "sessions.d" / "null.json", None)
    report = importers.import_sessions(store, "openclaw", tmp_path / "source")
    assert store.session("main/s1").title == "fresh"
    assert store.session("main/s2").metadata["openclaw"]["keys"] == ["agent:main:b"]
    assert sorted(problems(report)) == [
        "agents/main/sessions/sessions.d/empty",
        "agents/main/sessions/sessions.d/null.json",
    ]


def test_what_is_wrong_with_an_index_is_reported(store: hansard.Store, tmp_path: Path) -> None:
    """N-14, N-80, N-81: entries that are none, transcripts that are missing or outside, links: reported.

    The rest is imported.
    """
    root = tmp_path / "source"
    folder = agent(root, "main")
    secret = write_lines(tmp_path / "secret.jsonl", header("x"), spoken("a", None, "secret"))
    write(
        folder / "sessions.json",
        {
            "null": None,
            "list": [],
            "nameless": {"updatedAt": 1},
            "missing": {"sessionId": "nobody"},
            "outside": {"sessionId": "../../../../secret", "sessionFile": str(secret)},
            "moved": {"sessionId": "other", "sessionFile": "/elsewhere/sessions/s1.jsonl"},
            "linked": {"sessionId": "s2"},
        },
    )
    write_lines(folder / "s1.jsonl", header("s1"), spoken("a", None, "fine"))
    (folder / "s2.jsonl").symlink_to(secret)
    report = importers.import_sessions(store, "openclaw", root)
    assert [one.session for one in report.imported] == ["main/s1"]
    assert store.session("main/s1").metadata["openclaw"]["keys"] == ["moved"]
    named = " ".join(problem.what for problem in report.skipped)
    for key in ("null", "list", "nameless", "missing", "outside", "linked"):
        assert f"'{key}'" in named
    assert "symbolic link" in named
    assert not store.search("secret")


def test_lines_that_cannot_be_read_are_reported(store: hansard.Store, tmp_path: Path) -> None:
    """N-81: a line that is no JSON, no object, or no message is reported with its number.

    A last line that was never finished too.
    """
    path = write_lines(
        tmp_path / "s1.jsonl",
        header("s1"),
        spoken("a", None, "one"),
        7,
        {"id": "x"},
        entry("b", "a"),
    )
    with path.open("ab") as file:
        file.write(b'{"type":"mess')
    report = importers.import_sessions(store, "openclaw", path)
    assert problems(report) == [
        "s1.jsonl:3",
        "s1.jsonl:4",
        "s1.jsonl:5",
        "s1.jsonl:6",
    ]
    assert texts(store, "s1") == ["one"]


def test_a_transcript_without_its_first_line_needs_a_key(
    store: hansard.Store, tmp_path: Path
) -> None:
    """N-81: a file that does not say that it is a transcript is one if a key leads to it, and reported."""
    folder = agent(tmp_path / "source", "main")
    write(folder / "sessions.json", {"k": {"sessionId": "s1"}})
    for name in ("s1", "s2"):
        write_lines(folder / f"{name}.jsonl", spoken("a", None, "one"))
    report = importers.import_sessions(store, "openclaw", tmp_path / "source")
    assert [one.session for one in report.imported] == ["main/s1"]
    assert [problem.where[-8:] for problem in report.skipped] == ["s1.jsonl", "s2.jsonl"]


def test_a_tree_is_read_to_its_end(store: hansard.Store, tmp_path: Path) -> None:
    """N-84: where a session went back, so does ours: the model sees the last branch, the history all of them.

    And a transcript that grows on another branch is continued there.
    """
    first = [
        header("s1"),
        spoken("a", None, "one"),
        spoken("b", "a", "dead end", "assistant"),
        spoken("c", "a", "two", "assistant"),
    ]
    path = write_lines(tmp_path / "s1.jsonl", *first)
    importers.import_sessions(store, "openclaw", path)
    assert texts(store, "s1", "model") == ["one", "two"]
    assert texts(store, "s1") == ["one", "dead end", "two"]
    write_lines(path, *first, spoken("d", "b", "after all"))
    report = importers.import_sessions(store, "openclaw", path)
    assert [one.outcome for one in report.sessions] == ["continued"]
    assert texts(store, "s1", "model") == ["one", "dead end", "after all"]


def test_a_compaction_is_a_summary(store: hansard.Store, tmp_path: Path) -> None:
    """N-84: the model sees the summary and what was kept; the history, all."""
    path = write_lines(
        tmp_path / "s1.jsonl",
        header("s1"),
        spoken("a", None, "one"),
        spoken("b", "a", "two", "assistant"),
        spoken("c", "b", "kept"),
        {
            "type": "compaction",
            "id": "d",
            "parentId": "c",
            "summary": "one and two",
            "firstKeptEntryId": "c",
            "tokensBefore": 9,
        },
        spoken("e", "d", "on"),
    )
    importers.import_sessions(store, "openclaw", path)
    assert texts(store, "s1", "model") == ["one and two", "kept", "on"]
    assert texts(store, "s1") == ["one", "two", "kept", "on"]


def test_calls_usage_and_other_entries_are_kept(store: hansard.Store, tmp_path: Path) -> None:
    """N-84: tool calls and results read as those of a chat, and come back as they were; usage is counted.

    What is neither is an event; the session's name is its title.
    """
    called = {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm"},
            {"type": "text", "text": "let me look"},
            {
                "type": "toolCall",
                "id": "c1",
                "name": "look",
                "arguments": {"at": "the sky above us all"},
            },
        ],
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
        {
            "type": "custom_message",
            "id": "d",
            "parentId": "c",
            "content": "injected",
            "display": True,
        },
        {"type": "session_info", "id": "e", "parentId": "d", "name": "Weather"},
    )
    importers.import_sessions(store, "openclaw", path)
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
    assert (usage.input_tokens, usage.output_tokens, usage.cost) == (10, 3, 0.5)
    assert session.title == "Weather"
    kinds = session.state().kinds
    assert (kinds["x.openclaw.model_change"], kinds["x.openclaw.session_info"]) == (1, 1)


def test_a_branched_transcript_is_a_fork(store: hansard.Store, tmp_path: Path) -> None:
    """N-84: a transcript that names its parent and begins with the parent's lines is a fork of it."""
    folder = agent(tmp_path / "source", "main")
    shared = [spoken("a", None, "one"), spoken("b", "a", "two", "assistant")]
    write_lines(folder / "p.jsonl", header("p"), *shared, spoken("c", "b", "here"))
    write_lines(
        folder / "f.jsonl",
        header("f", parentSession="/home/claw/p.jsonl"),
        *shared,
        spoken("x", "b", "there"),
    )
    report = importers.import_sessions(store, "openclaw", tmp_path / "source")
    assert {one.session: (one.parent, one.new) for one in report.sessions} == {
        "main/p": (None, 3),
        "main/f": ("main/p", 1),
    }
    assert texts(store, "main/f", "model") == ["one", "two", "there"]


def test_a_name_of_a_file_is_never_a_way_out(tmp_path: Path) -> None:
    """N-1, N-14: whatever an entry calls its transcript, it is looked for beside the index only."""
    root = tmp_path / "source" / "sessions"
    write_lines(tmp_path / "out.jsonl", header("x"), spoken("a", None, "secret"))
    for number, name in enumerate(
        ("../../out", "..", ".", "a/../../../out", "x\0y", os.sep + "out")
    ):
        write(
            root / "sessions.json",
            {f"k{number}": {"sessionId": name, "sessionFile": f"../{name}.jsonl"}},
        )
        with hansard.open("memory:") as store, pytest.raises(importers.NothingToImport):
            importers.import_sessions(store, "openclaw", root)


def test_any_message_comes_back_as_it_was() -> None:
    """N-84: whatever a message holds, and be it in no form that is known, it is packed and unpacked equal."""
    for message in (
        {},
        {"role": "assistant", "content": None},
        {"role": 7, "content": {"odd": True}},
        {"role": "custom", "content": [1, "two", {"type": "image", "data": "x" * 50}]},
        {"role": "toolResult", "toolCallId": None, "content": "text " * 20},
        {"role": "assistant", "content": [{"type": "toolCall"}]},
    ):
        assert origin.unpack(openclaw.packed(message), "openclaw", chat=True) == message
