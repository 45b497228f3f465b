"""Claims about cancelled calls: a cancelled call has not begun, or is over, and holds no lock."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import aio
from hansard.log import disk
from tests.faults.test_group_commit import Stay
from tests.unit.aio.thread_probe import come_round, reached


async def opened(path: Path) -> tuple[aio.Store, aio.Session]:
    """Return a store, and a session of it with one event."""
    store = await aio.open(path / "store")
    session = store.session("s")
    await session.add_message({"n": 0})
    return store, session


def stored(path: Path) -> list[Any]:
    """Return what another reader finds in the session."""
    with hansard.open(path / "store", read_only=True) as store:
        session = store.session("s")
        assert session.verify().ok
        return [message["n"] for message in session.messages()]


async def test_a_cancelled_append_is_over_or_never_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-75: an append that waits for another's sync is cancelled immediately, and appends nothing.

    One that is cancelled during its sync, three times, is durable before `CancelledError` is raised.
    """
    store, session = await opened(tmp_path)
    sync = Stay(disk.sync)
    monkeypatch.setattr(disk, "sync", sync)
    begun = asyncio.create_task(session.add_message({"n": 1}))
    await reached(sync)
    waiting = asyncio.create_task(session.add_message({"n": 2}))
    await come_round()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    for _ in range(3):
        begun.cancel()
        await come_round()
        assert not begun.done()
    sync.go()
    with pytest.raises(asyncio.CancelledError):
        await begun
    assert stored(tmp_path) == [0, 1]
    assert (await session.add_message({"n": 3})).seq == 3
    await store.close()


@pytest.mark.parametrize("durability", ["sync", "os"])
async def test_random_cancellations_have_one_outcome(
    durability: Any, tmp_path: Path, rng: random.Random
) -> None:
    """N-56, N-75: an acknowledged append is stored once; a cancelled one, once or never."""
    store = await aio.open(tmp_path / "store", durability=durability)
    session = store.session("s")
    await session.add_message({"n": "begin"})
    acknowledged: list[str] = []
    cancelled: dict[str, bool] = {}

    async def there(name: str) -> bool:
        return any(message["n"] == name for message in await session.messages(last=200))

    async def say(name: str) -> None:
        try:
            await session.add_message({"n": name})
        except asyncio.CancelledError:
            cancelled[name] = False
            cancelled[name] = await there(name)
        else:
            acknowledged.append(name)

    for turn in range(30):
        tasks = [asyncio.create_task(say(f"{turn}/{by}")) for by in range(16)]
        for task in rng.sample(tasks, 8):
            for _ in range(rng.choice([0, 0, 1, 5, 50])):
                await asyncio.sleep(0)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert (await session.add_message({"n": "end"})).seq == await session.seq
    await store.close()
    seen = stored(tmp_path)
    assert len(set(seen)) == len(seen)
    assert set(acknowledged) <= set(seen)
    assert {name: name in seen for name in cancelled} == cancelled
    assert len(seen) == 2 + len(acknowledged) + sum(cancelled.values())
    assert acknowledged
    assert cancelled


async def test_a_cancelled_follower_ends_immediately(tmp_path: Path) -> None:
    """N-75: a cancelled `async for` that waits for events ends immediately, and leaves no thread."""
    store, session = await opened(tmp_path)
    seen: asyncio.Queue[Any] = asyncio.Queue()

    async def follow() -> None:
        async for event in session.events(follow=True):
            seen.put_nowait(event.data["message"]["n"])

    async def follow_all() -> None:
        async for followed in store.follow():
            seen.put_nowait(followed.event.data["message"]["n"])

    tasks = [asyncio.create_task(follow()), asyncio.create_task(follow_all())]
    with hansard.open(tmp_path / "store") as other:
        other.session("s").add_message({"n": 1})
    async with asyncio.timeout(60):
        assert sorted([await seen.get() for _ in range(4)]) == [0, 0, 1, 1]
    for task in tasks:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await store.close()


@pytest.mark.parametrize("again", [True, False], ids=["taken again", "left"])
async def test_a_cancelled_take_loses_no_event(
    again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-75: an event that a cancelled `take` has read is returned by the next, and not marked as done."""
    store, session = await opened(tmp_path)
    await session.add_message({"n": 1})
    async with store.follow(cursor="mine") as follower:
        read = Stay(disk.read_at)
        monkeypatch.setattr(disk, "read_at", read)
        task = asyncio.create_task(follower.take(60.0))
        await reached(read)
        task.cancel()
        await come_round()
        read.go()
        with pytest.raises(asyncio.CancelledError):
            await task
        if again:
            found = await follower.take(60.0)
            assert found is not None
            assert found.event.seq == 1
    async with store.follow(cursor="mine") as follower:
        found = await follower.take(60.0)
        assert found is not None
        assert found.event.seq == (2 if again else 1)
    await store.close()
