"""The other program's package, and our importer, read an export unchanged."""

import asyncio
import io
import json
import re
import sys
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from agents import SQLiteSession
from atif import Trajectory
from claude_agent_sdk import get_session_messages
from pyarrow import parquet

import hansard
from hansard import exporters, importers
from hansard.adapters.openai_agents import HansardSession
from hansard.message import origin
from tests.adapters.test_openai_agents import ITEMS
from tests.cli.running import hansard as command
from tests.importers.sources import KEY

#: The kind of importer that reads an exporter's files.
READERS = {"claude-code": "claude-code", "codex": "codex", "openai-items": "openai-agents"}

CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Ulm"}'},
}


def conversation(store: hansard.Store, name: str = "support/42") -> hansard.Session:
    """Return a session with one of everything that a chat has, and of what hansard has besides."""
    session = store.create(name, metadata={"title": "Rain"})
    session.add_message({"role": "user", "content": "Will it rain?"})
    session.add_message({"role": "assistant", "content": "I look.", "tool_calls": [CALL]})
    session.add_message({"role": "tool", "tool_call_id": "c1", "content": "dry"})
    kept = session.add_message({"role": "assistant", "content": "No."}).seq
    session.add_message({"role": "user", "content": "a mistake"})
    session.revert(kept)
    session.append("x.todo", {"what": "buy an umbrella"})
    with session.stream(gather=0, role="assistant") as stream:
        stream.write("It will not ")
        stream.write("rain at all.")
    session.add_message({"role": "user", "content": "Thanks \u2028 \x85 ümlaut"})
    return session


def exported(session: hansard.Session, kind: Any, **options: Any) -> bytes:
    """Return the bytes of an export; of a table, as JSON."""
    content = b"".join(exporters.export(session, kind, **options))
    return json.dumps(rows(content), default=str).encode() if kind == "parquet" else content


def rows(content: bytes) -> list[dict[str, Any]]:
    """Return the rows of a Parquet file, as pyarrow reads them."""
    found: list[dict[str, Any]] = parquet.read_table(io.BytesIO(content)).to_pylist()
    return found


def plain(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return messages as every framework reads them."""
    return origin.conversation(messages)


def reimported(
    folder: Path, session: hansard.Session, kind: str, content: bytes
) -> hansard.Session:
    """Import an export into another store, and return the session."""
    name = str(uuid.uuid5(uuid.NAMESPACE_URL, session.id))
    path = folder / "project" / f"{name}.{exporters.KINDS[kind]}"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    other = hansard.open("memory:")
    report = importers.import_sessions(other, READERS[kind], path)
    assert report.skipped == []
    (only,) = report.sessions
    return other.session(only.session)


@pytest.mark.parametrize("kind", READERS)
def test_an_export_is_imported_as_the_same_conversation(tmp_path: Path, kind: str) -> None:
    """N-36, N-64: the model view is the same after an export and an import, in each format."""
    session = conversation(hansard.open("memory:"))
    found = reimported(tmp_path, session, kind, exported(session, kind))
    assert plain(found.messages()) == plain(session.messages())
    again = reimported(tmp_path, found, kind, exported(found, kind))
    assert again.messages() == found.messages()


@pytest.mark.parametrize("kind", exporters.KINDS)
def test_the_history_has_what_was_taken_back(kind: str) -> None:
    """N-45: `view="history"` includes reverted messages, and the model view does not."""
    session = conversation(hansard.open("memory:"))
    assert b"a mistake" not in exported(session, kind)
    assert b"a mistake" in exported(session, kind, view="history")


@pytest.mark.parametrize("kind", READERS)
def test_a_summary_stands_for_what_it_shortens(tmp_path: Path, kind: str) -> None:
    """N-47: the model view of an export begins with the summary."""
    session = conversation(hansard.open("memory:"))
    session.summarize(upto=5, message={"role": "user", "content": "They talked of rain."})
    found = reimported(tmp_path, session, kind, exported(session, kind))
    assert plain(found.messages()) == plain(session.messages())
    assert b"Will it rain?" not in exported(session, kind)
    assert b"Will it rain?" in exported(session, kind, view="history")


@pytest.mark.parametrize("kind", exporters.KINDS)
def test_what_broke_off_and_what_was_redacted(kind: str) -> None:
    """N-66, N-67: partial messages are exported; redacted messages and credentials are not."""
    session = conversation(hansard.open("memory:"))
    seq = session.add_message({"role": "user", "content": "forget this"}).seq
    session.redact(seq, reason="asked to")
    session.add_message({"role": "user", "content": f"my key is {KEY}"})
    stream = session.stream(gather=0, role="assistant")
    stream.write("half of an ans")
    session.stream(gather=0).write_call('{"days": 3', id="c1", name="forecast_of_days")
    out = exported(session, kind)
    assert b"half of an ans" in out
    assert b"forecast_of_days" in out
    assert b"forget this" not in exported(session, kind, redacted=False, view="history")
    assert KEY.encode() not in out
    assert KEY.encode() in exported(session, kind, redacted=False)


def test_the_claude_sdk_reads_what_was_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK's `get_session_messages` reads every message of an exported session."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    session = conversation(hansard.open("memory:"))
    content = exported(session, "claude-code")
    name = json.loads(content.splitlines()[0])["sessionId"]
    path = tmp_path / "projects" / "-work" / f"{name}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    found = [
        {"role": one.type, "content": one.message["content"]} for one in get_session_messages(name)
    ]
    assert plain(found) == plain(session.messages())


@pytest.mark.parametrize("kind", exporters.KINDS)
def test_ids_of_calls_are_not_repeated(kind: str) -> None:
    """Google's calls may lack ids: those made of their names are different in each turn."""
    session = hansard.open("memory:").session("s")
    call = {"functionCall": {"name": "look", "args": {}}}
    result = {"functionResponse": {"name": "look", "response": {}}}
    for _ in range(2):
        session.add_message({"role": "user", "content": "Look."})
        session.add_message({"role": "model", "parts": [call, call]})
        session.add_message({"role": "user", "parts": [result, result]})
    ids = r'"(?:id|\w+_id|toolCallId)": ?"(look.*?)"'
    first, second = ["look", "look-2"], ["look_5", "look-2_5"]
    found = re.findall(ids, exported(session, kind).decode())
    assert found == [*first, *first, *second, *second]


def test_the_agents_sdk_takes_the_items(tmp_path: Path) -> None:
    """Items that the SDK stored are exported unchanged, and its `SQLiteSession` accepts them."""
    store = hansard.open("memory:")
    ours = HansardSession("a", store)

    async def through() -> tuple[list[Any], list[Any]]:
        await ours.add_items(ITEMS)
        told = json.loads(exported(store.session("a"), "openai-items", redacted=False))
        theirs = SQLiteSession("a", tmp_path / "x.db")
        await theirs.add_items(told)
        found = await theirs.get_items()
        theirs.close()
        return told, found

    told, found = asyncio.run(through())
    assert told == found == ITEMS


#: Messages as different frameworks write calls and results, and some that none would write.
SHAPES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": [{"type": "text", "text": "Look."}, {"type": "image", "n": 10**30}]},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "I should look."},
            {"type": "text", "text": "Looking."},
            {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 7}},
            {"type": "tool_use", "id": "t2", "name": "look", "input": "not an object"},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t2", "content": "two"},
            {
                "type": "tool_result",
                "tool_use_id": "t1",
                "content": [{"type": "text", "text": "1"}],
            },
            {"type": "text", "text": "And?"},
        ],
    },
    {"type": "function_call", "call_id": "f1", "name": "sum", "arguments": '{"n": NaN, "s": "\\ud800"}'},
    {"type": "function_call_output", "call_id": "f1", "output": "3"},
    {"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "x"}}, 5]},
    {"role": "tool", "tool_call_id": "unknown", "content": "lost"},
    {"role": "critic", "content": {"odd": [1, None]}, "origin": 5},
    {"role": ["x"], "content": 7},
    {"role": "model", "parts": [{"text": "Gemini"}]},
]  # fmt: skip


def shapes(store: hansard.Store) -> hansard.Session:
    """Return a session with all shapes, and with usage in several places."""
    session = store.create("shapes", metadata={"title": "Shapes"})
    session.record_usage(model="m-0", input_tokens=5)  # of no message
    for message in SHAPES:
        session.add_message(message)
        if message.get("role") == "assistant":
            session.record_usage(model="m-1", input_tokens=10, output_tokens=2, cost="0.1")
            session.record_usage(model="m-2", input_tokens=1, cost="0.000000000000000002", calls=0)
    return session


@pytest.mark.parametrize("make", [conversation, shapes])
def test_a_table_has_a_row_for_each_message(make: Callable[..., hansard.Session]) -> None:
    """A Parquet file has the messages of the view in order, and usage that adds up to the session's."""
    session = make(hansard.open("memory:"))
    for view in ("model", "history"):
        out = b"".join(exporters.export(session, "parquet", view=view, redacted=False))
        assert [json.loads(row["message"]) for row in rows(out)] == session.messages(view=view)
        assert [row["seq"] for row in rows(out)] == [one.seq for one in session.numbered(view=view)]
        assert all(row["time"].tzinfo and row["title"] == session.title for row in rows(out))
    if make is shapes:
        found = rows(out)[2]
        assert (found["role"], found["text"], found["thinking"]) == (
            "assistant",
            "Looking.",
            "I should look.",
        )
        assert (found["model"], found["tools"]) == ("m-2", ["look", "look"])
        assert (found["input_tokens"], found["cost"]) == (11, Decimal("0.100000000000000002"))
        assert [one["id"] for one in rows(out)[3]["results"]] == ["t2", "t1"]
        assert sum(row["input_tokens"] or 0 for row in rows(out)) == 22


@pytest.mark.parametrize("hooks", [False, True])
def test_usage_is_that_of_its_answer(*, hooks: bool) -> None:
    """Usage is recorded after its answer, but before it by the hooks of the OpenAI Agents SDK."""
    session = hansard.open("memory:").session("s")
    called = {"role": "assistant", "content": "I look.", "tool_calls": [CALL]}
    said = {"role": "assistant", "content": "No."}
    result = {"role": "tool", "tool_call_id": "c1", "content": "dry"}
    session.add_message({"role": "user", "content": "Will it rain?"})
    answers: list[list[dict[str, Any]]] = [[called, result], [said]]
    for number, messages in enumerate(answers, 1):
        if hooks:
            session.record_usage(model="m", input_tokens=number)
        session.add_messages(messages)
        if not hooks:
            session.record_usage(model="m", input_tokens=number)
    session.add_message({"role": "user", "content": "Sure?"})
    session.record_usage(model="m", input_tokens=10)  # of an answer that never came
    found = {
        row["text"]: row["input_tokens"]
        for row in rows(b"".join(exporters.export(session, "parquet")))
    }
    assert found == {"Will it rain?": None, "I look.": 1, "dry": None, "No.": 12, "Sure?": None}


def test_a_trajectory_has_the_published_shape() -> None:
    """ATIF: the published models accept it; results are in the step that called; the rest is counted."""
    store = hansard.open("memory:")
    session = shapes(store)
    session.append("x.todo", {})
    fork = session.fork("fork")
    fork.add_message({"role": "user", "content": "More."})
    for one in (session, fork, conversation(store)):
        made = json.loads(exported(one, "atif"))
        found = Trajectory.model_validate(made)
        assert found.schema_version == "ATIF-v1.7"
        extra = made["extra"]
        assert extra["events"] == one.seq
        assert extra["represented"] + sum(extra["dropped"].values()) == one.seq
        seqs = {seq for step in made["steps"] for seq in step["extra"]["seqs"]}
        assert len(seqs) == extra["represented"]
        assert seqs >= {message.seq for message in one.numbered()}
    made = json.loads(exported(fork, "atif"))
    assert made["extra"]["dropped"] == {
        "session.created": 1,
        "usage.recorded": 1,
        "x.todo": 1,
        "session.forked": 1,
    }
    copied = [step.get("is_copied_context", False) for step in made["steps"]]
    assert copied == [True] * (len(copied) - 1) + [False]
    step = made["steps"][2]
    assert step["tool_calls"][0]["arguments"] == {"at": 7}
    assert [one["source_call_id"] for one in step["observation"]["results"]] == ["t2", "t1"]
    assert step["metrics"]["prompt_tokens"] == 11
    assert step["metrics"]["extra"]["cost"] == "0.100000000000000002"
    assert made["final_metrics"]["total_cost_usd"] == pytest.approx(0.2)
    free = store.session("free")
    free.add_message({"role": "assistant", "content": "Hi"})
    free.record_usage(model="m", input_tokens=1)
    metrics = json.loads(exported(free, "atif"))["steps"][0]["metrics"]
    assert "cost" not in metrics["extra"], "no cost was recorded"
    with pytest.raises(ValueError, match="needs a message"):
        exported(store.create("empty"), "atif")


@pytest.mark.parametrize("make", [conversation, shapes])
def test_a_session_trace_has_the_fields_of_its_format(make: Callable[..., hansard.Session]) -> None:
    """STS: a header line, then messages with the members and types that the Hub's documentation names."""
    head, *lines = map(json.loads, exported(make(hansard.open("memory:")), "sts").splitlines())
    assert (head["type"], head["harness"], head["id"] != "") == ("session", "hansard", True)
    optional = {"reasoningContent": str, "toolCalls": list, "toolCallId": str, "model": str}
    calls: set[str] = set()
    for line in lines:
        assert line.keys() == {"type", "message"}
        message = line["message"]
        assert message["role"] in {"user", "assistant", "system", "tool"}
        assert isinstance(message["content"], str)
        assert message["timestamp"] > 1.7e12
        for name in message.keys() - {"role", "content", "timestamp"}:
            assert isinstance(message[name], optional[name])
        for call in message.get("toolCalls", ()):
            assert isinstance(call["function"]["arguments"], str)
            assert isinstance(call["id"], str)
            calls.add(call["id"])
        assert ("toolCallId" in message) == (message["role"] == "tool")
        if message["role"] == "tool" and message["content"] != "lost":
            assert message["toolCallId"] in calls


def test_the_command_exports_what_it_imports(tmp_path: Path) -> None:
    """N-88: `import codex` reads what `export --as codex` writes; a second import changes nothing."""
    with hansard.open(tmp_path / "store") as store:
        conversation(store)
    path = tmp_path / "out" / "rollout.jsonl"
    done = command("export", "support/42", "--as", "codex", "-o", path, store=tmp_path / "store")
    assert done.code == 0, done.err
    for outcome in ("imported", "present"):
        done = command("import", "codex", path, "--json", store=tmp_path / "other")
        assert done.code == 0, done.err
        assert [one["outcome"] for one in done.json["sessions"]] == [outcome]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pyarrow, the error names the extra to install."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"hansard\[parquet\]"):
        exporters.export(conversation(hansard.open("memory:")), "parquet")


def test_wrong_words_are_refused() -> None:
    """An unknown kind or view, and a missing session, raise at the call."""
    store = hansard.open("memory:")
    session = conversation(store)
    wrong: Any = "codexx"
    with pytest.raises(ValueError, match="kind must be one of"):
        exporters.export(session, wrong)
    with pytest.raises(ValueError, match="view must be one of"):
        exporters.export(session, "codex", view=wrong)
    with pytest.raises(hansard.SessionNotFound):
        exporters.export(store.session("missing"), "codex")
