"""What the tests of cursors ask for."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hansard.backend.local.backend import LocalBackend


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[LocalBackend]:
    """Return an empty store that does not wait for the disk."""
    made = LocalBackend(str(tmp_path / "store"), durability="os")
    yield made
    made.close()
