"""Append to a session: one statement, whoever and how many ask for it.

Above: `log`.  Below: `statements`, `connections`, `reads`, `log.turns`.
Threads that append to one session at the same time share a statement (`log.turns`): the first leads, those
who come while it waits for the server go together with the next. Appends that ask for the session to be at
a seq, or to be new, go alone.

Every append has an id, which is unique in its session: made from the key if the caller gave one, else
drawn. So what was lost on its way can be sent again: if the first try has counted after all, the second is
refused by the unique index, and the events of the first are returned.
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import psycopg

from hansard.backend.contract import Append
from hansard.backend.postgres import statements
from hansard.backend.postgres.connections import Connections
from hansard.backend.postgres.direct import Direct, Value, direct
from hansard.backend.postgres.faults import Lost
from hansard.backend.postgres.order import Order, session_number
from hansard.backend.postgres.reads import Reads, Standing
from hansard.backend.postgres.statements import Shape
from hansard.errors import (
    BackendUnavailable,
    SeqConflict,
    SessionDeleted,
    SessionExists,
)
from hansard.event.envelope import Event, NewEvent
from hansard.log import format
from hansard.log.turns import Turns

#: So many events, and so many bytes, share one statement at the most.
_MOST_EVENTS: Final = 1000
_MOST_BYTES: Final = 4 * 1024 * 1024

#: What most appends ask for: no expected seq, not a new session, nothing before it, no key, no time.
_NOTHING: Final = (None, False, 0, None, None)

#: How often a statement may find the session other than it was a moment ago.
_TRIES: Final = 20


class Writer:
    """Appends to one session, for all threads of this process."""

    __slots__ = (
        "__weakref__",
        "_connections",
        "_exists",
        "_light",
        "_number",
        "_plain",
        "_reads",
        "_schema",
        "_tell",
        "_turns",
        "pid",
        "session",
        "session_id",
        "shown_id",
    )

    def __init__(
        self,
        connections: Connections,
        reads: Reads,
        schema: str,
        session_id: str,
        *,
        light: bool,
        tell: Callable[[str], None],
    ) -> None:
        """`light`: no append need be durable. `tell`: hears of each session that has grown."""
        self.session_id = session_id
        #: Whose threads: a child of this process has no part in what they are doing.
        self.pid = os.getpid()
        #: What no session is called stands for the audit log: NUL can be in no text there.
        self.shown_id = "" if "\0" in session_id else session_id
        self.session = session_number(session_id)
        self._number = self.session.encode()
        #: The statement for an event of which nothing more is asked.
        self._plain: Direct | None = None
        self._connections = connections
        self._reads = reads
        self._schema = schema
        self._light = light
        #: Somebody has appended to it. It may have been purged since, which the next append then finds out.
        self._exists = False
        self._tell = tell
        self._turns: Turns[list[Order]] = Turns(
            self._lead, where=f"{connections.address.where}: session {session_id!r}"
        )

    def append(self, orders: list[Order]) -> None:
        """Do appends, in order; how each went stands in it afterwards."""
        turns = self._turns
        if not turns.claim():
            turns.ask(orders)
            return
        # Nobody else is at it, so there is no queue to look into: half of the time that `ask` takes.
        try:
            self._lead([orders])
            turns.free()
        except BaseException:
            turns.free()
            raise

    def _lead(self, asked: list[list[Order]]) -> None:
        """Do what this thread and others want appended, in the order in which they came."""
        waiting = [order for orders in asked for order in orders]
        for group in _grouped(waiting) if len(waiting) > 1 else (waiting,):
            try:
                self._commit(group)
            except Exception as error:  # noqa: BLE001 - for each of those whose appends these are
                for order in group:
                    if order.events is None and order.error is None:
                        order.error = error
        if any(order.events for order in waiting):
            self._tell(self.session)

    def _commit(self, group: list[Order]) -> None:
        """Append a group, however often it takes."""
        deadline = time.monotonic() + self._connections.patience
        pause = 0.01
        uncertain = False
        for _ in range(_TRIES):
            stamps = _stamps(group)
            while True:
                try:
                    stands = self._attempt(group, stamps, deadline)
                except psycopg.errors.UniqueViolation:
                    stands = None
                except Lost as found:
                    uncertain = uncertain or not found.certain
                    pause = self._connections.pause(found, deadline, pause)
                    continue
                break
            if stands is not None:
                self._exists = True
                _settle(group, stamps, *stands)
                return
            group = self._explain(group, uncertain=uncertain)
            if not group:
                return
        raise BackendUnavailable(
            f"{self._connections.address.where}: session {self.session_id!r} was another one at each of "
            f"{_TRIES} tries to append to it; nothing was appended"
        )

    def _attempt(
        self, group: list[Order], stamps: list[str | None], deadline: float
    ) -> tuple[int, str] | None:
        """Try once; return the last seq and its time, or None if the session was not as it should be."""
        if len(group) == 1 and group[0].single:
            statement, values = self._one(group[0], stamps[0])
            result = self._connections.attempt_directly(statement, values, deadline)
            if not result.ntuples:
                return None
            seq, updated = result.get_value(0, 0), result.get_value(0, 1)
            assert seq is not None and updated is not None  # noqa: PT018 - the columns are NOT NULL
            return int(seq), updated.decode()
        query, params = self._several(group, stamps)
        rows = self._connections.attempt(query, params, deadline=deadline)
        return (rows[0][0], rows[0][1]) if rows else None

    def _shape(self, group: list[Order], *, timed: bool, one: bool = False) -> Shape:
        """Return which form of the statement a group needs."""
        alone = group[0].append
        new = alone.new_only or alone.expected_seq == 0
        expected = bool(alone.expected_seq)
        return Shape(
            one=one,
            control=one and group[0].drafts[0].control,
            timed=timed,
            exists=expected or (self._exists and not new),
            expected=expected,
            new=new,
            placed=alone.before > 0,
            keyed=any(order.append.key is not None for order in group),
            light=self._light or not any(order.append.durable for order in group),
        )

    def _one(self, order: Order, stamp: str | None) -> tuple[Direct, list[Value]]:
        """Return the statement for a single event, and what goes into it."""
        append = order.append
        draft = order.drafts[0]
        given = (append.expected_seq, append.new_only, append.before, append.key, stamp)
        values: dict[str, Value] = {
            "session": self._number,
            "bytes": b"%d" % order.size,
            "append_id": order.id.encode(),
            "kind": draft.kind.encode(),
            "data": draft.data,
        }
        if self._exists and given == _NOTHING and append.durable and not draft.control:
            # As nearly all of them are.
            plain = self._plain
            if plain is None:
                plain = self._plain = self._direct(order, stamp)
            return plain, [values[name] for name in plain.names]
        values["id"] = self.shown_id.encode()
        values["before"] = b"%d" % append.before
        values["expected"] = b"%d" % (append.expected_seq or 0)
        values["key"] = None if append.key is None else append.key.encode()
        values["first"] = values["last"] = None if stamp is None else stamp.encode()
        statement = self._direct(order, stamp)
        return statement, [values[name] for name in statement.names]

    def _direct(self, order: Order, stamp: str | None) -> Direct:
        shape = self._shape([order], timed=stamp is not None, one=True)
        return direct(statements.append(self._schema, shape))

    def _several(
        self, group: list[Order], stamps: list[str | None]
    ) -> tuple[bytes, dict[str, Any]]:
        """Return the statement for a group of several events, and what goes into it."""
        alone = group[0].append
        drafts = [draft for order in group for draft in order.drafts]
        shape = self._shape(group, timed=stamps[0] is not None)
        # Numbers as texts: a driver sends small ones and large ones as other types, and each type is another
        # statement to prepare.
        params: dict[str, Any] = {
            "session": self.session,
            "bytes": str(sum(order.size for order in group)),
            "count": str(len(drafts)),
            **_columns(group, drafts, stamps),
        }
        if shape.expected:
            params["expected"] = str(alone.expected_seq)
        if not shape.exists:
            params["id"] = self.shown_id
            if shape.placed:
                params["before"] = str(alone.before)
        if shape.timed:
            params["first"], params["last"] = stamps[0], stamps[-1]
        if shape.keyed:
            params["keys"] = [order.id for order in group if order.append.key is not None]
        return statements.append(self._schema, shape), params

    def _explain(self, group: list[Order], *, uncertain: bool) -> list[Order]:
        """Find out why nothing was appended; return the appends that are to be tried again."""
        standing = self._reads.standing(self.session)
        self._exists = standing is not None
        known = self._known(group)
        left = []
        for order in group:
            found = known.get(order.id)
            deleted = standing is not None and standing.deleted
            if found is not None and (not deleted or uncertain):
                first, count = found
                events = self._reads.events(self.session, first, count)
                order.events = events
            else:
                order.error = self._refusal(order.append, standing)
                if order.error is None:
                    left.append(order)
        return left

    def _known(self, group: list[Order]) -> dict[str, tuple[int, int]]:
        """Return which of some appends are there: their first seqs, and how many events they have."""
        query = statements.statement(self._schema, statements.KNOWN)
        params = {"session": self.session, "keys": [order.id for order in group]}
        return {found: (seq, count) for found, seq, count in self._connections.run(query, params)}

    def _refusal(self, append: Append, standing: Standing | None) -> Exception | None:
        """Return why an append cannot be; None if it can."""
        if standing is not None and standing.deleted:
            return deleted(self.session_id)
        stands = 0 if standing is None else standing.head.seq
        if append.new_only and stands:
            return SessionExists(f"session {self.session_id!r} exists already, at seq {stands}")
        if append.expected_seq is not None and append.expected_seq != stands:
            return conflict(self.session_id, append.expected_seq, stands)
        return None


def _grouped(orders: list[Order]) -> list[list[Order]]:
    """Divide appends, in order, into those that go together."""
    groups: list[list[Order]] = []
    ids: set[str] = set()
    events = size = 0
    joins = False
    for order in orders:
        more = len(order.drafts)
        joins = (
            joins
            and not order.alone
            and order.id not in ids
            and events + more <= _MOST_EVENTS
            and size + order.size <= _MOST_BYTES
        )
        if joins:
            groups[-1].append(order)
        else:
            groups.append([order])
            ids, events, size = set(), 0, 0
            joins = not order.alone
        ids.add(order.id)
        events += more
        size += order.size
    return groups


def _stamps(group: list[Order]) -> list[str | None]:
    """Return the times of events: the server's (None) for all that have none, or this machine's."""
    stamps = [draft.time for order in group for draft in order.drafts]
    if any(stamps) and not all(stamps):
        now = format.now().decode()
        return [stamp or now for stamp in stamps]
    return stamps


def _columns(
    group: list[Order], drafts: Sequence[NewEvent], stamps: list[str | None]
) -> dict[str, Any]:
    """Return the columns of several events."""
    ids: list[str | None] = []
    counts: list[int | None] = []
    keys: list[str | None] = []
    for order in group:
        rest = len(order.drafts) - 1
        ids += [order.id, *[None] * rest]
        counts += [rest + 1, *[None] * rest]
        keys += [order.append.key, *[None] * rest]
    return {
        "append_ids": ids,
        "append_counts": counts,
        "keys_given": keys,
        "controls": [draft.control for draft in drafts],
        "stamps": stamps,
        "kinds": [draft.kind for draft in drafts],
        "datas": [draft.data.decode() for draft in drafts],
    }


def _settle(group: list[Order], stamps: list[str | None], last: int, updated: str) -> None:
    """Tell each append which events it has become."""
    seq = last - len(stamps)
    place = 0
    for order in group:
        events: list[Event] = []
        for draft in order.append.drafts:
            key = order.append.key if not events else None
            stamp = stamps[place] or updated
            place += 1
            events.append(Event(seq + place, stamp, draft.kind, draft.data, key))
        order.events = events


def conflict(session_id: str, expected: int, actual: int) -> SeqConflict:
    """Return the error for a session that is at another seq."""
    return SeqConflict(
        f"session {session_id!r} is at seq {actual}, not at the expected {expected}; "
        "nothing was appended: read what is new and decide again",
        expected=expected,
        actual=actual,
    )


def deleted(session_id: str) -> SessionDeleted:
    """Return the error for a session in the trash."""
    return SessionDeleted(
        f"session {session_id!r} was deleted and is in the trash; `store.restore(id)` brings it back"
    )
