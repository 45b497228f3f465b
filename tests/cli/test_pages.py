"""The pages about the command are right: the reference is current, and the tour works."""

import re
import shlex
import subprocess
from pathlib import Path

from tests.cli.running import ENTRY, PATIENCE, environment
from tools import command_reference

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?: \d\d:\d\d:\d\d|T\d\d:\d\d:\d\d\.\d{6}Z)")


def test_the_reference_is_fresh() -> None:
    """The reference is what tools/command_reference.py makes of the commands today."""
    page = (ROOT / "docs" / "reference" / "command.md").read_text("utf-8")
    assert command_reference.page().strip() == page.strip(), (
        "run: python tools/command_reference.py --write"
    )


def test_the_tour_can_be_taken(tmp_path: Path) -> None:
    """Each call in the guide prints the output in the guide, in an empty directory, in order."""
    guide = (ROOT / "docs" / "guides" / "tutorial.md").read_text("utf-8")
    steps: list[tuple[str, str]] = []
    for block in _BLOCK.findall(guide):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            words, _, output = step.partition("\n")
            steps.append((words, output))
    assert len(steps) > 15
    # All in one shell, with marks between them: each call starts a process as it is.
    script = [f'hansard() {{ {shlex.join(ENTRY)} "$@"; }}']
    for words, _ in steps:
        script += [f"{{ {words} ; }} 2>&1", "printf '%s\\n' -=-=-"]
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    printed = done.stdout.split("-=-=-\n")[:-1]
    assert len(printed) == len(steps)
    for (words, expected), found in zip(steps, printed, strict=True):
        assert _TIME.sub("T", found) == _TIME.sub("T", expected), words
