"""Row 13: random calls, compared with a naive model.

A case is one state machine and some histories of one seed. A failure is reported with its calls, and the
same case fails again.
"""

import random
import traceback
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import hypothesis
from hypothesis.reporting import with_reporter
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from tests.properties import test_machine, test_search
from tests.properties.histories import STEPS
from tools.crash.row import Outcome, Row

#: Histories of a case: Hypothesis starts with short ones, and continues from what it has seen.
HISTORIES: Final = 20

ROW = Row(
    13, f"any calls against plain lists, {HISTORIES} histories of {STEPS} steps a case", 6, 120
)


def _driven(machine: type[RuleBasedStateMachine]) -> Callable[[int, hypothesis.settings], None]:
    """Return what drives a machine, given a seed."""

    def drive(seed: int, settings: hypothesis.settings) -> None:
        # Hypothesis takes the seed from the class: a private class, so that no other is affected.
        own = type(machine.__name__, (machine,), {})
        run_state_machine_as_test(hypothesis.seed(seed)(own), settings=settings)

    return drive


MACHINES: Final = {
    "views in files": _driven(test_machine.InFiles),
    "views in memory": _driven(test_machine.InMemory),
    "searches": _driven(test_search.Searching),
    "compactions": _driven(test_machine.InSmallFrames),
}


class Case(NamedTuple):
    """Some histories of one machine."""

    machine: str
    seed: int

    @property
    def label(self) -> str:
        """Its name."""
        return f"machine {self.machine} {self.seed}"

    def run(self) -> Outcome:
        """Drive it."""
        settings = hypothesis.settings(
            max_examples=HISTORIES,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            phases=[hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        try:
            # Hypothesis also notes with the error which calls led to it.
            with with_reporter(lambda _: None):
                MACHINES[self.machine](self.seed, settings)
        except Exception:  # noqa: BLE001 - any error is the machine's verdict
            return Outcome(ok=False, label=self.label, detail=traceback.format_exc(limit=-4))
        return Outcome(ok=True, label=self.label, detail=f"{HISTORIES} histories")


def cases(count: int, rng: random.Random) -> Iterator[Case]:
    """Yield `count` cases, one machine after the other."""
    names = list(MACHINES)
    for number in range(count):
        yield Case(names[number % len(names)], rng.getrandbits(32))
