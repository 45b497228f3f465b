"""Diagnose a store: run checks that each yield diagnostics.

The checks change nothing. `verify` checks the content of the sessions.
"""

from collections.abc import Callable, Iterator
from typing import Final, Literal

import msgspec
from msgspec.structs import asdict

from hansard import clock
from hansard.backend.contract import CURSOR, Backend
from hansard.backend.status import IndexStatus, StoreStatus
from hansard.errors import UNREADABLE, SessionDeleted, SessionNotFound

#: With less space, compaction may be unable to rewrite a segment.
_FEW_BYTES: Final = 100 * 1024 * 1024
_FEW_FILES: Final = 1_000

#: The oldest PostgreSQL that the tests run on.
_OLDEST_TESTED: Final = 16

#: Maximum number of unreadable sessions that get a diagnostic each.
_NAMED: Final = 20


class Diagnostic(msgspec.Struct, frozen=True):
    """One diagnostic of `Store.diagnose` and `hansard doctor`.

    Attributes:
        severity: a "problem" needs attention; a "note" is information.
        code: the kind of the diagnostic, for programs; it does not change between versions.
        where: the file, directory or session; the first one if there are several.
        reason: what was found.
        advice: what to do; empty if there is nothing to do.
        count: number of files or sessions.
    """

    severity: Literal["problem", "note"]
    code: str
    where: str
    reason: str
    advice: str = ""
    count: int = 1


class Diagnosis(StoreStatus, frozen=True, kw_only=True):
    """The status of a store, and the diagnostics of all checks.

    Attributes:
        where: the store's path or URL.
        version: the version of its format, or of its tables in PostgreSQL.
        sessions: number of sessions.
        trash: number of sessions in the trash.
        cursors: number of consumer cursors.
        durability: the durability of appends in this process.
        home: the file system of the store.
        locks: the locks that processes hold now.
        leftovers: files that no event needs.
        oddities: files that are not as hansard creates them.
        marks: the change markers.
        index: the index.
        server: the server of a store in PostgreSQL; None for files.
        diagnostics: the diagnostics, problems first.
    """

    where: str
    sessions: int
    trash: int
    cursors: int
    durability: str
    diagnostics: list[Diagnostic]

    @property
    def ok(self) -> bool:
        """True if nothing needs attention."""
        return not any(diagnostic.severity == "problem" for diagnostic in self.diagnostics)


def diagnose(
    backend: Backend, index_status: Callable[[Backend, IndexStatus], IndexStatus]
) -> Diagnosis:
    """Run all checks. `index_status` completes the status of the index."""
    status = backend.status()
    ids = sorted(backend.ids())
    found = Diagnosis(
        **{**asdict(status), "index": index_status(backend, status.index)},
        where=backend.where,
        sessions=len(ids),
        trash=sum(1 for _ in backend.ids(trash=True)),
        cursors=sum(name.startswith(CURSOR + backend.prefix) for name in backend.internals()),
        durability=backend.durability,
        diagnostics=list(_check_sessions(backend, ids)),
    )
    for check in CHECKS:
        found.diagnostics.extend(check(found))
    found.diagnostics.sort(key=lambda diagnostic: diagnostic.severity != "problem")
    return found


def _check_sessions(backend: Backend, ids: list[str]) -> Iterator[Diagnostic]:
    """Check the end of each log: it is readable, not write-blocked, and not in the future."""
    unreadable: dict[str, str] = {}
    failed: list[str] = []
    late: dict[str, str] = {}
    for session_id in ids:
        try:
            head = backend.log(session_id).reader().head()
            if head is not None and head.failed:
                failed.append(session_id)
        except (SessionDeleted, SessionNotFound):
            continue  # deleted since it was listed
        except UNREADABLE as error:
            unreadable[session_id] = str(error)
            continue
        # The current time: the event may be newer than the start of this check.
        now = clock.stamp(clock.now())
        if head is not None and head.updated > now:
            late[session_id] = head.updated
    advice = "`hansard verify` shows details, and `hansard repair` keeps what is valid"
    for session_id in [*unreadable][:_NAMED]:
        yield Diagnostic(
            "problem", "unreadable-session", session_id, unreadable[session_id], advice
        )
    if more := [*unreadable][_NAMED:]:
        reason = "these cannot be read either"
        yield Diagnostic("problem", "unreadable-session", more[0], reason, "", len(more))
    if failed:
        reason = "a sync to the disk has failed: appends are refused until every byte is verified"
        advice = "check the disk, then run `hansard verify --reopen`"
        yield Diagnostic("problem", "failed-sync", failed[0], reason, advice, len(failed))
    if late:
        last = max(late, key=late.__getitem__)
        reason = f"its last event has the time {late[last]}, which is in the future"
        advice = "set the clock; the order of events is right, but listings by time are not"
        yield Diagnostic("problem", "future-event", last, reason, advice, len(late))


def _check_file_system(found: Diagnosis) -> Iterator[Diagnostic]:
    home = found.home
    if home.network:
        reason = f"the store is on {home.file_system}, whose locks and syncs cannot be trusted"
        advice = "move it to a local disk of the machine that writes it"
        yield Diagnostic("problem", "network-file-system", home.mounted, reason, advice)
    if home.volatile:
        reason = f"the store is on {home.file_system}, which is empty after a restart"
        yield Diagnostic("note", "volatile-file-system", home.mounted, reason)


def _check_access(found: Diagnosis) -> Iterator[Diagnostic]:
    home = found.home
    if not home.writable:
        yield Diagnostic("note", "not-writable", found.where, "this user cannot write to the store")
    elif home.owner != home.user:
        reason = f"user {home.owner} owns the store, and this process runs as user {home.user}"
        advice = "run hansard as the owner: this user will own the files that it creates"
        yield Diagnostic("note", "other-user", found.where, reason, advice)


def _check_space(found: Diagnosis) -> Iterator[Diagnostic]:
    home = found.home
    if home.free_bytes is not None and home.free_bytes < _FEW_BYTES:
        reason = f"only {home.free_bytes:,} bytes are free"
        advice = "free some space: on a full disk appends fail, and lose nothing"
        yield Diagnostic("problem", "low-space", found.where, reason, advice)
    if home.free_files is not None and home.free_files < _FEW_FILES:
        reason = f"only {home.free_files:,} more files can be created on this file system"
        yield Diagnostic(
            "problem", "few-inodes", found.where, reason, "remove files, or move the store"
        )


def _check_locks(found: Diagnosis) -> Iterator[Diagnostic]:
    for lock in found.locks:
        if lock.stopped:
            reason = f"held by process {lock.pid} ({lock.command}), which is stopped"
            advice = f"continue it (kill -CONT {lock.pid}), or end it: no one else can write there"
            yield Diagnostic("problem", "stopped-holder", lock.where, reason, advice)


#: Code, reason and advice, by what is odd about a file.
_ODD: Final = {
    "mode": ("loose-mode", "other users may read or change it", "revoke it: chmod -R go= STORE"),
    "owner": ("other-owner", "its owner is not the store's owner", "change its owner: chown"),
    "link": ("symbolic-link", "a symbolic link, which hansard does not follow", "remove it"),
    "foreign": ("foreign-file", "hansard did not create it", "it is left alone"),
    "unreadable": ("unreadable", "it cannot be read", "run hansard as its owner"),
}


def _check_files(found: Diagnosis) -> Iterator[Diagnostic]:
    for odd in found.oddities:
        code, reason, advice = _ODD[odd.what]
        severity: Literal["problem", "note"] = "note" if odd.what == "foreign" else "problem"
        yield Diagnostic(severity, code, odd.where[0], reason, advice, odd.count)


def _check_leftovers(found: Diagnosis) -> Iterator[Diagnostic]:
    for code, kinds, reason, advice in (
        ("kept-damage", {"damaged"}, "repairs have kept damaged files",
         "remove them when no one needs them any more"),
        ("discarded-fragment", {"discarded"}, "crashes have left fragments of unfinished appends",
         "none was acknowledged, and readers skip them; `hansard verify` lists them"),
        ("leftover", {"temporary", "staged"}, "left by a process that has died",
         "the next process that writes there removes it"),
    ):  # fmt: skip
        left = [one for one in found.leftovers if one.what in kinds and not one.living]
        if left:
            size, count = sum(one.bytes for one in left), sum(one.count for one in left)
            said = f"{reason}, {size:,} bytes in all"
            yield Diagnostic("note", code, left[0].where, said, advice, count)


def _check_index(found: Diagnosis) -> Iterator[Diagnostic]:
    if found.index.reason:
        yield Diagnostic("note", "index-unusable", found.index.path, found.index.reason)


def _check_durability(found: Diagnosis) -> Iterator[Diagnostic]:
    """Check the settings with which a server loses what it has acknowledged."""
    server = found.server
    if server is None:
        return
    if server.fsync != "on":
        reason = "fsync = off: a crash of the server's machine loses or damages everything"
        advice = "set fsync = on; what was written before is durable after the next checkpoint"
        yield Diagnostic("problem", "fsync-off", found.where, reason, advice)
    if server.full_page_writes != "on":
        reason = "full_page_writes = off: a power cut may leave half of a page"
        advice = "set full_page_writes = on, unless its file system writes whole pages"
        yield Diagnostic("problem", "full-page-writes-off", found.where, reason, advice)
    if server.synchronous_commit == "off":
        reason = "synchronous_commit = off; hansard's own appends override it, and are durable"
        advice = "other programs that write to this database may lose the last moments"
        yield Diagnostic("note", "synchronous-commit-off", found.where, reason, advice)


def _check_server(found: Diagnosis) -> Iterator[Diagnostic]:
    """Check what a failover may lose, and the version."""
    server = found.server
    if server is None:
        return
    standbys = f"synchronous_standby_names = {server.synchronous_standby_names!r}"
    if server.standby:
        yield Diagnostic("note", "standby", found.where, "this server is a standby, and read-only")
    elif not server.synchronous_standby_names:
        reason = "synchronous_standby_names is empty: a failover may lose the last appends"
        advice = "name a standby, if the loss of the server must lose nothing"
        yield Diagnostic("note", "no-synchronous-standby", found.where, reason, advice)
    elif server.synchronous_commit in {"off", "local"}:
        reason = f"{standbys}, but synchronous_commit = {server.synchronous_commit} does not wait"
        advice = "set synchronous_commit = on"
        yield Diagnostic("problem", "standby-not-waited-for", found.where, reason, advice)
    else:
        yield Diagnostic("note", "synchronous-standby", found.where, f"appends wait for {standbys}")
    if server.number // 10_000 < _OLDEST_TESTED:
        reason = f"PostgreSQL {server.version} is not tested; {_OLDEST_TESTED} and later are"
        yield Diagnostic("note", "old-server", found.where, reason)


CHECKS: Final = (
    _check_file_system,
    _check_access,
    _check_space,
    _check_locks,
    _check_files,
    _check_leftovers,
    _check_durability,
    _check_server,
    _check_index,
)
