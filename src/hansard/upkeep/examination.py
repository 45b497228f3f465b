"""Say how a store is: what there is, and what needs attention.

Above: `store`.  Below: `backend.contract`, `backend.condition`.
A doctor looks and changes nothing. It opens no session further than to where its log ends: whether every byte
is right is `verify`'s to say.
"""

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

import msgspec

from hansard.backend.condition import (
    Condition,
    DatabaseServer,
    HeldLock,
    Home,
    IndexFile,
    Leftover,
    MarksFiles,
    Oddity,
)
from hansard.backend.contract import Backend
from hansard.errors import HansardError, SessionDeleted, SessionNotFound

#: With less room than this, compaction may have none to write a segment anew.
_FEW_BYTES: Final = 100 * 1024 * 1024
_FEW_FILES: Final = 1_000

#: The oldest PostgreSQL that the tests run on.
_OLDEST_TRIED: Final = 16

#: So many sessions that cannot be read, or have an event of tomorrow, are named.
_NAMED: Final = 20


class Remark(msgspec.Struct, frozen=True):
    """Something that a doctor says.

    Attributes:
        severity: "problem" needs attention; a "note" is only said.
        code: what it is about, in a word for programs; it stays the same from version to version.
        where: the file, directory or session; the first of them, if there are several.
        reason: what is so.
        advice: what to do; empty if nothing need be done.
        count: how many there are.
    """

    severity: Literal["problem", "note"]
    code: str
    where: str
    reason: str
    advice: str = ""
    count: int = 1


class Examination(msgspec.Struct, frozen=True):
    """How a store is.

    Attributes:
        where: the store.
        version: the version of its format.
        sessions, trash, cursors: how many there are.
        durability: how its writers, of this opening, keep what they append.
        home: where it lives.
        locks: who holds locks now.
        leftovers: files that no event needs.
        oddities: files that are not as hansard made them.
        marks, index: what is kept beside the sessions.
        remarks: what there is to say, problems first.
        server: the server that it lives on; None if it is made of files.
    """

    where: str
    version: int
    sessions: int
    trash: int
    cursors: int
    durability: str
    home: Home
    locks: list[HeldLock]
    leftovers: list[Leftover]
    oddities: list[Oddity]
    marks: MarksFiles
    index: IndexFile
    remarks: list[Remark]
    server: DatabaseServer | None = None

    @property
    def ok(self) -> bool:
        """True if nothing needs attention."""
        return not any(remark.severity == "problem" for remark in self.remarks)


def examine(
    backend: Backend, look_at_index: Callable[[Backend, Condition], IndexFile]
) -> Examination:
    """Look at a store. `look_at_index` is given in, because the index is above."""
    condition = backend.condition()
    index = look_at_index(backend, condition)
    ids = sorted(backend.ids())
    remarks = [
        *_sessions(backend, ids),
        *_home(condition.home, backend.where),
        *_locks(condition.locks),
        *(remark for oddity in condition.oddities for remark in _odd(oddity)),
        *_leftovers(condition.leftovers),
        *_server(condition.server, backend.where),
    ]
    if index.reason:
        remarks.append(Remark("note", "index-unusable", condition.index_path, index.reason))
    return Examination(
        where=backend.where,
        version=condition.version,
        sessions=len(ids),
        trash=sum(1 for _ in backend.trash()),
        cursors=len(backend.cursors()),
        durability=backend.durability,
        home=condition.home,
        locks=condition.locks,
        leftovers=condition.leftovers,
        oddities=condition.oddities,
        marks=condition.marks,
        index=index,
        remarks=sorted(remarks, key=lambda remark: remark.severity != "problem"),
        server=condition.server,
    )


class _Late(NamedTuple):
    session: str
    stamp: str


def _sessions(backend: Backend, ids: list[str]) -> Iterator[Remark]:
    """Look at where each session ends: whether that can be read, and is not in the future."""
    unreadable: list[tuple[str, str]] = []
    failed: list[str] = []
    late: list[_Late] = []
    for session_id in ids:
        try:
            log = backend.log(session_id)
            head = log.head()
            if log.failed():
                failed.append(session_id)
        except (SessionDeleted, SessionNotFound):
            continue  # deleted since it was listed
        except HansardError as error:
            backend.check_open()  # a closed store says so, and not that all of it cannot be read
            unreadable.append((session_id, str(error)))
            continue
        # Asked for each time: the event may be younger than the examination.
        if head is not None and head.updated > _now():
            late.append(_Late(session_id, head.updated))
    for session_id, reason in unreadable[:_NAMED]:
        yield Remark(
            "problem",
            "unreadable-session",
            session_id,
            reason,
            "`hansard verify` says more, and `hansard repair` saves what is whole",
        )
    more = len(unreadable) - _NAMED
    if more > 0:
        reason = "these cannot be read either"
        yield Remark("problem", "unreadable-session", unreadable[_NAMED][0], reason, "", more)
    if failed:
        yield Remark(
            "problem",
            "failed-sync",
            failed[0],
            "a sync to the disk has failed: nothing can be appended until every byte was checked",
            "look after the disk, then `hansard verify --reopen`",
            len(failed),
        )
    if late:
        latest = max(late, key=lambda one: one.stamp)
        yield Remark(
            "problem",
            "future-event",
            latest.session,
            f"its last event is of {latest.stamp}, which is yet to come",
            "set the clock; the order of events is right all the same, and listings by time are not",
            len(late),
        )


def _now() -> str:
    return datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _home(home: Home, where: str) -> Iterator[Remark]:
    if home.network:
        yield Remark(
            "problem",
            "network-file-system",
            home.mounted,
            f"the store is on {home.file_system}, whose locks and syncs cannot be trusted",
            "move it to a disk of the machine that writes it: docs/guarantees.md",
        )
    if home.volatile:
        reason = f"the store is on {home.file_system}: it is gone when the machine stops"
        yield Remark("note", "volatile-file-system", home.mounted, reason)
    if not home.writable:
        yield Remark("note", "not-writable", where, "this user cannot write to the store")
    elif home.owner != home.user:
        reason = f"the store is user {home.owner}'s, and this is user {home.user}"
        advice = "what is written now will be this user's; run hansard as the owner"
        yield Remark("note", "other-user", where, reason, advice)
    if home.free_bytes is not None and home.free_bytes < _FEW_BYTES:
        reason = f"only {home.free_bytes:,} bytes are free"
        advice = "make room: appends fail when there is none, and lose nothing"
        yield Remark("problem", "low-space", where, reason, advice)
    if home.free_files is not None and home.free_files < _FEW_FILES:
        reason = f"only {home.free_files:,} more files can be made on this file system"
        yield Remark("problem", "few-inodes", where, reason, "make room, or move the store")


def _server(server: DatabaseServer | None, where: str) -> Iterator[Remark]:
    """Say which settings of a server would lose what it has acknowledged."""
    if server is None:
        return
    if server.fsync != "on":
        yield Remark(
            "problem",
            "fsync-off",
            where,
            "the server does not sync (fsync = off): a crash of its machine loses or ruins everything",
            "set fsync = on; all that was written while it was off is in doubt until the next checkpoint",
        )
    if server.full_page_writes != "on":
        yield Remark(
            "problem",
            "full-page-writes-off",
            where,
            "the server writes no whole pages (full_page_writes = off): a power cut may leave half of one",
            "set full_page_writes = on, unless its file system is known to write pages whole",
        )
    if server.synchronous_commit == "off":
        yield Remark(
            "note",
            "synchronous-commit-off",
            where,
            "the server acknowledges before it syncs (synchronous_commit = off); hansard's own appends ask "
            "for more, and are durable",
            "whatever else writes to this database may lose the last moments",
        )
    waits = server.synchronous_commit not in {"off", "local"}
    if server.standby:
        yield Remark("note", "standby", where, "this server is a standby, and only reads")
    elif server.synchronous_standby_names and not waits:
        yield Remark(
            "problem",
            "standby-not-waited-for",
            where,
            f"synchronous_standby_names = {server.synchronous_standby_names!r}, but with "
            f"synchronous_commit = {server.synchronous_commit} nobody waits for them",
            "set synchronous_commit = on",
        )
    elif server.synchronous_standby_names:
        reason = (
            f"appends wait for synchronous_standby_names = {server.synchronous_standby_names!r}"
        )
        yield Remark("note", "synchronous-standby", where, reason)
    else:
        yield Remark(
            "note",
            "no-synchronous-standby",
            where,
            "synchronous_standby_names is empty: a failover may lose the last acknowledged appends",
            "name a standby, if the loss of the server itself is to lose nothing",
        )
    if server.number // 10_000 < _OLDEST_TRIED:
        reason = f"PostgreSQL {server.version} was not tried with hansard; {_OLDEST_TRIED} and later were"
        yield Remark("note", "old-server", where, reason)


def _locks(locks: list[HeldLock]) -> Iterator[Remark]:
    for lock in locks:
        if lock.stopped:
            yield Remark(
                "problem",
                "stopped-holder",
                lock.where,
                f"held by process {lock.pid} ({lock.command}), which was stopped",
                f"let it go on (kill -CONT {lock.pid}), or end it: nobody else can write there",
            )


#: Code, what is so and what to do, by what is odd about a file.
_ODD: Final = {
    "mode": (
        "loose-mode",
        "other users may read or change what is there",
        "if that is not intended, its owner can revoke it: chmod -R go= STORE",
    ),
    "owner": (
        "other-owner",
        "another user's than the store",
        "give it to the owner of the store: chown",
    ),
    "link": (
        "symbolic-link",
        "a symbolic link, which hansard did not make and does not follow",
        "put what it leads to in its place, or remove it",
    ),
    "kind": (
        "wrong-kind",
        "neither the file nor the directory that should be there",
        "find out who put it there, and move it away",
    ),
    "hard link": (
        "hard-link",
        "it has another name outside of its directory, where every append appears too",
        "replace the copy that was made with hard links by a real one",
    ),
    "foreign": ("foreign-file", "not a file of hansard's", "it is left alone"),
    "unreadable": (
        "unreadable",
        "it cannot be looked into",
        "ask its owner for access, or run hansard as that user",
    ),
}


def _odd(oddity: Oddity) -> Iterator[Remark]:
    code, reason, advice = _ODD[oddity.what]
    severity: Literal["problem", "note"] = "note" if oddity.what == "foreign" else "problem"
    yield Remark(severity, code, oddity.where[0], reason, advice, oddity.count)


def _leftovers(leftovers: list[Leftover]) -> Iterator[Remark]:
    kept = [one for one in leftovers if one.what == "damaged"]
    if kept:
        size = sum(one.bytes for one in kept)
        yield Remark(
            "note",
            "kept-damage",
            kept[0].where,
            f"a repair has kept damaged bytes, {size:,} in all",
            "remove them when nobody needs them any more",
            len(kept),
        )
    torn = [one for one in leftovers if one.what == "discarded"]
    if torn:
        size = sum(one.bytes for one in torn)
        yield Remark(
            "note",
            "discarded-fragment",
            torn[0].where,
            f"crashes have left fragments of unfinished appends, {size:,} bytes in all",
            "none of them was acknowledged, and readers skip them; `hansard verify` lists them",
            sum(one.count for one in torn),
        )
    files = {"temporary", "staged"}
    dead = [one for one in leftovers if one.what in files and not one.living]
    if dead:
        size = sum(one.bytes for one in dead)
        yield Remark(
            "note",
            "leftover",
            dead[0].where,
            f"left by a process that died, {size:,} bytes in all",
            "the next one who writes there sweeps it up",
            len(dead),
        )
