"""Claims about importing a3s-code's sessions. The files are written to its source: see fixtures/README.md."""

import base64
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import importers
from tests.importers.sources import KEY, contents, problems, write


def data(session_id: str = "session-1", **more: Any) -> dict[str, Any]:
    """Return a `SessionData`, with a key where none should be."""
    return {
        "id": session_id,
        "config": {
            "name": "Mend it",
            "workspace": "/home/me/code",
            "system_prompt": "be brief",
            "max_context_length": 200_000,
            "auto_compact": False,
        },
        "state": "Active",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "mend it"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "looking"},
                    {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a.py"}},
                ],
                "reasoning_content": "hm",
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x = 1"}],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
        ],
        "context_usage": {"used_tokens": 10, "max_tokens": 200_000, "percent": 0.1, "turns": 2},
        "total_usage": {"prompt_tokens": 30, "completion_tokens": 5, "total_tokens": 35},
        "total_cost": 0.75,
        "model_name": "m-1",
        "cost_records": [
            {
                "model": "m-1",
                "provider": "p",
                "prompt_tokens": 10 * number,
                "completion_tokens": number,
                "total_tokens": 11 * number,
                "cost_usd": 0.25 * number,
                "timestamp": f"2026-01-02T03:04:0{number}Z",
                "session_id": session_id,
            }
            for number in (1, 2)
        ],
        "tool_names": ["read"],
        "thinking_enabled": False,
        "thinking_budget": None,
        "created_at": 1_767_323_040,
        "updated_at": 1_767_323_100,
        "llm_config": {
            "provider": "p",
            "model": "m-1",
            "api_key": KEY,
            "base_url": f"https://u:{KEY}@host/v1",
        },
        "tasks": [{"id": "1", "content": "mend", "status": "completed"}],
        **more,
    }


def test_a_session_comes_in_with_its_settings_and_no_key(
    store: hansard.Store, tmp_path: Path
) -> None:
    """N-65, N-84: messages, usage, cost, tasks and settings come in; a key does not, wherever it stands."""
    root = tmp_path / "source"
    write(root / "session-1.json", data())
    before = contents(root)
    report = importers.import_sessions(store, "a3s-code", root)
    assert report.skipped == []
    session = store.session("session-1")
    assert session.messages(view="history") == data()["messages"]
    assert session.title == "Mend it"
    assert session.metadata["workspace"] == "/home/me/code"
    about = session.metadata["a3s-code"]
    assert about["config"]["system_prompt"] == "be brief"
    assert about["tasks"] == data()["tasks"]
    assert about["total_cost"] == 0.75
    assert "api_key" not in about["llm_config"]
    state = session.state()
    usage = state.usage["m-1"]
    assert (usage.calls, usage.input_tokens, usage.output_tokens, usage.cost) == (2, 30, 3, 0.75)
    assert state.created == "2026-01-02T03:04:00.000000Z"
    assert state.updated == "2026-01-02T03:05:00.000000Z"
    assert contents(root) == before
    store.close()
    kept = b"".join(one[-1] for one in contents(tmp_path / "store").values())
    assert KEY.encode() not in kept
    assert b"system_prompt" in kept


def test_an_envelope_is_opened(store: hansard.Store, tmp_path: Path) -> None:
    """N-84, N-88: a snapshot of the known version comes in with what is beside the session.

    One of a newer version is refused and reported; what else a store keeps is no session.
    """
    root = tmp_path / "source" / "v1"
    name = base64.urlsafe_b64encode(b"s/1").decode().rstrip("=")
    envelope = {
        "schema_version": 1,
        "session": data("s/1"),
        "artifacts": [{"uri": "a", "content": "kept", "api_key": KEY}],
        "run_records": [{"headers": {"authorization": f"Bearer {KEY}"}}],
    }
    write(root / "sessions" / f"id_{name}.json", envelope)
    write(root / "sessions" / "id_new.json", {**envelope, "schema_version": 2})
    write(root / "loop_checkpoints" / "id_x.json", {"step": 1})
    write(root / "writer_lease.json", {"epoch": 1})
    report = importers.import_sessions(store, "a3s-code", tmp_path / "source")
    assert [one.session for one in report.imported] == ["s/1"]
    assert problems(report) == ["v1/sessions/id_new.json"]
    assert "version 2" in report.skipped[0].what
    beside = [
        event for event in store.session("s/1").events() if event.kind == "x.a3s-code.artifacts"
    ]
    assert beside[0].data == {"records": [{"uri": "a", "content": "kept"}]}
    store.close()
    assert KEY.encode() not in b"".join(one[-1] for one in contents(tmp_path / "store").values())


def test_a_session_that_grew_is_continued_and_counted_once(
    store: hansard.Store, tmp_path: Path
) -> None:
    """N-84: after more turns, the new ones and their cost are appended, and no cost is counted twice.

    After a3s-code has compacted the history, which rewrites it, that is reported.
    """
    root = tmp_path / "source"
    whole = data()
    short = {**whole, "messages": whole["messages"][:2], "cost_records": whole["cost_records"][:1]}
    path = write(root / "session-1.json", short)
    importers.import_sessions(store, "a3s-code", root)
    write(path, whole)
    report = importers.import_sessions(store, "a3s-code", root)
    assert [(one.outcome, one.new) for one in report.sessions] == [("continued", 3)]
    session = store.session("session-1")
    assert session.messages(view="history") == whole["messages"]
    assert session.state().usage["m-1"].cost == 0.75
    write(path, {**whole, "messages": whole["messages"][2:]})
    again = importers.import_sessions(store, "a3s-code", root)
    assert "has changed since" in again.skipped[0].what
    assert session.messages(view="history") == whole["messages"]


@pytest.mark.parametrize(
    "wrong",
    [{"id": None}, {"id": ""}, {"config": None}, {"messages": {}}, {"messages": None}],
)
def test_what_is_no_session_is_reported(
    store: hansard.Store, tmp_path: Path, wrong: dict[str, Any]
) -> None:
    """N-80, N-81: a document without id, config or messages is reported, beside those that are sessions."""
    root = tmp_path / "source"
    write(root / "good.json", data("good", messages=[None, *data()["messages"]], cost_records=[7]))
    write(root / "wrong.json", data(**wrong))
    report = importers.import_sessions(store, "a3s-code", root)
    assert [one.session for one in report.imported] == ["good"]
    assert problems(report) == [
        "good.json:cost_records[0]",
        "good.json:messages[0]",
        "wrong.json",
    ]
