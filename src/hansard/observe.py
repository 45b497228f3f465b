"""Report what a store does: log records without content, and counters.

`logging` is imported when there is something to report: its import takes longer than an append.
"""

import sys
from contextlib import suppress
from typing import Final

import msgspec

#: The levels of `logging`.
DEBUG: Final = 10
INFO: Final = 20
WARNING: Final = 30
ERROR: Final = 40


def report(name: str, level: int, text: str, *values: object) -> None:
    """Log to Python's logger `hansard.NAME`; raise nothing. The caller holds no session's lock.

    Values are ids, paths, numbers and errors; never content, metadata or keys.
    """
    # Without `logging`, no handler is set up, and Python shows only warnings.
    if level < WARNING and "logging" not in sys.modules:
        return
    # The operation is complete: a failing handler must not make it look like a failure.
    with suppress(Exception):
        import logging

        # Pass the text of an error: a handler that keeps the error keeps its frames, and their open files.
        shown = [str(value) if isinstance(value, Exception) else value for value in values]
        logging.getLogger(f"hansard.{name}").log(level, text, *shown)


class Metrics(msgspec.Struct, frozen=True):
    """What a store has done in this process since it was opened. Numbers only grow.

    The audit log and consumer cursors are logs too: their appends, syncs and reads count.

    Attributes:
        appends: appends that were acknowledged, without repeated ones; a batch is one.
        events: events of these appends.
        bytes: bytes that were written to logs; for PostgreSQL and memory, of the events' data.
        errors: appends that raised an error, also because of a condition such as `expected_seq`.
        reads: calls that read a session, and checks whether it has grown.
        syncs: syncs of logs. Concurrent appends share one.
        failed_syncs: syncs that failed.
        lock_waits: how often a lock of another process was waited for. PostgreSQL counts no locks and syncs.
        lock_wait_seconds: the seconds of these waits, in all.
        lock_timeouts: waits that ended in `LockTimeout`.
        recovered: incomplete ends of logs, left by crashes, that were closed.
        sealed: segments that were sealed.
        compactions: compactions that rewrote something.
        damaged: how often damage was found in a session.
    """

    appends: int
    events: int
    bytes: int
    errors: int
    reads: int
    syncs: int
    failed_syncs: int
    lock_waits: int
    lock_wait_seconds: float
    lock_timeouts: int
    recovered: int
    sealed: int
    compactions: int
    damaged: int


class Counters:
    """The numbers of a store as they grow.

    Threads add without a lock: CPython switches threads at calls and jumps, and `+=` has none.
    """

    __slots__ = (*Metrics.__struct_fields__, "more_events")

    def __init__(self) -> None:
        self.appends = self.bytes = self.errors = self.reads = 0
        #: Events after the first one of each batch; most appends have one event.
        self.more_events = 0
        self.syncs = self.failed_syncs = self.recovered = self.sealed = 0
        self.lock_waits = self.lock_timeouts = 0
        self.lock_wait_seconds = 0.0
        self.compactions = self.damaged = 0

    def metrics(self) -> Metrics:
        """Return the current numbers."""
        self.events = self.appends + self.more_events
        return Metrics(*(getattr(self, name) for name in Metrics.__struct_fields__))
