"""What all tests of faults share."""

import gc
from pathlib import Path

import pytest

from tests.faults.logs import Bench, Log, rich_log


@pytest.fixture(scope="module", autouse=True)
def _settled_heap() -> None:
    """Let the garbage collector leave alone what there was before: these tests run it thousands of times.

    In a worker that has run thousands of tests, each time would take a tenth of a second.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Return the log that is cut and damaged: with every kind of line."""
    return rich_log(tmp_path_factory.mktemp("rich"))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Return a store in which logs are put."""
    return Bench(tmp_path / "store")
