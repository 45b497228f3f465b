"""Row 11: situations of a lock and its waiters, each a test with real processes."""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from tools.crash.mutants.mutant import CHECKOUT
from tools.crash.row import Outcome, Row

_LOCKS = "tests/faults/test_locks.py::test_"
_FORK = "tests/faults/test_fork.py::test_"

SITUATIONS = {
    "a holder is stopped": f"{_LOCKS}a_stopped_holder_is_named_and_nothing_is_lost_when_it_goes_on",
    "a holder is killed": f"{_LOCKS}the_lock_of_a_killed_holder_is_free_at_once",
    "threads queue after another process": (
        f"{_LOCKS}threads_of_one_process_give_up_too_when_another_process_holds_the_lock"
    ),
    "a sync takes long": f"{_LOCKS}the_lock_is_not_held_during_a_sync",
    "another session's lock is held": f"{_LOCKS}a_writer_of_one_session_does_not_delay_another_session",
    "two handles in one process": (
        f"{_LOCKS}two_stores_of_one_process_on_one_directory_keep_each_other_out"
    ),
    "the lock file is unlinked": (
        f"{_LOCKS}deleting_the_lock_file_under_writers_loses_and_doubles_nothing"
    ),
    "a warm writer holds an unlinked lock": (
        f"{_LOCKS}a_warm_writer_notices_a_deleted_lock_file_before_it_writes"
    ),
    "the directory is renamed": f"{_LOCKS}the_store_may_be_renamed_while_it_is_open",
    "the session is deleted under a waiting writer": (
        f"{_LOCKS}a_writer_that_waits_while_its_session_is_deleted_is_told_so"
    ),
    "a child is forked in mid-append": (
        f"{_FORK}a_child_forked_in_the_middle_of_an_append_does_not_free_its_parents_lock"
    ),
    "a child outlives its killed parent": (
        f"{_FORK}a_child_that_lives_on_does_not_keep_its_killed_parents_lock"
    ),
    "two compactors": (
        "tests/faults/test_locks.py::test_a_second_compactor_is_refused_and_breaks_nothing"
    ),
}

ROW = Row(
    11, "locks: holders that stop, die or fork; files that move", len(SITUATIONS), len(SITUATIONS)
)


@dataclass
class Situation:
    """One of them."""

    label: str

    def run(self) -> Outcome:
        """Run its test."""
        import hansard

        source = os.path.dirname(os.path.dirname(os.path.abspath(hansard.__file__)))
        command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short")
        done = subprocess.run(
            [*command, SITUATIONS[self.label]],
            cwd=CHECKOUT,
            env={**os.environ, "PYTHONPATH": source},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=200,
            check=False,
        )
        ok = done.returncode == 0
        return Outcome(ok, self.label, "" if ok else (done.stdout + done.stderr)[-2000:])


def cases(count: int, rng: random.Random) -> Iterator[Situation]:
    """Yield all of them, or some."""
    names = list(SITUATIONS)
    yield from map(Situation, names if count >= len(names) else rng.sample(names, count))
