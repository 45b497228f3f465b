"""What tests of maintenance can ask for: an empty store, in memory and in files, and a place for one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import hansard


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where a store in files is, or will be."""
    return tmp_path / "store"


@pytest.fixture(params=["memory", "files"])
def store(request: pytest.FixtureRequest, path: Path) -> Iterator[hansard.Store]:
    """Return an empty store, in memory and in files."""
    place = "memory:" if request.param == "memory" else path
    with hansard.open(place, durability="os", auto_compact=False) as opened:
        yield opened
