"""Fixtures of the importers' tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import hansard


@pytest.fixture
def store(tmp_path: Path) -> Iterator[hansard.Store]:
    """Return an empty store."""
    with hansard.open(tmp_path / "store", durability="os", auto_compact=False) as opened:
        yield opened
