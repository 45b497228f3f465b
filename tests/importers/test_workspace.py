"""Claims about importing workspace session files; what holds for all kinds is in test_run."""

from pathlib import Path

import pytest

import hansard
from hansard import importers
from tests.importers.sources import chat, session_file, write


@pytest.mark.parametrize(
    ("name", "created"),
    [
        ("0a1b2c3d_20260102_030405", "2026-01-02T03:04:05.000000Z"),
        ("0a1b2c3d_20260102030405", "2026-01-02T03:04:05.000000Z"),
        ("0a1b2c3d_2026-01-02T03-04-05", "2026-01-02T03:04:05.000000Z"),
        ("0a1b2c3d_1767323045", "2026-01-02T03:04:05.000000Z"),
        ("0a1b2c3d_1767323045000", "2026-01-02T03:04:05.000000Z"),
    ],
)
def test_the_name_says_when_it_began(
    store: hansard.Store, tmp_path: Path, name: str, created: str
) -> None:
    """N-84: the time in a file's name is the session's, unless the file itself says another."""
    session_file(tmp_path / "source", name, "one")
    importers.import_sessions(store, "workspace", tmp_path / "source")
    assert store.session(name).state().created == created
    assert store.session(name).metadata["workspace_file"] == {"hash": "0a1b2c3d"}


def test_only_session_files_are_read(store: hansard.Store, tmp_path: Path) -> None:
    """N-87: of other files in the folder none is taken for a session; one that is named in the call is."""
    root = tmp_path / "source"
    session_file(root, "0a1b2c3d_20260102_030405", "one")
    other = session_file(root, "settings", "two")
    (root / "notes.txt").write_text("hello")
    report = importers.import_sessions(store, "workspace", root)
    assert [one.session for one in report.imported] == ["0a1b2c3d_20260102_030405"]
    assert report.skipped == []
    assert [
        one.session for one in importers.import_sessions(store, "workspace", other).imported
    ] == ["settings"]


def test_a_list_and_an_object_are_read(store: hansard.Store, tmp_path: Path) -> None:
    """N-84: a bare list of messages is a session, and so is a `history`; each message keeps its time."""
    root = tmp_path / "source"
    write(root / "aaaa_20260102_030405.json", chat("one"))
    told = [{**chat("two")[0], "timestamp": "2026-05-06T07:08:09+02:00"}]
    write(root / "bbbb_20260102_030405.json", {"history": told, "project_path": "/w", "name": "N"})
    importers.import_sessions(store, "workspace", root)
    assert store.session("aaaa_20260102_030405").messages() == chat("one")
    session = store.session("bbbb_20260102_030405")
    assert session.messages() == told
    assert (session.title, session.metadata["workspace"]) == ("N", "/w")
    assert session.state().updated == "2026-05-06T05:08:09.000000Z"
