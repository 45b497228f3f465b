"""Purge and prune next to writers and forks. `test_disk_faults` strikes each of their calls."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.errors import InUse
from tests.faults.fault_scenarios import DAY, make_old
from tests.faults.workers import Crew, open_store, stay_in_mid_append


def listed(store: hansard.Store) -> set[str]:
    """Return the ids of all live sessions."""
    return {info.id for info in store.sessions().items}


def test_prune_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    """N-87, N-24: a session whose lock is held stays, and prune returns while it is held."""
    path = tmp_path / "store"
    with open_store(str(path), "os") as store, Crew() as crew:
        make_old(store, "busy", "idle")
        holder = crew.start(stay_in_mid_append, str(path), "busy")
        holder.hear()
        report = store.prune(older_than=DAY)
        assert report.pruned == ["idle"]
        assert report.kept == {"busy": "being written to"}
        holder.go()
        assert holder.result() == 4
        assert listed(store) == {"busy"}


def test_a_child_that_is_there_before_the_purge_is_seen_by_it(tmp_path: Path) -> None:
    """N-51: a fork by another process, just before the deletion, prevents the purge."""
    path = str(tmp_path / "store")
    with open_store(path, "os") as store, open_store(path, "os") as other:
        make_old(store, "parent")
        other.session("parent").fork("child")
        store.delete("parent")
        with pytest.raises(InUse):
            store.purge("parent")
        # Also if the child is moved while others look for it.
        ids = type(store._backend).ids

        def ids_then_move(backend: Any, *, trash: bool = False) -> Iterator[str]:
            if backend is store._backend and moves and moves[0][0] == trash:
                moves.pop(0)[1]("child")
            return ids(backend, trash=trash)

        delete, restore = (False, other.delete), (True, other.restore)
        for moves in [delete], [restore, delete], [restore], [delete, restore]:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(type(store._backend), "ids", ids_then_move)
                with pytest.raises(InUse):
                    store.purge("parent")
            assert not moves
        assert len(other.session("child").messages()) == 3
