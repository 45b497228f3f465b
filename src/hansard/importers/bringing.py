"""Bring all sessions of a foreign source into a store, and report.

Above: the command, users.  Below: the modules of the kinds, `landing` (one session), `source`, `report`.
Sessions are taken one after the other, a fork after what it was forked from. What is wrong with one stops no
other; what is wrong with the store, such as a full disk, stops all, and the next run does the rest.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeVar

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

Yielded = TypeVar("Yielded")

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
    bringing.run(find(files), progress)
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
        #: Sessions whose parents are still to come: by parent, where they are.
        self._waiting: dict[str, dict[Found, set[str]]] = {}
        self._given_up: set[str] = set()

    def run(self, founds: Iterable[Found], progress: Progress | None) -> None:
        """Bring everything: a fork after its parent, wherever that is in the source."""
        everything = list(self._guarded(self._files.name(self._files.root), lambda: founds))
        for number, found in enumerate(everything, start=1):
            self._bring(found, None)
            if progress is not None:
                progress(number, len(everything))
        # Those whose parents never come, and then those that are each other's: sessions like others.
        waiting = set().union(*(ids for ways in self._waiting.values() for ids in ways.values()))
        for parent in [*(self._waiting.keys() - waiting), *self._waiting]:
            self._release(parent)

    def _release(self, parent: str) -> None:
        """Bring the sessions that wait for a parent, which is there now, or is not waited for any more."""
        self._given_up.add(parent)
        for found, ids in self._waiting.pop(parent, {}).items():
            self._bring(found, ids)

    def _bring(self, found: Found, wanted: set[str] | None) -> None:
        """Bring what is in a source, or some sessions in it, and what has waited for them."""
        ready = [(found, wanted)]
        while ready:
            found, wanted = ready.pop()
            for foreign in self._guarded(found.where, found.read):
                session_id = self._prefix + foreign.id
                if wanted is not None and session_id not in wanted:
                    continue
                parent = None if foreign.fork is None else self._prefix + foreign.fork.parent
                if parent is None or parent in self.seen or parent in self._given_up:
                    self._take(foreign, session_id)
                    ready += self._waiting.pop(session_id, {}).items()
                else:
                    self._waiting.setdefault(parent, {}).setdefault(found, set()).add(session_id)

    def _guarded(self, where: str, read: Callable[[], Iterable[Yielded]]) -> Iterator[Yielded]:
        """Yield what an importer yields; whatever is wrong with its source ends this source only."""
        with self._files.item(where):
            yield from read()

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
