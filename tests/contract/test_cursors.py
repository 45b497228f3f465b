"""Checks of cursors and internal logs: what a consumer that restarts can count on."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from hansard import follow
from hansard.backend.contract import CURSOR, AppendRequest, Backend, Hold
from hansard.errors import (
    Closed,
    DiskFailed,
    InvalidSessionId,
    LockTimeout,
    SeqConflict,
    SessionNotFound,
)
from hansard.event.event import NewEvent
from hansard.follow import MOVED, SLACK, Cursor, Follower, cursors, drop_cursor
from tests.contract.backends import (
    Context,
    append,
    contents,
    everything,
    message,
    succeeds,
    together,
    two_handles,
)
from tests.contract.test_keeping import BAD_IDS, IDS


def keep(backend: Backend, name: str, positions: dict[str, int]) -> None:
    """Open a cursor, move it and close it."""
    cursor = Cursor(backend, name)
    cursor.move(positions)
    cursor.close()


def positions_of(backend: Backend, name: str) -> dict[str, int]:
    """Return the positions of a cursor."""
    cursor = Cursor(backend, name)
    positions = cursor.positions
    cursor.close()
    return positions


class Lost(Hold):
    """A hold that its owner believes to have."""

    def check(self) -> None:
        """Say that all is well."""

    def close(self) -> None:
        """Do nothing."""


def robbed(backend: Backend, name: str) -> Cursor:
    """Return an open cursor whose lock is free, as after the death of the lock's connection."""
    cursor = Cursor(backend, name)
    assert cursor._hold is not None
    cursor._hold.close()
    cursor._hold = Lost()
    return cursor


def test_a_cursor_is_where_it_was_left(context: Context) -> None:
    """A cursor that is closed and opened again has the positions of its last moves."""
    cursor = Cursor(context.backend, "c")
    assert cursor.positions == {}
    cursor.move({"s": 3})
    cursor.move({"s": 5, "t": 1})
    cursor.move({"u": 2**63 - 1})
    cursor.close()
    assert positions_of(context.backend, "c") == {"s": 5, "t": 1, "u": 2**63 - 1}


def test_what_is_forgotten_is_unknown(context: Context) -> None:
    """A forgotten session has no position; what a caller passed or got does not move a cursor."""
    keep(context.backend, "c", {"s": 5, "t": 6, "u": 7})
    cursor = Cursor(context.backend, "c")
    given: dict[str, int | None] = {"s": None, "never known": None, "t": 8}
    cursor.move(given)
    given["t"] = 9
    cursor.positions["u"] = 9
    assert cursor.positions == {"t": 8, "u": 7}
    cursor.close()
    assert positions_of(context.backend, "c") == {"t": 8, "u": 7}


def test_a_move_of_many_sessions_is_one_append(context: Context) -> None:
    """A move of 2,500 sessions is stored completely; one without changes appends nothing."""
    many = {f"session-{number}": number for number in range(2_500)}
    cursor = Cursor(context.backend, "c")
    cursor.move(many)
    log = context.backend.internal(CURSOR + "c")
    head = log.reader().head()
    cursor.move(many)
    cursor.move({})
    cursor.move({"unknown": None})
    assert log.reader().head() == head
    cursor.close()
    assert positions_of(context.backend, "c") == many


def test_a_log_of_many_moves_stays_small(context: Context) -> None:
    """N-79: a grown log is replaced by one with its positions and little more; seqs grow."""
    cursor = Cursor(context.backend, "c")
    for number in range(1, 1_500):
        cursor.move({f"session-{number % 10}": number})
    kept = cursor.positions
    log = context.backend.internal(CURSOR + "c")
    events = everything(log)
    assert sum(len(event.raw) for event in events) < SLACK
    assert len(events) < 1_000
    assert events[0].kind == follow.OPENED
    head = log.reader().head()
    assert head is not None
    assert head.seq >= 1_500
    cursor.close()
    assert positions_of(context.backend, "c") == kept


def test_cursors_are_kept_apart(context: Context) -> None:
    """Every valid id is a valid cursor name, and a session id in it; all are listed."""
    assert cursors(context.backend) == []
    append(context.log("s"), [message("m")])
    for number, name in enumerate(IDS):
        keep(context.backend, name, {name: number, "s": 1})
    assert cursors(context.backend) == sorted(IDS)
    for number, name in enumerate(IDS):
        assert positions_of(context.backend, name) == {name: number, "s": 1}, (
            f"positions of {name!r:.60}"
        )


def test_internal_logs_are_no_sessions(context: Context) -> None:
    """A cursor is in no list of sessions, stamps, changes or audit events."""
    append(context.log("s"), [message("m")])
    changed = context.backend.changed("")
    changed.done()
    keep(context.backend, "c", {"s": 1})
    assert drop_cursor(context.backend, "c")
    keep(context.backend, "d", {"s": 1})
    assert list(context.backend.ids()) == ["s"]
    assert list(context.backend.ids(trash=True)) == []
    assert set(context.backend.stamps()) == {"s"}
    changed = context.backend.changed(changed.since)
    assert changed.ids <= {"s"}
    assert changed.present in {None, frozenset({"s"})}
    assert context.backend.internals() == [CURSOR + "d"]


def test_a_follower_does_not_follow_itself(context: Context) -> None:
    """A consumer that moves its cursor after each event gets only the events of sessions."""
    append(context.log("s"), [message("m")] * 3)
    with Follower(
        context.backend, wanted=lambda _: True, cursor=Cursor(context.backend, "c")
    ) as follower:
        got = [follower.take(0.0) for _ in range(5)]
    assert [item and item.session for item in got] == ["s", "s", "s", None, None]


def test_a_dropped_cursor_begins_again(context: Context) -> None:
    """A dropped cursor is not listed and has no positions; dropping it again returns False."""
    keep(context.backend, "c", {"s": 5})
    keep(context.backend, "d", {"s": 6})
    assert drop_cursor(context.backend, "c")
    assert not drop_cursor(context.backend, "c")
    assert cursors(context.backend) == ["d"]
    assert positions_of(context.backend, "c") == {}
    assert positions_of(context.backend, "d") == {"s": 6}


def test_bad_names_of_cursors_are_refused(context: Context) -> None:
    """An invalid cursor name raises `InvalidSessionId`."""
    for bad in BAD_IDS:
        for call in (Cursor, drop_cursor):
            with pytest.raises(InvalidSessionId):
                call(context.backend, bad)  # type: ignore[arg-type]
    assert cursors(context.backend) == []


def test_one_consumer_has_a_cursor_at_a_time(context: Context) -> None:
    """Opening or dropping an open cursor raises `LockTimeout`; another name is independent."""
    cursor = Cursor(context.backend, "c")
    cursor.move({"s": 1})
    with pytest.raises(LockTimeout, match="cursor 'c' has another consumer"):
        Cursor(context.backend, "c")
    with pytest.raises(LockTimeout):
        drop_cursor(context.backend, "c")
    keep(context.backend, "C", {"s": 9})
    cursor.move({"s": 2})
    cursor.close()
    assert positions_of(context.backend, "c") == {"s": 2}
    # One that was never closed, and to which no reference is left, is in no one's way.
    cursor = Cursor(context.backend, "c")
    del cursor
    assert positions_of(context.backend, "c") == {"s": 2}


def test_of_consumers_at_the_same_time_one_wins(context: Context) -> None:
    """Of eight threads that open a cursor concurrently one succeeds, each time."""
    for _ in range(5):
        opened: list[Cursor] = []
        job = partial(lambda opened: opened.append(Cursor(context.backend, "c")), opened)
        won = together([partial(succeeds, job, LockTimeout)] * 8)
        assert won.count(True) == 1
        opened[0].close()


def test_a_closed_cursor_says_so(context: Context) -> None:
    """After `close` of a cursor, or of its backend, a move raises `Closed`; `close` does not."""
    cursor = Cursor(context.backend, "c")
    cursor.move({"s": 1})
    cursor.close()
    cursor.close()
    with pytest.raises(Closed):
        cursor.move({"s": 2})
    with pytest.raises(Closed):
        cursor.move({"s": 1})
    cursor = Cursor(context.backend, "c")
    assert cursor.positions == {"s": 1}
    context.backend.close()
    with pytest.raises(Closed):
        cursor.move({"s": 2})
    cursor.close()
    calls: tuple[Callable[[], object], ...] = (
        lambda: Cursor(context.backend, "c"),
        lambda: drop_cursor(context.backend, "c"),
        lambda: cursors(context.backend),
    )
    for call in calls:
        with pytest.raises(Closed):
            call()


@two_handles
def test_handles_share_cursors(context: Context) -> None:
    """A cursor that one handle has open is refused to another, which continues it later."""
    other = context.other()
    cursor = Cursor(context.backend, "c")
    cursor.move({"s": 4})
    with pytest.raises(LockTimeout):
        Cursor(other, "c")
    with pytest.raises(LockTimeout):
        drop_cursor(other, "c")
    assert cursors(other) == ["c"]
    cursor.close()
    theirs = Cursor(other, "c")
    assert theirs.positions == {"s": 4}
    theirs.move({"s": 5})
    theirs.close()
    assert positions_of(context.backend, "c") == {"s": 5}
    assert drop_cursor(other, "c")
    assert cursors(context.backend) == []


@pytest.mark.parametrize("replaced", [False, True])
def test_opening_fences_every_earlier_holder(
    context: Context, replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A holder that lost its lock cannot move a cursor that another has opened, or whose log it replaced."""
    first = robbed(context.backend, "c")
    first.move({"s": 1})
    second = Cursor(context.backend, "c")
    if replaced:
        with monkeypatch.context() as patch:
            patch.setattr(follow, "SLACK", -(2**40))
            second.move({"s": 5})
            second.move({"s": 1})
    for _ in range(2):
        # Not a `SeqConflict`: the caller of `follow` knows of no seq of a cursor.
        with pytest.raises(LockTimeout, match="opened by another consumer"):
            first.move({"s": 2})
    assert second.positions == {"s": 1}
    second.move({"s": 7})
    second.close()
    assert positions_of(context.backend, "c") == {"s": 7}


def test_a_late_move_of_its_own_is_no_rival(context: Context) -> None:
    """A move that arrives after an error does not end the sender's hold."""
    cursor = Cursor(context.backend, "c")
    cursor.move({"s": 1})
    late = NewEvent(MOVED, b'{"positions":{"s":2,"t":1}}', control=False)
    append(context.backend.internal(CURSOR + "c"), [late])
    cursor.move({"s": 3})
    assert cursor.positions == {"s": 3, "t": 1}
    cursor.close()
    assert positions_of(context.backend, "c") == {"s": 3, "t": 1}


def fail_to_move(
    cursor: Cursor, positions: dict[str, int], patch: pytest.MonkeyPatch, *, kept: bool
) -> None:
    """Move a cursor with an append that fails, before or after it was done."""
    kind = type(cursor._log)
    real = kind.append

    def fails(log: Any, request: AppendRequest) -> Any:
        if kept:
            real(log, request)
        raise DiskFailed("write", "somewhere", OSError(5, "error"), "")

    with patch.context() as patched:
        patched.setattr(kind, "append", fails)
        with pytest.raises(DiskFailed):
            cursor.move(positions)


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "lost"])
def test_after_an_error_the_log_tells(
    context: Context, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an error the holder reads the log, so the next move is right in any case."""
    cursor = Cursor(context.backend, "c")
    cursor.move({"s": 1})
    fail_to_move(cursor, {"s": 2}, monkeypatch, kept=kept)
    cursor.move({"t": 1})
    expected = {"s": 2 if kept else 1, "t": 1}
    assert cursor.positions == expected
    cursor.close()
    assert positions_of(context.backend, "c") == expected


def test_a_dropped_cursor_is_not_created_again(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A holder that lost its lock cannot recreate a cursor that was dropped."""
    first = robbed(context.backend, "c")
    first.move({"s": 1})
    second = robbed(context.backend, "d")
    fail_to_move(second, {"s": 2}, monkeypatch, kept=False)
    for name in ("c", "d"):
        assert drop_cursor(context.backend, name)
    for cursor in (first, second):
        for _ in range(2):
            with pytest.raises(LockTimeout, match="dropped"):
                cursor.move({"s": 3})
    assert cursors(context.backend) == []
    assert positions_of(context.backend, "c") == {}


def test_a_replaced_log_continues(context: Context) -> None:
    """`replace` puts events in the place of all others, at the following seqs, if the log is at a seq."""
    log = context.backend.internal("log")
    with pytest.raises((SeqConflict, SessionNotFound)):
        log.replace([message("m")], expected_seq=0)
    with pytest.raises((SeqConflict, SessionNotFound)):
        log.replace([message("m")], expected_seq=1)
    assert log.reader().head() is None
    append(log, [message(str(number)) for number in range(5)])
    for wrong in (4, 6, 0):
        with pytest.raises(SeqConflict):
            log.replace([message("m")], expected_seq=wrong)
    log.replace([message("five"), message("six")], expected_seq=5)
    found = everything(log)
    assert [event.seq for event in found] == [6, 7]
    assert contents(found) == ["five", "six"]
    first, head = log.reader().first(), log.reader().head()
    assert first is not None
    assert head is not None
    assert (first.seq, head.seq) == (6, 7)
    with pytest.raises(SeqConflict):
        append(log, [message("m")], expected_seq=5)
    assert append(log, [message("m")], expected_seq=7)[0].seq == 8
    log.replace([message("nine")], expected_seq=8)
    assert [event.seq for event in everything(log)] == [9]
    assert log.verify() == []


@two_handles
def test_a_replaced_log_is_found_by_other_handles(context: Context) -> None:
    """An open handle reads the replacement of a log, and cannot append at the old seq."""
    mine, theirs = context.backend.internal("log"), context.other().internal("log")
    append(mine, [message("m")] * 3)
    append(theirs, [message("m")])
    mine.replace([message("m")], expected_seq=4)
    assert [event.seq for event in everything(theirs)] == [5]
    append(mine, [message("m")])
    with pytest.raises(SeqConflict):
        append(theirs, [message("m")], expected_seq=4)
    assert append(theirs, [message("m")], expected_seq=6)[0].seq == 7
    theirs.replace([message("m")], expected_seq=7)
    assert [event.seq for event in everything(mine)] == [8]


def test_an_internal_log_is_dropped(context: Context) -> None:
    """A dropped internal log is deleted, and an append at its seq does not recreate it."""
    log = context.backend.internal("log")
    append(log, [message("m")] * 3)
    assert context.backend.internals() == ["log"]
    assert context.backend.internal("log").drop()
    assert not context.backend.internal("log").drop()
    assert context.backend.internals() == []
    with pytest.raises(SeqConflict):
        append(log, [message("m")], expected_seq=3)
    with pytest.raises((SeqConflict, SessionNotFound)):
        log.replace([message("m")], expected_seq=3)
    assert context.backend.internals() == []
    assert append(log, [message("m")])[0].seq == 1
