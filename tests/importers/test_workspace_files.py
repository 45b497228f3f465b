"""Claims about importing workspace session files; test_run has those that hold for all kinds."""

from pathlib import Path

import pytest

import hansard
from hansard import importers
from tests.importers.sources import chat, session_file, write


@pytest.mark.parametrize(
    "time",
    ["20260102_030405", "20260102030405", "2026-01-02T03-04-05", "1767323045", "1767323045000"],
)
def test_the_name_has_the_time(store: hansard.Store, tmp_path: Path, time: str) -> None:
    """N-84: the time in a file's name is the session's, unless the file has another."""
    session_file(tmp_path / "source", f"0a1b2c3d_{time}", "one")
    importers.import_sessions(store, "workspace", tmp_path / "source")
    session = store.session(f"0a1b2c3d_{time}")
    assert session.state().created_stamp == "2026-01-02T03:04:05.000000Z"
    assert session.metadata["workspace_file"] == {"hash": "0a1b2c3d"}


def test_only_session_files_are_read(store: hansard.Store, tmp_path: Path) -> None:
    """N-87: other files in the directory are ignored; a given file is read under any name."""
    root = tmp_path / "source"
    session_file(root, "0a1b2c3d_20260102_030405", "one")
    other = session_file(root, "settings", "two")
    (root / "notes.txt").write_text("hello")
    report = importers.import_sessions(store, "workspace", root)
    assert [one.session for one in report.imported] == ["0a1b2c3d_20260102_030405"]
    assert report.skipped == []
    report = importers.import_sessions(store, "workspace", other)
    assert [one.session for one in report.imported] == ["settings"]


def test_a_list_and_an_object_are_read(store: hansard.Store, tmp_path: Path) -> None:
    """N-84: a list of messages is a session, and so is a `history`; each message keeps its time."""
    root = tmp_path / "source"
    write(root / "aaaa_20260102_030405.json", chat("one"))
    told = [{**chat("two")[0], "timestamp": "2026-05-06T07:08:09+02:00"}]
    write(root / "bbbb_20260102_030405.json", {"history": told, "project_path": "/w", "name": "N"})
    importers.import_sessions(store, "workspace", root)
    assert store.session("aaaa_20260102_030405").messages() == chat("one")
    session = store.session("bbbb_20260102_030405")
    assert session.messages() == told
    assert (session.title, session.metadata["workspace"]) == ("N", "/w")
    assert session.state().updated_stamp == "2026-05-06T05:08:09.000000Z"
