"""Claims about large content under fire: kills, refused calls, collectors beside writers. F-73 to F-77."""

import errno
import gc
import hashlib
import itertools
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.log import disk
from hansard.log.lock import Lock
from tests.crashlab import faults
from tests.faults.crash_runs import Durability, Run, broken_promises
from tests.faults.scenes import Leftovers, do_not_wait_for_the_disk, temporaries
from tests.faults.workers import PATIENCE, Crew, Wire, context

LIMIT = 1000


def opened(path: str | Path, durability: Any = "os", **options: Any) -> hansard.Store:
    """Open a store that keeps large content once."""
    return hansard.open(path, durability=durability, large_content=LIMIT, **options)


def message(name: object, times: int = 300) -> dict[str, Any]:
    """Return a message whose content is large and all its own."""
    return {"name": str(name), "content": f"{name} " * times * 2}


def kept(path: Path) -> set[str]:
    """Return the hashes of the content that is kept."""
    return {file.name for file in path.glob("large/??/*")}


def check_whole(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the messages of all sessions, each of which must be as it was made; `verify` must agree."""
    with hansard.open(path, read_only=True) as store:
        found = {id: store.session(id).messages() for id in store._backend.ids()}
        assert store.verify().findings == [] or all(
            finding.severity == "note" for finding in store.verify().findings
        )
    for messages in found.values():
        for said in messages:
            if "name" in said:
                assert said == message(said["name"])
    return found


# -- kill -9 --------------------------------------------------------------------------------------


def add_until_killed(wire: Wire, path: str, writer: int) -> None:
    """Add large messages, some of which others add too, and tell each that was acknowledged."""
    with opened(path, "sync") as store:
        for number in itertools.count():
            # Every third is everybody's: two processes at once make the same file.
            name = f"common-{number // 3}" if number % 3 == 0 else f"{writer}-{number}"
            store.session(f"s{number % 2}").add_message(message(name))
            wire.tell((number % 2, name))


@pytest.mark.slow
def test_12_killed_writers_lose_no_acknowledged_content(tmp_path: Path, rng: random.Random) -> None:
    """N-39, F-73, F-75: whoever is killed, what was acknowledged is whole; the rest can be collected."""
    path = tmp_path / "store"
    acknowledged: list[tuple[int, str]] = []
    with Crew() as crew:
        living = [crew.start(add_until_killed, str(path), number) for number in range(3)]
        for number in range(3, 15):
            worker = living.pop(rng.randrange(3))
            acknowledged += [worker.hear() for _ in range(rng.randrange(1, 4))]
            moment = time.perf_counter() + rng.random() * 0.004
            while time.perf_counter() < moment:
                pass
            worker.signal(signal.SIGKILL)
            try:
                while True:
                    acknowledged.append(worker.hear())
            except (EOFError, ConnectionResetError):
                pass
            crew.discard(worker)
            living.append(crew.start(add_until_killed, str(path), number))
        for worker in living:
            worker.kill()
    found = check_whole(path)
    for session, name in acknowledged:
        assert message(name) in found[f"s{session}"], name
    before = kept(path)
    with opened(path) as store:
        report = store.collect_large()
        assert len(before) - report.removed == len(kept(path)) == report.kept
    assert check_whole(path) == found
    # The sweep of the next writer, or of a collector that removes something, leaves nothing unfinished.
    with opened(path) as store:
        store.session("s0").add_message(message("last"))
    assert temporaries(path / "large") == []


# -- calls that are refused -----------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let syncs return at once: what they covered is what the fault injector says."""
    do_not_wait_for_the_disk(monkeypatch)


@pytest.fixture
def template(tmp_path: Path) -> Path:
    """Return a store with content to which a message refers, and content to which none does."""
    path = tmp_path / "template"
    with opened(path) as store:
        store.session("s").add_message(message("first"))
        store.session("gone").add_message(message("unreferred"))
        store.delete("gone")
        store._backend.purge("gone")
    return path


def stages(template: Path, tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """Yield 1, 2, 3 … and a copy of the store for each."""
    # What earlier tests left is garbage in cycles, and holds descriptors: what is counted must not shrink.
    gc.collect()
    for at in itertools.count(1):
        stage = tmp_path / f"stage{at}"
        shutil.copytree(template, stage)
        yield at, stage
        shutil.rmtree(stage)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("number", "lasting"),
    [(errno.EIO, False), (errno.ENOSPC, True)],
    ids=["EIO", "ENOSPC for good"],
)
@pytest.mark.parametrize("name", ["new", "first"])
def test_every_refused_call_of_an_append_is_an_error_and_nothing_is_half_referred(
    template: Path, tmp_path: Path, number: int, lasting: bool, name: str
) -> None:
    """N-29, N-38, F-73: refused at any call, an append raises or is whole, and works once more."""
    struck = 0
    for at, stage in stages(template, tmp_path):
        left = Leftovers()
        store = opened(stage, "sync")
        error: type[Exception] | None = None
        with faults.fail(number, at=at, lasting=lasting) as fault:
            try:
                store.session("s").add_message(message(name))
            except hansard.DiskFailed as caught:
                error = type(caught)
            if error is None:
                fault.drop_unsynced()
        assert (error is None) == (not fault.fired) or not lasting
        seen = check_whole(stage)["s"]
        assert seen in ([message("first")], [message("first"), message(name)])
        if error is None:
            assert len(seen) == 2
        if error is not hansard.SyncFailed:
            store.session("s").add_message(message("again"))
            assert check_whole(stage)["s"] == [*seen, message("again")]
        store.close()
        del store
        left.check()
        if not any(call.error and call.operation == "remove" for call in fault.calls):
            assert temporaries(stage) == []
        if not fault.fired:
            break
        struck += 1
    assert struck >= 8


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_death_at_every_call_leaves_the_message_whole_or_not_there(
    template: Path, tmp_path: Path, when: faults.When
) -> None:
    """N-39, F-73, F-75: killed at any call, with all that was not synced lost, no reference hangs."""
    deaths = 0
    for at, stage in stages(template, tmp_path):
        acknowledged = False
        with faults.kill(at=at, when=when) as fault:
            try:
                opened(stage, "sync").session("s").add_message(message("new"))
                acknowledged = True
            except faults.Killed:
                pass
            fault.drop_unsynced("nul" if at % 2 else "cut")
        seen = check_whole(stage)["s"]
        assert seen in ([message("first")], [message("first"), message("new")])
        assert len(seen) == 2 or not acknowledged
        with opened(stage) as store:
            assert store.collect_large().kept == len(seen)
            store.session("s").add_message(message("again"))
        assert check_whole(stage)["s"] == [*seen, message("again")]
        if not fault.fired:
            break
        deaths += 1
    assert deaths >= 10


def shelf_of(said: dict[str, Any]) -> str:
    """Return the directory of a message's content."""
    return hashlib.sha256(said["content"].encode()).hexdigest()[:2]


def large_life(run: Run) -> None:
    """Say something large, and then, in a later append, what is kept in the same directory."""

    def open_store() -> None:
        run._stores.append(hansard.open(run._path, durability=run._durability, large_content=256))

    first = message("one", 40)
    others = (message(number, 200) for number in itertools.count())
    run.step(open_store, None)
    run.append(first)
    if run._durability == "sync":
        run.append(next(other for other in others if shelf_of(other) == shelf_of(first)))


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("durability", ["sync", "os"])
def test_a_power_cut_at_any_point_leaves_no_reference_without_its_content(
    tmp_path: Path, durability: Durability, rng: random.Random
) -> None:
    """F-31, F-73, N-37, N-39: whatever a power cut leaves, in both durabilities, is whole."""
    found = list(broken_promises(tmp_path, large_life, durability, sample=(rng, 150)))
    assert len(found) > 100
    assert [problem for problem in found if problem] == []


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("only", ["MUTATING", "READING"])
def test_a_refused_collection_removes_nothing_that_is_needed(
    template: Path, tmp_path: Path, only: str
) -> None:
    """N-29, F-77: refused at any call a collection raises or does its work, and the next one ends it."""
    struck = 0
    for at, stage in stages(template, tmp_path):
        left = Leftovers()
        store = opened(stage)
        fault = faults.fail(errno.EIO, at=at, only=getattr(faults, only))
        with suppress(hansard.DiskFailed, hansard.Damaged), fault:
            store.collect_large()
        assert check_whole(stage)["s"] == [message("first")]
        assert store.collect_large().kept == 1
        store.close()
        del store
        left.check()
        if not fault.fired:
            break
        struck += 1
    assert struck >= 4


def test_a_failed_sync_of_content_shuts_no_session(template: Path) -> None:
    """F-35, F-73: a sync that fails before the record is written is an error, and no more."""
    with opened(template, "sync") as store:
        session = store.session("s")
        session.add_message({"small": True})
        with (
            faults.fail_sync(at=1),
            pytest.raises(hansard.DiskFailed, match="nothing was appended"),
        ):
            session.add_message(message("new"))
        session.add_message(message("new"))
        assert session.messages()[-1] == message("new")
        assert store.verify().ok


# -- a collector beside writers -------------------------------------------------------------------

#: So few that they are always on the brink: each is purged, collected, and said again.
NAMES = [f"image-{number}" for number in range(3)]


def _take_nothing(lock: Lock, timeout: float) -> None:
    del lock, timeout


def say_and_purge(
    wire: Wire, path: str, writer: int, rounds: int, seed: int, *, barrier: Barrier, locked: bool
) -> int:
    """Say what others say too, look that it is there, and purge it: content comes and goes all the time."""
    if not locked:
        setattr(Lock, "acquire_shared", _take_nothing)  # noqa: B010 - mypy knows it for a method
    rng = random.Random(seed)
    lost = 0
    with opened(path) as store:
        barrier.wait(PATIENCE)
        for number in range(rounds):
            session = store.session(f"{writer}-{number}")
            name = rng.choice(NAMES)
            if number % 4 == 3:
                session.add_messages([message(name), message("kept")], key="k")
            else:
                session.add_message(message(name))
            try:
                assert session.messages()[0] == message(name)
            except hansard.Damaged:
                lost += 1
            store.delete(session.id)
            if rng.random() < 0.2:
                store.restore(session.id)
                store.delete(session.id)
            store._backend.purge(session.id)
    return lost


def collect_until_told(wire: Wire, path: str, *, barrier: Barrier) -> int:
    """Collect again and again; return how much was removed."""
    removed = 0
    with opened(path) as store:
        barrier.wait(PATIENCE)
        while not wire.told_to_go():
            removed += store.collect_large().removed
        # Once more, at the end: the writers may have been through before this one had its turn.
        removed += store.collect_large().removed
    return removed


def siege(path: Path, rng: random.Random, *, locked: bool, rounds: int) -> tuple[int, int]:
    """Let three writers and two collectors at a store; return how much was lost, and how much removed."""
    opened(path).close()
    barrier = context.Barrier(5)
    with Crew() as crew:
        collectors = [crew.start(collect_until_told, str(path), barrier=barrier) for _ in range(2)]
        writers = [
            crew.start(
                say_and_purge,
                str(path),
                number,
                rounds,
                rng.getrandbits(32),
                barrier=barrier,
                locked=locked,
            )
            for number in range(3)
        ]
        lost = sum(writer.result() for writer in writers)
        for collector in collectors:
            with suppress(BrokenPipeError):  # it has failed, and says why below
                collector.go()
        removed = sum(collector.result() for collector in collectors)
    return lost, removed


@pytest.mark.slow
def test_collectors_beside_writers_remove_nothing_that_is_referred_to(
    tmp_path: Path, rng: random.Random
) -> None:
    """F-76, F-77, N-17: content that comes and goes all the time is there whenever it is said."""
    lost, removed = siege(tmp_path / "store", rng, locked=True, rounds=40)
    assert lost == 0
    assert removed > 0
    with opened(tmp_path / "store") as store:
        assert store.verify().ok
        store.collect_large()
        assert kept(tmp_path / "store") == set()


@pytest.mark.slow
def test_without_the_lock_the_same_writers_lose_content(tmp_path: Path, rng: random.Random) -> None:
    """N-17: the test above fails when the writers' lock is taken out, so it does look."""
    for attempt in range(40):
        lost, _ = siege(tmp_path / str(attempt), rng, locked=False, rounds=25)
        if lost:
            return
    raise AssertionError("nobody noticed that the lock was gone")


# -- a writer that stays --------------------------------------------------------------------------


def stay_before_the_record(wire: Wire, path: str) -> list[dict[str, Any]]:
    """Say what is kept already, but stay before the record is written until told to go on."""
    real = disk.write

    def stay_then_write(descriptor: int, data: Any) -> int:
        if data.startswith(b'{"seq"'):
            wire.tell("content found, record not written")
            wire.wait()
        return real(descriptor, data)

    with opened(path) as store:
        session = store.session("s")
        session.add_message({"first": True})
        disk.write = stay_then_write
        session.add_message(message("unreferred"))
        return session.messages()


def test_a_collector_waits_for_a_writer_that_has_found_its_content(template: Path) -> None:
    """F-76, F-77: between looking and writing a writer keeps the collector away, which gives up in time."""
    with Crew() as crew:
        worker = crew.start(stay_before_the_record, str(template))
        worker.hear()
        with opened(template, lock_timeout=0.05) as store:
            with pytest.raises(hansard.LockTimeout, match="nothing was collected") as caught:
                store.collect_large()
            assert caught.value.holder in {None, worker.pid}
            # Others write, and read, meanwhile.
            store.session("t").add_message(message("other"))
            assert store.session("t").messages() == [message("other")]
        worker.go()
        assert worker.result()[-1] == message("unreferred")
        with opened(template) as store:
            assert store.collect_large().removed == 0
    check_whole(template)


def test_a_killed_writer_keeps_nobody_away(template: Path) -> None:
    """N-23, F-75, F-76: when a writer dies between its content and its record, both can be had at once."""
    with Crew() as crew:
        worker = crew.start(stay_before_the_record, str(template))
        worker.hear()
        worker.kill()
        with opened(template, lock_timeout=5.0) as store:
            assert store.collect_large().removed == 1
            store.session("s").add_message(message("unreferred"))
    check_whole(template)


def test_a_content_said_between_the_steps_of_a_collection_stays(template: Path) -> None:
    """F-77: what is said again after the collector has read all sessions, and before it removes, stays."""
    with opened(template) as store, opened(template) as writer:
        backend = store._backend
        found: list[str] = []

        def nothing_refers(logs: Any) -> set[str]:
            list(logs)
            # Found while nothing referred to it; said now, by another.
            writer.session("late").add_message(message("unreferred"))
            found.extend(kept(template))
            return set()

        (gone,) = backend.collect(nothing_refers)
        assert len(found) == 2
        assert gone.sha256 not in kept(template)
        assert writer.session("late").messages() == [message("unreferred")]


@pytest.mark.parametrize("deed", ["delete", "restore"])
def test_no_session_moves_while_a_collector_notes_their_names(template: Path, deed: str) -> None:
    """F-76, F-77: one that went to the trash, or came back, between two listings would be in neither."""
    with opened(template) as store, opened(template, lock_timeout=0.01) as other:
        if deed == "restore":
            store.delete("s")
        kept_away: list[str] = []

        def interfere(call: faults.Call, arguments: object, result: object) -> None:
            del arguments, result
            # Just before the sessions, and then the trash, are listed.
            if call.operation == "names" and Path(call.place).name in {"sessions", "trash"}:
                with pytest.raises(hansard.LockTimeout):
                    getattr(other, deed)("s")
                kept_away.append(Path(call.place).name)

        with faults.record(watch=interfere):
            assert store.collect_large().removed == 1
        assert kept_away == ["sessions", "trash"]
        getattr(other, deed)("s")
        (other if deed == "restore" else store).collect_large()
        if deed == "delete":
            other.restore("s")
        assert store.session("s").messages() == [message("first")]


def say_common(wire: Wire, path: str, writer: int, count: int, *, barrier: Barrier) -> int:
    """Say what all others say at the same moment."""
    with opened(path, "sync") as store:
        session = store.session(f"w{writer}")
        for number in range(count):
            barrier.wait(PATIENCE)
            session.add_message(message(f"common-{number}"))
        assert session.messages() == [message(f"common-{number}") for number in range(count)]
    return count


def test_processes_that_keep_the_same_content_at_once_keep_it_once(tmp_path: Path) -> None:
    """N-27, F-73: four processes at a barrier make one whole file for each content, and leave no other."""
    path = tmp_path / "store"
    opened(path).close()
    barrier = context.Barrier(4)
    with Crew() as crew:
        workers = [
            crew.start(say_common, str(path), number, 15, barrier=barrier) for number in range(4)
        ]
        assert [worker.result() for worker in workers] == [15] * 4
    assert len(kept(path)) == 15
    assert temporaries(path) == []
    assert {name: len(found) for name, found in check_whole(path).items()} == {
        f"w{number}": 15 for number in range(4)
    }


def test_a_fork_of_a_process_in_mid_append_does_not_keep_the_lock(tmp_path: Path) -> None:
    """F-76: a child that was forked while the lock was shared does not hold on to it."""
    path = tmp_path / "store"
    with opened(path, lock_timeout=5.0) as store:
        store.session("s").add_message(message("first"))
        with store._backend.large.moving():  # type: ignore[attr-defined]
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                # Waits, with copies of all descriptors that nobody closed.
                os.close(writer)
                os.read(reader, 1)
                os._exit(0)
        try:
            assert store.collect_large().kept == 1
        finally:
            os.close(writer)
            os.close(reader)
            assert os.waitpid(child, 0)[1] == 0


def test_the_log_of_a_large_message_is_small_and_says_what_it_refers_to(tmp_path: Path) -> None:
    """F-70, F-71: the record has an empty text, and beside the data the place, the hash and the size."""
    path = tmp_path / "store"
    with opened(path) as store:
        store.session("s").add_message(message("one"))
    line = json.loads((path / "sessions" / "s" / "log.jsonl").read_bytes().splitlines()[1])
    (name,) = kept(path)
    content = message("one")["content"]
    assert line["large"] == [{"at": ["message", "content"], "sha256": name, "bytes": len(content)}]
    assert line["data"] == {"message": {"name": "one", "content": ""}}
