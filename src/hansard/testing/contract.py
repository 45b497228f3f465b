"""Check that a backend keeps the promises of `backend.contract`.

Above: tests, of this house and of others who write a backend.  Below: `checks`.
Needs no test framework:

    report = run_contract(make_backend, reopen=open_it_again)
    assert report.passed, report.to_text()

With pytest, one test for each promise:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
    def test_contract(check, make_backend):
        check(make_backend, open_it_again)

`make_backend` returns a fresh, empty backend each time; `open_it_again` takes one and returns a second,
independent handle to the same storage. A backend that has no such thing, because its sessions live in the
object itself, gives no `reopen`, and the checks of that capability are skipped.
"""

import time
import traceback
from collections.abc import Iterable
from typing import Final, NamedTuple

from hansard.testing.checks import (
    appending,
    compaction,
    cursors,
    forking,
    keeping,
    large,
    reading,
    retention,
    staging,
    watching,
)
from hansard.testing.checks.base import CHECKS as _CHECKS
from hansard.testing.checks.base import Broken, Check, Context, Factory, Reopen

__all__ = [
    "CAPABILITIES",
    "CHECKS",
    "Broken",
    "Capability",
    "Check",
    "Context",
    "Report",
    "Result",
    "run_contract",
]


class Capability(NamedTuple):
    """Something that a backend can do: must, or may."""

    must: bool
    means: str


CAPABILITIES: Final = {
    "append": Capability(must=True, means="keep one event as it is, in its place"),
    "batch": Capability(must=True, means="keep several events, all or none"),
    "expected_seq": Capability(must=True, means="append only if the session is where it should be"),
    "key": Capability(must=True, means="let one key count once"),
    "before": Capability(must=True, means="begin a session at any seq"),
    "first": Capability(must=True, means="give a session's first event"),
    "ancestor": Capability(must=True, means="read a session also from the trash"),
    "sync": Capability(must=True, means="keep events lightly, and make them durable later"),
    "threads": Capability(must=True, means="be used from many threads at once"),
    "read": Capability(must=True, means="give a range of events, in pieces"),
    "read_back": Capability(must=True, means="give the last events first"),
    "controls": Capability(must=True, means="give the control events alone"),
    "wait": Capability(must=True, means="wait for the next event"),
    "ids": Capability(must=True, means="keep all ids apart, and list them"),
    "delete": Capability(must=True, means="put a session into the trash"),
    "restore": Capability(must=True, means="take it out again, whole"),
    "trash": Capability(must=True, means="list the trash, and delete only what was looked at"),
    "purge": Capability(must=True, means="remove a session for good"),
    "audit": Capability(must=True, means="keep a log of what was done to sessions"),
    "sizes": Capability(must=True, means="tell cheaply which sessions have grown"),
    "watch": Capability(must=True, means="tell an index what has changed"),
    "salvage": Capability(must=True, means="give what is left of a session"),
    "cursors": Capability(must=True, means="remember how far consumers have got"),
    "large": Capability(must=True, means="keep large content once, as long as it is needed"),
    "compact": Capability(must=True, means="rewrite what is stored, and forget what should be"),
    "stage": Capability(must=True, means="put a session together before anybody sees it"),
    "verify": Capability(must=True, means="check what is stored"),
    "health": Capability(must=True, means="say whether it can be used"),
    "close": Capability(must=True, means="say that it was closed"),
    "handles": Capability(must=False, means="be opened several times; outlive the object"),
}

#: The files whose checks count, in this order.
_FILES: Final = (
    appending,
    reading,
    keeping,
    watching,
    cursors,
    large,
    retention,
    forking,
    compaction,
    staging,
)

#: Every promise as a check.
CHECKS: Final[tuple[Check, ...]] = tuple(
    check for file in _FILES for check in _CHECKS if check.run.__module__ == file.__name__
)


class Result(NamedTuple):
    """How one check went."""

    check: Check
    #: "passed", "failed" or "skipped".
    outcome: str
    #: Why it failed or was skipped.
    reason: str = ""
    #: Where it failed, as Python shows it.
    trace: str = ""
    seconds: float = 0.0


class Report(NamedTuple):
    """How all checks went."""

    backend: str
    results: tuple[Result, ...]

    @property
    def passed(self) -> bool:
        """True if no check failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[Result, ...]:
        """The results of the checks that failed."""
        return tuple(result for result in self.results if result.outcome == "failed")

    @property
    def skipped(self) -> tuple[Result, ...]:
        """The results of the checks that were not run."""
        return tuple(result for result in self.results if result.outcome == "skipped")

    def to_text(self) -> str:
        """Return the report for people: a line for each capability, and all that failed."""
        lines = [f"{self.backend}: the backend contract"]
        for name, capability in CAPABILITIES.items():
            own = [result for result in self.results if result.check.capability == name]
            count = {
                outcome: sum(result.outcome == outcome for result in own)
                for outcome in ("passed", "failed", "skipped")
            }
            said = ", ".join(f"{number} {outcome}" for outcome, number in count.items() if number)
            duty = "must" if capability.must else "may"
            lines.append(f"  {name:<13} {duty:<5} {capability.means}: {said}")
        for result in self.failures:
            lines += ["", f"{result.check.name}: {result.check.claim}", f"  {result.reason}"]
            lines += [f"  | {line}" for line in result.trace.rstrip().splitlines()]
        return "\n".join(lines) + "\n"


def run_contract(
    factory: Factory, *, reopen: Reopen | None = None, skip: Iterable[str] = ()
) -> Report:
    """Run every check on a backend of its own, and report.

    Args:
        factory: returns a fresh, empty backend.
        reopen: returns a second, independent handle to what a backend stores.
        skip: names of checks, or of capabilities, to leave out; they are reported as skipped.
    """
    left_out = set(skip)
    unknown = left_out - CAPABILITIES.keys() - {check.name for check in CHECKS}
    if unknown:
        raise ValueError(f"skip names no check and no capability: {', '.join(sorted(unknown))}")
    results = []
    for check in CHECKS:
        if {check.name, check.capability} & left_out:
            results.append(Result(check, "skipped", "left out by the caller"))
        elif check.capability == "handles" and reopen is None:
            results.append(Result(check, "skipped", "needs `reopen`, which was not given"))
        else:
            results.append(_run(check, factory, reopen))
    return Report(_name_of(factory), tuple(results))


def _run(check: Check, factory: Factory, reopen: Reopen | None) -> Result:
    begun = time.perf_counter()
    try:
        check(factory, reopen)
    except Exception as error:  # noqa: BLE001 - whatever it raises, the promise is broken
        reason = str(error) if isinstance(error, Broken) else f"raised {error!r}"
        trace = "".join(traceback.format_exception(error))
        return Result(check, "failed", reason, trace, time.perf_counter() - begun)
    return Result(check, "passed", seconds=time.perf_counter() - begun)


def _name_of(factory: Factory) -> str:
    backend = factory()
    try:
        return f"{type(backend).__name__} ({backend.durability})"
    finally:
        backend.close()
