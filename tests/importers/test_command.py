"""Claims about `hansard import KIND PATH`, through the real entry point."""

from pathlib import Path

import pytest

from hansard.importers import KINDS
from tests.cli.running import hansard
from tests.cli.terminal import Terminal
from tests.importers.sources import session_file

FIRST = "0a1b2c3d_20260102_030405"


def test_the_command_imports_and_reports(tmp_path: Path) -> None:
    """N-81, N-84, N-87: it imports, reports what is present, and exits with 1 if something was skipped."""
    root = tmp_path / "source"
    session_file(root, FIRST, "one", "two")
    call = ("import", "workspace", root)
    planned = hansard(*call, "--dry-run", store=tmp_path / "store")
    assert (planned.code, planned.err) == (0, "")
    assert planned.out.splitlines()[-1] == "1 session would be imported"
    assert not (tmp_path / "store").exists()
    done = hansard(*call, store=tmp_path / "store")
    assert done.out.splitlines() == [f"{FIRST}: 2 items imported", "1 session imported"]
    (root / "0a1b2c3d_20260303_030405.json").write_text("{")
    again = hansard(*call, "--prefix", "p/", "--json", store=tmp_path / "store")
    assert again.code == 1
    done_with = {"session": f"p/{FIRST}", "where": f"{FIRST}.json", "outcome": "imported"}
    assert again.json["sessions"][0] == done_with | {"items": 2, "new": 2}
    assert [one["where"] for one in again.json["skipped"]] == ["0a1b2c3d_20260303_030405.json"]
    third = hansard(*call, store=tmp_path / "store")
    assert third.code == 1
    assert third.out == "1 session there already\n"
    assert "0a1b2c3d_20260303_030405.json: not JSON" in third.err


def test_nothing_to_import_is_a_failure(tmp_path: Path) -> None:
    """N-80: if nothing can be imported, the command reports where and why, and exits with 1."""
    path = tmp_path / f"{FIRST}.json"
    path.write_text('{"k": null}')
    done = hansard("import", "workspace", path, store=tmp_path / "store")
    assert (done.code, done.out) == (1, "")
    assert f"{FIRST}.json: not a session" in done.err
    assert "nothing can be imported as workspace" in done.err
    assert path.read_text() == '{"k": null}'


@pytest.mark.parametrize(
    "arguments", ["import codex", "import codex a --id x", "import a.jsonl --dry-run"]
)
def test_conflicting_arguments_are_refused(arguments: str, tmp_path: Path) -> None:
    """N-88: a kind needs one path, and options for a kind are not for hansard's own files."""
    assert hansard(*arguments.split(), store=tmp_path / "store").code == 2
    assert not (tmp_path / "store").exists()


def test_the_help_names_every_kind() -> None:
    """N-82: the help lists every kind."""
    # Without line breaks, which may be in the middle of a name.
    shown = "".join(hansard("import", "--help").out.split())
    assert [kind for kind in KINDS if kind not in shown] == []


def test_an_import_shows_its_progress(tmp_path: Path) -> None:
    """N-84: on a terminal, an import has a progress bar."""
    root = tmp_path / "source"
    for number in range(3):
        session_file(root, f"0a1b2c3d_{1_700_000_000 + number}", "one")
    terminal = Terminal("import", "workspace", root, store=tmp_path / "store")
    try:
        assert terminal.wait() == 0
        assert "3 sessions imported" in terminal.text
        assert b"importing workspace" in terminal.raw
    finally:
        terminal.close()
