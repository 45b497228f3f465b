"""Purge and prune, concurrently and with kills: N-17, N-28, N-39, N-51, N-87, F-36."""

import itertools
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.backend.contract import AppendRequest
from hansard.errors import InUse, SessionDeleted, SessionNotFound
from hansard.event.event import NewEvent
from hansard.event.kinds import MESSAGE_ADDED
from hansard.log import disk, names
from tests.crashlab import faults
from tests.faults.fault_scenarios import do_not_wait_for_the_disk
from tests.faults.workers import (
    Crew,
    Wire,
    open_store,
    replaced,
    stay_in_mid_append,
)

DAY = timedelta(days=1)
OLD = (datetime.now(UTC) - 9 * DAY).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
TEXT = b'{"message":{"role":"user","content":"old"}}'


def make_old(store: hansard.Store, *session_ids: str, events: int = 3) -> None:
    """Make sessions in which something was last said nine days ago."""
    draft = NewEvent(MESSAGE_ADDED, TEXT, control=False, time=OLD)
    for session_id in session_ids:
        store._backend.log(session_id).append(AppendRequest([draft] * events))


def listed(store: hansard.Store) -> set[str]:
    """Return the ids of all live sessions."""
    return {info.id for info in store.sessions().items}


def recorded(store: hansard.Store, kind: str) -> set[str]:
    """Return the sessions of which the audit log says this."""
    return {event.data["session"] for event in store.audit() if event.kind == kind}


def rubbish(path: Path) -> list[str]:
    """Return what purges have left over in the trash."""
    return [
        found.name for found in (path / names.TRASH).iterdir() if names.is_temporary(found.name)
    ]


# ------------------------------------------------------------------ concurrent writers


def test_prune_does_not_wait_for_whoever_is_writing(tmp_path: Path) -> None:
    """N-87, N-24: a session whose lock is held stays, and prune returns while it is held."""
    path = tmp_path / "store"
    with open_store(str(path), "os") as store, Crew() as crew:
        make_old(store, "busy", "idle")
        holder = crew.start(stay_in_mid_append, str(path), "busy")
        holder.hear()
        for dry_run in (True, False):
            report = store.prune(older_than=DAY, dry_run=dry_run)
            assert report.pruned == ["idle"]
            assert report.kept == {"busy": "being written to"}
        holder.go()
        assert holder.result() == 4
        assert listed(store) == {"busy"}


# ------------------------------------------------------------------ concurrent operations


def delete_purge_restore(wire: Wire, path: str, rounds: int, mine: int) -> tuple[int, int]:
    """Delete, then purge or restore, concurrently with others; return how often each worked."""
    purged = restored = 0
    with open_store(path, "os") as store:
        wire.tell("ready")
        wire.wait()
        for number in range(rounds):
            try:
                store.session("s").add_messages([{"n": 1}, {"n": 2}])
                store.delete("s")
                if (number + mine) % 2:
                    store.purge("s")
                    purged += 1
                else:
                    store.restore("s")
                    restored += 1
            except (SessionDeleted, SessionNotFound):
                pass
    return purged, restored


@pytest.mark.slow
def test_who_purge_and_restore_at_once_leave_it_whole_or_gone(tmp_path: Path) -> None:
    """N-28, N-39: four processes append, delete, purge and restore one session; it is complete or deleted."""
    path = tmp_path / "store"
    with open_store(str(path), "os") as store, Crew() as crew:
        workers = [crew.start(delete_purge_restore, str(path), 40, mine) for mine in range(4)]
        for worker in workers:
            worker.hear()
        for worker in workers:
            worker.go()
        counts = [worker.result() for worker in workers]
        assert sum(purged for purged, _ in counts)
        assert sum(restored for _, restored in counts)
        if "s" in store.trash():
            store.restore("s")
        events = list(store.session("s").events())
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert len(events) % 2 == 0
        assert store.verify().ok
        assert rubbish(path) == []


def delete_amid(
    make_directory: Callable[[int, str], bool],
    store: hansard.Store,
    purged: bool,
    parent: int,
    name: str,
) -> bool:
    """Delete the parent, and purge it if told so, at the moment when its child's directory is made."""
    if name == "child" and store.exists("parent"):
        store.delete("parent")
        if purged:
            store.purge("parent")
    return make_directory(parent, name)


def test_a_fork_of_a_session_that_is_purged_meanwhile_is_none(tmp_path: Path) -> None:
    """N-51, N-89: if the parent is deleted while it is forked, the call raises and no child exists."""
    path = str(tmp_path / "store")
    for purged in (True, False):
        with open_store(path, "os") as store, open_store(path, "os") as other:
            make_old(store, "parent")
            amid = partial(delete_amid, disk.make_directory, other, purged)
            with replaced("make_directory", amid), pytest.raises(SessionDeleted, match="'parent'"):
                store.session("parent").fork("child")
            assert listed(store) == set()
            assert store.trash() == ([] if purged else ["parent"])


def test_a_child_that_is_there_before_the_purge_is_seen_by_it(tmp_path: Path) -> None:
    """N-51: a fork by another process, just before the deletion, prevents the purge."""
    path = str(tmp_path / "store")
    with open_store(path, "os") as store, open_store(path, "os") as other:
        make_old(store, "parent")
        other.session("parent").fork("child")
        store.delete("parent")
        with pytest.raises(InUse):
            store.purge("parent")
        # Also if the child is on its way into the trash while others look for it.
        ids = type(store._backend).ids
        moved: list[str] = []

        def ids_then_delete(backend: Any, *, trash: bool = False) -> Iterator[str]:
            if not (moved or trash):
                moved.append("child")
                other.delete("child")
            return ids(backend, trash=trash)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(store._backend), "ids", ids_then_delete)
            with pytest.raises(InUse):
                store.purge("parent")
        assert moved
        other.restore("child")
        assert len(other.session("child").messages()) == 3


# ------------------------------------------------------------------ amid kills


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("deed", ["purge", "prune"])
def test_killed_at_any_call_a_session_is_there_or_gone_and_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deed: str, when: faults.When
) -> None:
    """N-39, N-87: killed at any call, a session is complete, or deleted and recorded."""
    do_not_wait_for_the_disk(monkeypatch)
    template = tmp_path / "template"
    with hansard.open(template) as store:
        make_old(store, "a", "b")
        if deed == "purge":
            store.delete("a")
    do: dict[str, Callable[[hansard.Store], object]] = {
        "purge": lambda store: store.purge("a"),
        "prune": lambda store: store.prune(older_than=DAY),
    }
    for at in itertools.count(1):
        path = tmp_path / "stage"
        shutil.copytree(template, path)
        fault = faults.kill(at=at, when=when)
        with fault, suppress(faults.Killed):
            do[deed](hansard.open(path))
        with hansard.open(path) as store:
            trash, live = set(store.trash()), listed(store)
            assert not trash & live
            if deed == "purge":
                assert live == {"b"}
                assert trash or "a" in recorded(store, "session.purged")
                if trash:
                    assert len(list(store._backend.log("a", from_trash=True).salvage())) == 3
                    store.purge("a")
                assert store.trash() == []
            else:
                assert trash | live == {"a", "b"}
                assert trash <= recorded(store, "session.pruned")
                store.prune(older_than=DAY)
                assert store.trash() == ["a", "b"]
                for name in "ab":
                    store.restore(name)
                    assert store.session(name).seq == 3
            assert store.verify().ok
        shutil.rmtree(path)
        if not fault.fired:
            break
    assert at > 8


@pytest.mark.parametrize("number", [5, 13, 28])
def test_a_refused_call_amid_a_purge_is_an_error_or_harmless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """N-29: after any refused call the session is complete in the trash, or purged; `purge` reports which."""
    do_not_wait_for_the_disk(monkeypatch)
    template = tmp_path / "template"
    with hansard.open(template) as store:
        make_old(store, "a")
        store.delete("a")
    for at in itertools.count(1):
        path = tmp_path / "stage"
        shutil.copytree(template, path)
        error: hansard.HansardError | None = None
        with hansard.open(path) as store:
            with faults.fail(number, at=at) as fault:
                try:
                    store.purge("a")
                except hansard.HansardError as found:
                    error = found
            if error is None:
                assert store.trash() == []
            elif isinstance(error, hansard.SyncFailed):
                assert store.trash() == ["a"]
                assert store.verify().ok
            elif "the session is purged" in str(error):
                assert store.trash() == []
                assert rubbish(path)
            else:
                assert isinstance(error, hansard.DiskFailed)
                assert store.trash() == ["a"]
            if store.trash():
                assert len(list(store._backend.log("a", from_trash=True).salvage())) == 3
                store.purge("a")
                assert store.trash() == []
        shutil.rmtree(path)
        if not fault.fired:
            break
    assert at > 5
