"""The cost of a listing: which files it opens, and how much of them it reads."""

import random
from pathlib import Path
from typing import Any

import pytest

import hansard
from tests.crashlab import faults

MESSAGE = {"role": "user", "content": "hello"}

#: Enough that no listing checks all of them.
MANY = 600


def logs_opened(disk: faults.Faults) -> set[str]:
    """Return the names of the sessions whose directories were opened."""
    opening = {"open_file", "open_directory", "create_file", "read_at", "names"}
    places = [Path(call.place).parts for call in disk.calls if call.operation in opening]
    return {
        parts[parts.index("sessions") + 1]
        for parts in places
        if "sessions" in parts and parts[-1] != "sessions"
    }


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """Return a store with a thousand sessions that were listed once."""
    root = tmp_path / "store"
    with hansard.open(root, durability="os") as store:
        for number in range(MANY):
            store.create(f"s{number:04}", metadata={"title": f"title {number}"})
        assert store.count() == MANY
    return root


@pytest.mark.slow
def test_a_warm_listing_opens_no_log(many: Path) -> None:
    """N-76, F-134: if nothing has changed, a listing, its pages and a count open no session."""
    with hansard.open(many, durability="os") as store:
        store.count()
        with faults.record() as disk:
            assert len(store.sessions().items) == MANY
            page = store.sessions(order="-updated", limit=10)
            assert (
                store.sessions(order="-updated", limit=10, cursor=page.next).items[0].id == "s0589"
            )
            assert store.count(title="title 59") == 11
        assert logs_opened(disk) == set()
        # Neither all names nor all stamps: each call checks a few, in turn.
        looks = [call for call in disk.calls if call.operation == "status"]
        assert 0 < len(looks) < 4 * 300
        store.session("s0007").fork("fork").add_message(MESSAGE)
        store.sessions()
        with faults.record() as disk:
            latest = store.latest()
            assert latest is not None
            assert latest.id == "fork"
            assert store.session("s0007").children() == ["fork"]
        assert logs_opened(disk) <= {"fork", "s0007"}


@pytest.mark.slow
def test_after_an_append_a_listing_opens_one_log_and_reads_what_is_new(
    many: Path, rng: random.Random
) -> None:
    """N-76: listing after one append does not depend on the session's length or the number of others."""
    with hansard.open(many, durability="os") as store:
        long = store.session("s0500")
        for _ in range(300):
            long.add_messages([{"content": rng.randbytes(500).hex()} for _ in range(10)])
        store.sessions()
        amounts = []
        for session_id in ("s0500", "s0501"):
            store.session(session_id).add_message(MESSAGE)
            read: list[int] = []

            def watch(call: faults.Call, _: tuple[Any, ...], found: Any, read: Any = read) -> None:
                if call.operation == "read_at":
                    read.append(len(found))

            with hansard.open(many, durability="os") as other, faults.record(watch=watch) as disk:
                [info] = other.sessions(prefix=session_id).items
            assert info.seq == store.session(session_id).seq
            assert logs_opened(disk) == {session_id}
            amounts.append(sum(read))
        # Finding a position in a long log takes a binary search, not a full read.
        assert max(amounts) < 1_000_000 < (many / "sessions/s0500/log.jsonl").stat().st_size / 3
