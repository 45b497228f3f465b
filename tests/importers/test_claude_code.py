"""A Claude Code transcript becomes the session that the SDK's own reader shows, and loses no entry.

The transcripts are written by hand to the documented format; the SDK's `get_session_messages` is the oracle.
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
from tests.importers.sources import KEY, import_new, problems, texts, write_lines

Entry = dict[str, Any]

PROJECT = "-home-u-work"


class Transcript:
    """Writes entries as Claude Code does: each names the one before it as its parent by default."""

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
        content = [{"type": "text", "text": one} if isinstance(one, str) else one for one in blocks]
        usage = {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 3}
        message: Entry = {
            "id": answer or f"msg_{len(self.entries)}",
            "role": "assistant",
            "usage": usage,
        }
        message |= {"model": "claude-opus-4-7", "content": content}
        return self.add("assistant", message, **more)

    def result(self, call: str, text: str, **more: Any) -> str:
        """Add the result of a call."""
        block = {"type": "tool_result", "tool_use_id": call, "content": text}
        return self.add("user", {"role": "user", "content": [block]}, **more)

    def write(self, home: Path, *more: Any) -> Path:
        """Write the transcript where Claude Code stores it, and more lines after it."""
        path = home / "projects" / PROJECT / f"{self.id}.jsonl"
        return write_lines(path, *self.entries, *more)

    def imported(self, home: Path) -> hansard.Session:
        """Import it without a problem, and return its session."""
        store, report = import_new("claude-code", self.write(home))
        assert (len(report.imported), report.skipped) == (1, [])
        return store.session(f"claude/{PROJECT}/{self.id}")


def call(name: str) -> dict[str, Any]:
    """Return the block of a call."""
    return {"type": "tool_use", "id": name, "name": "weather", "input": {"city": "Ulm"}}


def seen(transcript: Transcript) -> list[Any]:
    """Return what the SDK's own reader shows of a transcript."""
    return [one.message["content"] for one in get_session_messages(transcript.id)]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory in which the SDK finds transcripts."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    return tmp_path / "claude"


def loaded(store: hansard.Store, session_id: str, subpath: str | None = None) -> Any:
    """Return what the SDK's store adapter loads."""
    key: Any = {"project_key": PROJECT, "session_id": session_id}
    return asyncio.run(
        HansardSessionStore(store).load(key | ({"subpath": subpath} if subpath else {}))
    )


def contents(session: hansard.Session) -> list[Any]:
    """Return the contents of the messages."""
    return [message["content"] for message in session.messages()]


def test_every_entry_is_loaded_by_the_adapter(home: Path) -> None:
    """N-60, N-64: the SDK's store adapter finds what was imported: every entry equal, in order."""
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
    """The entries of one answer repeat its usage, which counts once, at its highest."""
    made = Transcript()
    made.ask("hi")
    made.answer("a", answer="msg_1")
    made.answer("b", answer="msg_1")
    made.entries[-1]["message"]["usage"]["output_tokens"] = 9
    (usage,) = made.imported(home).usage.values()
    assert (usage.input_tokens, usage.output_tokens) == (15, 9)


def test_going_back_is_a_revert(home: Path) -> None:
    """N-49, N-84: a prompt whose parent is further up leaves the other branch out of the model view only.

    The next import appends a branch that was added since.
    """
    made = Transcript()
    made.ask("one")
    place = made.answer("first")
    made.ask("two")
    made.answer("second")
    path = made.write(home)
    store, _ = import_new("claude-code", path)
    made.ask("two, but better", parent=place)
    made.answer("third")
    report = importers.import_sessions(store, "claude-code", made.write(home))
    assert (len(report.continued), report.skipped) == (1, [])
    session = store.session(f"claude/{PROJECT}/{made.id}")
    shown = ["one", "first", "two, but better", "third"]
    assert texts(store, session.id, "model") == shown
    assert contents(session) == seen(made)
    assert texts(store, session.id) == ["one", "first", "two", "second", *shown[2:]]
    assert [hit.session for hit in store.search("second")] == [session.id]


def test_sidechains_and_subagents_are_separate(home: Path) -> None:
    """N-66: a sidechain is stored verbatim, but not as messages; a subagent is a session."""
    made = Transcript()
    made.ask("one")
    made.ask(f"my key is {KEY}", isSidechain=True, parent=None)
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


def test_damaged_lines_are_reported(home: Path) -> None:
    """N-81: a torn line, a line without an entry and a second entry of one uuid are reported by line."""
    made = Transcript()
    made.ask("one")
    made.answer("first")
    other = {**made.entries[0], "message": {"role": "user", "content": "something else"}}
    path = made.write(home, made.entries[1], other, "[]", {"no": "type"}, '{"type": "user", "mess')
    store, report = import_new("claude-code", path)
    name = path.name
    assert sorted(problems(report)) == sorted(f"{name}:{line}" for line in (4, 5, 6, 7))
    assert loaded(store, made.id) == made.entries


def grown(rng: random.Random) -> Transcript:
    """Return a transcript that goes back at random, calls tools in parallel, and is compacted at times."""
    made = Transcript()
    ends: list[str | None] = []
    for turn in range(rng.randrange(2, 12)):
        back: dict[str, Any] = {}
        if ends and rng.random() < 0.35:
            # Some prompts begin a new conversation and have no parent.
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


def test_random_transcripts_are_what_the_sdk_shows(home: Path, rng: random.Random) -> None:
    """Differential: for 25 random trees, the model view is what the SDK's reader shows."""
    reverted = 0
    for _ in range(25):
        made = grown(rng)
        path = made.write(home)
        store = hansard.open("memory:")
        importers.import_sessions(store, "claude-code", path)
        session = store.session(f"claude/{PROJECT}/{made.id}")
        # Results of parallel calls may be in another order.
        assert sorted(map(str, contents(session))) == sorted(map(str, seen(made)))
        said = {str(entry["message"]["content"]) for entry in made.entries if "message" in entry}
        history = {str(message["content"]) for message in session.messages(view="history")}
        assert {text for text in said if "summary" not in text} <= history
        reverted += sum(event.kind == "session.reverted" for event in session.events())
        # In an exported transcript, the SDK shows the same.
        again = b"".join(exporters.export(session, "claude-code", redacted=False))
        before = seen(made)
        path.write_bytes(again)
        assert sorted(map(str, seen(made))) == sorted(map(str, before))
    assert reverted
