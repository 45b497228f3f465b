"""Claims about tasks that append concurrently: they share a write and a sync, and each gets its answer."""

import asyncio
from pathlib import Path

import pytest

from hansard import aio
from hansard.log import disk
from tests.faults.test_group_commit import Stay
from tests.unit.aio.thread_probe import come_round, reached


async def test_64_tasks_share_one_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F-31, N-75: 63 appends that arrive during a sync take one more write and one more sync."""
    async with aio.open(tmp_path / "store") as store:
        await store.session("s").add_message({"by": "the beginning"})
        sync, write = Stay(disk.sync), Stay(disk.write)
        write.go()
        monkeypatch.setattr(disk, "sync", sync)
        tasks = [asyncio.create_task(store.session("s").add_message({"by": 0}))]
        await reached(sync)
        monkeypatch.setattr(disk, "write", write)
        # Through separate handles: the queue is the session's.
        tasks += [
            asyncio.create_task(store.session("s").add_message({"by": number}))
            for number in range(1, 64)
        ]
        await come_round()
        sync.go()
        events = await asyncio.gather(*tasks)
        assert (sync.count, write.count) == (2, 1)
        assert [event.seq for event in events] == list(range(2, 66))
        messages = await store.session("s").messages(after=1)
        assert [message["by"] for message in messages] == list(range(64))
