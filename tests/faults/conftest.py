"""What all tests of faults share."""

import gc

import pytest


@pytest.fixture(scope="module", autouse=True)
def _settled_heap() -> None:
    """Let the garbage collector leave alone what there was before: these tests run it thousands of times.

    In a worker that has thousands of tests behind it, each time would take a tenth of a second.
    """
    gc.collect()
    gc.freeze()
