"""THE SAME, AWAITED: the names of `hansard`, for programs that have an event loop.

    async with hansard.aio.open("data") as store:
        session = store.session("support/42")
        await session.add_message({"role": "user", "content": "hello"})
        await session.messages()

Thin: each method is the one of the same name in `hansard.Store`, `hansard.Session`, `hansard.Stream` or
`Follower`, run by one of the store's own threads. What is a property there is awaited without a call:
`await session.seq`. Nothing waits for a disk or a lock on the event loop, and tasks that append to one
session at the same time share a write and a sync.

To read the source: `pool` (the threads, and what a cancellation means) → `group` (appends that come
together) → `session` → `store`.
"""

from hansard.aio.follower import Follower
from hansard.aio.session import Session
from hansard.aio.store import Opening, Store, open, over, under
from hansard.aio.stream import Stream

__all__ = ["Follower", "Opening", "Session", "Store", "Stream", "open", "over", "under"]
