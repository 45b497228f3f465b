"""A Codex rollout becomes a session, line by line, and is exported as the same rollout.

The rollouts are written by hand to the documented format: Codex is not installed here.
"""

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from zstandard import ZstdCompressor

import hansard
from hansard import exporters, importers
from hansard.adapters.openai_agents import HansardSession
from tests.importers.sources import import_new, texts, write_lines

Line = dict[str, Any]


def line(kind: str, second: int, **payload: Any) -> Line:
    """Return a line of a rollout."""
    return {"timestamp": f"2026-02-03T04:05:{second:02}.678Z", "type": kind, "payload": payload}


def said(second: int, role: str, text: str) -> Line:
    """Return the line of a message."""
    part = {"type": "output_text" if role == "assistant" else "input_text", "text": text}
    return line("response_item", second, type="message", role=role, content=[part])


def head(name: str, **more: Any) -> Line:
    """Return the first line of a rollout."""
    about = {"originator": "codex_cli_rs", "cli_version": "0.99.0", "source": "cli", **more}
    time = "2026-02-03T04:05:00.500Z"
    return line("session_meta", 0, id=name, timestamp=time, cwd="/home/u/work", **about)


def tokens(second: int, total: int) -> Line:
    """Return the line that counts tokens."""
    last = {"input_tokens": 100, "cached_input_tokens": 0, "output_tokens": 7, "total_tokens": 107}
    info = {"total_token_usage": {"total_tokens": total}, "last_token_usage": last}
    return line("event_msg", second, type="token_count", info=info)


def rollout(name: str) -> list[Line]:
    """Return a rollout with one of everything."""
    call = {"call_id": "c1", "name": "shell", "arguments": '{"command":["ls"]}'}
    return [
        head(name, base_instructions={"text": "Be brief."}),
        line("turn_context", 1, turn_id="t1", cwd="/home/u/work", model="gpt-5-codex"),
        said(2, "user", "What is here?"),
        line("event_msg", 2, type="user_message", message="What is here?"),
        line("response_item", 3, type="reasoning", summary=[], encrypted_content="gAAA"),
        line("response_item", 4, type="function_call", **call),
        line("response_item", 5, type="function_call_output", call_id="c1", output="README.md"),
        {**said(6, "assistant", "A README."), "ordinal": 6, "metadata": {"turn": "t1"}},
        tokens(7, 107),
        tokens(8, 107),
    ]


def path_of(root: Path, name: str) -> Path:
    """Return where Codex stores a rollout."""
    return root / "sessions/2026/02/03" / f"rollout-2026-02-03T04-05-00-{name}.jsonl"


def native(store: hansard.Store, name: str) -> list[Any]:
    """Return what the adapter of the OpenAI Agents SDK reads."""
    return asyncio.run(HansardSession(name, store).get_items())


@pytest.fixture
def name() -> str:
    """Return the id of a rollout."""
    return str(uuid.uuid4())


@pytest.mark.parametrize("compressed", [False, True])
def test_a_rollout_is_imported_and_exported_line_by_line(
    tmp_path: Path, name: str, *, compressed: bool
) -> None:
    """N-60, N-64: the OpenAI adapter reads equal items, and the export has every line."""
    made = rollout(name)
    path = write_lines(path_of(tmp_path, name), *made)
    if compressed:
        content = ZstdCompressor().compress(path.read_bytes())
        path.unlink()
        path = path.with_name(path.name + ".zst")
        path.write_bytes(content)
    store, report = import_new("codex", tmp_path / "sessions")
    assert [one.session for one in report.imported] == [name]
    assert report.skipped == []
    assert native(store, name) == [one["payload"] for one in made if one["type"] == "response_item"]
    session = store.session(name)
    assert session.metadata["model"] == "gpt-5-codex"
    assert [(one.input_tokens, one.output_tokens) for one in session.usage.values()] == [(100, 7)]
    out = b"".join(exporters.export(session, "codex", redacted=False))
    told = [json.loads(one) for one in out.splitlines()]
    assert [{**one, "timestamp": one["timestamp"].replace("000Z", "Z")} for one in told] == made
    other = hansard.open("memory:")
    again = write_lines(tmp_path / "again" / f"{name}.jsonl", *told)
    importers.import_sessions(other, "codex", again)
    assert other.session(name).messages() == session.messages()


def test_a_compaction_is_a_summary_and_the_history_stays(tmp_path: Path, name: str) -> None:
    """N-45, N-47: after `compacted`, the model view shows the summary; the history view shows everything."""
    replaced = [said(0, "user", "They looked.")["payload"]]
    made = [
        *rollout(name),
        line("compacted", 10, message="They listed files."),
        said(11, "user", "And now?"),
        line("compacted", 12, message="", replacement_history=replaced),
        said(13, "user", "Go on."),
    ]
    store, _ = import_new("codex", write_lines(path_of(tmp_path, name), *made))
    session = store.session(name)
    assert texts(store, session.id, "model") == ["They looked.", "Go on."]
    assert "What is here?" in texts(store, session.id)
    out = b"".join(exporters.export(session, "codex", redacted=False)).splitlines()
    assert [json.loads(one)["type"] for one in out] == [one["type"] for one in made]


def test_a_copied_fork_is_a_session(tmp_path: Path, name: str) -> None:
    """N-50: a rollout that begins with another's lines, and with its first line, is complete."""
    made = rollout(name)
    child = str(uuid.uuid4())
    copied = [{**one, "timestamp": "2026-03-01T00:00:00.000Z"} for one in made[:7]]
    forked = [head(child, forked_from_id=name), *copied, said(20, "user", "Another way.")]
    write_lines(path_of(tmp_path, name), *made)
    write_lines(path_of(tmp_path, child), *forked)
    store, report = import_new("codex", tmp_path / "sessions")
    assert report.skipped == []
    fork = store.session(child)
    assert fork.metadata["forked_from"] == name
    assert native(store, child) == [
        one["payload"] for one in forked if one["type"] == "response_item"
    ]
    out = [json.loads(one) for one in b"".join(exporters.export(fork, "codex")).splitlines()]
    assert out[0]["payload"]["id"] == child
    assert [one["payload"] for one in out[1:]] == [one["payload"] for one in forked[2:]]


def test_turns_that_codex_rolled_back_are_reverted(tmp_path: Path, name: str) -> None:
    """The model view is without the last turns; so is an export of it, and the history has them."""
    made = [head(name), said(1, "user", "<environment_context>")]
    for second, text in ((2, "one"), (3, "two"), (4, "three")):
        made += [said(second, "user", text), line("event_msg", second, type="user_message")]
        made.append(said(second, "assistant", f"{text}!"))
    rolled = [line("event_msg", 5, type="thread_rolled_back", num_turns=count) for count in (1, 1)]
    made += [*rolled, said(6, "user", "four")]
    write_lines(path_of(tmp_path, name), *made)
    store, report = import_new("codex", tmp_path / "sessions")
    assert report.skipped == []
    left = ["<environment_context>", "one", "one!", "four"]
    assert texts(store, name, "model") == left
    assert "three!" in texts(store, name)
    path = path_of(tmp_path / "again", name)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(exporters.export(store.session(name), "codex", view="model")))
    again, _ = import_new("codex", path)
    assert texts(again, name, "model") == left


def test_a_rollout_may_continue_another(tmp_path: Path, name: str) -> None:
    """A rollout with a `history_base` has what it inherits; if that is missing, it is reported."""
    made = [{**one, "ordinal": place} for place, one in enumerate(rollout(name))]
    child = str(uuid.uuid4())
    base = {"thread_id": name, "end_ordinal_exclusive": 4}
    own = [head(child, history_base=base), said(20, "user", "Another way.")]
    write_lines(path_of(tmp_path, name), *made)
    alone = write_lines(path_of(tmp_path, child), *own)
    store, report = import_new("codex", tmp_path / "sessions")
    assert report.skipped == []
    assert texts(store, child, "model") == ["What is here?", "Another way."]
    assert store.session(child).metadata["forked_from"] == name
    other, report = import_new("codex", alone)
    assert texts(other, child, "model") == ["Another way."]
    assert len(report.skipped) == 1
