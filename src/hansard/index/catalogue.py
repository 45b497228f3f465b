"""Bring the index up to date with the logs.

Above: `finder`.  Below: `description`, `database`, `backend.contract`.
One pass at a time, of all processes: it is told which sessions have changed (`backend.contract.Watch`),
describes these anew, and commits. Beside that, each question compares the stamps of some other sessions, so
that what was done to a log by other hands is found too: in a small store at once, in a large one after a few
questions.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any, Final
from zlib import crc32

import msgspec

from hansard.backend.contract import Backend, Unwatched, Watch
from hansard.errors import UNREADABLE, DiskFailed, SessionDeleted
from hansard.index.database import RESIDUE, Database
from hansard.index.description import (
    UNSETTLING,
    Description,
    Known,
    describe,
    describe_damaged,
)
from hansard.index.entry import SessionInfo
from hansard.state.fork_graph import ForkGraph

#: So many sessions are looked at each time although nobody says that they have changed: all of a store that
#: has no more than the first, which takes a millisecond, and so many of a larger one.
SMALL: Final = 256
SAMPLE: Final = 64

#: Of a value among the metadata that takes more, its hash will do to find it by.
_LONGEST: Final = 200

#: The stamp of what the system has refused to read: it is no session's, so that is tried again each time.
AGAIN: Final = ""

#: So many sessions are asked about at once.
_TOGETHER: Final = 100
_KNOWN: Final = (
    "SELECT id, n, parent, seq, created, updated, bytes, state FROM session WHERE id IN (?)"
)
_SAID: Final = "SELECT id, info FROM entry WHERE id IN (?)"
_FORKS: Final = (
    "SELECT parent, parent_created, count(*) FROM session WHERE parent IN (?) "
    "GROUP BY parent, parent_created"
)

Progress = Callable[[int, int], None]

encode = msgspec.json.Encoder().encode
decode_info = msgspec.json.Decoder(SessionInfo).decode

#: How often a pass describes forks again because inherited events were redacted concurrently.
_ROUNDS: Final = 3


class Catalogue:
    """What the index knows of the sessions of a store."""

    __slots__ = ("_backend", "_database", "_place", "_watch")

    def __init__(self, backend: Backend, database: Database) -> None:
        self._backend = backend
        self._database = database
        # Who writes for himself alone must not take away what tells others.
        self._watch: Watch = Unwatched(backend) if database.is_own() else backend.watch()
        #: Behind which session the next look at some of them begins; at first, anywhere.
        self._place = -1

    def update(self, progress: Progress | None = None) -> None:
        """Bring everything up to date with what was acknowledged before this call.

        `progress` is called with the number of sessions that are done, and of how many.
        """
        database = self._database
        suspects = self._suspects()
        if not suspects and self._watch.quiet(database.get("watch", "")):
            return
        with database.changing():
            changed = self._watch.begin(database.get("watch", ""))
            wanted = {*changed.ids, *suspects}
            stamps: dict[str, str] = {}
            if changed.every:
                stamps = self._backend.stamps()
                known = dict(database.all("SELECT id, stamp FROM session"))
                wanted |= {found for found in known if found not in stamps}
                wanted |= {found for found, stamp in stamps.items() if known.get(found) != stamp}
            elif changed.names:
                wanted |= {found for (found,) in database.all("SELECT id FROM session")} ^ set(
                    self._watch.ids()
                )
            if wanted:
                _Pass(self._backend, database, stamps, progress).look(wanted)
            database.put("watch", self._watch.done())
        if database.in_place():
            self._watch.consumed()

    def _suspects(self) -> set[str]:
        """Return those of the next few sessions whose logs are not as they were when described."""
        database = self._database
        again = database.all("SELECT id FROM session WHERE stamp = ''")  # AGAIN, by its index
        if database.served:
            return {found for (found,) in again}
        if self._place < 0:
            (most,) = database.one("SELECT max(n) FROM session")
            self._place = int.from_bytes(os.urandom(4)) % (most or 1)
        ask = "SELECT n, id, stamp FROM session WHERE n > ? ORDER BY n LIMIT ?"
        size = SAMPLE if self._is_large() else SMALL
        rows = database.all(ask, self._place, size)
        if len(rows) < size:
            rows += database.all(ask, 0, size - len(rows))
        if not rows:
            return set()
        self._place = rows[-1][0]
        stamps = self._backend.stamps([found for _, found, _ in rows])
        return {
            *(found for _, found, stamp in rows if stamps.get(found) != stamp),
            *(found for (found,) in again),
        }

    def _is_large(self) -> bool:
        """Say whether there are more sessions than are looked at each time."""
        return bool(self._database.one("SELECT 1 FROM session LIMIT 1 OFFSET ?", SMALL))


class _Pass:
    """One pass over the sessions that have changed, inside of a transaction."""

    def __init__(
        self,
        backend: Backend,
        database: Database,
        stamps: dict[str, str],
        progress: Progress | None,
    ) -> None:
        self._backend = backend
        self._database = database
        self._stamps = stamps
        self._progress = progress
        #: What forks inherit, as this pass has read it; and, by True, for those that are read whole.
        self._graphs: dict[bool, ForkGraph] = {}
        self._rounds = 0
        #: Sessions whose forks must be counted again.
        self._parents: set[str] = set()
        #: Sessions whose forks must be described again; true: and read whole.
        self._unsettled: dict[str, bool] = {}

    def look(self, wanted: set[str]) -> None:
        """Describe sessions anew, and those that depend on them."""
        self._look_at(dict.fromkeys(wanted, False))
        done = set(wanted)
        while self._unsettled or self._has_moved(done):
            parents, self._unsettled = self._unsettled, {}
            forks: dict[str, bool] = {}
            for parent, thorough in parents.items():
                for fork in self._forks(parent):
                    forks[fork] = forks.get(fork, False) or thorough
            forks = {fork: thorough for fork, thorough in forks.items() if fork not in done}
            done.update(forks)
            self._look_at(forks, inherited=True)
            # What they inherit, their own forks inherit too.
            self._unsettled.update(forks)
        counted = sorted(self._parents)
        for place in range(0, len(counted), _TOGETHER):
            self._count_children(counted[place : place + _TOGETHER])

    def _has_moved(self, done: set[str]) -> bool:
        """Say whether something was taken out of a session after its forks were described: they are again."""
        graphs, self._graphs = self._graphs, {}
        self._rounds += 1
        if self._rounds > _ROUNDS:
            return False  # the next pass sees the rest
        for graph in graphs.values():
            self._unsettled.update(dict.fromkeys(graph.moved(UNSETTLING), False))
        if self._unsettled:
            done.clear()
        return bool(self._unsettled)

    def _look_at(self, wanted: dict[str, bool], *, inherited: bool = False) -> None:
        ids = sorted(wanted)
        backend = self._backend.ahead(ids)
        rows: dict[str, Any] = {}
        for place, session_id in enumerate(ids, 1):
            if place % _TOGETHER == 1:
                some = ids[place - 1 : place - 1 + _TOGETHER]
                rows = {row[0]: row[1:] for row in self._among(_KNOWN, some)}
            self._look_at_one(
                backend,
                session_id,
                rows.get(session_id),
                inherited=inherited,
                thorough=wanted[session_id],
            )
            if self._progress is not None:
                self._progress(place, len(wanted))

    def _among(self, statement: str, ids: Sequence[str]) -> list[Any]:
        """Ask for the rows of some sessions at once: an index on a server answers after a way there."""
        return self._database.all(statement.replace("(?)", f"({', '.join('?' * len(ids))})"), *ids)

    def _look_at_one(
        self, backend: Backend, session_id: str, row: Any, *, inherited: bool, thorough: bool
    ) -> None:
        # Before the log is read: what is appended meanwhile gives it another.
        stamp = self._stamps.get(session_id)
        if stamp is None:
            stamp = self._backend.stamps([session_id]).get(session_id, "")
        known = None
        if row is not None:
            # What was said of a fork is not gone on from if what it inherits has changed.
            if row[-1] is not None and not inherited:
                known = Known(*row[2:])
            if row[1] is not None:
                self._parents.add(row[1])
        try:
            # Without a stamp it is gone; or what has its name is no session, and was never one.
            graph = self._graph(thorough=thorough)
            found = (
                describe(backend, session_id, known, graph=graph, thorough=thorough)
                if stamp
                else None
            )
        except SessionDeleted:
            found = None
        except UNREADABLE as error:
            found = describe_damaged(backend, session_id, error)
            if isinstance(error, DiskFailed):
                stamp = AGAIN
        if found is None:
            if row is not None:
                self._remove(row[0], session_id)
            return
        self._keep(None if row is None else row[0], stamp, found)

    def _graph(self, *, thorough: bool) -> ForkGraph:
        found = self._graphs.get(thorough)
        if found is None:
            found = self._graphs[thorough] = ForkGraph(self._backend, thorough=thorough)
        return found

    # -- rows -----------------------------------------------------------------------------------

    def _keep(self, n: int | None, stamp: str, found: Description) -> None:
        info = found.info
        database = self._database
        values: dict[str, Any] = {
            "stamp": stamp,
            "seq": info.seq,
            "created": info.created,
            "updated": info.updated,
            "title": info.title or "",
            "folded": (info.title or "").casefold(),
            "messages": info.message_count,
            "bytes": info.bytes,
            "tokens": _in_64_bits(info.input_tokens + info.output_tokens),
            "cost": info.cost,
            "parent": info.parent,
            "parent_created": found.parent_created,
            "archived": info.archived,
            "damaged": bool(info.damaged),
            "workspace": None if found.workspace is None else found.workspace.path,
            "workspace_id": None if found.workspace is None else found.workspace.id,
            "unsettled": found.unsettled,
            "state": found.state or None,
        }
        self._write(info)
        new = n is None
        if n is None:
            columns = ["id", *values]
            marks = ", ".join("?" * len(columns))
            n = database.do(
                f"INSERT INTO session ({', '.join(columns)}) VALUES ({marks})",  # noqa: S608 - our own names
                info.id,
                *values.values(),
            )
            self._unsettled[info.id] = False
        else:
            self._compare(n, values)
            if not found.resumed:
                # What was counted is of another log, or something of it was taken out.
                database.do("DELETE FROM tally WHERE n = ?", n)
            sets = ", ".join(f"{column} = ?" for column in values)
            database.do(
                f"UPDATE session SET {sets} WHERE n = ?",  # noqa: S608 - our own names
                *values.values(),
                n,
            )
        database.do("INSERT OR IGNORE INTO unread VALUES (?)", info.id)
        # How many forks it has does not stand in its log.
        self._parents.add(info.id)
        if info.parent is not None:
            self._parents.add(info.parent)
        self._label(n, info, new=new)

    def _write(self, info: SessionInfo) -> None:
        said = encode(info)
        self._database.do(
            "INSERT OR REPLACE INTO entry VALUES (?, ?, ?)", info.id, said.decode(), crc32(said)
        )

    def _compare(self, n: int, values: dict[str, Any]) -> None:
        """Note what a change means for the session's forks, and for what the file still holds of it."""
        session_id, unsettled, created = self._database.one(
            "SELECT id, unsettled, created FROM session WHERE n = ?", n
        )
        # Another one, of the same name, is not what its forks came from.
        if (unsettled, created) != (values["unsettled"], values["created"]):
            self._unsettled[session_id] = bool(values["damaged"])
            # Perhaps the title or metadata were taken out.
            self._database.put(RESIDUE, 1)

    def _label(self, n: int, info: SessionInfo, *, new: bool) -> None:
        database = self._database
        wanted = {(key, label(value)) for key, value in info.metadata.items()}
        ask = "SELECT key, value FROM label WHERE n = ?"
        there = set() if new else set(database.all(ask, n))
        for key, value in there - wanted:
            database.do("DELETE FROM label WHERE key = ? AND value = ? AND n = ?", key, value, n)
        for key, value in wanted - there:
            database.do("INSERT INTO label (n, key, value) VALUES (?, ?, ?)", n, key, value)

    def _remove(self, n: int, session_id: str) -> None:
        self._database.do("DELETE FROM entry WHERE id = ?", session_id)
        self._database.do("DELETE FROM session WHERE n = ?", n)
        self._database.do("DELETE FROM label WHERE n = ?", n)
        self._database.do("DELETE FROM tally WHERE n = ?", n)
        self._database.do("INSERT OR IGNORE INTO unread VALUES (?)", session_id)
        self._database.put(RESIDUE, 1)
        self._unsettled[session_id] = False

    # -- forks ----------------------------------------------------------------------------------

    def _forks(self, parent: str) -> list[str]:
        return [n for (n,) in self._database.all("SELECT id FROM session WHERE parent = ?", parent)]

    def _count_children(self, parents: list[str]) -> None:
        counts: dict[str, dict[str, int]] = {}
        for parent, created, count in self._among(_FORKS, parents):
            counts.setdefault(parent, {})[created] = count
        for parent, said in self._among(_SAID, parents):
            info = decode_info(said)
            found = counts.get(parent, {})
            # Of others, what they were forked from was another one of its name.
            count = sum(found.get(created, 0) for created in {"", info.created})
            if info.children != count:
                changed = msgspec.structs.replace(info, children=count)
                self._write(changed)


def _in_64_bits(number: int) -> int:
    """Return a number as large as SQLite can hold one: what is larger is as good for sorting."""
    return max(-(1 << 63), min(number, (1 << 63) - 1))


def label(value: object) -> str:
    """Return a value among the metadata as the text by which it is found: equal values have the same."""
    text = msgspec.json.encode(_plain(value), order="sorted")
    if len(text) <= _LONGEST:
        return text.decode()
    import hashlib

    return f"sha256 {hashlib.sha256(text).hexdigest()}"  # which is no JSON, and so no other value's


def _plain(value: object) -> object:
    """Return a value in which equal numbers are the same ones."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return int(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value
