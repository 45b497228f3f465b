"""Run this Python in another process."""

import subprocess
import sys
from typing import Any


def python(
    *words: object, timeout: float = 100, **options: Any
) -> "subprocess.CompletedProcess[str]":
    """Run Python with some arguments to its end; return its output as text."""
    command = [sys.executable, *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, check=False, **options
    )
