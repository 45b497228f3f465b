"""Bring all sessions of a foreign source into a store, and report.

Above: the command, users.  Below: the modules of the kinds, `landing` (one session), `source`, `report`.
Sessions are taken one after the other, a fork after what it was forked from. What is wrong with one stops no
other; what is wrong with the store, such as a full disk, stops all, and the next run does the rest.
"""

import os
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Final

from hansard.errors import (
    Damaged,
    InvalidEvent,
    InvalidSessionId,
    NothingToImport,
    SeqConflict,
    SessionDeleted,
    SessionExists,
    UnknownFormat,
)
from hansard.importers import encoding
from hansard.importers.landing import Landing, Made
from hansard.importers.report import Report
from hansard.importers.source import Files, Foreign, Found, Skipped, Unreadable

if TYPE_CHECKING:
    from hansard import Store

#: What is one session's own trouble, and stops no other.
_ITS_OWN: Final = (
    Damaged,
    InvalidEvent,
    InvalidSessionId,
    SeqConflict,
    SessionDeleted,
    SessionExists,
    UnknownFormat,
)

#: Called with how many sources were read, and of how many.
Progress = Callable[[int, int], None]


def bring(
    store: "Store",
    kind: str,
    path: str | os.PathLike[str],
    *,
    prefix: str = "",
    progress: Progress | None = None,
    dry_run: bool = False,
) -> Report:
    """Import all sessions of a foreign source, and report.

    Each becomes a session whole or not at all; what is there already is left as it is; the source is only
    read. Whatever cannot be imported is in the report, and stops nothing else. `NothingToImport` if there is
    nothing at all.

    Args:
        store: where to.
        kind: one of `hansard.importers.KINDS`.
        path: a folder, or a file, of the kind's own program.
        prefix: put before the ids, such as `laptop/`.
        progress: called with how many sources were read, and of how many.
        dry_run: write nothing, and report what would be done.
    """
    from hansard.importers import KINDS

    if kind not in KINDS:
        raise ValueError(f"kind {kind!r:.60}: must be one of {', '.join(KINDS)}")
    report = Report(kind, dry_run=dry_run)
    try:
        files = Files(os.path.expanduser(path))
    except Unreadable as error:
        report.skipped.append(Skipped(os.fsdecode(path), str(error)))
        raise _nothing(str(error), report) from None
    report.skipped = files.problems
    find = import_module(f"hansard.importers.{KINDS[kind][0]}").find
    landing = Landing(store._backend, kind, prefix, dry_run=dry_run)  # noqa: SLF001 - a store's own
    bringing = _Bringing(landing, report, files, prefix)
    bringing.run(list(find(files)), progress)
    if not bringing.seen:
        first = files.problems[0] if files.problems else None
        why = "" if first is None else f": {first.where}: {first.what}"
        raise _nothing(f"{files.root}: nothing in it can be imported as {kind}{why}", report)
    return report


def _nothing(what: str, report: Report) -> NothingToImport:
    return NothingToImport(f"{what}; see that the path and the kind are right", report=report)


class _Bringing:
    """One import of one source.

    Attributes:
        seen: the ids of sessions that were found, whatever became of them, and the file of each.
    """

    def __init__(self, landing: Landing, report: Report, files: Files, prefix: str) -> None:
        self._landing = landing
        self._report = report
        self._files = files
        self._prefix = prefix
        self.seen: dict[str, str] = {}

    def run(self, founds: list[Found], progress: Progress | None) -> None:
        """Bring everything: once over all, and then those that had to wait for their parents."""
        waiting = founds
        wanted: set[str] | None = None
        last = False
        while waiting:
            later: list[Found] = []
            held: set[str] = set()
            for number, found in enumerate(waiting, start=1):
                ids = set(self._read(found, wanted, last=last))
                if ids:
                    later.append(found)
                    held |= ids
                if progress is not None and wanted is None:
                    progress(number, len(founds))
            # One whose parent never comes is a session like another.
            last = held == wanted
            waiting, wanted = later, held

    def _read(self, found: Found, wanted: set[str] | None, *, last: bool) -> Iterator[str]:
        """Bring what is in a source, and yield the ids of those whose parents are not there yet."""
        try:
            for foreign in found.read():
                session_id = self._prefix + foreign.id
                if wanted is not None and session_id not in wanted:
                    continue
                fork = foreign.fork
                if fork is not None and not last and self._prefix + fork.parent not in self.seen:
                    yield session_id
                    continue
                self._take(foreign, session_id)
        except Unreadable as error:
            if str(error):
                self._files.report(found.where, str(error))

    def _take(self, foreign: Foreign, session_id: str) -> None:
        if session_id in self.seen:
            other = self.seen[session_id]
            self._files.report(
                foreign.where,
                f"session {session_id!r} is in {other} as well, which was imported: skipped",
            )
            return
        self.seen[session_id] = foreign.where
        try:
            made = self._made(foreign)
            self._report.sessions.append(self._landing.bring(session_id, made))
        except _ITS_OWN as error:
            self._files.report(foreign.where, str(error))

    def _made(self, foreign: Foreign) -> Made:
        """Return a session as it can be stored."""

        def report(why: str) -> None:
            self._files.report(foreign.where, f"{foreign.id!r}: {why}")

        def lost(number: int, why: str) -> None:
            report(f"item {number}: {why}")

        begun = foreign.created or next((item.time for item in foreign.items if item.time), None)
        items = encoding.entries(foreign.items, begun, lost)
        latest = items[-1].time if items else begun
        closing = encoding.entries(foreign.closing, latest, lost, first=len(items) + 1)
        metadata = encoding.described(foreign.metadata, report)
        return Made(foreign, items, closing, metadata, begun)
