"""How many histories a machine is driven through, and how long each is.

The tests of each machine, and row 13 of `tools/crash/campaign`, run them.
"""

import os
from typing import Final

import hypothesis
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

#: Calls in a history; Hypothesis ends some before that.
STEPS: Final = 50


def settings(histories: int, *, shrink: bool = True) -> hypothesis.settings:
    """Return the profile's settings for a number of histories.

    `HANSARD_TEST_EXAMPLES` says how many instead; without the thorough profile it is a quarter.
    """
    profile = hypothesis.settings()
    thorough = profile.max_examples >= hypothesis.settings.get_profile("ci").max_examples
    asked = os.environ.get("HANSARD_TEST_EXAMPLES")
    phases = set(profile.phases) if shrink else {hypothesis.Phase.generate}
    return hypothesis.settings(
        profile,
        max_examples=int(asked) if asked else histories if thorough else max(1, histories // 4),
        stateful_step_count=STEPS,
        phases=phases,
        # A step of some of them takes long, and many choices are of nothing that is there.
        suppress_health_check=list(hypothesis.HealthCheck),
    )


def check_machine(
    machine: type[RuleBasedStateMachine], histories: int, *, shrink: bool = True
) -> None:
    """Drive a machine through histories: its steps and invariants compare every answer."""
    run_state_machine_as_test(machine, settings=settings(histories, shrink=shrink))
