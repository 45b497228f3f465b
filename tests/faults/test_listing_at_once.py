"""Claims about listing a store that others write to, list, kill and fork at the same time.

Beside: `test_index`, for an index that is damaged. Each claim below needs real processes: what one of them
has acknowledged, another must list.
"""

import contextlib
import ctypes
import os
import random
import signal
import sqlite3
import threading
from collections import Counter
from multiprocessing.sharedctypes import RawArray
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.index.catalog import SessionCatalog
from tests.crashlab import faults
from tests.faults.test_fork import ended_well, in_child
from tests.faults.workers import PATIENCE, Crew, Wire, open_store
from tests.unit.disk_probe import index_of
from tests.unit.index import reference_listing

MESSAGE = {"role": "user", "content": "hello"}

#: How many sessions two writers share.
SHARED = 40

#: How many rounds each writer goes; HANSARD_LISTING_ROUNDS=600 is about a minute.
ROUNDS = int(os.environ.get("HANSARD_LISTING_ROUNDS", "12"))


def shared_id(number: int) -> str:
    """Return the id of a session that both write to."""
    return f"shared/{number:03}"


def write_titles(
    wire: Wire, path: str, writer: int, seed: int, announced: Any, acknowledged: Any
) -> None:
    """Give titles to every other session, and say before and after each which one; do other things too."""
    rng = random.Random(seed)
    with open_store(path, "os") as store:
        wire.tell("ready")
        wire.wait()
        for turn in range(1, ROUNDS + 1):
            if turn % 10 == 0:
                wire.tell(turn)  # that it goes on, if it goes on for long
            for number in rng.sample(range(SHARED), SHARED):
                session = store.session(shared_id(number))
                if number % 2 == writer:
                    announced[number] = turn
                    session.set_title(f"title {turn}")
                    acknowledged[number] = turn
                else:
                    session.add_message(MESSAGE)
                if rng.random() < 0.02:
                    with contextlib.suppress(hansard.LockTimeout):  # the other one is at it
                        session.compact()
            own = store.session(f"own/{writer}/{turn}")
            own.add_message(MESSAGE)
            if turn % 2:
                store.delete(own.id)


def list_all(
    wire: Wire,
    path: str,
    mode: str,
    seed: int,
    announced: Any,
    acknowledged: Any,
    *,
    lazy: bool = False,
) -> int:
    """List until told to go; check each pass against what was acknowledged before it; return their number."""
    if lazy:
        setattr(SessionCatalog, "refresh", _refresh_once)  # noqa: B010 - the mutation that must be noticed
    rng = random.Random(seed)
    passes = 0
    with hansard.open(path, read_only=mode == "ro", durability="os") as store:
        wire.tell("ready")
        # Once at least: where processors are few, the writers may be through before this one begins.
        while passes == 0 or not wire.told_to_go():
            before = list(acknowledged)
            order = rng.choice(["", "-"]) + rng.choice(sorted(reference_listing.ORDERS))
            paged = rng.random() < 0.5
            if not paged:
                found = store.sessions(order=order, prefix="shared/").items
            else:
                found = reference_listing.pages(store.sessions, 7, order=order, prefix="shared/")
            after = list(announced)
            counts = Counter(info.id for info in found)
            # A session that moves between two pages may be on both, or on neither.
            if order.lstrip("-") in {"id", "created"} or not paged:
                wrong = {name: count for name, count in counts.items() if count != 1}
                assert (len(counts), wrong) == (SHARED, {}), order
            for info in found:
                number = int(info.id.removeprefix("shared/"))
                shown = int((info.title or "title 0").removeprefix("title "))
                assert before[number] <= shown <= after[number], (order, info)
                assert not info.damaged
            passes += 1
    return passes


def _refresh_once(
    catalog: SessionCatalog,
    progress: object = None,
    *,
    done: list[int] = [],  # noqa: B006 - it must be
) -> None:
    if not done:
        done.append(1)
        _refresh(catalog)


_refresh = SessionCatalog.refresh


def run(path: Path, rng: random.Random, *, lazy: bool = False) -> list[int]:
    """Let two write and two list; return how many passes each lister has made."""
    with hansard.open(path, durability="os") as store:
        for number in range(SHARED):
            store.session(shared_id(number)).add_message(MESSAGE)
    announced, acknowledged = (RawArray(ctypes.c_long, SHARED) for _ in range(2))
    with Crew() as crew:
        listers = [
            crew.start(
                list_all,
                str(path),
                mode,
                rng.randrange(1 << 32),
                announced,
                acknowledged,
                lazy=lazy,
            )
            for mode in ("rw", "ro")
        ]
        writers = [
            crew.start(
                write_titles, str(path), writer, rng.randrange(1 << 32), announced, acknowledged
            )
            for writer in range(2)
        ]
        for worker in (*listers, *writers):
            assert worker.hear() == "ready"
        for worker in writers:
            worker.go()
        for worker in writers:
            worker.result()
        for worker in listers:
            with contextlib.suppress(BrokenPipeError):  # it has failed, and says so below
                worker.go()
        passes = [worker.result() for worker in listers]
    with hansard.open(path, durability="os") as store:
        assert store.sessions().items == reference_listing.everything(store)
        assert {info.title for info in store.sessions(prefix="shared/").items} == {
            f"title {ROUNDS}"
        }
    return passes


@pytest.mark.slow
def test_no_listing_is_stale_while_two_write_and_two_list(
    tmp_path: Path, rng: random.Random
) -> None:
    """N-35, N-76: each session is listed once in each pass, with a title not older than was acknowledged."""
    assert min(run(tmp_path / "store", rng)) > 0


@pytest.mark.slow
def test_a_listing_that_is_not_brought_up_to_date_would_be_noticed(
    tmp_path: Path, rng: random.Random
) -> None:
    """The claim above fails where the index is not brought up to date before it is asked."""
    with pytest.raises(AssertionError, match=r"list_all failed|title"):
        run(tmp_path / "store", rng, lazy=True)


# -- whoever dies -------------------------------------------------------------------------------


def list_and_die(wire: Wire, path: str, at: int) -> bool:
    """List, and be killed at the nth call of the disk; return that it was not."""
    calls = [0]

    def count(*_: object) -> None:
        calls[0] += 1
        if calls[0] == at:
            os.kill(os.getpid(), signal.SIGKILL)

    with hansard.open(path, durability="os") as store, faults.record(watch=count):
        store.sessions(progress=count)
        store.stats(progress=count)
    return True


@pytest.mark.slow
@pytest.mark.parametrize("there", [True, False])
def test_whoever_is_killed_while_listing_leaves_nothing_stale(
    tmp_path: Path, *, there: bool
) -> None:
    """N-35, N-86: kill -9 at any moment of a pass; the next listing, by anybody, is what the logs say."""
    root = tmp_path / "store"
    with hansard.open(root, durability="os") as store, Crew() as crew:
        for number in range(6):
            store.session(f"s{number}").add_message(MESSAGE)
        if there:
            store.sessions()
        survived = False
        at = 1
        while not survived:
            if not there:
                for path in root.glob("index*"):
                    path.unlink()
            store.session(f"s{at % 6}").set_title(f"at {at}")
            store.session(f"t{at}").add_message(MESSAGE)
            worker = crew.start(list_and_die, str(root), at)
            survived = not worker.hear_it_die()
            crew.discard(worker)
            assert store.sessions().items == reference_listing.everything(store)
            store.delete(f"t{at}")
            at += 1 + at // 4
        assert at > 20


def stay_in_a_pass(wire: Wire, path: str) -> None:
    """Begin a pass, and stay in the middle of it until told to go on."""
    with open_store(path, "os") as store:

        def stay(done: int, total: int) -> None:
            wire.tell((done, total))
            wire.wait()

        store.sessions(progress=stay)


def test_writers_do_not_wait_for_whoever_lists(tmp_path: Path) -> None:
    """While one process is in the middle of a pass, others append, and a later listing has it."""
    root = tmp_path / "store"
    with hansard.open(root, durability="os", lock_timeout=0.5) as store, Crew() as crew:
        store.session("s").add_message(MESSAGE)
        worker = crew.start(stay_in_a_pass, str(root))
        assert worker.hear() == (1, 1)
        for number in range(5):
            store.session("s").add_message(MESSAGE)
            store.session(f"new{number}").set_title("new")
        assert store.session("s").seq == 6
        worker.go()
        worker.result()
        assert store.sessions().items == reference_listing.everything(store)
        assert store.count() == 6


# -- threads and forks --------------------------------------------------------------------------


def list_in_a_forked_child(wire: Wire, path: str) -> None:
    """List, fork, and list in both at once, again and again."""
    with open_store(path, "os") as store:
        store.session("s").add_message(MESSAGE)
        assert store.count() == 1

        def child() -> None:
            for number in range(10):
                store.session(f"child/{number}").add_message(MESSAGE)
                assert store.count(prefix="child/") >= number + 1
            store.close()

        for turn in range(3):
            pid = in_child(child)
            for number in range(10):
                store.session(f"parent/{turn}/{number}").add_message(MESSAGE)
                assert store.count(prefix=f"parent/{turn}/") == number + 1
            assert ended_well(pid)
            assert store.sessions().items == reference_listing.everything(store)
    connection = sqlite3.connect(index_of(Path(path)))
    assert connection.execute("PRAGMA integrity_check(index_session)").fetchone() == ("ok",)
    connection.close()


def fork_in_mid_pass(wire: Wire, path: str) -> None:
    """Fork while another thread is in the middle of a pass: the child must neither wait nor disturb it."""
    with open_store(path, "os") as store:
        for name in "abc":
            store.session(name).add_message(MESSAGE)
        staying, go = threading.Event(), threading.Event()

        def stay(done: int, total: int) -> None:
            staying.set()
            assert go.wait(PATIENCE)

        thread = threading.Thread(target=lambda: store.sessions(progress=stay))
        thread.start()
        assert staying.wait(PATIENCE)

        def child() -> None:
            assert store.sessions().items == reference_listing.everything(store)
            store.session("by the child").add_message(MESSAGE)
            assert store.count() == 4

        assert ended_well(in_child(child))
        go.set()
        thread.join(PATIENCE)
        assert store.sessions().items == reference_listing.everything(store)
        assert store.count() == 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("job", [list_in_a_forked_child, fork_in_mid_pass])
def test_a_forked_child_lists_right_and_disturbs_nobody(tmp_path: Path, job: Any) -> None:
    """A store that a forked child inherits is listed there as in its parent, also if that is just listing."""
    with Crew() as crew:
        crew.start(job, str(tmp_path / "store")).result()
