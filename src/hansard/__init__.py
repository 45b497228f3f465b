"""The record of what was said in session, for LLM agents: an append-only store of events.

    import hansard

    store = hansard.open("data")
    session = store.session("support/42")
    session.add_message({"role": "user", "content": "hello"})
    session.messages()

To read the source, follow one event through the house, opening files in this order: `session` →
`event/codec` → `backend/local_log` → `log/writer` → `log/draft` → `log/disk` → `log/reader` →
`state/replay` → `state/fold`. docs/architecture.md draws the rooms; docs/format.md is the law on disk.
"""

from typing import TYPE_CHECKING, Any

from hansard.backend.contract import Finding, Health
from hansard.errors import (
    BackendUnavailable,
    Closed,
    Damaged,
    DiskFailed,
    HansardError,
    InUse,
    InvalidEvent,
    InvalidSessionId,
    LockTimeout,
    ReadOnly,
    Reentered,
    SecretRefused,
    SeqConflict,
    SessionDeleted,
    SessionExists,
    SessionNotFound,
    StoreNotFound,
    SyncFailed,
    UnknownFormat,
    UnsafePath,
)
from hansard.event.envelope import Event
from hansard.index.entry import DayStats, Hit, Page, SessionInfo, StoreStats
from hansard.session import Session
from hansard.state.fold import State, Usage
from hansard.store import Store, open

__all__ = [
    "BackendUnavailable",
    "Closed",
    "CollectionReport",
    "CompactReport",
    "Damaged",
    "DayStats",
    "DiskFailed",
    "DropReport",
    "Event",
    "Finding",
    "Followed",
    "Follower",
    "HansardError",
    "Health",
    "Hit",
    "InUse",
    "InvalidEvent",
    "InvalidSessionId",
    "LockTimeout",
    "Page",
    "Problem",
    "PruneReport",
    "ReadOnly",
    "Reentered",
    "RepairReport",
    "SecretRefused",
    "SeqConflict",
    "Session",
    "SessionDeleted",
    "SessionExists",
    "SessionInfo",
    "SessionNotFound",
    "SessionReport",
    "State",
    "Store",
    "StoreNotFound",
    "StoreReport",
    "StoreStats",
    "Stream",
    "SyncFailed",
    "UnknownFormat",
    "UnsafePath",
    "Usage",
    "open",
]

#: Imported when they are asked for: most programs need none of them, and imports cost milliseconds.
_LATER = {
    "CollectionReport": "upkeep.collection",
    "CompactReport": "upkeep.compaction",
    "DropReport": "upkeep.dropping",
    "Followed": "follow",
    "Follower": "follow",
    "Problem": "state.pairing",
    "PruneReport": "upkeep.pruning",
    "RepairReport": "upkeep.repair",
    "SessionReport": "upkeep.verify",
    "StoreReport": "upkeep.verify",
    "Stream": "stream",
}

if TYPE_CHECKING:
    from hansard import aio as aio
    from hansard.follow import Followed, Follower
    from hansard.state.pairing import Problem
    from hansard.stream import Stream
    from hansard.upkeep.collection import CollectionReport
    from hansard.upkeep.compaction import CompactReport
    from hansard.upkeep.dropping import DropReport
    from hansard.upkeep.pruning import PruneReport
    from hansard.upkeep.repair import RepairReport
    from hansard.upkeep.verify import SessionReport, StoreReport
else:

    def __getattr__(name: str) -> Any:
        """Load `hansard.aio`, and what stands in `_LATER`, when it is asked for."""
        import importlib

        if name == "aio":
            return importlib.import_module("hansard.aio")
        if name in _LATER:
            found = getattr(importlib.import_module(f"hansard.{_LATER[name]}"), name)
            globals()[name] = found
            return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
