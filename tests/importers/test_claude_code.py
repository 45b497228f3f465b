"""A Claude Code transcript becomes the session that the SDK's own reader sees in it, and loses no entry.

The transcripts are written to the documented format; the SDK's `get_session_messages` says what is right.
"""

import asyncio
import random
import uuid
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import get_session_messages, get_subagent_messages, list_subagents

import hansard
from hansard import exporters, importers
from hansard.adapters.claude_agent import HansardSessionStore
from tests.importers.sources import import_new, problems, texts, write_lines

Entry = dict[str, Any]

PROJECT = "-home-u-work"

#: Whose form no scanner takes for a real one.
KEY = "sk-ant-" + "api03-" + "x7Kd9mQ2vB5nR8tY1wZ4" * 3


class Transcript:
    """Writes entries as Claude Code does: each names the one before it as its parent, unless told."""

    def __init__(self, *, sidechain: bool = False) -> None:
        self.id = str(uuid.uuid4())
        self.entries: list[Entry] = []
        self._sidechain = sidechain
        self.last: str | None = None

    def add(self, kind: str, message: Any = None, *, parent: str | None = "", **more: Any) -> str:
        """Add an entry, and return its uuid."""
        name = str(uuid.uuid4())
        entry = {
            "type": kind,
            "uuid": name,
            "parentUuid": self.last if parent == "" else parent,
            "sessionId": self.id,
            "timestamp": f"2026-03-01T10:{len(self.entries) // 60:02}:{len(self.entries) % 60:02}.125Z",
            "cwd": "/home/u/work",
            "isSidechain": self._sidechain,
            **({} if message is None else {"message": message}),
            **more,
        }
        self.entries.append(entry)
        if not entry["isSidechain"] or self._sidechain:
            self.last = name
        return name

    def ask(self, text: str, **more: Any) -> str:
        """Add a prompt."""
        return self.add("user", {"role": "user", "content": text}, **more)

    def answer(self, *blocks: Any, answer: str | None = None, **more: Any) -> str:
        """Add an answer, or one block of it."""
        told = [{"type": "text", "text": one} if isinstance(one, str) else one for one in blocks]
        message = {
            "id": answer or f"msg_{len(self.entries)}",
            "role": "assistant",
            "model": "claude-opus-4-7",
            "content": told,
            "usage": {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 3},
        }
        return self.add("assistant", message, **more)

    def result(self, call: str, text: str, **more: Any) -> str:
        """Add the result of a call."""
        block = {"type": "tool_result", "tool_use_id": call, "content": text}
        return self.add("user", {"role": "user", "content": [block]}, **more)

    def write(self, folder: Path, *more: Any) -> Path:
        """Write the transcript where Claude Code has it, and more lines behind it."""
        path = folder / "projects" / PROJECT / f"{self.id}.jsonl"
        return write_lines(path, *self.entries, *more)


def call(name: str) -> dict[str, Any]:
    """Return the block of a call."""
    return {"type": "tool_use", "id": name, "name": "weather", "input": {"city": "Ulm"}}


def seen(transcript: Transcript) -> list[Any]:
    """Return what the SDK's own reader sees in a transcript."""
    return [one.message["content"] for one in get_session_messages(transcript.id)]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where the SDK looks for transcripts."""
    folder = tmp_path / "claude"
    folder.mkdir()
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(folder))
    return folder


def loaded(store: hansard.Store, session_id: str, subpath: str | None = None) -> Any:
    """Return what the SDK's store adapter loads."""
    key: Any = {"project_key": PROJECT, "session_id": session_id}
    if subpath is not None:
        key["subpath"] = subpath
    return asyncio.run(HansardSessionStore(store).load(key))


def contents(session: hansard.Session) -> list[Any]:
    """Return what is said, as it is stored."""
    return [message["content"] for message in session.messages()]


def test_a_transcript_is_read_natively_and_entry_for_entry(home: Path) -> None:
    """N-60, N-64: what was imported is found by the SDK's store adapter, every entry equal, in order."""
    made = Transcript()
    made.add("file-history-snapshot", snapshot={"files": {}})
    made.ask("Will it rain?")
    made.answer("I look.", call("c1"))
    made.result("c1", "dry")
    made.add("system", subtype="turn_duration", durationMs=12)
    made.answer("No.")
    path = made.write(home, {"type": "custom-title", "customTitle": "Rain", "sessionId": made.id})
    store, report = import_new("claude-code", path)
    session = store.session(f"claude/{PROJECT}/{made.id}")
    assert [one.session for one in report.imported] == [session.id]
    assert report.skipped == []
    assert loaded(store, made.id)[:-1] == made.entries
    assert loaded(store, made.id)[-1]["customTitle"] == session.title == "Rain"
    assert contents(session) == seen(made)
    assert session.metadata["workspace"] == "/home/u/work"
    assert next(iter(session.events())).stamp == "2026-03-01T10:00:00.125000Z"


def test_an_answer_in_several_entries_counts_once(home: Path) -> None:
    """Entries of one answer repeat its usage; the session's usage has it once, at its highest."""
    made = Transcript()
    made.ask("hi")
    made.answer("a", answer="msg_1")
    made.answer("b", answer="msg_1")
    made.entries[-1]["message"]["usage"]["output_tokens"] = 9
    store, _ = import_new("claude-code", made.write(home))
    usage = store.session(f"claude/{PROJECT}/{made.id}").usage
    assert [(one.input_tokens, one.output_tokens) for one in usage.values()] == [(15, 9)]


def test_going_back_is_a_revert_that_loses_nothing(home: Path) -> None:
    """N-49: a prompt whose parent is further up leaves the other branch out of the model view only."""
    made = Transcript()
    made.ask("one")
    place = made.answer("first")
    made.ask("two")
    made.answer("second")
    made.ask("two, but better", parent=place)
    made.answer("third")
    store, report = import_new("claude-code", made.write(home))
    session = store.session(f"claude/{PROJECT}/{made.id}")
    assert texts(store, session.id, "model") == ["one", "first", "two, but better", "third"]
    assert contents(session) == seen(made)
    assert texts(store, session.id) == [
        *("one", "first", "two", "second"),
        *("two, but better", "third"),
    ]
    assert [hit.session for hit in store.search("second")] == [session.id]
    assert report.skipped == []


def test_a_turn_with_parallel_calls_is_one_piece(home: Path) -> None:
    """N-55: results that each name their own call as their parent are no branches; none is lost."""
    made = Transcript()
    made.ask("compare")
    first = made.answer(call("c1"), answer="msg_a")
    second = made.answer(call("c2"), answer="msg_a", parent=first)
    made.result("c1", "dry", parent=first)
    made.result("c2", "wet", parent=second)
    made.answer("Ulm is dry.")
    made.ask("thanks")
    store, _ = import_new("claude-code", made.write(home))
    session = store.session(f"claude/{PROJECT}/{made.id}")
    assert "session.reverted" not in {event.kind for event in session.events()}
    assert sorted(map(str, contents(session))) == sorted(map(str, seen(made)))
    assert len(session.messages()) == 7


def test_a_compaction_is_a_summary_and_the_history_stays(home: Path) -> None:
    """N-45, N-47: behind a boundary a model is shown the summary; the history view has all before it."""
    made = Transcript()
    made.ask("one")
    made.answer("first")
    tail = made.last
    made.add("system", parent=None, logicalParentUuid=tail, subtype="compact_boundary", content="x")
    made.ask("They said one and first.", isCompactSummary=True)
    made.ask("two")
    made.answer("second")
    store, _ = import_new("claude-code", made.write(home))
    session = store.session(f"claude/{PROJECT}/{made.id}")
    assert texts(store, session.id, "model") == ["They said one and first.", "two", "second"]
    assert contents(session) == seen(made)
    assert texts(store, session.id)[:2] == ["one", "first"]
    assert loaded(store, made.id) == made.entries


def test_sidechains_and_subagents_are_kept_apart(home: Path) -> None:
    """A sidechain is no part of the conversation; a subagent's transcript is a session of its own."""
    made = Transcript()
    made.ask("one")
    made.ask("go and look", isSidechain=True, parent=None)
    made.answer("first")
    path = made.write(home)
    agent = Transcript(sidechain=True)
    agent.ask("go and look")
    agent.answer("I looked")
    write_lines(path.with_suffix("") / "subagents" / "agent-a1.jsonl", *agent.entries)
    sidecar = path.with_suffix("") / "subagents" / "agent-a1.meta.json"
    sidecar.write_text('{"agentType": "scout", "toolUseId": "c1"}')
    store, report = import_new("claude-code", home / "projects")
    assert (len(report.imported), report.skipped) == (2, [])
    session = store.session(f"claude/{PROJECT}/{made.id}")
    assert texts(store, session.id, "model") == ["one", "first"]
    assert loaded(store, made.id) == made.entries
    assert list_subagents(made.id) == ["a1"]
    child = store.session(f"{session.id}/subagents/agent-a1")
    wanted = [one.message["content"] for one in get_subagent_messages(made.id, "a1")]
    assert contents(child) == wanted
    about, *entries = loaded(store, made.id, "subagents/agent-a1")
    assert entries == agent.entries
    assert about == {"type": "agent_metadata", "agentType": "scout", "toolUseId": "c1"}


def test_links_are_not_followed_and_secrets_in_entries_stay(home: Path, tmp_path: Path) -> None:
    """N-14, N-66: a transcript that is a link is reported; what was said on a sidechain is word for word."""
    made = Transcript()
    made.ask("one")
    made.ask(f"my key is {KEY}", isSidechain=True, parent=None)
    path = made.write(home)
    outside = write_lines(tmp_path / "outside.jsonl", *made.entries)
    (path.parent / f"{uuid.uuid4()}.jsonl").symlink_to(outside)
    store, report = import_new("claude-code", home / "projects")
    assert len(report.imported) == len(report.skipped) == 1
    assert "symbolic link" in report.skipped[0].what
    assert loaded(store, made.id) == made.entries


def test_damaged_lines_are_reported_and_the_others_come(home: Path) -> None:
    """N-81: a torn line, a line that is no entry and a second entry of one uuid are each named by line."""
    made = Transcript()
    made.ask("one")
    made.answer("first")
    other = {**made.entries[0], "message": {"role": "user", "content": "something else"}}
    path = made.write(home, made.entries[1], other, "[]", {"no": "type"}, '{"type": "user", "mess')
    store, report = import_new("claude-code", path)
    name = path.name
    assert sorted(problems(report)) == sorted(f"{name}:{line}" for line in (4, 5, 6, 7))
    assert loaded(store, made.id) == made.entries


def test_a_transcript_that_grew_is_continued(home: Path) -> None:
    """N-84, N-88: a second import does nothing, or appends what is new, also if it goes back further up."""
    made = Transcript()
    made.ask("one")
    place = made.answer("first")
    made.ask("two")
    path = made.write(home)
    store, _ = import_new("claude-code", path)
    assert importers.import_sessions(store, "claude-code", path).present
    made.ask("two, but better", parent=place)
    made.write(home)
    assert len(importers.import_sessions(store, "claude-code", path).continued) == 1
    session = store.session(f"claude/{PROJECT}/{made.id}")
    assert texts(store, session.id, "model") == ["one", "first", "two, but better"]
    assert contents(session) == seen(made)


def grown(rng: random.Random) -> Transcript:
    """Return a transcript that goes back at random, runs tools side by side, and is compacted at times."""
    made = Transcript()
    ends: list[str | None] = []
    for turn in range(rng.randrange(2, 12)):
        back: dict[str, Any] = {}
        if ends and rng.random() < 0.35:
            # Now and then one begins anew, and has no parent at all.
            back["parent"] = rng.choice([*ends, None])
        made.ask(f"ask {turn}", **back)
        if rng.random() < 0.4:
            group = f"msg_turn_{turn}"
            first = made.answer(call(f"c{turn}a"), answer=group)
            second = made.answer(call(f"c{turn}b"), answer=group, parent=first)
            results = [("a", first), ("b", second)]
            rng.shuffle(results)
            for letter, parent in results:
                made.result(f"c{turn}{letter}", f"result {letter}", parent=parent)
        if rng.random() < 0.3:
            made.add("system", subtype="informational", content="note")
        made.answer(f"answer {turn}")
        ends.append(made.last)
        if rng.random() < 0.15:
            tail = made.last
            made.add("system", parent=None, logicalParentUuid=tail, subtype="compact_boundary")
            made.ask(f"summary {turn}", isCompactSummary=True)
            ends = [made.last]
    return made


def test_random_transcripts_are_what_the_sdk_sees(home: Path, rng: random.Random) -> None:
    """Differential: in 25 random trees the model view has what the SDK's reader shows, no more, no less."""
    reverted = 0
    for _ in range(25):
        made = grown(rng)
        path = made.write(home)
        store = hansard.open("memory:")
        importers.import_sessions(store, "claude-code", path)
        session = store.session(f"claude/{PROJECT}/{made.id}")
        # Results of calls that ran side by side stand in the order in which they came.
        assert sorted(map(str, contents(session))) == sorted(map(str, seen(made)))
        said = {str(entry["message"]["content"]) for entry in made.entries if "message" in entry}
        history = {str(message["content"]) for message in session.messages(view="history")}
        assert {text for text in said if "summary" not in text} <= history
        reverted += sum(event.kind == "session.reverted" for event in session.events())
        # What goes out again is a transcript in which the SDK sees the same.
        again = b"".join(exporters.export(session, "claude-code", redacted=False))
        before = seen(made)
        path.write_bytes(again)
        assert sorted(map(str, seen(made))) == sorted(map(str, before))
    assert reverted
