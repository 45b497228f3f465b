"""Claims about kill -9: 340 kills, at random moments and at chosen calls. N-27, N-38, N-39, F-25 to F-31."""

import itertools
from pathlib import Path

import pytest

from tests.crashlab import histories
from tests.crashlab.faults import APPENDING, BEGINNING, Death
from tests.faults.workers import Crew, Wire, open_store

KILLS = 150


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("half", ["first", "second"])
def test_300_writers_killed_beside_compaction_lose_and_double_nothing(
    tmp_path: Path, seed: int, half: str
) -> None:
    """N-39, F-27 to F-31, F-99: whatever is killed, what was acknowledged is there once, complete, in order.

    Four processes with two threads each append, compact, fork, delete and read the same sessions.
    """
    history = histories.run(
        tmp_path / "store",
        operations=KILLS,
        kills=KILLS,
        deaths=APPENDING,
        seed=seed,
        options={"durability": "os", "lock_timeout": 60.0},
        weights={"compact": 6},
        timeout=200.0,
    )
    assert [str(violation) for violation in histories.check(history)] == []
    assert sum(history.kills.values()) >= KILLS
    # They died before, amid and after their writes. Amid one leaves a torn tail, which others recover.
    assert {"write before", "write amid", "write after"} <= history.kills.keys()
    assert {one.outcome for one in history.operations if one.do == "append"} >= {"ok", "unknown"}


@pytest.mark.slow
def test_40_writers_killed_while_they_begin_sessions_damage_none(tmp_path: Path, seed: int) -> None:
    """N-27, N-38, N-39, F-25: a session killed at its beginning is complete, or missing."""
    history = histories.run(
        tmp_path / "store",
        operations=60,
        kills=40,
        deaths=BEGINNING,
        seed=seed,
        options={"durability": "os", "lock_timeout": 60.0},
        weights={
            **dict.fromkeys(histories.WEIGHTS, 0),
            "create": 4,
            "begin": 4,
            "list": 1,
            "append": 2,
        },
    )
    assert [str(violation) for violation in histories.check(history)] == []
    assert sum(history.kills.values()) >= 40
    begun = [name for name in history.sessions if name.startswith(("new/", "begun/"))]
    assert len(begun) > 20


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
