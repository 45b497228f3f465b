"""What the tests of a log share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    """Return the descriptor of an empty session directory."""
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)
