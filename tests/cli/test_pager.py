"""Long output on a terminal goes to the user's pager, short output does not."""

import shutil
import sys
from pathlib import Path

import pytest

import hansard as library
from tests.cli.conftest import OpenTerminal
from tests.cli.running import hansard


def _pager(tmp_path: Path, program: str) -> str:
    script = tmp_path / "pager.py"
    script.write_text(program)
    return f"{sys.executable} {script}"


COUNTS = "import sys; print('paged', len(sys.stdin.readlines()), 'lines')"


def test_more_than_a_screenful_is_paged(
    store: Path, tmp_path: Path, terminal: OpenTerminal
) -> None:
    """`replay` in a low terminal sends all its lines to $PAGER; --no-pager, a high one, or a pipe, none."""
    pager = _pager(tmp_path, COUNTS)
    low = terminal("replay", "agent/1", store=store, rows=8, PAGER=pager)
    assert low.wait() == 0
    assert low.lines[0].startswith("paged ")
    assert "refund" not in low.text
    for words, rows in (
        (("replay", "agent/1", "--no-pager"), 8),
        (("--no-pager", "replay", "agent/1"), 8),
        (("replay", "agent/1"), 60),
        (("tail", "agent/1", "-n", "1"), 8),
    ):
        shown = terminal(*words, store=store, rows=rows, PAGER=pager)
        assert shown.wait() == 0
        assert "metadata: user = u8" in shown.text
        assert "paged" not in shown.text
    piped = hansard("replay", "agent/1", store=store, PAGER=pager).out
    assert "metadata: user = u8" in piped
    assert "paged" not in piped


def test_a_pager_that_is_left_early_ends_the_command(
    store: Path, tmp_path: Path, terminal: OpenTerminal
) -> None:
    """A pager that reads nothing causes no error, and the command works without a pager."""
    # More than a pipe holds: the pager has ended while the command still writes.
    with library.open(store) as opened:
        long = opened.session("long")
        long.add_messages([{"role": "user", "content": "line\n" * 2_000}] * 20)
    for name in ("agent/1", "long"):
        pager = _pager(tmp_path, "print('left')")
        left = terminal("replay", name, "--full", store=store, rows=8, PAGER=pager)
        assert left.wait() == 0
        assert left.text == "left"
    missing = terminal("replay", "agent/1", store=store, rows=8, PAGER="/no/such/pager")
    assert missing.wait() == 0
    assert "metadata: user = u8" in missing.text


@pytest.mark.skipif(shutil.which("less") is None, reason="less is not installed")
@pytest.mark.parametrize("options", [None, "", "-i -M", "FX", "-P a prompt"])
def test_less_shows_colors_with_any_options(
    options: str | None, store: Path, terminal: OpenTerminal
) -> None:
    """Escape sequences are colors for less, with any LESS."""
    given = {} if options is None else {"LESS": options}
    shown = terminal("replay", "agent/1", store=store, rows=8, PAGER="less", TERM="xterm", **given)
    shown.wait_for("You are")
    assert "ESC[" not in shown.text
    shown.type("q")
    assert shown.wait() == 0
