"""Import all sessions of a foreign source, one after the other, a fork after its parent.

An error in one session stops no other. An error of the store, such as a full disk, stops the import, and the
next run does the rest.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Final

import msgspec

from hansard import errors
from hansard.importers.foreign_json import Unreadable
from hansard.importers.session_writer import ImportedSession, SessionWriter
from hansard.importers.source import Files, ForeignSession, Skipped, SourceEntry

if TYPE_CHECKING:
    from hansard import Store

#: The kinds, and a description of each.
KINDS: Final[dict[str, str]] = {
    "a3s-code": "a3s-code sessions (SessionData JSON)",
    "claude-code": "Claude Code transcripts",
    "codex": "Codex rollouts, also .zst",
    "langgraph": "LangGraph checkpoints in SQLite",
    "openai-agents": "OpenAI Agents sessions in SQLite",
    "openclaw": "OpenClaw sessions.json or sessions.d, with transcripts",
    "praisonai": "PraisonAI sessions, default and hierarchical",
    "pydantic-ai": "Pydantic AI messages and step stores",
    "workspace": "workspace session files, <hash>_<time>.json",
}

#: Modules that are not named after their kind.
_MODULES: Final = {"workspace": "workspace_files"}

#: Errors of one session, which stop no other.
_SESSION_ERRORS: Final = (
    errors.Damaged,
    errors.InvalidEvent,
    errors.InvalidSessionId,
    errors.SeqConflict,
    errors.SessionDeleted,
    errors.SessionExists,
    errors.UnknownFormat,
)

#: Called with the number of files read, and their total.
Progress = Callable[[int, int], None]


class Report(msgspec.Struct):
    """What an import did.

    Attributes:
        kind: the kind of the source.
        sessions: the sessions of the source that are in the store now.
        skipped: what was not imported, or not unchanged: where, and why.
        dry_run: whether nothing was written.
    """

    kind: str
    sessions: list[ImportedSession] = []
    skipped: list[Skipped] = []
    dry_run: bool = False

    @property
    def imported(self) -> list[ImportedSession]:
        """The new sessions."""
        return [one for one in self.sessions if one.outcome == "imported"]

    @property
    def continued(self) -> list[ImportedSession]:
        """The sessions that have grown since an earlier import."""
        return [one for one in self.sessions if one.outcome == "continued"]

    @property
    def present(self) -> list[ImportedSession]:
        """The sessions that had nothing new."""
        return [one for one in self.sessions if one.outcome == "present"]


def import_sessions(
    store: "Store",
    kind: str,
    path: str | os.PathLike[str],
    *,
    prefix: str = "",
    progress: Progress | None = None,
    dry_run: bool = False,
) -> Report:
    """Import all sessions of a foreign source, and return what was done.

    Each session is imported completely or not at all. An import appends new items to sessions that it has
    imported before, and never changes other sessions. The source is only read. What cannot be imported is
    reported, and stops nothing else. `NothingToImport` if the source has none.

    Args:
        store: the store to import into.
        kind: one of `hansard.importers.KINDS`.
        path: a directory or file that the program of this kind wrote.
        prefix: put before all session ids, such as `laptop/`.
        progress: called with the number of files read, and their total.
        dry_run: write nothing, and report what would be done.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r:.60}")
    report = Report(kind, dry_run=dry_run)
    try:
        files = Files(os.path.expanduser(path))
    except Unreadable as error:
        report.skipped.append(Skipped(os.fsdecode(path), str(error)))
        raise _nothing(str(error), report) from None
    report.skipped = files.problems
    writer = SessionWriter(store._backend, kind, prefix, dry_run=dry_run)  # noqa: SLF001 - a store's own
    run = _ImportRun(writer, report, files, prefix)
    name = _MODULES.get(kind, kind.replace("-", "_"))
    run.all(import_module(f"hansard.importers.{name}").find(files), progress)
    if not run.seen:
        why = next((f": {one.where}: {one.what}" for one in files.problems), "")
        raise _nothing(f"{files.root}: nothing can be imported as {kind}{why}", report)
    return report


def _nothing(what: str, report: Report) -> errors.NothingToImport:
    return errors.NothingToImport(f"{what}; check the path and the kind", report=report)


class _ImportRun:
    """One import of one source.

    Attributes:
        seen: the ids of the sessions that were found, and the file of each.
    """

    def __init__(self, writer: SessionWriter, report: Report, files: Files, prefix: str) -> None:
        self._writer = writer
        self._report = report
        self._files = files
        self._prefix = prefix
        self.seen: dict[str, str] = {}
        #: Sessions whose parents were not found yet: the parent's id, the entry, their ids.
        self._waiting: dict[str, dict[SourceEntry, set[str]]] = {}
        #: Parents that are not waited for.
        self._missing: set[str] = set()

    def all(self, found: Iterable[SourceEntry], progress: Progress | None) -> None:
        """Import everything."""
        entries: list[SourceEntry] = []
        with self._files.item(self._files.root):
            entries.extend(found)
        for number, entry in enumerate(entries, start=1):
            self._read(entry, None)
            if progress is not None:
                progress(number, len(entries))
        # Sessions whose parents are missing, then those that are each other's parents.
        waiting = set().union(*(ids for ways in self._waiting.values() for ids in ways.values()))
        for parent in [*(self._waiting.keys() - waiting), *self._waiting]:
            self._missing.add(parent)
            for entry, ids in self._waiting.pop(parent, {}).items():
                self._read(entry, ids)

    def _read(self, entry: SourceEntry, wanted: set[str] | None) -> None:
        """Import the sessions of an entry, or those of these ids, and then their waiting forks."""
        ready = [(entry, wanted)]
        while ready:
            entry, wanted = ready.pop()
            for foreign in self._sessions(entry):
                session_id = self._prefix + foreign.id
                if wanted is not None and session_id not in wanted:
                    continue
                parent = None if foreign.fork is None else self._prefix + foreign.fork.parent
                if parent is None or parent in self.seen or parent in self._missing:
                    self._write(foreign, session_id)
                    ready += self._waiting.pop(session_id, {}).items()
                else:
                    self._waiting.setdefault(parent, {}).setdefault(entry, set()).add(session_id)

    def _sessions(self, entry: SourceEntry) -> Iterator[ForeignSession]:
        """Yield the sessions of an entry; an error in it ends this entry only."""
        with self._files.item(entry.where):
            yield from entry.read()

    def _write(self, foreign: ForeignSession, session_id: str) -> None:
        def report(what: str) -> None:
            self._files.report(foreign.where, what)

        if session_id in self.seen:
            report(f"session {session_id!r} was imported from {self.seen[session_id]}: skipped")
            return
        self.seen[session_id] = foreign.where
        try:
            done = self._writer.write(
                session_id, foreign, lambda what: report(f"{foreign.id!r}: {what}")
            )
            self._report.sessions.append(done)
        except _SESSION_ERRORS as error:
            report(str(error))
