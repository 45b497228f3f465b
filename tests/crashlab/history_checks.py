"""Check a history, and return its violations.

Two facts carry all of it. What is in a session at the end is the one order in which everything happened to
it: every answer must fit that order. And the clock that all workers share says which answers were given
before which questions were asked: the order must respect that too.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

from tests.crashlab.history_values import (
    EMPTY,
    Final,
    History,
    Kind,
    Operation,
    Record,
    Violation,
    digest,
    is_intact,
    view_digest,
)

_NEVER = 1 << 63

#: Maximum calls that the report of a violation shows.
_MOST_CALLS = 300


def check(history: History) -> list[Violation]:
    """Return every promise that a history shows to be broken, with the calls that concern it."""
    found = list(history.noticed)
    by_session: dict[str, list[Operation]] = defaultdict(list)
    for operation in history.operations:
        by_session[operation.session].append(operation)
        if operation.do == "fork":
            by_session[operation.asked["child"]]  # which may have nothing but its beginning
        if operation.outcome == "failed":
            said = operation.result
            found.append(
                Violation(
                    "failed",
                    operation.session,
                    f"{_name(operation)}: {said.get('error')}: {said.get('says')}\n{said.get('trace', '')}",
                )
            )
    forks = {one.asked["child"]: one for one in history.operations if one.do == "fork"}
    checked: dict[str, _Session] = {}
    # A parent comes before its forks.
    for session in sorted({*by_session, *history.sessions} - {""}, key=partial(_depth, forks)):
        final = history.sessions.get(session, Final([]))
        fork = forks.get(session)
        parent = None if fork is None else checked.get(fork.session)
        checked[session] = _Session(session, final, by_session[session], fork, parent)
    for session in sorted(checked):
        found += checked[session].check()
    for operation in history.operations:
        if operation.outcome == "ok" and operation.do == "list":
            found += _check_listing(operation, checked)
        elif operation.outcome == "ok" and operation.do == "search":
            found += _check_search(operation, checked)
    return [*_told(found, history)]


def _depth(forks: dict[str, Operation], session: str) -> int:
    """Return how many ancestors a session has."""
    depth = 0
    while session in forks:
        depth, session = depth + 1, forks[session].session
    return depth


def _name(operation: Operation) -> str:
    return f"{operation.do} {operation.id}"


class _Life(NamedTuple):
    """When a session was deleted and restored."""

    deletions: list[Operation]
    restorations: list[Operation]

    def is_gone(self, begin: int, end: int) -> Operation | None:
        """Return the deletion after which a session was deleted from `begin` to `end`, in every order."""
        for deletion in self.deletions:
            if deletion.outcome == "ok" and _returned(deletion) < begin:
                back = (
                    restoration.invoked < end and _returned(restoration) > deletion.invoked
                    for restoration in self.restorations
                )
                if not any(back):
                    return deletion
        return None

    def is_alive(self, begin: int, end: int) -> bool:
        """Return whether no call can have found the session deleted from `begin` to `end`."""
        return all(
            deletion.invoked > end
            or any(
                restoration.outcome == "ok"
                and restoration.invoked > _returned(deletion)
                and _returned(restoration) < begin
                for restoration in self.restorations
            )
            for deletion in self.deletions
        )


def _returned(operation: Operation) -> int:
    return _NEVER if operation.returned is None else operation.returned


class _Session:
    """One session: its content, and all calls on it."""

    def __init__(
        self,
        name: str,
        final: Final,
        operations: list[Operation],
        fork: Operation | None,
        parent: "_Session | None",
    ) -> None:
        self.name = name
        self.final = final
        self._operations = operations
        self._found: list[Violation] = []
        self._fork = fork
        self._parent = parent
        #: The event that created the fork.
        self._begun = next(
            (record for record in final.events if fork is not None and _is_own_fork(record, fork)),
            None,
        )
        self.life = _Life(
            [one for one in operations if one.do == "delete" and one.outcome in {"ok", "unknown"}],
            [one for one in operations if one.do == "restore" and one.outcome in {"ok", "unknown"}],
        )
        #: The calls that may have purged it: then it may be missing.
        self.purges = [
            one for one in operations if one.do == "purge" and one.outcome in {"ok", "unknown"}
        ]
        #: Operation → number of its message → seq in the session.
        self._places: dict[str, dict[int, int]] = defaultdict(dict)
        self._known = self._what_was_known()

    def _what_was_known(self) -> tuple[list[int], list[int]]:
        """Return times, and the last seq that was acknowledged by then."""
        told = [(_returned(one), max(_seqs(one), default=0)) for one in self._operations]
        if self._fork is not None and self._fork.outcome == "ok" and self._begun is not None:
            told.append((_returned(self._fork), self._begun.seq))
        told.sort()
        return [moment for moment, _ in told], list(accumulate((seq for _, seq in told), max))

    def known_before(self, moment: int) -> int:
        """Return the last seq that was acknowledged before a time."""
        moments, seqs = self._known
        before = bisect_left(moments, moment)
        return seqs[before - 1] if before else 0

    def _add(self, kind: Kind, detail: str) -> None:
        self._found.append(Violation(kind, self.name, detail))

    def check(self) -> list[Violation]:
        """Return all that is wrong with this session."""
        inherited = self._check_fork()
        self._check_records(inherited)
        self._check_appends()
        self._check_keys()
        self._check_reverts(inherited)
        self._check_order()
        self._check_reads()
        self._check_life()
        return self._found

    # -- content --------------------------------------------------------------------------

    def _check_fork(self) -> int:
        """Compare the beginning of a child with its parent's; return how many events it inherits."""
        fork, events, begun = self._fork, self.final.events, self._begun
        if fork is None:
            return 0
        if not events:
            if fork.outcome == "ok" and not self.purges:
                self._add("lost", f"{_name(fork)} was acknowledged, and the session is missing")
            return 0
        if begun is None:
            self._add("fork", f"{_name(fork)}: the child does not say where it was forked")
            return 0
        if fork.outcome == "refused":
            self._add("phantom", f"{_name(fork)} was refused, and the child is there")
        at = begun.seq - 1
        if fork.asked["at"] not in {None, at}:
            self._add("fork", f"{_name(fork)}: wanted at {fork.asked['at']}, and is at {at}")
        parent = self._parent.final.events if self._parent is not None else []
        if parent[:at] != events[:at]:
            self._add("fork", f"{_name(fork)}: does not begin with its parent's {at} events")
        return at

    def _check_records(self, inherited: int) -> None:
        """Check that every event has its seq, and was appended by a call."""
        own = {one.id: one for one in self._operations if one.do in {"append", "create"}}
        for number, record in enumerate(self.final.events, 1):
            if record.seq != number:
                self._add("gap", f"expected seq {number}, found seq {record.seq}")
            if number <= inherited:
                continue
            tag = _tag(record)
            if tag is None:
                continue
            name, place, size = tag
            if record.kind == "message.added" and not is_intact(record.data["message"]):
                self._add("altered", f"seq {record.seq}, which {name} appended")
            asked = own.get(name)
            if asked is None or asked.asked.get("size", 1) != size or place >= size:
                self._add(
                    "phantom", f"seq {record.seq}: no call appended {name}, {place} of {size}"
                )
            elif place in self._places[name]:
                first = self._places[name][place]
                self._add("twice", f"{_name(asked)}: at seq {first} and at seq {record.seq}")
            else:
                self._places[name][place] = record.seq

    def _check_appends(self) -> None:
        for one in self._operations:
            if one.do not in {"append", "create"}:
                continue
            seqs = list(self._places.get(one.asked.get("of", one.id), {}).values())
            if seqs and (
                len(seqs) != one.asked.get("size", 1)
                or seqs != list(range(seqs[0], seqs[0] + len(seqs)))
            ):
                self._add("torn batch", f"{_name(one)}: of {one.asked.get('size', 1)}, {seqs}")
            if one.do == "create":
                self._check_create(one, seqs)
            elif one.asked["key"] is None:
                self._check_plain(one, seqs)

    def _check_create(self, one: Operation, seqs: list[int]) -> None:
        if one.outcome == "ok" and seqs != [1]:
            self._add("lost", f"{_name(one)} was acknowledged, and is at {seqs}")
        elif one.outcome == "refused" and seqs:
            self._add("phantom", f"{_name(one)} was refused, and is at {seqs}")

    def _check_plain(self, one: Operation, seqs: list[int]) -> None:
        """Check an append without a key."""
        if one.outcome == "ok" and one.result["seqs"] != seqs:
            self._add("lost", f"{_name(one)}: told {one.result['seqs']}, found at {seqs}")
        elif one.outcome == "refused" and seqs:
            self._add("phantom", f"{_name(one)}: {one.result['error']}, and is at {seqs}")
        if _is_invalid(one):
            self._add("key", f"{_name(one)}: refused for its size, and has no key")
        expected = one.asked["expected"]
        if expected is None:
            return
        if seqs and seqs[0] != expected + 1:
            self._add("compare-and-set", f"{_name(one)}: expected {expected}, and is at {seqs[0]}")
        # An expected seq was read before: a session only grows.
        if "actual" in one.result and not expected < one.result["actual"] <= len(self.final.events):
            actual = one.result["actual"]
            self._add("compare-and-set", f"{_name(one)}: expected {expected}, refused at {actual}")

    def _check_keys(self) -> None:
        """Check that one key has one answer, and that its events are there once."""
        groups: dict[str, list[Operation]] = defaultdict(list)
        for one in self._operations:
            if one.do == "append" and one.asked["key"] is not None:
                groups[one.asked["key"]].append(one)
        for key, group in groups.items():
            self._check_key(key, group)

    def _check_key(self, key: str, group: list[Operation]) -> None:
        """Check the appends with one key: one of them is stored, and only another size is refused."""
        there = {one.asked["of"] for one in group} & self._places.keys()
        sizes = {one.asked["size"] for one in group if one.asked["of"] in there}
        if len(there) > 1:
            self._add("key", f"{key!r}: each of {sorted(there)} was appended")
        for one in group:
            if _is_invalid(one) and sizes <= {one.asked["size"]}:
                self._add("key", f"{_name(one)}: {key!r}: refused, and {sizes} are its sizes")
            if one.outcome != "ok":
                continue
            seqs = list(self._places.get(one.result["of"], {}).values())
            if not there:
                self._add("lost", f"{_name(one)}: told {one.result['seqs']}, and is not there")
            elif one.result["of"] not in there or seqs != one.result["seqs"]:
                told = f"{one.result['of']} at {one.result['seqs']}"
                self._add("key", f"{_name(one)}: {key!r}: told {told}, and is at {seqs}")
            elif len(seqs) != one.asked["size"]:
                self._add("key", f"{_name(one)}: {key!r}: is of another size, and not refused")

    def _check_reverts(self, inherited: int) -> None:
        own = {
            record.seq: record.data["seq"]
            for record in self.final.events[inherited:]
            if record.kind == "session.reverted"
        }
        unsure: list[int] = []
        for one in self._operations:
            if one.do == "revert" and one.outcome == "ok":
                if own.pop(one.result["seq"], None) != one.asked["to"]:
                    self._add("lost", f"{_name(one)}: not at seq {one.result['seq']}")
            elif one.do == "revert" and one.outcome == "unknown":
                unsure.append(one.asked["to"])
        for seq, to in own.items():
            if to in unsure:
                unsure.remove(to)
            else:
                self._add("phantom", f"seq {seq}: no call reverted to {to}")

    # -- when -----------------------------------------------------------------------------------

    def _check_order(self) -> None:
        """Check that a call made after an answer comes after it in the log."""
        placed = []
        for one in self._operations:
            if one.do == "append":
                seqs = list(self._places.get(one.id, {}).values())
            else:
                seqs = _seqs(one) if one.do in {"revert", "create"} else []
            if seqs:
                placed.append((min(seqs), one))
        earliest, who = _NEVER, None
        # From the end: no event may be requested after a later one was acknowledged.
        for seq, one in sorted(placed, reverse=True):
            if who is not None and one.invoked > earliest:
                self._add("order", f"{_name(one)} is at seq {seq}, before {_name(who)}")
            # A refused caller may have tried again later, with the same key and the same events.
            if one.outcome == "ok" and _returned(one) < earliest:
                earliest, who = _returned(one), one

    def _check_reads(self) -> None:
        digests = list(_digests(self.final.events))
        views = list(_views(self.final.events))
        for one in self._operations:
            if one.outcome != "ok" or one.do not in {"read", "view"}:
                continue
            known = self.known_before(one.invoked)
            if one.do == "read":
                seq = one.result["seq"]
                if seq < known:
                    self._add("stale", f"{_name(one)}: saw {seq} events, when {known} were known")
                if seq >= len(digests) or digests[seq] != one.result["digest"]:
                    self._add("not a prefix", f"{_name(one)}: at seq {seq} saw something else")
            elif one.result["digest"] not in views[known:]:
                kind: Kind = "stale" if one.result["digest"] in views[:known] else "not a prefix"
                self._add(kind, f"{_name(one)}: after seq {known}, saw what it never was since")

    def _check_life(self) -> None:
        """Check that deleted sessions, and only these, stay deleted until they are restored."""
        for one in self._operations:
            if one.returned is None or one.do in {"delete", "purge", "list", "search"}:
                continue
            if one.do == "restore":
                self._check_restore(one, one.returned)
                continue
            if one.outcome == "ok" and (gone := self.life.is_gone(one.invoked, one.returned)):
                self._add("resurrected", f"{_name(one)} was answered after {_name(gone)}")
            if one.result.get("error") == "SessionDeleted" and self.life.is_alive(
                one.invoked, one.returned
            ):
                self._add("vanished", f"{_name(one)}: no call had deleted it")
        there = bool(self.final.events) or not self.purges
        if there and not self.final.deleted and (gone := self.life.is_gone(_NEVER, _NEVER)):
            self._add("resurrected", f"is there at the end, after {_name(gone)}")
        purged = next((one for one in self.purges if one.outcome == "ok"), None)
        if purged is not None and self.final.events:
            self._add("resurrected", f"is there at the end, after {_name(purged)}")
        if self.final.deleted and self.life.is_alive(_NEVER - 1, _NEVER - 1):
            self._add("vanished", "is in the trash at the end, and no call deleted it")

    def _check_restore(self, one: Operation, returned: int) -> None:
        """Check that a restoration finds the session deleted only if that happened during the call."""
        if one.result.get("error") == "SessionDeleted" and not any(
            deletion.invoked < returned and _returned(deletion) > one.invoked
            for deletion in self.life.deletions
        ):
            self._add("vanished", f"{_name(one)}: no call deleted it in the meantime")


def _check_listing(one: Operation, sessions: dict[str, _Session]) -> Iterator[Violation]:
    listed = one.result["sessions"]
    for name in listed.keys() - sessions.keys():
        yield Violation("phantom", name, f"{_name(one)} shows it, and there is none")
    for name, session in sessions.items():
        known = session.known_before(one.invoked)
        if name not in listed:
            if known and session.life.is_alive(one.invoked, _returned(one)):
                yield Violation("vanished", name, f"{_name(one)} does not show it")
            continue
        if gone := session.life.is_gone(one.invoked, _returned(one)):
            yield Violation("resurrected", name, f"{_name(one)} shows it after {_name(gone)}")
        if not session.purges and not known <= listed[name] <= len(session.final.events):
            yield Violation(
                "stale",
                name,
                f"{_name(one)} shows seq {listed[name]}; known was {known}, "
                f"and it has {len(session.final.events)}",
            )


def _check_search(one: Operation, sessions: dict[str, _Session]) -> Iterator[Violation]:
    session = sessions[one.session]
    there = one.session in one.result["found"]
    if not there and session.life.is_alive(one.invoked, _returned(one)):
        yield Violation("stale", one.session, f"{_name(one)}: {one.asked['word']!r} is not found")
    gone = session.life.is_gone(one.invoked, _returned(one))
    if there and gone:
        yield Violation("resurrected", one.session, f"{_name(one)} finds it after {_name(gone)}")


# -- what a report shows ------------------------------------------------------------------------


def _told(found: list[Violation], history: History) -> Iterator[Violation]:
    """Yield violations; the first one of each session with the calls that concern the session."""
    told = set()
    for violation in found:
        if violation.session and violation.session not in told:
            told.add(violation.session)
            yield violation._replace(calls=_calls(violation, history))
        else:
            yield violation


def _calls(violation: Violation, history: History) -> list[str]:
    """Return the calls that concern a violation's session, one a line, around those that it names."""
    name = violation.session
    concerned = sorted(_concerned(name, history), key=lambda one: one.invoked)
    named = (n for n, one in enumerate(concerned) if f"{_name(one)} " in f"{violation.detail} ")
    middle = next(named, len(concerned))
    first = max(0, middle - _MOST_CALLS // 2)
    begin = min((one.invoked for one in history.operations), default=0)
    shown = [_line(one, name, begin) for one in concerned[first : first + _MOST_CALLS]]
    final = history.sessions.get(name)
    if final is None:
        return [*shown, "at the end: missing"]
    place = "in the trash" if final.deleted else "there"
    return [*shown, f"at the end: {place}, {len(final.events)} events"]


def _concerned(name: str, history: History) -> Iterator[Operation]:
    """Yield the calls of a session, those whose answers have it, and those that deleted a fork's parent."""
    parents = {
        one.session for one in history.operations if one.do == "fork" and one.asked["child"] == name
    }
    for one in history.operations:
        if (
            one.session == name
            or name in {one.asked.get("child"), *one.result.get("sessions", ())}
            or (one.session in parents and one.do in {"delete", "restore", "purge"})
        ):
            yield one


def _line(one: Operation, name: str, begin: int) -> str:
    """Return a call with its times in microseconds, its arguments and its answer."""
    returned = "never" if one.returned is None else f"{(one.returned - begin) / 1000:.1f}"
    result = dict(one.result)
    if "sessions" in result:
        result["sessions"] = {name: result["sessions"].get(name)}
    time = f"{(one.invoked - begin) / 1000:.1f} to {returned}"
    asked = f"{one.session} {one.asked}" if one.asked else one.session
    return f"{time}: {_name(one)} {asked}: {one.outcome} {result or ''}".rstrip()


# -- content of answers and events ----------------------------------------------------------------


def _seqs(one: Operation) -> list[int]:
    """Return the seqs in an answer."""
    if one.outcome == "refused":
        return [one.result["actual"]] if "actual" in one.result else []
    if one.outcome != "ok":
        return []
    if one.do == "append":
        return [int(seq) for seq in one.result["seqs"]]
    return [one.result["seq"]] if "seq" in one.result else []


def _is_invalid(one: Operation) -> bool:
    """Return whether an append was refused because its key has a batch of another size."""
    return one.outcome == "refused" and one.result.get("error") == "InvalidEvent"


def _is_own_fork(record: Record, fork: Operation) -> bool:
    return record.kind == "session.forked" and record.data == {
        **record.data,
        "parent": fork.session,
        "seq": record.seq - 1,
    }


def _tag(record: Record) -> tuple[str, int, int] | None:
    """Return whose event it is, its place in the batch, and the batch's size; None if it bears no name."""
    if record.kind == "message.added":
        said: dict[str, Any] = record.data["message"]
        return str(said.get("op")), int(said.get("place", 0)), int(said.get("of", 0))
    if record.kind == "session.created":
        return str(record.data.get("metadata", {}).get("op")), 0, 1
    if record.kind in {"session.forked", "session.reverted"}:
        return None
    return f"an event of the kind {record.kind}", 0, 0


def _digests(events: Iterable[Record]) -> Iterator[str]:
    """Yield the digest of every beginning, the empty one first."""
    return accumulate(events, lambda before, record: digest(before, [record]), initial=EMPTY)


def _views(events: Iterable[Record]) -> Iterator[str]:
    """Yield the digest of what the model view shows after each event, and before the first."""
    shown = [EMPTY]
    for record in events:
        if record.kind == "message.added":
            shown.append(view_digest(shown[-1], record.data["message"]))
        elif record.kind == "session.reverted" and record.data["seq"] < len(shown):
            shown.append(shown[record.data["seq"]])
        else:
            shown.append(shown[-1])
    return iter(shown)
