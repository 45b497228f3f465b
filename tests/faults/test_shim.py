"""The shim that lets system calls of a real process fail (tools/crash/shim.c). It needs a C compiler."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from hansard.log import disk
from hansard.log.write_batch import SyncTarget
from hansard.log.writer import LogWriter
from tools.crash import nursery, shim, workloads
from tools.crash.shim import Fault
from tools.crash.shimmed import Stage

MINE = __name__

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _shim() -> Iterator[None]:
    """Have the shim built, and end afterwards what was started with it."""
    try:
        shim.library()
    except shim.Unavailable as reason:
        pytest.skip(f"no faults below Python: {reason}")
    yield
    nursery.close_all()


def _ignore_errors(writer: LogWriter, touched: SyncTarget | None) -> None:
    if touched is not None:
        with suppress(OSError):
            disk.sync(touched.segment.descriptor)


def careless(**options: Any) -> dict[str, int]:
    """Do a workload with a store that ignores failed syncs. For a nursery."""
    setattr(LogWriter, "_sync", _ignore_errors)  # noqa: B010 - for this process, which ends soon
    return workloads.perform(**options)


def problems(workload: str, faults: Iterator[Fault], job: Callable[..., Any]) -> list[str]:
    """Return what is found wrong with a mutant, under one fault after the other, until something is."""
    for fault in faults:
        with Stage(workload) as stage:
            stage.strike(workload, fault, f"{MINE}:{job.__name__}")
            wrong: list[str] = stage.check(damage=True)["wrong"]
            if wrong:
                return wrong
    return []


def test_a_store_that_ignores_failed_syncs_is_found_out() -> None:
    """N-17, N-29: a plain error would not show it, for the cache keeps the bytes; the shim loses them."""
    faults = (Fault("drop", at, ("sync",)) for at in range(1, 20))
    assert "was acknowledged and is missing" in " ".join(problems("rotate", faults, careless))
    harmless = (Fault("fail", at, ("sync",)) for at in range(1, 4))
    assert problems("rotate", harmless, careless) == []
