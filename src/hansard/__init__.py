"""An event-sourced, append-only session store for LLM agents.

    import hansard

    store = hansard.open("data")
    session = store.session("support/42")
    session.add_message({"role": "user", "content": "hello"})
    session.messages()

To read the source, follow one event from append to view: `session` → `event/codec` → `backend/local/log`
→ `log/writer` → `log/write_batch` → `log/disk` → `log/segment_reader` → `session_reader` → `state/view` →
`state/fold`.
docs/architecture.md describes the layers; docs/format.md specifies the files.
"""

# ruff: noqa: F403, F405 - all errors are public, and listed below

from typing import TYPE_CHECKING, Any

__all__ = [
    "BackendUnavailable",
    "CallDifference",
    "Change",
    "Closed",
    "CompactReport",
    "Comparison",
    "CopyReport",
    "Damaged",
    "DayStats",
    "Diagnosis",
    "Diagnostic",
    "DiskFailed",
    "Divergence",
    "DropReport",
    "Event",
    "Finding",
    "FollowedEvent",
    "Follower",
    "HansardError",
    "Health",
    "Hit",
    "ImportReport",
    "InUse",
    "InvalidEvent",
    "InvalidExport",
    "InvalidSessionId",
    "LockTimeout",
    "NothingToImport",
    "NumberedMessage",
    "Page",
    "Problem",
    "PruneReport",
    "ReadOnly",
    "Record",
    "Reentered",
    "RepairReport",
    "ScrubReport",
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
    "ToolCall",
    "UnknownFormat",
    "UnsafePath",
    "Usage",
    "migrate",
    "open",
]

#: Names by module, imported on first use: imports take milliseconds, and `hansard --version` needs none.
#: All other names are errors.
_MODULES = {
    "backend.contract": "Finding Health Record RepairReport",
    "event.event": "Event",
    "follow": "FollowedEvent Follower",
    "index": "DayStats Hit Page SessionInfo StoreStats",
    "maintenance.compact": "CompactReport",
    "maintenance.doctor": "Diagnosis Diagnostic",
    "maintenance.prune": "PruneReport",
    "maintenance.redact": "DropReport ScrubReport",
    "maintenance.verify": "SessionReport StoreReport",
    "message.tool_calls": "Problem",
    "session": "Session",
    "state.compare": "CallDifference Change Comparison Divergence NumberedMessage ToolCall",
    "state.fold": "State Usage",
    "store": "Store migrate open",
    "stream": "Stream",
    "transfer.copy": "CopyReport ImportReport",
}
_LATER = dict.fromkeys(__all__, "errors") | {
    name: module for module, names in _MODULES.items() for name in names.split()
}

if TYPE_CHECKING:
    from hansard import aio as aio
    from hansard.backend.contract import Finding, Health, Record, RepairReport
    from hansard.errors import *
    from hansard.event.event import Event
    from hansard.follow import FollowedEvent, Follower
    from hansard.index import DayStats, Hit, Page, SessionInfo, StoreStats
    from hansard.maintenance.compact import CompactReport
    from hansard.maintenance.doctor import Diagnosis, Diagnostic
    from hansard.maintenance.prune import PruneReport
    from hansard.maintenance.redact import DropReport, ScrubReport
    from hansard.maintenance.verify import SessionReport, StoreReport
    from hansard.message.tool_calls import Problem
    from hansard.session import Session
    from hansard.state.compare import (
        CallDifference,
        Change,
        Comparison,
        Divergence,
        NumberedMessage,
        ToolCall,
    )
    from hansard.state.fold import State, Usage
    from hansard.store import Store, migrate, open
    from hansard.stream import Stream
    from hansard.transfer.copy import CopyReport, ImportReport
else:

    def __getattr__(name: str) -> Any:
        """Import `hansard.aio`, and the names in `_LATER`, on first use."""
        import importlib

        if name in {"aio", "errors"}:
            return importlib.import_module(f"hansard.{name}")
        if name in _LATER:
            found = getattr(importlib.import_module(f"hansard.{_LATER[name]}"), name)
            globals()[name] = found
            return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        """Include names that are not imported yet, for completion in a Python prompt."""
        return sorted({*globals(), *__all__})
