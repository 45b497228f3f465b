"""The example agent does what its first line says."""

import signal
import subprocess
from pathlib import Path

from tests.programs import python

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "agent.py"


def run(store: Path) -> "subprocess.CompletedProcess[str]":
    """Run the example on a store."""
    return python("-W", "error", EXAMPLE, store, timeout=60)


def test_the_agent_is_killed_and_continues(tmp_path: Path) -> None:
    """The first run is killed in an answer; the second finds it partial, reverts, continues and forks."""
    first = run(tmp_path / "s")
    assert (first.returncode, first.stdout) == (-signal.SIGKILL, "")
    second = run(tmp_path / "s")
    assert second.returncode == 0, second.stderr
    resumed, plane, train = second.stdout.splitlines()
    assert resumed == "resumed: {'role': 'assistant', 'content': 'Gladly.', 'partial': True}"
    both = ["Plan a trip.", "Gladly. By train or by plane?"]
    assert plane == f"trip {[*both, 'By plane.', 'Booked.']}"
    assert train == f"trip-by-train {[*both, 'By train.', 'A seat by the window.']}"


def test_the_agent_is_short() -> None:
    """The example has fewer than 40 lines."""
    assert len(EXAMPLE.read_text("utf-8").splitlines()) < 40
