"""An event-sourced, append-only session store for LLM agents.

    import hansard

    store = hansard.open("data")
    session = store.session("support/42")
    session.add_message({"role": "user", "content": "hello"})
    session.messages()

To read the source, follow an append: `session` → `event/codec` → `backend/local/log` → `log/writer` →
`log/group_commit` → `log/disk`. Then follow a read: `session_reader` → `backend/local/log` → `state/view` →
`log/segment_reader` → `log/format`. docs/architecture.md has both paths in full; docs/format.md specifies the
files.
"""

# ruff: noqa: F403 - all errors are public

from typing import TYPE_CHECKING, Any

#: Names by module, imported on first use: imports take milliseconds, and `hansard --version` needs none.
_MODULES = {
    "backend.contract": "Finding Health Record RepairReport",
    "errors": (
        "BackendUnavailable Closed Damaged DiskFailed HansardError Held InUse InvalidEvent "
        "InvalidExport InvalidSessionId LockTimeout NothingToImport ReadOnly Reentered "
        "SecretRefused SeqConflict SessionDeleted SessionExists SessionNotFound "
        "StoreNotFound SyncFailed UnknownFormat UnsafePath"
    ),
    "event.event": "Event",
    "follow": "FollowedEvent Follower",
    "index": "DayStats Hit Page SessionInfo StoreStats",
    "maintenance.compact": "CompactReport",
    "maintenance.doctor": "Diagnosis Diagnostic",
    "maintenance.prune": "PruneReport",
    "maintenance.redact": "DropReport ScrubReport",
    "maintenance.verify": "SessionReport StoreReport",
    "message.tool_calls": "Problem",
    "observe": "Metrics",
    "session": "Session",
    "state.compare": "CallDifference Change Comparison Divergence ToolCall",
    "state.fold": "State Usage",
    "state.view": "NumberedMessage",
    "store": "Store migrate open",
    "stream": "Stream",
    "transfer.copy": "CopyReport ImportReport",
    "transfer.transcript": "TranscriptEntry TranscriptPage",
}
_LATER = {name: module for module, names in _MODULES.items() for name in names.split()}
__all__ = [*_LATER]  # noqa: PLE0604 - names, not objects

if TYPE_CHECKING:
    from hansard import aio as aio
    from hansard.backend.contract import Finding as Finding
    from hansard.backend.contract import Health as Health
    from hansard.backend.contract import Record as Record
    from hansard.backend.contract import RepairReport as RepairReport
    from hansard.errors import *
    from hansard.event.event import Event as Event
    from hansard.follow import FollowedEvent as FollowedEvent
    from hansard.follow import Follower as Follower
    from hansard.index import DayStats as DayStats
    from hansard.index import Hit as Hit
    from hansard.index import Page as Page
    from hansard.index import SessionInfo as SessionInfo
    from hansard.index import StoreStats as StoreStats
    from hansard.maintenance.compact import CompactReport as CompactReport
    from hansard.maintenance.doctor import Diagnosis as Diagnosis
    from hansard.maintenance.doctor import Diagnostic as Diagnostic
    from hansard.maintenance.prune import PruneReport as PruneReport
    from hansard.maintenance.redact import DropReport as DropReport
    from hansard.maintenance.redact import ScrubReport as ScrubReport
    from hansard.maintenance.verify import SessionReport as SessionReport
    from hansard.maintenance.verify import StoreReport as StoreReport
    from hansard.message.tool_calls import Problem as Problem
    from hansard.observe import Metrics as Metrics
    from hansard.session import Session as Session
    from hansard.state.compare import CallDifference as CallDifference
    from hansard.state.compare import Change as Change
    from hansard.state.compare import Comparison as Comparison
    from hansard.state.compare import Divergence as Divergence
    from hansard.state.compare import ToolCall as ToolCall
    from hansard.state.fold import State as State
    from hansard.state.fold import Usage as Usage
    from hansard.state.view import NumberedMessage as NumberedMessage
    from hansard.store import Store as Store
    from hansard.store import migrate as migrate
    from hansard.store import open as open
    from hansard.stream import Stream as Stream
    from hansard.transfer.copy import CopyReport as CopyReport
    from hansard.transfer.copy import ImportReport as ImportReport
    from hansard.transfer.transcript import TranscriptEntry as TranscriptEntry
    from hansard.transfer.transcript import TranscriptPage as TranscriptPage
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
