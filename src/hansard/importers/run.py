"""Import all sessions of a foreign source, one after the other.

An error in one session stops no other. An error of the store, such as a full disk, stops the import, and the
next run does the rest.
"""

import os
from collections.abc import Callable, Iterator
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
    "pydantic-ai": "Pydantic AI messages and conversations",
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
        where = os.path.abspath(os.path.expanduser(path))
        what = str(error).removeprefix(f"{os.fsdecode(where)}: ")
        report.skipped.append(Skipped(os.fsdecode(path), what))
        raise _nothing(str(error), report) from None
    report.skipped = files.problems
    writer = SessionWriter(store._backend, kind, files, dry_run=dry_run)  # noqa: SLF001 - a store's own
    seen: dict[str, str] = {}
    for foreign in _sessions(files, kind, progress):
        session_id = prefix + foreign.id
        if session_id in seen:
            earlier = f"session {session_id!r} was imported from {seen[session_id]}"
            files.report(foreign.where, f"{earlier}: skipped")
            continue
        seen[session_id] = foreign.where
        try:
            report.sessions.append(writer.write(session_id, foreign))
        except _SESSION_ERRORS as error:
            files.report(foreign.where, str(error))
    if not seen:
        why = next((f": {one.where}: {one.what}" for one in files.problems), "")
        raise _nothing(f"{files.root}: nothing can be imported as {kind}{why}", report)
    return report


def _nothing(what: str, report: Report) -> errors.NothingToImport:
    return errors.NothingToImport(f"{what}; check the path and the kind", report=report)


def _sessions(files: Files, kind: str, progress: Progress | None) -> Iterator[ForeignSession]:
    """Yield the sessions of a source; an error in a file ends that file only."""
    entries: list[SourceEntry] = []
    with files.item(files.root):
        name = _MODULES.get(kind, kind.replace("-", "_"))
        entries += import_module(f"hansard.importers.{name}").find(files)
    for number, entry in enumerate(entries, start=1):
        with files.item(entry.where):
            yield from entry.read()
        if progress is not None:
            progress(number, len(entries))
