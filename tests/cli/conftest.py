"""What the tests of the command can ask for: stores with something in them, and terminals."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli import samples
from tests.cli.terminal import Terminal

OpenTerminal = Callable[..., Terminal]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store with a conversation, `agent/1`, and a fork of it, `agent/1-b`."""
    samples.agent(tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture
def terminal() -> Iterator[OpenTerminal]:
    """Return a function that runs the command in a new terminal."""
    opened: list[Terminal] = []

    def run(*words: str | Path, **options: object) -> Terminal:
        opened.append(Terminal(*words, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield run
    for one in opened:
        one.close()
