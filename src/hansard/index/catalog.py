"""Keep a listing of the sessions up to date with their logs.

One process refreshes at a time: it asks which sessions have changed (`Backend.changed`), describes these
again, and commits. A description continues from the state at an earlier seq, so it costs what is new in a
session. Each call also compares the stamps of some other sessions, to find changes by other programs. It
finds them immediately in a small store, and after some calls in a large one.
"""

import os
from contextlib import suppress
from functools import reduce
from typing import Final, NamedTuple
from zlib import crc32

import msgspec

from hansard import observe
from hansard import workspace as workspaces
from hansard.backend.contract import Backend, Changed, Head, LogReader, Progress, between
from hansard.errors import UNREADABLE, DiskFailed, HansardError, SessionDeleted
from hansard.event.event import Event
from hansard.event.kinds import CONTROL, HISTORY_DROPPED, MESSAGE_REDACTED, SESSION_REPAIRED
from hansard.index import SessionInfo
from hansard.index.listing import ORDERS, decode_infos, label
from hansard.index.sqlite_storage import RESIDUE, Storage
from hansard.state import fold, lineage, redaction
from hansard.state.fold import HOUSEKEEPING, State
from hansard.state.fork_graph import ForkGraph, Inherited
from hansard.state.redaction import Redactions
from hansard.workspace import Workspace

#: Events that change what forks of a session inherit, and what its texts are.
UNSETTLING: Final = (MESSAGE_REDACTED, HISTORY_DROPPED, SESSION_REPAIRED)

#: Bytes of checksum before a stored state.
_CHECK: Final = 4

#: Sessions whose stamps each call compares, although no change is known: all of a store that has up to
#: `SMALL`, which takes a millisecond, and `SAMPLE` of a larger one.
SMALL: Final = 256
SAMPLE: Final = 64

#: The stamp of a session that the system refused to read. No session has it, so it is read again each time.
AGAIN: Final = ""

#: Bytes of a log that is read once, instead of its first event, its control events and all of them apart.
_SMALL: Final = 64 << 10

#: Sessions per statement.
_TOGETHER: Final = 100

_UNREAD: Final = "INSERT INTO index_unread (id) VALUES (?) ON CONFLICT DO NOTHING"

#: The columns of `KnownSession`.
_KNOWN: Final = "id, n, unsettled, seq, created, updated, bytes, state"


class KnownSession(NamedTuple):
    """What is stored of a session; to continue from, if that still holds."""

    id: str
    n: int
    unsettled: int
    seq: int
    created: str
    updated: str
    size: int
    state: bytes | None


class Description(NamedTuple):
    """A session as a listing shows it, and what the index needs to know of it."""

    info: SessionInfo
    workspace: Workspace | None
    #: When its parent was created: this tells it from another session of that id.
    parent_created: str
    #: The state to continue from.
    state: bytes = b""
    #: Changes when its forks must be described again, too.
    unsettled: int = -1
    #: Whether only what is new was read.
    resumed: bool = False


def describe(
    backend: Backend, session_id: str, graph: ForkGraph, known: KnownSession | None = None
) -> Description | None:
    """Describe a session; None if there is none. Raises if it is deleted, or cannot be read.

    `graph`: what forks inherit, shared by the sessions of a refresh; a thorough one reads every event.
    """
    own = backend.log(session_id).reader()
    head, size = own.head(), own.size()
    if head is None:
        return None
    if known is not None and (known.seq, known.size) == (head.seq, size):
        # It changed, and neither grew nor was compacted: it was found damaged, or another program wrote
        # into it. Trust no earlier state.
        known, graph = None, ForkGraph(backend, thorough=True)
    events: list[Event] = []
    if known is None and size <= _SMALL and own.checkpoint() is None:
        events = [event for chunk in own.read() for event in chunk.events()]
    first = events[0] if events else own.first()
    controls = [event for event in events if event.kind in CONTROL] if events else own.controls()
    forked = None if first is None else lineage.fork_source(first)
    basis = Inherited(redaction.of(controls))
    if first is not None and forked is not None:
        basis = graph.inherited(own, first, basis.redactions)
    start = _resume(own, head, known, basis.redactions, controls)
    state = start or basis.state
    if not state.seq and not graph.thorough and not events:
        state = fold.saved_state(own, head.seq, basis.redactions)
    if events:
        state = fold.apply_all(state, list(map(basis.redactions.mask, events)))
    else:
        state = fold.replay(own, start=state, upto=head.seq, redactions=basis.redactions)
    controls = between(controls, 0, head.seq)
    workspace = workspaces.of(map(basis.redactions.mask, controls), basis.workspace)
    used = reduce(fold.add_usage, state.usage.values(), fold.Usage())
    info = SessionInfo(
        session_id,
        title=state.title,
        seq=head.seq,
        created_stamp=head.created,
        updated_stamp=_last_activity(own, head, controls, known if start else None),
        message_count=state.message_count,
        bytes=size,
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cost=used.cost,
        parent=state.parent,
        forked_at=state.forked_at,
        workspace=None if workspace is None else workspace.path,
        archived=state.archived,
        closed=state.closed,
        held=state.held,
        metadata=state.metadata,
    )
    saved = fold.save(state, basis.redactions)
    return Description(
        info,
        workspace,
        forked.created if forked else "",
        crc32(saved).to_bytes(_CHECK) + saved,
        _count_unsettling(controls),
        resumed=start is not None,
    )


def _count_unsettling(controls: list[Event]) -> int:
    return sum(event.kind in UNSETTLING for event in controls)


def _resume(
    log: LogReader,
    head: Head,
    known: KnownSession | None,
    redactions: Redactions,
    controls: list[Event],
) -> State | None:
    """Return the stored state, if it is of these very events; None if not."""
    if known is None or known.state is None:
        return None
    if known.created != head.created or not 0 < known.seq <= head.seq:
        return None
    if any(e.kind == SESSION_REPAIRED for e in between(controls, known.seq, head.seq)):
        return None  # what was folded before may have been repaired since
    check, saved = known.state[:_CHECK], known.state[_CHECK:]
    # The index may be damaged: SQLite stores no checksums.
    state = fold.load(saved, redactions) if check == crc32(saved).to_bytes(_CHECK) else None
    return state if state is not None and fold.continues(log, state) else None


def _last_activity(
    own: LogReader, head: Head, controls: list[Event], known: KnownSession | None
) -> str:
    """Return the time of a session's last activity; if there was none, the time of its first event.

    `known`: an earlier description that still holds.
    """
    if not controls or controls[-1].seq < head.seq or controls[-1].kind not in HOUSEKEEPING:
        return head.updated  # nearly always, and without another read
    for chunk in own.read(known.seq if known else 0, head.seq, back=True):
        for event in reversed(chunk.events()):
            if event.kind not in HOUSEKEEPING:
                return event.stamp
    return known.updated if known else head.created


def describe_damaged(backend: Backend, session_id: str, error: HansardError) -> Description:
    """Describe a session that cannot be read, by what is still known."""
    info = SessionInfo(session_id, damaged=str(error))
    created = ""
    # Its parent: when that is repaired, it may be readable again.
    with suppress(HansardError):
        forked = lineage.origin_of(backend.log(session_id))
        if forked is not None:
            created = forked.created
            info = msgspec.structs.replace(info, parent=forked.parent, forked_at=forked.seq)
    return Description(info, None, created)


def described(storage: Storage) -> list[Description]:
    """Return the description of every session, sorted by id."""
    rows = storage.all(
        "SELECT e.info, s.workspace, s.workspace_id, s.parent_created "
        "FROM index_session s JOIN index_entry e ON e.id = s.id ORDER BY s.id"
    )
    infos = decode_infos("\n".join([row[0] for row in rows]))
    return [
        Description(info, None if path is None else Workspace(path, known or None), created)
        for info, (_, path, known, created) in zip(infos, rows, strict=True)
    ]


def refresh(backend: Backend, storage: Storage, progress: Progress | None = None) -> None:
    """Bring everything up to date with what was acknowledged before this call.

    `progress` is called with the number of sessions done, and their total.
    """
    suspects = _suspects(backend, storage)
    since = storage.get("watch", "")
    if not suspects and since and backend.version() == since:
        return
    with storage.changing():
        # A private index must not consume the change markers.
        changed = (
            Changed(every=True) if storage.private else backend.changed(storage.get("watch", ""))
        )
        wanted = {*changed.ids, *suspects}
        stamps: dict[str, str] = {}
        if changed.every:
            stamps = backend.stamps()
            known = dict(storage.all("SELECT id, stamp FROM index_session"))
            wanted |= {found for found, _ in known.items() ^ stamps.items()}
        elif changed.present is not None:
            listed = {found for (found,) in storage.all("SELECT id FROM index_session")}
            wanted |= listed ^ changed.present
        if wanted:
            _Refresh(backend, storage, stamps).run(wanted, progress)
        storage.put("watch", changed.since)
    if storage.in_place():
        changed.done()
    if not since and not storage.private:
        # A read-only store, and one in memory, has no index to keep.
        text = "built the index of %s; sessions read: %d"
        observe.report("index", observe.INFO, text, backend.where, len(wanted))


def _suspects(backend: Backend, storage: Storage) -> set[str]:
    """Return those of the next few sessions whose logs have changed since they were described."""
    # AGAIN, by its index.
    found = {row[0] for row in storage.all("SELECT id FROM index_session WHERE stamp = ''")}
    if storage.served:
        return found
    if storage.sampled < 0:
        (most,) = storage.one("SELECT max(n) FROM index_session")
        storage.sampled = int.from_bytes(os.urandom(4)) % (most or 1)
    is_large = storage.one("SELECT 1 FROM index_session LIMIT 1 OFFSET ?", SMALL) is not None
    size = SAMPLE if is_large else SMALL
    ask = "SELECT n, id, stamp FROM index_session WHERE n > ? ORDER BY n LIMIT ?"
    rows = storage.all(ask, storage.sampled, size)
    if len(rows) < size:
        rows += storage.all(ask, 0, size - len(rows))
    if rows:
        storage.sampled = rows[-1][0]
        stamps = backend.stamps([session_id for _, session_id, _ in rows])
        found.update(name for _, name, stamp in rows if stamps.get(name) != stamp)
    return found


class _Refresh:
    """Describes the sessions that have changed, inside a transaction."""

    def __init__(self, backend: Backend, storage: Storage, stamps: dict[str, str]) -> None:
        self._backend = backend
        self._storage = storage
        self._stamps = stamps
        self._graph = ForkGraph(backend)
        #: For forks of sessions that changed: what they inherit may be damaged, or differ from a saved state.
        self._thorough = ForkGraph(backend, thorough=True)
        #: The last number of a session.
        (self._last,) = storage.one("SELECT coalesce(max(n), 0) FROM index_session")
        #: Sessions whose forks must be described again.
        self._unsettled: set[str] = set()

    def run(self, wanted: set[str], progress: Progress | None) -> None:
        """Describe sessions again, and the forks that depend on them."""
        self._describe_all(wanted, self._graph, progress)
        done = set(wanted)
        while self._unsettled:
            parents, self._unsettled = self._unsettled, set()
            few = list(parents) if len(parents) <= _TOGETHER else []
            some = f"IN ({', '.join('?' * len(few))})" if few else "IS NOT NULL"
            ask = f"SELECT id, parent FROM index_session WHERE parent {some}"  # noqa: S608 - values are apart
            forks = {fork for fork, parent in self._storage.all(ask, *few) if parent in parents}
            forks -= done
            done |= forks
            self._describe_all(forks, self._thorough, progress)
            # What they inherit, their own forks inherit too.
            self._unsettled |= forks

    def _describe_all(self, wanted: set[str], graph: ForkGraph, progress: Progress | None) -> None:
        ids = sorted(wanted)
        backend = self._backend.prefetch(ids)
        for begin in range(0, len(ids), _TOGETHER):
            some = ids[begin : begin + _TOGETHER]
            marks = ", ".join("?" * len(some))
            ask = f"SELECT {_KNOWN} FROM index_session WHERE id IN ({marks})"  # noqa: S608 - our own names
            rows = {row[0]: KnownSession(*row) for row in self._storage.all(ask, *some)}
            for place, session_id in enumerate(some, begin + 1):
                self._describe_one(backend, session_id, rows.get(session_id), graph)
                if progress is not None:
                    progress(place, len(ids))

    def _describe_one(
        self, backend: Backend, session_id: str, row: KnownSession | None, graph: ForkGraph
    ) -> None:
        # Before the log is read: a concurrent append changes it.
        stamp = self._stamps.get(session_id)
        if stamp is None:
            stamp = self._backend.stamps([session_id]).get(session_id, "")
        # The state of a fork does not hold if what it inherits has changed.
        known = None if graph.thorough else row
        found = None
        try:
            # Without a stamp it is deleted, or what has its name is not a session.
            if stamp:
                found = describe(backend, session_id, graph, known)
        except SessionDeleted:
            pass
        except UNREADABLE as error:
            found = describe_damaged(backend, session_id, error)
            if isinstance(error, DiskFailed):
                stamp = AGAIN
        if found is not None:
            self._keep(row, stamp, found)
        elif row is not None:
            self._remove(row)

    def _keep(self, row: KnownSession | None, stamp: str, found: Description) -> None:
        info, storage = found.info, self._storage
        seen = self._seen_by_forks(found)
        if row is None:
            self._last += 1
            n = self._last
            self._unsettled.add(info.id)
        else:
            n = row.n
            # Another session of that id is not the parent of its forks.
            if (row.unsettled, row.created) != (seen, info.created_stamp):
                self._unsettled.add(info.id)
                # Title, metadata or texts may have been redacted.
                storage.put(RESIDUE, 1)
            if not found.resumed:
                # What was counted is of another log, or was redacted in part.
                storage.do("DELETE FROM index_tally WHERE n = ?", n)
            storage.do("DELETE FROM index_label WHERE n = ?", n)
            storage.do("DELETE FROM index_entry WHERE id = ?", info.id)
        line = msgspec.json.encode(info)
        entry = "INSERT INTO index_entry (id, info, crc) VALUES (?, ?, ?)"
        storage.do(entry, info.id, line.decode(), crc32(line))
        columns = {
            "n": n,
            **{column: value(info) for column, value in ORDERS.values()},
            "stamp": stamp,
            "seq": info.seq,
            "folded": (info.title or "").casefold(),
            "parent": info.parent,
            "parent_created": found.parent_created,
            "archived": info.archived,
            "held": info.held,
            "damaged": bool(info.damaged),
            "workspace": None if found.workspace is None else found.workspace.path,
            "workspace_id": (found.workspace and found.workspace.id) or "",
            "unsettled": seen,
            "state": found.state or None,
        }
        storage.upsert("index_session", **columns)
        labels = [(n, key, label(value)) for key, value in info.metadata.items()]
        storage.do_all("INSERT INTO index_label (n, key, value) VALUES (?, ?, ?)", labels)
        storage.do(_UNREAD, info.id)

    def _seen_by_forks(self, found: Description) -> int:
        """Return the number of changes to what forks inherit that descriptions of forks have seen.

        If there was another change since, the next refresh sees a difference, and describes the forks again.
        """
        controls = self._graph.controls(found.info.id)
        if controls is None:
            return found.unsettled
        return min(found.unsettled, _count_unsettling(controls))

    def _remove(self, row: KnownSession) -> None:
        storage = self._storage
        storage.do("DELETE FROM index_entry WHERE id = ?", row.id)
        for table in ("index_session", "index_label", "index_tally"):
            storage.do(f"DELETE FROM {table} WHERE n = ?", row.n)  # noqa: S608 - our own names
        storage.do(_UNREAD, row.id)
        storage.put(RESIDUE, 1)
        self._unsettled.add(row.id)
