"""Listings, counts, sums and the latest session agree with the logs, by every filter, order and page."""

import random
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard import Page, SessionInfo, Store
from hansard.index import StoreStats
from tests.unit.disk_probe import index_of
from tests.unit.index import reference_listing
from tests.unit.index.random_store import IDS, KEYS, TITLES, VALUES, RandomStore


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Return two directories that sessions may belong to."""
    found = [tmp_path / "work", tmp_path / "play"]
    for folder in found:
        folder.mkdir()
    return found


def some_filter(
    rng: random.Random, known: list[SessionInfo], folders: list[Path]
) -> dict[str, Any]:
    """Return random arguments of a listing."""
    times = [info.updated for info in known if info.updated]
    times.append(datetime(2020, 1, 1, tzinfo=UTC))
    choices: dict[str, Callable[[], Any]] = {
        "prefix": lambda: rng.choice(["a", "a/", "a/1", "b/", "zzz", "B", "\U0010ffff"]),
        "where": lambda: {
            rng.choice(KEYS): rng.choice([*VALUES, None]) for _ in range(rng.randrange(1, 3))
        },
        "since": lambda: rng.choice(times),
        "until": lambda: rng.choice(times),
        "title": lambda: rng.choice([*TITLES, "REFUND", "a", "%", "strasse"]),
        "workspace": lambda: rng.choice(folders),
        "parent": lambda: rng.choice(IDS),
        "archived": lambda: rng.choice([True, False]),
        "damaged": lambda: rng.choice([True, False]),
    }
    chosen = rng.sample(sorted(choices), rng.choice([0, 0, 1, 1, 2, 3]))
    asked = {name: choices[name]() for name in chosen}
    asked["order"] = rng.choice(["", "-"]) + rng.choice(sorted(reference_listing.ORDERS))
    return asked


def compare(rng: random.Random, store: Store, folders: list[Path], *others: Store) -> None:
    """Compare all answers of the index with a reading of every session."""
    known = reference_listing.everything(store)
    stats = reference_listing.stats(store)
    for one in (store, *others):
        assert one.sessions().items == known
        assert msgspec.structs.replace(one.stats(), raw_bytes=0) == stats
    for info in known:
        forks = [fork.id for fork in known if fork.parent == info.id]
        assert store.session(info.id).children() == forks
    for _ in range(6):
        asked = some_filter(rng, known, folders)
        expected = reference_listing.listing(known, **asked)
        assert store.sessions(**asked) == Page(expected, None), asked
        limit = rng.randrange(1, 5)
        assert reference_listing.pages(store.sessions, limit, **asked) == expected, asked
        counted = {name: value for name, value in asked.items() if name != "order"}
        assert store.count(**counted) == len(expected), asked
        wanted = {name: asked[name] for name in ("prefix", "workspace") if name in asked}
        newest = reference_listing.listing(known, **wanted, order="-updated")
        for archived in (True, False):
            ids = [info.id for info in newest if archived or not info.archived]
            latest = store.latest(**wanted, archived=archived)
            assert (latest and latest.id) == (ids[0] if ids else None), asked
        for other in others:
            assert other.sessions(**asked).items == expected, asked


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "os"])
def test_an_index_agrees_with_the_logs(
    kind: str, tmp_path: Path, rng: random.Random, folders: list[Path]
) -> None:
    """N-35, N-53, N-61, N-76, N-86: after random calls, and after it was removed, it agrees with the logs."""
    root = tmp_path / "store"
    where = "memory:" if kind == "memory" else root
    with hansard.open(where, durability="os") as store, ExitStack() as stack:
        assert store.stats() == StoreStats()
        busy = RandomStore(store, rng, folders)
        others = [
            stack.enter_context(hansard.open(root, read_only=read_only, durability="os"))
            for read_only in ((True, False) if kind == "os" else ())
        ]
        for turn in range(16):
            busy.do(rng.choice([0, 1, 1, 2, 15]))
            compare(rng, store, folders, *others)
            compare(rng, store.scoped("a/"), folders)
            if kind == "os" and turn % 6 == 3:
                for path in root.glob("index*"):
                    path.unlink()


def test_invalid_arguments_are_refused(store: Store) -> None:
    """An unknown order, a wrong page token and a time without a zone raise `ValueError` with a hint."""
    for order in ("", "-", "size", "--id", "Title"):
        with pytest.raises(ValueError, match="order must be one of id, created"):
            store.sessions(order=order)
    store.session("a").add_message({})
    store.session("b").add_message({})
    page = store.sessions(limit=1)
    with pytest.raises(ValueError, match="cursor is of a listing by 'id'"):
        store.sessions(limit=1, cursor=page.next, order="-id")
    # The last one has a number in the place of an id.
    cursors = ("a", "", "é", "AAAA", "W10", page.next[:-2] if page.next else "", "WyJpZCIsNSwiYSJd")
    for cursor in cursors:
        with pytest.raises(ValueError, match="invalid cursor"):
            store.sessions(cursor=cursor)
    with pytest.raises(ValueError, match="no time zone"):
        store.sessions(since=datetime(2026, 1, 1))  # noqa: DTZ001 - on purpose
    with pytest.raises(TypeError):
        store.sessions(where={"a": object()})
    assert store.sessions(prefix="\ud800").items == store.sessions(title="\udfff").items == []
    assert store.count(where={"\ud800": 1}) == store.count(where={"a": "\ud800"}) == 0


def test_an_error_of_progress_reaches_the_caller(tmp_path: Path) -> None:
    """An error that `progress` raises reaches the caller, and the index is not rebuilt."""
    with hansard.open(tmp_path / "store", durability="os") as store:
        for number in range(5):
            store.session(f"s{number}").add_message({})
        store.sessions()
        inode = index_of(tmp_path / "store").stat().st_ino
        store.session("s1").add_message({})

        def stop(done: int, total: int) -> None:
            raise ValueError(f"{done} of {total}")

        with pytest.raises(ValueError, match="1 of 1"):
            store.sessions(progress=stop)
        seen: list[tuple[int, int]] = []
        store.sessions(progress=lambda *place: seen.append(place))
        assert seen == [(1, 1)]
        assert index_of(tmp_path / "store").stat().st_ino == inode
