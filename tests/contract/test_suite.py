"""The contract suite finds broken backends, and says what is broken."""

import subprocess
import sys
from pathlib import Path

import pytest

from hansard.backend.memory import MemoryBackend, MemoryLog
from hansard.testing.contract import CAPABILITIES, CHECKS, run_contract
from tests.contract.mutants import MUTANTS, of


def others(capability: str) -> list[str]:
    """Return all capabilities but one: what a test of that one leaves out."""
    return [name for name in CAPABILITIES if name != capability]


@pytest.mark.parametrize(
    ("mutant", "capability"), MUTANTS.items(), ids=[mutant.__name__ for mutant in MUTANTS]
)
def test_a_broken_backend_is_found_out(mutant: type[MemoryBackend], capability: str) -> None:
    """A backend with one deliberate bug fails a check of the capability it breaks (N-17)."""
    report = run_contract(mutant, skip=others(capability))
    assert not report.passed, f"nobody noticed:\n{report.to_text()}"
    text = report.to_text()
    for failure in report.failures:
        assert failure.check.capability == capability
        assert failure.check.claim in text
        assert failure.reason in text


def test_what_mutants_are_made_of_is_sound() -> None:
    """N-17: without its bug a mutant passes, so it is the bug that is found."""
    report = run_contract(of(MemoryLog))
    assert report.passed, report.to_text()


def test_a_broken_backend_is_found_out_without_asserts() -> None:
    """Under `python -O`, where asserts are gone, the suite means the same, and needs no pytest."""
    program = (
        "import sys; sys.modules['pytest'] = None\n"
        "from hansard.testing.contract import run_contract\n"
        "from hansard.backend.memory import MemoryBackend\n"
        "from tests.contract.mutants import LogWithoutKeys, of\n"
        "assert False, 'not under -O'\n"
        "print(run_contract(MemoryBackend).passed, run_contract(of(LogWithoutKeys)).passed)\n"
    )
    done = subprocess.run(
        [sys.executable, "-O", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.split() == ["True", "False"]


LOCKLESS = """
import sys, tempfile
from hansard.backend.local import LocalBackend
from hansard.log.lock import Lock
from hansard.testing.contract import CHECKS
(check,) = [check for check in CHECKS if check.name == "handles_write_at_the_same_time"]
with tempfile.TemporaryDirectory() as place:
    def run(name):
        check(
            lambda: LocalBackend(f"{place}/{name}", durability="os"),
            lambda old: LocalBackend(old.where, durability="os"),
        )
    run("locked")
    Lock.acquire = lambda self, timeout: None
    for attempt in range(60):
        try:
            run(attempt)
        except Exception as error:
            print("noticed")
            break
"""


def test_a_store_without_its_lock_is_found_out() -> None:
    """N-17: the check of writers at the same time passes with the lock, and fails when it is taken out."""
    done = subprocess.run(
        [sys.executable, "-c", LOCKLESS], capture_output=True, text=True, check=True, timeout=100
    )
    assert done.stdout.strip() == "noticed"


def test_capabilities_are_data() -> None:
    """Every capability has a check, every check a capability, a name of its own and a sentence."""
    assert {check.capability for check in CHECKS} == set(CAPABILITIES)
    assert len({check.name for check in CHECKS}) == len(CHECKS)
    assert [check.name for check in CHECKS if not check.claim.endswith(".")] == []
    assert [name for name, capability in CAPABILITIES.items() if not capability.must] == ["handles"]


def test_what_is_skipped_is_said() -> None:
    """Checks can be left out by name or capability; the report counts them, and a typo is an error."""
    report = run_contract(MemoryBackend, skip=["wait", "keys_are_any_text"])
    names = {result.check.name for result in report.skipped}
    assert "keys_are_any_text" in names
    assert "wait_says_no_when_nothing_came" in names
    assert "skipped" in report.to_text()
    with pytest.raises(ValueError, match="weight"):
        run_contract(MemoryBackend, skip=["weight"])
