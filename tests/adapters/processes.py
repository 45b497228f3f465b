"""Python processes that a test starts, releases together, and always ends."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

#: A process that takes this long, in seconds, hangs.
PATIENCE = 60

Child = subprocess.Popen[str]


@contextlib.contextmanager
def children(script: str, *rows: Sequence[str], stderr: int | None = None) -> Iterator[list[Child]]:
    """Start a script once for each row of arguments, and end all processes."""
    with contextlib.ExitStack() as stack:
        started = []
        for row in rows:
            child = subprocess.Popen(
                [sys.executable, "-c", script, *row],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                cwd=Path(__file__).parents[2],
            )
            stack.callback(child.communicate, timeout=PATIENCE)
            stack.callback(child.kill)
            started.append(child)
        yield started


def race(script: str, *rows: Sequence[str]) -> list[str]:
    """Release all processes when each is ready; return what each writes afterwards."""
    with children(script, *rows) as started:
        for child in started:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        # Each waits for a line.
        for child in started:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        said = [child.communicate(timeout=PATIENCE)[0] for child in started]
        assert [child.returncode for child in started] == [0] * len(rows), said
    return said
