"""The reading half of a session.

Each call reads the end of the log once (`_reader`) and passes that down, so all parts of a result are of one
moment. The reader of a fork includes what it inherits.
"""

import sys
from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from hansard import clock
from hansard.backend.contract import Backend, Log, LogReader, Progress, Record, RepairReport
from hansard.errors import InvalidEvent
from hansard.event import codec
from hansard.event.event import Event
from hansard.state import fold, lineage
from hansard.state.fold import State, Usage
from hansard.state.redaction import NOTHING, Redactions
from hansard.state.view import (
    VIEWS,
    KnownState,
    MessageFormat,
    NumberedMessage,
    Projection,
    Shown,
    View,
    ViewRanges,
    decoded,
    each,
    encoded,
    ranges_of,
    read_all,
    read_json,
    read_last,
)

if TYPE_CHECKING:
    from hansard.maintenance.compact import CompactReport
    from hansard.maintenance.verify import SessionReport
    from hansard.message.tool_calls import Problem

#: A point of a session: a seq, a snapshot name, or a time with its zone.
At = int | str | datetime

#: Seconds that `events(follow=True)` waits before it checks whether the store was closed.
_PATIENCE = 1.0

#: Messages that `window` reads first; each further read takes four times as many.
_WINDOW = 64


_Message = dict[str, Any]
_Head = tuple[
    KnownState | None,
    Event | None,
    tuple[bool, ...],
    tuple[dict[int, _Message], tuple[int, _Message] | None],
]


class SessionReader:
    """The reading half of a session."""

    __slots__ = ("_backend", "_head", "_kept", "_log", "_state", "id")

    def __init__(self, backend: Backend, session_id: str) -> None:
        self.id = session_id
        self._backend = backend
        self._log: Log = backend.log(session_id)
        #: What is known of the control events; empty while a thread is refreshing it.
        self._kept: list[Projection] = []
        #: The last folded state, with the first event and the redactions for which it holds.
        self._state: tuple[tuple[Event | None, Redactions], State] = ((None, NOTHING), fold.EMPTY)

        #: What `window` last kept of the beginning of the view, for which first event and options.
        self._head: _Head = (None, None, (), ({}, None))

    def __repr__(self) -> str:
        return f"<hansard.Session {self.id!r} in {self._backend.where!r}>"

    def _reader(self) -> LogReader:
        """Read the end of the session once, and that of each ancestor."""
        return lineage.with_ancestors(self._backend, self._log.reader())

    def _known(self, reader: LogReader) -> KnownState:
        """Return what the control events add up to; read only those that are new since the last call."""
        # Taken out, not locked: a concurrent thread, or a signal handler, begins with an empty one.
        try:
            kept = self._kept.pop()
        except IndexError:
            kept = Projection()
        known = kept.refresh(reader)
        self._kept[:] = [kept]
        return known

    def _view(self, at: At | None = None, view: View = "model") -> tuple[LogReader, ViewRanges]:
        """Return a reader, and the ranges that a view shows."""
        if view not in VIEWS:
            raise ValueError(f"view must be one of {', '.join(VIEWS)}, got {view!r}")
        reader = self._reader()
        upto = self._seq_at(reader, at)
        return reader, ranges_of(reader, view=view, upto=upto, known=self._known(reader))

    def _numbered(
        self, form: MessageFormat[Shown], last: int | None, after: int, at: At | None, view: View
    ) -> list[tuple[int, Shown]]:
        check_seq("after", after)
        _check_count("last", last)
        count = sys.maxsize if last is None else last
        reader, ranges = self._view(at, view)
        return read_last(reader, form, ranges, count, after=after)

    # -- messages -------------------------------------------------------------------------------

    def messages(
        self,
        *,
        last: int | None = None,
        after: int = 0,
        at: At | None = None,
        view: View = "model",
        repair: bool = False,
    ) -> list[dict[str, Any]]:
        """Return messages as dicts, which are yours to change.

        A message that was streamed and never finished has `"partial": true`.

        Args:
            last: only the latest N messages. Reads the end of the log only.
            after: only messages with a higher seq.
            at: as of this seq, snapshot name or time (a datetime with a time zone).
            view: "model", what a model should be given, or "history", all messages.
            repair: return a list that every model accepts: add results to tool calls that have none, omit
                results without a call and empty messages, join neighbors of the same role, and remove the
                mark from partial messages.
        """
        if last is not None:
            shown = [message for _, message in self._numbered(decoded, last, after, at, view)]
        else:
            check_seq("after", after)
            reader, ranges = self._view(at, view)
            shown = read_all(reader, decoded, ranges, after=after)
        return _repair(shown) if repair else shown

    def numbered(
        self,
        *,
        last: int | None = None,
        after: int = 0,
        at: At | None = None,
        view: View = "model",
    ) -> list[NumberedMessage]:
        """Return messages, each with its seq: for `fork`, `revert` or `redact`.

        A summary has the seq of the event that added it. The options are those of `messages`.
        """
        found = self._numbered(decoded, last, after, at, view)
        return [NumberedMessage(seq, message) for seq, message in found]

    def messages_json(
        self,
        *,
        last: int | None = None,
        after: int = 0,
        at: At | None = None,
        view: View = "model",
    ) -> bytes:
        """Return the same as `messages` as a JSON array of the stored bytes, without decoding."""
        if last is not None:
            found = self._numbered(encoded, last, after, at, view)
            return b"[%b]" % b",".join(message for _, message in found)
        check_seq("after", after)
        reader, ranges = self._view(at, view)
        return read_json(reader, ranges, after=after)

    def window(
        self,
        *,
        turns: int | None = None,
        messages: int | None = None,
        tokens: int | None = None,
        keep_first: bool = False,
        keep_system: bool = True,
        start_on: str | Collection[str] | None = "user",
        end_on: str | Collection[str] | None = None,
        counter: Callable[[dict[str, Any]], int] | None = None,
        strategy: Literal["last", "first"] = "last",
        repair: bool = False,
    ) -> list[dict[str, Any]]:
        """Return the last messages of the model view that fit; a call and its result stay together.

        The system messages at the beginning of the view and the summary in force stay, and count. A message
        of the user follows: if the limit is in the middle of a turn, the one that began the turn leads the
        rest. If even the last valid group of messages exceeds the limit, this group is returned, after what
        stays before it. It is left out only if a limit is 0, or if what stays has as many messages as
        `messages` allows.

        Args:
            turns: maximum number of turns; a turn begins with a message of the user.
            messages: maximum number of messages.
            tokens: maximum number of tokens, as `counter` counts them.
            keep_first: keep the first finished message of the user, even if it is older; it counts.
            keep_system: False: treat system messages and the summary like other messages.
            start_on: roles of the first message after the system messages: "user", "assistant" or "tool".
                None: any. A view without such a message begins anywhere.
            end_on: roles of the last message; later messages are left out, and do not count.
            counter: returns the tokens of a message; default: a quarter of its bytes as JSON.
            strategy: "first": return the first finished messages that fit, none if the first one does not.
                `keep_first`, `keep_system` and `start_on` have no effect then.
            repair: as for `messages`; added results are not counted.
        """
        for name, value in (("turns", turns), ("messages", messages), ("tokens", tokens)):
            _check_count(name, value)
        if strategy not in {"last", "first"}:
            raise ValueError(f"strategy must be 'last' or 'first', got {strategy!r}")
        from copy import deepcopy

        from hansard.message import window as windows
        from hansard.message.provider_rules import filled

        start_on = (start_on,) if isinstance(start_on, str) else start_on
        end_on = (end_on,) if isinstance(end_on, str) else end_on
        limits = windows.Limits(turns, messages, tokens, counter or windows.estimate_tokens)
        reader = self._reader()
        known = self._known(reader)
        ranges = ranges_of(reader, known=known)
        if strategy == "first":
            view = each(reader, ranges)
            visible = (message for _, message in (filled(view) if repair else view))
            found = windows.first_messages(visible, limits, end_on)
            return _repair(found) if repair else found
        # Read the end of the view, and more if a limit reaches further back.
        size = _WINDOW
        while True:
            placed = read_last(reader, decoded, ranges, size)
            partial = len(placed) == size
            if repair:
                # A window must not begin with an empty message, which a repair leaves out.
                placed = [*filled(placed)]
            summary = None if ranges.summary is None else ranges.summary.seq
            wanted = (keep_system, keep_first, repair)
            if not partial:
                head, first, _ = windows.beginning(placed, *wanted[:2], summary)
            # Another session may have the id by now: its first event differs.
            elif self._head[0] is known and self._head[1:3] == (reader.first(), wanted):
                head, first = deepcopy(self._head[3])
            else:
                view = each(reader, ranges)
                front = filled(view) if repair else view
                head, first, final = windows.beginning(front, *wanted[:2], summary)
                if final:
                    # From now on, only a control event changes what the view begins with.
                    self._head = (known, reader.first(), wanted, deepcopy((head, first)))
            window = windows.window(
                [message for seq, message in placed if seq not in head],
                limits,
                head=[*head.values()],
                first=dict(placed).get(*first) if first else None,
                start_on=start_on,
                end_on=end_on,
                partial=partial,
            )
            if window is not None:
                return _repair(window) if repair else window
            size *= 4

    def pairing(self) -> "list[Problem]":
        """Return the tool calls without a result, and results without a call, of the model view."""
        from hansard.message import tool_calls

        return tool_calls.problems(self.messages())

    def restore_into(self, history: list[dict[str, Any]]) -> int:
        """Add the session's messages that a list lacks; return how many were added.

        For frameworks with their own history. The common beginning of the list and the model view stays. Then
        come the missing messages, and then the rest of the list.
        """
        from hansard.message.values import common_prefix

        stored = self.messages()
        common = common_prefix(stored, history)
        history[common:common] = stored[common:]
        return len(stored) - common

    # -- events ---------------------------------------------------------------------------------

    def events(self, *, after: int = 0, follow: bool = False) -> Iterator[Event]:
        """Yield every event with a higher seq than `after`; with `follow`, wait for more without end.

        Inherited events are included. A redacted event has no content.
        """
        check_seq("after", after)
        return self._events(after, follow=follow)

    def _events(self, after: int, *, follow: bool) -> Iterator[Event]:
        while True:
            reader = self._reader()
            redactions = self._known(reader).redactions
            for chunk in reader.read(after=after):
                for event in chunk.events():
                    yield redactions.mask(event)
                    after = event.seq
            if not follow:
                return
            while not self._log.wait(after, _PATIENCE):
                pass

    def _event_at(self, reader: LogReader, seq: int) -> Event | None:
        """Return one event, masked; None if there is none."""
        redactions = self._known(reader).redactions
        for chunk in reader.read(after=seq - 1, upto=seq) if seq else ():
            for found in chunk.events():
                return redactions.mask(found)
        return None

    # -- state ----------------------------------------------------------------------------------

    @property
    def seq(self) -> int:
        """The seq of the last event; 0 while the session does not exist."""
        return last_seq(self._log.reader())

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata; a copy that is yours to change."""
        return codec.own_copy(self._known(self._reader()).state).metadata

    @property
    def title(self) -> str | None:
        """The title among the metadata."""
        return self._known(self._reader()).state.title

    @property
    def snapshots(self) -> dict[str, int]:
        """The snapshot names, with their seqs."""
        return dict(self._known(self._reader()).state.snapshots)

    @property
    def usage(self) -> dict[str, Usage]:
        """Tokens and cost, by model."""
        return self.state().usage

    def state(self, at: At | None = None) -> State:
        """Return what the events add up to, now or as of a seq, snapshot name or time."""
        return self._state_at(self._reader(), at)

    def _state_at(self, reader: LogReader, at: At | None) -> State:
        upto = self._seq_at(reader, at)
        redactions = self._known(reader).redactions
        # Another session may have the id by now: its first event differs.
        basis = (reader.first(), redactions)
        by_then, start = self._state
        holds = by_then == basis and (not start.seq or fold.continues(reader, start))
        if not holds or (upto is not None and start.seq > upto):
            start = fold.EMPTY
        if not start.seq:
            start = fold.saved_state(reader, upto, redactions)
        state = fold.replay(reader, start=start, upto=upto, redactions=redactions)
        if state.seq > self._state[1].seq or not holds:
            # The next call reads only what is new.
            self._state = (basis, state)
        # The dicts inside are shared with the kept state, so the caller gets a copy.
        return codec.own_copy(state)

    # -- lineage --------------------------------------------------------------------------------

    @property
    def parent(self) -> str | None:
        """The id of the session that this one was forked from; None if it is not a fork."""
        forked = lineage.fork_source(self._log.reader().first())
        return None if forked is None else forked.parent

    def children(self) -> list[str]:
        """Return the ids of the forks of this session that are not deleted, sorted."""
        head = self._log.reader().head()
        if head is None:
            return []
        from hansard.index import index

        found = index.of(self._backend).children(self.id, head.created)
        return [child for child in found if child.startswith(self._backend.prefix)]

    def _seq_at(self, reader: LogReader, at: At | None) -> int | None:
        """Return the seq of a point: a seq, a snapshot name, or the last seq at a time."""
        if at is None:
            return None
        if isinstance(at, str):
            known = self._known(reader).state.snapshots
            if at not in known:
                has = ", ".join(map(repr, known)) or "none"
                raise InvalidEvent(
                    f"at {at!r}: session {self.id!r} has no such snapshot; it has {has}"
                )
            return known[at]
        if not isinstance(at, datetime):
            check_seq("at", at)
            return at
        stamp = clock.stamp(at)
        for chunk in reader.read(back=True):
            for event in reversed(chunk.events()):
                if event.stamp <= stamp:
                    return event.seq
        return 0

    def compact(self, *, progress: Progress | None = None) -> "CompactReport":
        """Seal and compress the log, and erase the bytes of redacted data.

        Views do not change, and writers and readers continue. If the session is being compacted, in the
        background or by another process, this waits; `LockTimeout` after `lock_timeout` seconds.

        Args:
            progress: called with the bytes done and the total.
        """
        from hansard.index import erase_removed
        from hansard.maintenance.compact import compact_session

        report = compact_session(self._backend, self.id, progress=progress)
        erase_removed(self._backend)
        return report

    def repair(self, *, missing: bool = False) -> RepairReport:
        """Repair the session's files if they are damaged; never done automatically.

        Every valid event keeps its seq, and an `event.lost` replaces each lost one. The damaged files are
        kept next to the log, and a `session.repaired` event lists what was done. Without damage, nothing is
        written.

        Args:
            missing: accept the loss of sealed segments that are missing.
        """
        from hansard.maintenance.verify import repair_session

        return repair_session(self._backend, self.id, missing=missing)

    def dump(self) -> Iterator[Record]:
        """Yield the lines of the session's own files, valid or not, with file and offset.

        It works on a damaged session.
        """
        return self._log.records()

    def verify(self) -> "SessionReport":
        """Check every stored byte of the session, and report.

        If an earlier sync failed and nothing is wrong, appends are allowed again.
        """
        from hansard.maintenance.verify import verify_session

        return verify_session(self._backend, self.id)


def last_seq(reader: LogReader) -> int:
    """Return the seq of the last event; 0 if the session does not exist."""
    head = reader.head()
    return 0 if head is None else head.seq


def _repair(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    from hansard.message.provider_rules import accepted

    return accepted(messages)


def check_seq(name: str, value: object) -> None:
    """Raise unless an argument is a seq."""
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} must be a seq >= 0, got {value!r}")


def _check_count(name: str, value: object) -> None:
    if value is not None and (type(value) is not int or value < 0):
        raise ValueError(f"{name} must be a non-negative count, got {value!r}")
