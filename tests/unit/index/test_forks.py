"""Forks in a listing: their number, and how changes of a parent reach them."""

import random
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import Store
from hansard.backend.contract import Backend
from hansard.index import catalog
from tests.unit.disk_probe import flip, log_of
from tests.unit.index import reference_listing

MESSAGE = {"role": "user", "content": "hello"}


def listed(store: Store) -> dict[str, hansard.SessionInfo]:
    """List a store, by id."""
    return {info.id: info for info in store.sessions().items}


@pytest.mark.parametrize("compacted", [False, True])
def test_forks_of_a_damaged_session_are_flagged_until_it_is_repaired(
    tmp_path: Path, rng: random.Random, *, compacted: bool
) -> None:
    """N-35: damage in a parent flags the forks that inherit it, and its repair clears all of them."""
    root = tmp_path / "store"
    with hansard.open(root, durability="os") as store:
        parent = store.session("p")
        parent.add_messages(
            [{"n": number, "pad": rng.randbytes(99).hex()} for number in range(200)]
        )
        parent.fork("c").add_message(MESSAGE)
        store.session("c").fork("g").add_message(MESSAGE)
        store.session("other").add_message(MESSAGE)
        if compacted:
            store.session("other").compact()
        before = listed(store)
        log = log_of(root, "p")
        flip(log)
        damaged = listed(store)
        assert {name for name, info in damaged.items() if info.damaged} == {"p", "c", "g"}
        assert damaged["other"] == before["other"]
        assert (damaged["c"].parent, damaged["g"].parent) == ("p", "c")
        assert store.count(damaged=True) == 3
        parent.repair()
        repaired = listed(store)
        assert [info.id for info in repaired.values() if info.damaged] == []
        assert list(repaired.values()) == reference_listing.everything(store)
        assert repaired["p"].children == repaired["c"].children == 1


def test_a_redaction_while_its_forks_are_described_reaches_them_in_the_next_listing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-64: the parent is redacted after a fork was described, and before it is described itself."""
    real = catalog.describe

    with hansard.open(tmp_path / "store", durability="os") as store:
        parent = store.session("p")
        parent.set_title("secretword")
        parent.fork("a")

        def describe(backend: Backend, session_id: str, *args: Any, **options: Any) -> Any:
            found = real(backend, session_id, *args, **options)
            if session_id == "a":
                parent.scrub("secretword")
            return found

        with monkeypatch.context() as patch:
            patch.setattr(catalog, "describe", describe)
            assert listed(store)["a"].title == "secretword"
        found = listed(store)
        assert "secretword" not in str(found)
        assert found["a"].title == store.session("a").title
