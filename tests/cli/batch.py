"""Call the command many times at the price of one start: for claims about all commands."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.cli.running import Done, environment
from tests.programs import python

#: Every call of a batch together.
PATIENCE = 240.0


def batch(calls: Sequence[dict[str, Any]], **variables: str) -> list[Done]:
    """Make calls one after another, each in a separate process; see `forking` for the options."""
    done = python(
        str(Path(__file__).with_name("forking.py")),
        input=json.dumps([{**call, "words": list(map(str, call["words"]))} for call in calls]),
        env=environment(**variables),
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return [Done(*found) for found in json.loads(done.stdout)]
