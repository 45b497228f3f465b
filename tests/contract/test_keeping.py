"""Checks of a backend: ids, the trash, `verify`, `probe`, `close`, several handles."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from hansard.backend.contract import AUDIT, Backend, Log
from hansard.errors import (
    Closed,
    InvalidSessionId,
    SeqConflict,
    SessionDeleted,
    SessionExists,
    SessionNotFound,
)
from hansard.event.event import NewEvent
from tests.contract.backends import (
    Context,
    answers,
    append,
    contents,
    everything,
    message,
    metadata,
    mixed,
    succeeds,
    together,
    two_handles,
)

#: Ids that stores have mixed up, lost or followed out of their directory.
IDS = (
    "support/42", "a/b", "a_b", "a..b", "a+b", "a b", "ab", "Foo", "foo", "FOO", "00G", "00g",
    "../../x", "/etc/x", "..\\x", "a/../b", ".", "..", "...", "~", "-", "x.", "x ", " x",
    "caf\u00e9", "cafe\u0301", "\u2028", "\U0001f600", "con", "CON", "nul.txt", "log.jsonl",
    "lock", "x.lock", "x.meta", "x.tmp", "x.json", "x.zst", "x.corrupt-1", ".tmp-log-1-00",
    "hansard.json", "sessions", "trash", "index.db", "media", "%2e", "%", "^a", "a\nb", "\x7f",
    "x" * 199, "x" * 200, "x" * 201, "x" * 1024, "X" * 1023 + "y", "\u00e9" * 1024,
    "\U0001f600" * 1024, "\U0001f600" * 1023 + "\U0001f601",
)  # fmt: skip

#: No backend can keep these.
BAD_IDS: tuple[object, ...] = ("", "a\0b", "\0", "x" * 1025, "\ud800", None, 7, b"bytes")

#: Long enough to learn that there is nothing to wait for.
_SOON = 2.0


def test_all_ids_are_kept_apart(context: Context) -> None:
    """N-7: every valid id is a separate session, listed once and under its true id; to read makes none."""
    assert not any(context.log(session_id).reader().head() for session_id in IDS)
    assert list(context.backend.ids()) == []
    for session_id in IDS:
        append(context.log(session_id), [message(session_id)])
    assert sorted(context.backend.ids()) == sorted(IDS)
    for session_id in context.backend.ids():
        log = context.log(session_id)
        assert log.session_id == session_id
        assert contents(everything(log)) == [session_id], f"messages of {session_id!r:.60}"


def test_bad_ids_are_refused(context: Context) -> None:
    """An id that no backend could keep raises `InvalidSessionId` from every call that takes one."""
    for bad in BAD_IDS:
        calls: tuple[Callable[[str], object], ...] = (
            context.backend.log,
            context.backend.delete,
            context.backend.restore,
        )
        for call in calls:
            with pytest.raises(InvalidSessionId):
                call(bad)  # type: ignore[arg-type]
    assert list(context.backend.ids()) == []


def test_a_deleted_session_is_gone(context: Context) -> None:
    """After `delete`, a session is not listed and all of its calls raise `SessionDeleted`."""
    log = context.log()
    mixed(log)
    append(context.log("other"), [message("stays")])
    context.backend.delete("s")
    assert list(context.backend.ids()) == ["other"]
    for handle in (log, context.log()):
        _all_calls_raise(SessionDeleted, handle)
    assert contents(everything(context.log("other"))) == ["stays"]


def _all_calls_raise(error: type[Exception], log: Log, *more: Callable[[], object]) -> None:
    for call in (
        lambda: append(log, [message("no")]),
        lambda: append(log, [message("no")], key="k0"),
        lambda: append(log, [message("no")], new_only=True),
        log.reader,
        lambda: log.wait(100, _SOON),
        log.verify,
        log.sync,
        *more,
    ):
        with pytest.raises(error):
            call()


def test_a_session_moves_to_the_trash_and_out_of_it(context: Context) -> None:
    """`delete` needs a session, `restore` and `purge` one in the trash; otherwise nothing changes."""
    backend = context.backend
    for call in (backend.delete, backend.restore, backend.purge):
        with pytest.raises(SessionNotFound):
            call("missing")
    append(context.log(), [message("a")])
    for call in (backend.restore, backend.purge):
        with pytest.raises(SessionNotFound):
            call("s")
    assert contents(everything(context.log())) == ["a"]
    backend.delete("s")
    with pytest.raises(SessionDeleted):
        backend.delete("s")
    assert list(backend.ids()) == []
    backend.purge("s")
    for call in (backend.delete, backend.restore, backend.purge):
        with pytest.raises(SessionNotFound):
            call("s")


def test_one_of_many_deletes(context: Context) -> None:
    """Of threads that delete a session while others append, the session is deleted completely."""
    log = context.log()
    append(log, [message("a")])
    delete = partial(
        succeeds, partial(context.backend.delete, "s"), SessionDeleted, SessionNotFound
    )

    def write() -> bool:
        with suppress(SessionDeleted):
            for _ in range(20):
                append(log, [message("b")])
        return False

    assert any(together([write, delete, delete, write]))
    assert list(context.backend.ids()) == []
    context.backend.restore("s")
    events = everything(context.log())
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


def test_a_whole_session_has_no_findings(context: Context) -> None:
    """`verify` finds nothing in a session as it was written; without a session it raises."""
    log = context.log()
    with pytest.raises(SessionNotFound):
        log.verify()
    before = mixed(log)
    assert log.verify() == []
    assert everything(log) == before
    context.backend.delete("s")
    context.backend.restore("s")
    assert log.verify() == []


def test_a_probe_says_where_and_leaves_nothing(context: Context) -> None:
    """`probe` reports where the backend is and whether it is writable, and leaves nothing."""
    found = context.backend.probe()
    assert (found.where, found.durability) == (context.backend.where, context.backend.durability)
    assert found.writable == (not context.backend.read_only)
    assert found.free_bytes is None or found.free_bytes >= 0
    assert list(context.backend.ids()) == []


def test_probes_do_not_disturb_one_another(context: Context) -> None:
    """N-78: 8 threads may probe concurrently, while others append."""
    log = context.log()

    def write() -> None:
        for number in range(10):
            append(log, [message(number)])

    def probe() -> None:
        for _ in range(3):
            context.backend.probe()

    together([write, *[probe] * 8])
    assert list(context.backend.ids()) == ["s"]
    assert contents(everything(log)) == list(range(10))


def test_a_closed_backend_says_so(context: Context) -> None:
    """After `close`, which may be called twice, every call raises `Closed`: none returns an empty answer."""
    log = context.log()
    append(log, [message("a")])
    ancestor, audit = context.backend.log("s", from_trash=True), context.backend.internal(AUDIT)
    append(audit, [message("a")])
    context.backend.close()
    context.backend.close()
    _all_calls_raise(
        Closed,
        log,
        lambda: list(context.backend.ids()),
        lambda: list(context.backend.ids(trash=True)),
        lambda: context.backend.delete("s"),
        lambda: context.backend.restore("s"),
        lambda: context.backend.purge("s"),
        context.backend.probe,
        context.backend.stamps,
        ancestor.reader,
        audit.reader,
        lambda: append(audit, [message("b")]),
    )


@two_handles
def test_other_handles_see_an_append_at_once(context: Context) -> None:
    """What one handle has appended, another sees in its next call, whichever that is."""
    mine, theirs = context.log(), context.other().log("s")
    assert theirs.reader().head() is None
    expected = append(mine, [message("a")])
    for number in range(5):
        assert everything(theirs) == expected
        expected += append(mine, [metadata(number=number), message(number)])
        head = theirs.reader().head()
        assert (head and head.seq) == expected[-1].seq
        assert len(theirs.reader().controls()) == number + 1
        assert theirs.wait(expected[-1].seq - 1, 0.0)
    assert list(context.other().ids()) == ["s"]


@two_handles
def test_handles_write_at_the_same_time(context: Context) -> None:
    """4 handles × 25 appends at the same time: every event once, seqs without gaps."""
    logs = [context.log(), *[context.other().log("s") for _ in range(3)]]

    def write(place: int) -> list[int]:
        return [append(logs[place], [message([place, turn])])[0].seq for turn in range(25)]

    given = together([partial(write, place) for place in range(4)])
    assert sorted(seq for seqs in given for seq in seqs) == list(range(1, 101))
    for log in logs:
        found = dict(enumerate(contents(everything(log)), 1))
        assert [found[seq] for seq in given[2]] == [[2, turn] for turn in range(25)]


@two_handles
def test_conditions_hold_between_handles(context: Context) -> None:
    """`expected_seq`, `new_only` and keys see what another handle has appended."""
    mine, theirs = context.log(), context.other().log("s")
    assert theirs.reader().head() is None
    first = append(mine, [message("a"), message("b")], key="k", new_only=True)
    with pytest.raises(SessionExists):
        append(theirs, [message("c")], new_only=True)
    with pytest.raises(SeqConflict):
        append(theirs, [message("c")], expected_seq=0)
    assert append(theirs, [message("c"), message("d")], key="k") == first
    second = append(theirs, [message("c")], key="l", expected_seq=2)
    assert append(mine, [message("d")], key="l", expected_seq=0) == second
    assert len(everything(mine)) == 3


@two_handles
def test_deletion_is_seen_by_other_handles(context: Context) -> None:
    """After one handle's `delete` another raises `SessionDeleted`, and continues after `restore`."""
    mine, other = context.log(), context.other()
    before = mixed(mine)
    theirs = other.log("s")
    assert everything(theirs) == before
    context.backend.delete("s")
    _all_calls_raise(SessionDeleted, theirs)
    assert list(other.ids()) == []
    other.restore("s")
    assert everything(mine) == before
    (event,) = append(mine, [message("after")])
    assert everything(theirs) == [*before, event]


@two_handles
def test_everything_outlives_the_handle(context: Context) -> None:
    """After `close`, a new handle finds all events, keys, control events and ids."""
    events = mixed(context.log(), rounds=3)
    before = answers(context.log().reader())
    append(context.log("deleted"), [message("x")])
    context.backend.delete("deleted")
    other: Backend = context.other()
    context.backend.close()
    log = other.log("s")
    assert answers(log.reader()) == before
    again = NewEvent("x.todo", b'{"again":true}', control=False)
    assert append(log, [again], key="k1") == [events[11]]
    assert list(other.ids()) == ["s"]
    with pytest.raises(SessionDeleted):
        other.log("deleted").reader().head()
