"""An empty store for each test. Stores that adapters open by path are closed after the test."""

import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import hansard
from hansard.adapters import opening
from tests.adapters.processes import PATIENCE
from tests.unit.aio import conftest as aio

#: Run tests that are coroutines.
pytest_pyfunc_call = aio.pytest_pyfunc_call


@pytest.fixture(autouse=True)
def _nothing_stays_open() -> Iterator[None]:
    """Close the stores that were opened by path; other tests count the threads of their process."""
    yield
    opening._close()
    deadline = time.monotonic() + PATIENCE
    for thread in threading.enumerate():
        while thread.name.startswith("hansard-aio") and thread.is_alive():
            # Repeatedly: an error that a thread has just raised holds the store, in a cycle.
            gc.collect()
            thread.join(0.05)
            assert time.monotonic() < deadline, "a store of this test is still open"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[hansard.Store]:
    """Return a store in files."""
    with hansard.open(tmp_path / "data", durability="os") as opened:
        yield opened
