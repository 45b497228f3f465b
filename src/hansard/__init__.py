"""The record of what was said in session, for LLM agents: an append-only store of events.

    import hansard

    store = hansard.open("data")
    session = store.session("support/42")
    session.add_message({"role": "user", "content": "hello"})
    session.messages()

To read the source, follow one event through the house, opening files in this order: `session` →
`event/codec` → `backend/local` → `log/writer` → `log/draft` → `log/disk` → `log/reader` →
`state/replay` → `state/fold`. docs/architecture.md draws the rooms; docs/format.md is the law on disk.
"""

from hansard.backend.contract import Finding, Health
from hansard.errors import (
    BackendUnavailable,
    Closed,
    Damaged,
    DiskFailed,
    HansardError,
    InvalidEvent,
    InvalidSessionId,
    LockTimeout,
    ReadOnly,
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
from hansard.session import Session
from hansard.state.fold import State, Usage
from hansard.state.pairing import Problem
from hansard.store import Page, SessionInfo, Store, open
from hansard.upkeep.verify import SessionReport, StoreReport

__all__ = [
    "BackendUnavailable",
    "Closed",
    "Damaged",
    "DiskFailed",
    "Event",
    "Finding",
    "HansardError",
    "Health",
    "InvalidEvent",
    "InvalidSessionId",
    "LockTimeout",
    "Page",
    "Problem",
    "ReadOnly",
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
    "SyncFailed",
    "UnknownFormat",
    "UnsafePath",
    "Usage",
    "open",
]
