"""What tests of the public API can ask for: an empty store, of each kind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import hansard
from hansard import Session, Store


@pytest.fixture(params=["memory", "os", "sync"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Return an empty store of each kind: in memory, and in files with each durability."""
    if request.param == "memory":
        opened = hansard.open("memory:")
    else:
        opened = hansard.open(tmp_path / "store", durability=request.param)
    with opened:
        yield opened


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the directory of `store`."""
    return tmp_path / "store"


@pytest.fixture
def session(store: Store) -> Session:
    """Return a session without events."""
    return store.session("s")
