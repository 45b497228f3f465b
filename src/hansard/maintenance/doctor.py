"""Diagnose a store: run checks that each yield diagnostics.

The checks change nothing. `verify` checks the content of the sessions.
"""

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import asdict

from hansard import clock
from hansard.backend.contract import CURSOR, Backend
from hansard.backend.status import StoreStatus
from hansard.errors import UNREADABLE, SessionDeleted, SessionNotFound
from hansard.maintenance.prune import policy_of

#: With less space, compaction may be unable to rewrite a segment.
_FEW_BYTES: Final = 100 * 1024 * 1024
_FEW_FILES: Final = 1_000

#: The share of a size limit from which on a store is near it.
_NEAR: Final = 0.9

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
        index: the file of the index; a server counts its tables among its own.
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


def diagnose(backend: Backend) -> Diagnosis:
    """Run all checks."""
    ids = sorted(backend.ids())
    found = Diagnosis(
        **asdict(backend.status()),
        where=backend.where,
        sessions=len(ids),
        trash=sum(1 for _ in backend.ids(trash=True)),
        cursors=sum(name.startswith(CURSOR + backend.prefix) for name in backend.internals()),
        durability=backend.durability,
        diagnostics=list(_check_sessions(backend, ids)),
    )
    rows = chain(
        _check_home(found), _check_files(found), _check_server(found), _check_size(backend, found)
    )
    found.diagnostics.extend(Diagnostic(*row) for condition, *row in rows if condition)
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


#: Severity, code, where, reason, advice and count of a diagnostic, after its condition.
_Row = tuple[Any, ...]


def _check_home(found: Diagnosis) -> Iterator[_Row]:
    """Check the file system, the user and the locks."""
    where, home = found.where, found.home
    yield (home.network, "problem", "network-file-system", home.mounted,
           f"the store is on {home.file_system}, whose locks and syncs cannot be trusted",
           "move it to a local disk of the machine that writes it")  # fmt: skip
    yield (home.volatile, "note", "volatile-file-system", home.mounted,
           f"the store is on {home.file_system}, which is empty after a restart")  # fmt: skip
    yield not home.writable, "note", "not-writable", where, "this user cannot write to the store"
    yield (home.writable and home.owner != home.user and home.group is None, "note", "other-user", where,
           f"user {home.owner} owns the store, and this process runs as user {home.user}",
           "run hansard as the owner: this user will own the files that it creates")  # fmt: skip
    yield (home.free_bytes is not None and home.free_bytes < _FEW_BYTES, "problem", "low-space", where,
           f"only {home.free_bytes or 0:,} bytes are free",
           "free some space: on a full disk appends fail, and lose nothing")  # fmt: skip
    yield (home.free_files is not None and home.free_files < _FEW_FILES, "problem", "few-inodes", where,
           f"only {home.free_files or 0:,} more files can be created on this file system",
           "remove files, or move the store")  # fmt: skip
    for lock in found.locks:
        yield (lock.stopped, "problem", "stopped-holder", lock.where,
               f"held by process {lock.pid} ({lock.command}), which is stopped",
               f"continue it (kill -CONT {lock.pid}), or end it: no one else can write there")  # fmt: skip


#: Severity, code, reason and advice, by what is odd about a file.
_ODD: Final = {
    "mode": ("problem", "loose-mode", "other users may read or change it", "revoke it: chmod -R go= STORE"),
    "others": ("problem", "loose-mode", "users outside of its group may read or change it",
               "revoke it: chmod -R o= STORE"),
    "group": ("problem", "tight-mode", "the store's group cannot read or change it",
              "grant it: chgrp -R GROUP STORE; chmod -R g=rwX STORE"),
    "owner": ("problem", "other-owner", "its owner is not the store's owner", "change its owner: chown"),
    "link": ("problem", "symbolic-link", "a symbolic link, which hansard does not follow", "remove it"),
    "foreign": ("note", "foreign-file", "hansard did not create it", "it is left alone"),
    "unreadable": ("problem", "unreadable", "it cannot be read", "run hansard as its owner"),
}  # fmt: skip

#: Code, reason and advice, by what a leftover is.
_LEFT: Final = {
    "damaged": ("kept-damage", "repairs have kept damaged files",
                "remove them when no one needs them any more"),
    "discarded": ("discarded-fragment", "crashes have left fragments of unfinished appends",
                  "none was acknowledged, and readers skip them; `hansard verify` lists them"),
    "temporary": ("leftover", "left by a process that has died",
                  "the next process that writes there removes it"),
}  # fmt: skip


def _check_files(found: Diagnosis) -> Iterator[_Row]:
    """Check the files that are not as hansard creates them, or that no event needs."""
    for odd in found.oddities:
        severity, code, reason, advice = _ODD[odd.what]
        yield True, severity, code, odd.where[0], reason, advice, odd.count
    for what, (code, reason, advice) in _LEFT.items():
        left = [one for one in found.leftovers if one.what == what]
        size, count = sum(one.bytes for one in left), sum(one.count for one in left)
        first = left[0].where if left else ""
        yield left, "note", code, first, f"{reason}, {size:,} bytes in all", advice, count


def _check_size(backend: Backend, found: Diagnosis) -> Iterator[_Row]:
    """Check the size of the sessions against the limit of the retention policy, and of the disk."""
    policy = policy_of(backend)
    limit = policy.get("max_size")
    if not limit:
        return
    size = 0
    for session_id in backend.ids():
        if session_id.startswith(policy.get("prefix", "")):
            with suppress(SessionDeleted, *UNREADABLE):
                size += backend.log(session_id).reader().size()
    said = f"the sessions have {size:,} bytes; the retention policy allows {limit:,}"
    yield (size > limit * _NEAR, "problem" if size > limit else "note", "retention-size", found.where, said,
           "`hansard prune --policy` moves the longest inactive ones to the trash")  # fmt: skip
    free = found.home.free_bytes
    yield (free is not None and size + free < limit, "note", "limit-above-disk", found.where,
           f"the disk is full before the limit of {limit:,} bytes is reached",
           "set a lower limit: `hansard prune --max-size SIZE --set-policy`")  # fmt: skip


def _check_server(found: Diagnosis) -> Iterator[_Row]:
    """Check the settings with which a server, or a failover, loses what it has acknowledged."""
    where, server = found.where, found.server
    if server is None:
        return
    yield (server.fsync != "on", "problem", "fsync-off", where,
           "fsync = off: a crash of the server's machine loses or damages everything",
           "set fsync = on; what was written before is durable after the next checkpoint")  # fmt: skip
    yield (server.full_page_writes != "on", "problem", "full-page-writes-off", where,
           "full_page_writes = off: a power cut may leave half of a page",
           "set full_page_writes = on, unless its file system writes pages atomically")  # fmt: skip
    yield (server.synchronous_commit == "off", "note", "synchronous-commit-off", where,
           "synchronous_commit = off; hansard's own appends override it, and are durable",
           "other programs that write to this database may lose the last moments")  # fmt: skip
    named, commit = server.synchronous_standby_names, server.synchronous_commit
    standbys = f"synchronous_standby_names = {named!r}"
    followed, waited = named and not server.standby, commit not in {"off", "local"}
    yield server.standby, "note", "standby", where, "this server is a standby, and read-only"
    yield (not named and not server.standby, "note", "no-synchronous-standby", where,
           "synchronous_standby_names is empty: a failover may lose the last appends",
           "name a standby, if the loss of the server must lose nothing")  # fmt: skip
    yield (followed and not waited, "problem", "standby-not-waited-for", where,
           f"{standbys}, but synchronous_commit = {commit} does not wait",
           "set synchronous_commit = on")  # fmt: skip
    yield followed and waited, "note", "synchronous-standby", where, f"appends wait for {standbys}"
    yield (server.number // 10_000 < _OLDEST_TESTED, "note", "old-server", where,
           f"PostgreSQL {server.version} is not tested; {_OLDEST_TESTED} and later are")  # fmt: skip
