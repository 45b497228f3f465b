"""Run the command as a shell would, and keep what came of it."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

#: A call that hangs fails its own test.
PATIENCE = 60.0

#: The real entry point, as an installed `hansard` calls it.
ENTRY = (sys.executable, "-m", "hansard.cli")


class Done(NamedTuple):
    """What a call of the command has left."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The JSON values on stdout, one per line."""
        return [json.loads(line) for line in self.out.splitlines()]


def environment(store: Path | str | None = None, **variables: str) -> dict[str, str]:
    """Return an environment without the variables of the caller's shell.

    Compiled files are kept, so that each start is faster.
    """
    ours = ("HANSARD_STORE", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
    python = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONIOENCODING")
    kept = {name: value for name, value in os.environ.items() if name not in {*ours, *python}}
    kept |= {"TZ": "UTC", "TERM": "xterm-256color"}
    if store is not None:
        kept["HANSARD_STORE"] = str(store)
    return {**kept, **variables}


def hansard(
    *words: str | Path,
    store: Path | str | None = None,
    input: str | bytes = b"",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    **variables: str,
) -> Done:
    """Call the command with its output in pipes."""
    done = subprocess.run(
        [*ENTRY, *map(str, words)],
        input=input.encode() if isinstance(input, str) else input,
        env={**environment(store, **variables), **(env or {})},
        cwd=cwd,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def python(program: str, store: Path | str | None = None) -> Done:
    """Run a program that calls the command itself; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(store),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def start(*words: str | Path, store: Path | str | None = None) -> subprocess.Popen[str]:
    """Start the command with its output in pipes, and let it run."""
    return subprocess.Popen(
        [*ENTRY, *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(store),
    )
