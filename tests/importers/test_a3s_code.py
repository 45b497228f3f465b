"""Claims about importing a3s-code's sessions, written by hand from its source: see fixtures/README.md."""

import base64
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import importers
from tests.importers.sources import KEY, problems, untouched, write
from tests.unit.disk_probe import tree


def data(session_id: str = "session-1", **more: Any) -> dict[str, Any]:
    """Return a `SessionData` with credentials in its settings."""
    call = {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a.py"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "x = 1"}
    answer = [{"type": "text", "text": "reading"}, call]
    cost = {"model": "m-1", "provider": "p", "session_id": session_id}
    config = {"name": "Fix it", "workspace": "/home/me/code", "system_prompt": "be brief"}
    llm = {"provider": "p", "model": "m-1", "api_key": KEY, "base_url": f"https://u:{KEY}@host/v1"}
    return {
        "id": session_id,
        "config": config | {"max_context_length": 200_000, "auto_compact": False},
        "state": "Active",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "fix it"}]},
            {"role": "assistant", "content": answer, "reasoning_content": "hm"},
            {"role": "user", "content": [result]},
            {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
        ],
        "context_usage": {"used_tokens": 10, "max_tokens": 200_000, "percent": 0.1, "turns": 2},
        "total_usage": {"prompt_tokens": 30, "completion_tokens": 5, "total_tokens": 35},
        "total_cost": 0.75,
        "model_name": "m-1",
        "cost_records": [
            cost
            | {"prompt_tokens": 10 * n, "completion_tokens": n, "total_tokens": 11 * n}
            | {"cost_usd": 0.25 * n, "timestamp": f"2026-01-02T03:04:0{n}Z"}
            for n in (1, 2)
        ],
        "tool_names": ["read"],
        "thinking_budget": None,
        "created_at": 1_767_323_040,
        "updated_at": 1_767_323_100,
        "llm_config": llm,
        "tasks": [{"id": "1", "content": "fix", "status": "completed"}],
        **more,
    }


def test_a_session_is_imported_with_its_settings_and_no_key(
    store: hansard.Store, tmp_path: Path
) -> None:
    """N-65, N-84: messages, usage, cost, tasks and settings are imported; no credential is."""
    write(tmp_path / "source" / "session-1.json", data())
    with untouched(tmp_path / "source"):
        report = importers.import_sessions(store, "a3s-code", tmp_path / "source")
    assert report.skipped == []
    session = store.session("session-1")
    assert session.messages(view="history") == data()["messages"]
    assert (session.title, session.metadata["workspace"]) == ("Fix it", "/home/me/code")
    about = session.metadata["a3s-code"]
    assert about["config"]["system_prompt"] == "be brief"
    assert (about["tasks"], about["total_cost"]) == (data()["tasks"], 0.75)
    assert about["llm_config"]["api_key"] == "[redacted: API key]"
    state = session.state()
    usage = state.usage["m-1"]
    assert (usage.calls, usage.input_tokens, usage.output_tokens, usage.cost) == (
        2,
        30,
        3,
        Decimal("0.75"),
    )
    assert state.created_stamp == "2026-01-02T03:04:00.000000Z"
    assert state.updated_stamp == "2026-01-02T03:05:00.000000Z"
    store.close()
    kept = b"".join(one[-1] for one in tree(tmp_path / "store").values())
    assert KEY.encode() not in kept
    assert b"system_prompt" in kept


def test_an_envelope_is_opened(store: hansard.Store, tmp_path: Path) -> None:
    """N-84, N-88: lists in an envelope are imported; a newer version is refused."""
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
    found = {event.kind: event.data for event in store.session("s/1").events()}
    (record,) = found["x.a3s-code.artifacts"]["records"]
    assert record == {"uri": "a", "content": "kept", "api_key": "[redacted: API key]"}
    store.close()
    assert KEY.encode() not in b"".join(one[-1] for one in tree(tmp_path / "store").values())


@pytest.mark.parametrize(
    "wrong", [{"id": None}, {"id": ""}, {"config": None}, {"messages": {}}, {"messages": None}]
)
def test_what_is_not_a_session_is_reported(
    store: hansard.Store, tmp_path: Path, wrong: dict[str, Any]
) -> None:
    """N-80, N-81: documents without id, config or messages, and invalid items, are reported."""
    root = tmp_path / "source"
    write(root / "good.json", data("good", messages=[None, *data()["messages"]], cost_records=[7]))
    write(root / "wrong.json", data(**wrong))
    report = importers.import_sessions(store, "a3s-code", root)
    assert [one.session for one in report.imported] == ["good"]
    places = ["good.json:cost_records[0]", "good.json:messages[0]", "wrong.json"]
    assert problems(report) == places
