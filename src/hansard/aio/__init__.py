"""The names of `hansard`, for programs that have an event loop.

    async with hansard.aio.open("data") as store:
        session = store.session("support/42")
        await session.add_message({"role": "user", "content": "hello"})
        await session.messages()

Each method is that of `hansard.Store`, `Session`, `Stream` or `Follower`, called in a thread of the store. A
property there is awaited here without a call: `await session.seq`. The event loop never waits for a disk or a
lock, and tasks that append to one session concurrently share a write and a sync.

To read the source: `pool` (the threads, and what a cancellation means) → `methods` (sync methods made
awaitable) → `append_queue` (appends that share a sync) → `session` → `store`.
"""

from hansard.aio.pool import Pool as Pool
from hansard.aio.session import Session, Stream
from hansard.aio.store import Follower, Opening, Store, over, under
from hansard.aio.store import open_store as open

__all__ = ["Follower", "Opening", "Session", "Store", "Stream", "open", "over", "under"]
