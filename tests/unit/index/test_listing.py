"""Claims about `store.sessions` and `store.count`: what is listed is what is there, in every order."""

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard import Page, SessionInfo, Store
from tests.unit.disk_probe import index_of, tree
from tests.unit.index import reference_listing
from tests.unit.index.random_store import IDS, KEYS, TITLES, VALUES, RandomStore

LISTER = """
import json, sys, hansard, msgspec
from datetime import datetime
with hansard.open(sys.argv[1], read_only=sys.argv[2] == "ro", durability="os") as store:
    for line in sys.stdin:
        asked = json.loads(line)
        for name in "since", "until":
            if asked.get(name):
                asked[name] = datetime.fromisoformat(asked[name])
        print(msgspec.json.encode(store.sessions(**asked)).decode(), flush=True)
"""


class Lister:
    """Another process, which lists the same store for as long as it lives."""

    def __init__(self, path: Path, mode: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", LISTER, str(path), mode],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def sessions(self, **asked: Any) -> Page:
        """List what is asked for."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for name in ("since", "until"):
            if asked.get(name):
                asked[name] = asked[name].isoformat()
        self._process.stdin.write(json.dumps(asked, default=str) + "\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline(), type=Page)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate(timeout=60)


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Return two folders that sessions may belong to."""
    found = [tmp_path / "work", tmp_path / "play"]
    for folder in found:
        folder.mkdir()
    return found


@pytest.fixture
def lister(tmp_path: Path) -> Iterator[Callable[[Path, str], Lister]]:
    """Return what starts a process that lists a store; all are ended with the test."""
    started: list[Lister] = []

    def start(path: Path, mode: str) -> Lister:
        started.append(Lister(path, mode))
        return started[-1]

    yield start
    for one in started:
        one.close()


def some_filter(
    rng: random.Random, known: list[SessionInfo], folders: list[Path]
) -> dict[str, Any]:
    """Return arguments for a listing: any of them, or several."""
    times = [datetime.fromisoformat(info.updated) for info in known if info.updated]
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


def compare(rng: random.Random, store: Store, folders: list[Path], *others: Lister) -> None:
    """Compare listings, counts and pages with what reading every session says."""
    known = reference_listing.everything(store)
    assert store.sessions().items == known
    for other in others:
        assert other.sessions().items == known
    for _ in range(6):
        asked = some_filter(rng, known, folders)
        expected = reference_listing.listing(known, **asked)
        assert store.sessions(**asked) == Page(expected, None), asked
        limit = rng.randrange(1, 5)
        assert reference_listing.pages(store.sessions, limit, **asked) == expected, asked
        counted = {name: value for name, value in asked.items() if name != "order"}
        assert store.count(**counted) == len(expected), asked
        for other in others:
            assert other.sessions(**asked).items == expected, asked


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "os"])
def test_a_listing_says_what_reading_every_session_says(
    kind: str,
    tmp_path: Path,
    rng: random.Random,
    folders: list[Path],
    lister: Callable[[Path, str], Lister],
) -> None:
    """N-35, N-53, N-76, N-86: whatever was done, every filter, order and page is what the logs add up to."""
    root = tmp_path / "store"
    where = "memory:" if kind == "memory" else root
    with hansard.open(where, durability="os") as store:
        busy = RandomStore(store, rng, folders)
        others = [] if kind == "memory" else [lister(root, "rw"), lister(root, "ro")]
        for turn in range(16):
            busy.do(rng.choice([0, 1, 1, 2, 15]))
            compare(rng, store, folders, *others)
            part = store.scoped("a/")
            assert part.sessions().items == reference_listing.everything(part)
            if kind == "os" and turn % 6 == 3:
                for path in root.glob("index*"):
                    path.unlink()


def test_a_read_only_store_is_listed_and_nothing_is_written(
    tmp_path: Path, rng: random.Random, folders: list[Path]
) -> None:
    """N-76, N-86: a read-only store lists the same with and without an index, and writes no file."""
    root = tmp_path / "store"
    with hansard.open(root, durability="os") as store:
        RandomStore(store, rng, folders).do(60)
        expected = reference_listing.everything(store)
        assert store.sessions().items == expected
    for index in (True, False):
        if not index:
            for path in root.glob("index*"):
                path.unlink()
        before = tree(tmp_path)
        with hansard.open(root, read_only=True) as store:
            assert store.sessions().items == expected
            assert store.count() == len(expected)
            assert store.stats().sessions == len(expected)
            latest = store.latest()
            assert (None if latest is None else latest.id) == newest(expected)
        assert tree(tmp_path) == before


def newest(known: list[SessionInfo]) -> str | None:
    """Return the id of the session in which something happened last."""
    found = [
        info for info in reference_listing.listing(known, order="-updated") if not info.archived
    ]
    return found[0].id if found else None


def test_deleting_the_index_changes_no_answer(
    tmp_path: Path, rng: random.Random, folders: list[Path]
) -> None:
    """N-86: without its index, also if it goes while the store is open, a store lists and counts the same."""
    root = tmp_path / "store"
    with hansard.open(root, durability="os") as store:
        busy = RandomStore(store, rng, folders)
        for _ in range(5):
            busy.do(20)
            before = store.sessions(order="-updated"), store.count(archived=False), store.stats()
            shutil.rmtree(root / "marks")
            for path in root.glob("index*"):
                path.unlink()
            after = store.sessions(order="-updated"), store.count(archived=False), store.stats()
            assert after == before
            assert index_of(root).exists()
            busy.do(1)
            assert store.sessions().items == reference_listing.everything(store)


def test_what_another_has_compacted_is_listed_with_its_size(tmp_path: Path) -> None:
    """A listing says what a session takes on disk now, whoever has compacted it meanwhile."""
    root = tmp_path / "store"
    with hansard.open(root, durability="os") as store, hansard.open(root, durability="os") as other:
        session = store.session("s")
        for _ in range(2):
            session.add_messages([{"content": "again and again"}] * 2000)
            session.compact()
            session.add_message({})
            before = store.sessions().items[0].bytes
            other.session("s").compact()
            [info] = store.sessions().items
            assert info.bytes == sum(
                path.stat().st_size
                for path in (root / "sessions" / "s").iterdir()
                if ".jsonl" in path.name
            )
            assert info.bytes != before


def test_what_cannot_be_asked_for_is_refused(store: Store) -> None:
    """What no listing can be sorted by, gone on from or limited to is a ValueError that says what can."""
    for order in ("", "-", "size", "--id", "Title"):
        with pytest.raises(ValueError, match="order must be one of id, created"):
            store.sessions(order=order)
    store.session("a").add_message({})
    store.session("b").add_message({})
    page = store.sessions(limit=1)
    with pytest.raises(ValueError, match="cursor is of a listing by 'id'"):
        store.sessions(limit=1, cursor=page.next, order="-id")
    for cursor in ("a", "", "é", "AAAA", "W10", page.next[:-2] if page.next else ""):
        with pytest.raises(ValueError, match="invalid cursor"):
            store.sessions(cursor=cursor)
    with pytest.raises(ValueError, match="no time zone"):
        store.sessions(since=datetime(2026, 1, 1))  # noqa: DTZ001 - which is the point
    with pytest.raises(TypeError):
        store.sessions(where={"a": object()})
    assert store.sessions(prefix="\ud800").items == store.sessions(title="\udfff").items == []
    assert store.count(where={"\ud800": 1}) == store.count(where={"a": "\ud800"}) == 0


def test_a_progress_that_raises_stops_the_listing_and_nothing_else(tmp_path: Path) -> None:
    """What the caller's function raises reaches the caller, and no index is made anew because of it."""
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
