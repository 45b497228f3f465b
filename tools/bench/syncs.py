"""Count the syncs of a system's appends, as the kernel sees them.

A system may sync less often than it promises. Each is compared with systems that sync equally often.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_CALLS: Final = "fsync,fdatasync,msync,sync_file_range"
#: A descriptor that does not exist: its sync is a mark in the trace.
MARK: Final = 987_654_321
_MARK: Final = re.compile(rf"\bfsync\({MARK}\)")
_DONE: Final = re.compile(r"\)\s+= 0$")
#: From this number of syncs per append on, an append counts as durable when it returns.
SYNCED: Final = 0.9


def available() -> bool:
    """Return whether syncs can be counted here."""
    return shutil.which("strace") is not None


def traced(command: Sequence[str], environment: dict[str, str], timeout: float) -> int | None:
    """Run a command under strace; return the syncs between its two marks, None if that did not work."""
    with tempfile.NamedTemporaryFile("r", prefix="hansard-bench-", suffix=".trace") as trace:
        tracer = ["strace", "-f", "-qq", "-e", f"trace={_CALLS}", "-o", trace.name]
        try:
            subprocess.run(
                [*tracer, *command],
                env=environment,
                check=True,
                capture_output=True,
                timeout=timeout,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return between_marks(Path(trace.name).read_text())


def between_marks(trace: str) -> int | None:
    """Return how many syncs a trace has between two marks; None if it lacks a mark."""
    lines = trace.splitlines()
    marks = [place for place, line in enumerate(lines) if _MARK.search(line)]
    if len(marks) != 2:  # noqa: PLR2004 - before and after
        return None
    # A call that another thread interrupted has two lines; the second ends like a complete one.
    return sum(bool(_DONE.search(line)) for line in lines[marks[0] + 1 : marks[1]])


def durability(count: float | None) -> str:
    """Return what an append survives, from the number of its syncs."""
    if count is None:
        return "not counted"
    return "sync" if count >= SYNCED else "os"
