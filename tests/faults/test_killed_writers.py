"""Claims about kill -9: 340 kills, at random moments and at chosen calls. N-27, N-38, N-39, F-25 to F-31."""

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from hansard.log import names
from tests.faults.ack_journal import Death, leftovers
from tests.faults.kill_loop import APPENDING, BEGINNING, SESSIONS, KillLoop
from tests.faults.workers import Crew, Wire, open_store


@pytest.fixture
def kill_loop(tmp_path: Path, rng: random.Random) -> Iterator[KillLoop]:
    """Return a kill loop that ends with the test."""
    with Crew() as crew:
        kill_loop = KillLoop(tmp_path, rng, crew)
        yield kill_loop
        kill_loop.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("half", ["first", "second"])
def test_300_writers_killed_beside_compaction_lose_and_double_nothing(
    kill_loop: KillLoop, half: str
) -> None:
    """N-39, F-27 to F-31, F-99: whoever is killed, what was acknowledged is there once, whole, in order.

    Four processes with two threads each, while another compacts the sessions; now and then it is killed, too.
    """
    fates = kill_loop.withstand(150, SESSIONS, APPENDING, pace=3)
    # They did die in all places: before their writes, amid them, and before they were told.
    assert min(fates["acknowledged"], fates["there"], fates["not there"]) > 0
    assert kill_loop.recovered
    sealed = [list((kill_loop.path / names.SESSIONS / name).glob("*.zst")) for name in SESSIONS]
    assert any(sealed)


@pytest.mark.slow
def test_40_writers_killed_while_they_begin_sessions_damage_none(
    kill_loop: KillLoop, rng: random.Random
) -> None:
    """N-27, N-38, N-39, F-25: a session whose beginning was killed is there whole, or not; then it begins."""
    swept = 0
    begun: set[str] = set()
    for name in kill_loop.run(40, [], BEGINNING, pace=3):
        attempts = kill_loop.attempts(name)
        # The last one of each thread is the one that may have been under way.
        for session in {attempt.writer: attempt.session for attempt in attempts}.values():
            directory = kill_loop.path / names.SESSIONS / names.encode(session)
            is_there = (directory / names.LOG).exists()
            assert kill_loop.store.exists(session) == is_there
            swept += len(leftovers(directory))
            kill_loop.append(session)
            assert not leftovers(directory)
        begun.update(attempt.session for attempt in attempts)
        kill_loop.checker.look(attempt.session for attempt in attempts)
        for thread in range(2):
            kill_loop.checker.check(f"{name}.{thread}")
    kill_loop.checker.check_all()
    assert swept > 0
    assert kill_loop.store.verify().ok
    listed = kill_loop.store.sessions().items
    assert {item.id for item in listed} == begun
    assert not [item for item in listed if item.damaged]
    assert kill_loop.kills == 40


# ------------------------------------------------------------------ what a death leaves behind


def begin_store(wire: Wire, path: str, death: Death) -> None:
    """Make a store and its first session, and die on the way."""
    death.arm()
    with open_store(path, "sync") as store:
        store.session("s").add_message({"by": "the killed"})


@pytest.mark.slow
def test_a_store_whose_making_was_killed_is_made_by_the_next(tmp_path: Path) -> None:
    """N-39, F-1: killed at every call that makes a store and its first session, the next one succeeds."""
    deaths = 0
    with Crew() as crew:
        for call, moment in [("make_root", "before"), ("make_root", "after"), *BEGINNING]:
            for number in itertools.count(1):
                path = tmp_path / f"{call}-{moment}-{number}"
                worker = crew.start(begin_store, str(path), Death(call, number, moment))
                if not worker.hear_it_die():
                    break
                deaths += 1
                with open_store(str(path), "sync") as store:
                    assert store.session("s").seq in {0, 1}
                    store.session("s").add_message({"by": "the next"})
                    assert [item.id for item in store.sessions().items] == ["s"]
                    assert store.session("s").messages()[-1] == {"by": "the next"}
                    assert store.verify().ok
    assert deaths > 30
