"""Claims about importing PraisonAI's sessions: the real package wrote the fixtures."""

import json
import shutil
from pathlib import Path

import pytest

import hansard
from hansard import importers
from hansard.message import origin
from tests.importers.sources import FIXTURES, problems, texts, write
from tests.unit.disk_probe import tree

MADE = FIXTURES / "praisonai"


def test_a_session_with_an_archive_is_complete(store: hansard.Store) -> None:
    """N-84: archived turns come first, then live ones, with their times; the model view shows the summary."""
    before = tree(MADE)
    report = importers.import_sessions(store, "praisonai", MADE / "default")
    assert report.skipped == []
    data = json.loads((MADE / "default" / "chat-1.json").read_text())
    said = [*data["archived_messages"], *data["messages"][1:]]
    session = store.session("chat-1")
    stored = session.messages(view="history")
    assert [origin.unpack(message, "praisonai") for message in stored] == said
    assert texts(store, "chat-1") == [
        text for number in range(5) for text in (f"question {number}", f"answer {number}")
    ]
    shown = texts(store, "chat-1", "model")
    assert shown[0] == data["messages"][0]["content"]
    assert shown[1:] == [one["content"] for one in data["messages"][1:]]
    first = next(event for event in session.events() if event.kind == "message.added")
    assert first.time.timestamp() == pytest.approx(said[0]["timestamp"], abs=1e-5)
    assert tree(MADE) == before


def test_calls_of_tools_and_odd_ids_are_kept(store: hansard.Store) -> None:
    """N-2, N-84: a session has its own id, not its file's name; tool calls are those of a chat."""
    importers.import_sessions(store, "praisonai", MADE / "default")
    messages = store.session("tools/one").messages()
    assert messages[1]["tool_calls"][0]["function"]["name"] == "look"
    assert messages[2]["tool_call_id"] == "c1"


def test_parents_children_and_snapshots_are_kept(store: hansard.Store) -> None:
    """N-84: a fork and a child name their parent, a snapshot is a snapshot name.

    A snapshot whose turns were reverted is a separate session, so that nothing is lost.
    """
    report = importers.import_sessions(store, "praisonai", MADE / "hierarchical")
    assert report.skipped == []
    session = store.session("main")
    assert session.title == "Main conversation"
    assert texts(store, "main") == ["q0", "a0", "q1", "a1", "q2", "a2", "the way on"]
    forks = {one.id for one in store.sessions(where={"forked_from": "main"}).items}
    (other,) = forks - {"main@nowhere", "child"}
    assert texts(store, other) == ["q0", "a0", "another way"]
    assert texts(store, "main@nowhere") == [*texts(store, "main")[:6], "a way that led nowhere"]
    assert texts(store, "child") == ["hello child"]
    assert set(session.state().snapshots) == {"before refactor"}
    session.revert("before refactor")
    assert texts(store, "main", "model") == ["q0", "a0", "q1", "a1", "q2", "a2"]


def test_a_session_whose_archive_grew_is_continued(store: hansard.Store, tmp_path: Path) -> None:
    """N-84: after turns were archived and others added, the new ones are appended, with the new summary."""
    root = shutil.copytree(MADE / "default", tmp_path / "source")
    importers.import_sessions(store, "praisonai", root)
    path = root / "chat-1.json"
    data = json.loads(path.read_text())
    summary, *live = data["messages"]
    data["archived_messages"] += live[:2]
    more = {"role": "user", "content": "question 5", "timestamp": 1.8e9, "metadata": {}}
    data["messages"] = [{**summary, "content": "shorter"}, *live[2:], more]
    write(path, data)
    report = importers.import_sessions(store, "praisonai", root)
    assert {one.session: (one.outcome, one.new) for one in report.sessions} == {
        "chat-1": ("continued", 1),
        "tools/one": ("present", 0),
    }
    assert texts(store, "chat-1")[-2:] == ["answer 4", "question 5"]
    assert texts(store, "chat-1", "model")[0] == "shorter"
    assert len(texts(store, "chat-1", "model")) == 1 + len(live) - 2 + 1


def test_an_archived_summary_counts_as_a_turn(store: hansard.Store, tmp_path: Path) -> None:
    """Places in the live messages follow all archived ones, also a summary among them."""
    said = [{"role": "user", "content": text} for text in ("old", "sum", "one", "two")]
    archived = [said[0], {**said[1], "metadata": {"compaction": True}}]
    snapshots = [{"label": "first", "message_index": 0}]
    data = {"session_id": "s", "archived_messages": archived, "messages": said[2:]}
    write(tmp_path / "s.json", {**data, "snapshots": snapshots})
    importers.import_sessions(store, "praisonai", tmp_path)
    session = store.session("s")
    assert [one["content"] for one in session.messages(at="first")] == ["old", "sum", "one"]


def test_what_is_damaged_is_reported(store: hansard.Store, tmp_path: Path) -> None:
    """N-81: invalid turns, snapshots of missing turns and files marked as corrupt are reported."""
    root = shutil.copytree(MADE / "hierarchical", tmp_path / "source")
    data = json.loads((root / "main.json").read_text())
    data["messages"].append("no turn")
    data["snapshot_storage"]["records"].pop("6")
    data["snapshots"].append({"id": "old", "message_index": 99, "label": "far"})
    data["snapshots"].append({"id": "older", "message_index": 0, "invalidated": True})
    data["snapshots"].append({"id": "good", "message_index": 1, "label": "early"})
    write(root / "main.json", data)
    (root / "x.json.corrupt-1").write_text("{")
    report = importers.import_sessions(store, "praisonai", root)
    assert texts(store, "main")[-1] == "the way on"
    assert store.session("main").state().snapshots["early"] == 3
    wheres = problems(report)
    assert wheres.count("x.json.corrupt-1") == 1
    wrong = ["messages[7]", *(f"snapshot {number}" for number in (1, 2, 3, 4))]
    assert [where for where in wheres if "main" in where] == [f"main.json:{one}" for one in wrong]
