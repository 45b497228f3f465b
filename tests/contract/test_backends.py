"""Every backend keeps every promise of the contract."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from hansard.backend.contract import Backend
from hansard.backend.local import LocalBackend
from hansard.backend.memory import MemoryBackend
from hansard.testing.contract import CAPABILITIES, CHECKS, Check, run_contract

Durability = Literal["sync", "os"]


def local_factory(directory: Path, durability: Durability) -> Callable[[], Backend]:
    """Return a factory of empty stores below a directory."""
    numbers = itertools.count()
    return lambda: LocalBackend(str(directory / f"store{next(numbers)}"), durability=durability)


def named(check: Check) -> str:
    """Return the name of a check's test."""
    return f"{check.capability}-{check.name}"


@pytest.mark.parametrize("check", CHECKS, ids=named)
@pytest.mark.parametrize("durability", ["os", "sync"])
def test_local_keeps_the_contract(check: Check, durability: Durability, tmp_path: Path) -> None:
    """Files keep every promise, in both durabilities, also between handles (N-18, N-63)."""
    check(
        local_factory(tmp_path, durability),
        lambda backend: LocalBackend(backend.where, durability=durability),
    )


@pytest.mark.parametrize(
    "check", [check for check in CHECKS if check.capability != "handles"], ids=named
)
def test_memory_keeps_the_contract(check: Check) -> None:
    """Memory keeps every promise that does not need a second handle."""
    check(MemoryBackend)


def test_the_suite_runs_without_pytest(tmp_path: Path) -> None:
    """`run_contract` says of both backends that they passed, capability by capability."""
    report = run_contract(local_factory(tmp_path, "os"), reopen=lambda old: LocalBackend(old.where))
    assert report.passed, report.to_text()
    assert report.skipped == ()
    assert all(name in report.to_text() for name in CAPABILITIES)
    report = run_contract(MemoryBackend)
    assert report.passed, report.to_text()
    assert {result.check.capability for result in report.skipped} == {"handles"}
