"""A mutant: a bug in a copy of the source, and the tests that must detect it."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[3]

#: Maximum seconds for the tests of one mutant: some hang when a lock is missing or never released.
_LIMIT = 200

_FAILED = 1


class Mutant(NamedTuple):
    """A deliberate bug.

    Attributes:
        name: a short description.
        file: the module, below `src/hansard`.
        old: a text that occurs there exactly once.
        new: its replacement.
        tests: arguments for pytest: the tests of which at least one must fail.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


class Verdict(NamedTuple):
    """The result of a mutant."""

    caught: bool
    #: The test that caught it, or why this is unknown.
    told: str


class Outdated(Exception):
    """The text that a mutant replaces is not in the source: the list must follow the code."""


def apply(mutant: Mutant, source: Path) -> None:
    """Put the bug into a copy of `src`."""
    path = source / "hansard" / mutant.file
    text = path.read_text(encoding="utf-8")
    count = text.count(mutant.old)
    if count != 1:
        raise Outdated(
            f"mutant {mutant.name!r}: its text is {count} times in {mutant.file}, not once; "
            "make it follow the code"
        )
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")


def examine(mutant: Mutant) -> Verdict:
    """Run the tests of a mutant against a copy of the source that has it."""
    with tempfile.TemporaryDirectory(prefix="hansard-mutant-") as place:
        source = Path(place) / "src"
        shutil.copytree(
            CHECKOUT / "src", source, ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
        )
        apply(mutant, source)
        return _run(mutant, source)


def _run(mutant: Mutant, source: Path) -> Verdict:
    command = [
        *(sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"),
        # A hang ends with the process: a timeout inside of pytest may interrupt a plugin, too.
        *("--tb=no", "-rfE", "--timeout=0", *mutant.tests),
    ]
    environment = {
        **os.environ,
        # Before what is installed: the copy is what the tests import, and the processes that they start.
        "PYTHONPATH": str(source),
        "PYTHONDONTWRITEBYTECODE": "1",
        # All crash states, and not a sample: a missing sync may show in a few only.
        "HANSARD_TEST_STATES": "100000",
        "TMPDIR": str(source.parent),
    }
    try:
        done = subprocess.run(
            command,
            cwd=CHECKOUT,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Verdict(caught=True, told=f"hangs for {_LIMIT} s")
    caught = re.search(r"^(?:FAILED|ERROR) (tests/\S+.*)", done.stdout, re.MULTILINE)
    if done.returncode == _FAILED and caught:
        return Verdict(caught=True, told=caught[1])
    if done.returncode == 0:
        return Verdict(caught=False, told=f"passed: {' '.join(mutant.tests)}")
    tail = "\n".join((done.stdout + done.stderr).splitlines()[-8:])
    return Verdict(caught=False, told=f"pytest ended with {done.returncode}: {tail}")
