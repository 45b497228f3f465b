"""Checks of complete sessions: the trash, purging, the audit log, stamps, salvage."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from hansard.backend.contract import AUDIT, AppendRequest, Backend, Log
from hansard.errors import Held, InvalidSessionId, SeqConflict, SessionDeleted, SessionNotFound
from hansard.event.event import Event, NewEvent
from tests.contract.backends import (
    Context,
    append,
    contents,
    everything,
    message,
    mixed,
    succeeds,
    there,
    together,
    two_handles,
)
from tests.contract.test_keeping import BAD_IDS, IDS


def _record(number: int) -> NewEvent:
    return NewEvent("session.deleted", b'{"session":"s","seq":%d}' % number, control=False)


def test_the_trash_lists_what_can_be_restored(context: Context) -> None:
    """`trash` lists every deleted session under its true id, until it is restored or purged."""
    backend = context.backend
    assert list(backend.ids(trash=True)) == []
    for session_id in IDS:
        append(context.log(session_id), [message(session_id)])
    assert list(backend.ids(trash=True)) == []
    for session_id in IDS:
        backend.delete(session_id)
    assert sorted(backend.ids(trash=True)) == sorted(IDS)
    assert list(backend.ids()) == []
    for session_id in IDS[::2]:
        backend.restore(session_id)
    left = set(IDS[1::2])
    for session_id in IDS[1::2]:
        assert set(backend.ids(trash=True)) == left
        backend.purge(session_id)
        left.remove(session_id)
    assert list(backend.ids(trash=True)) == []
    assert sorted(backend.ids()) == sorted(IDS[::2])
    for bad in BAD_IDS:
        with pytest.raises(InvalidSessionId):
            backend.purge(bad)  # type: ignore[arg-type]


def test_delete_minds_the_seq_that_was_expected(context: Context) -> None:
    """`delete` with another `expected_seq` than the session's raises `SeqConflict`, and deletes nothing."""
    log = context.log()
    before = mixed(log)
    last = before[-1].seq
    for wrong in (0, 1, last - 1, last + 1):
        with pytest.raises(SeqConflict) as caught:
            context.backend.delete("s", expected_seq=wrong)
        assert (caught.value.expected, caught.value.actual) == (wrong, last)
    assert everything(log) == before
    context.backend.delete("s", expected_seq=last, timeout=0.0)
    assert list(context.backend.ids()) == []
    context.backend.restore("s")
    assert everything(log) == before


def test_nothing_is_appended_between_the_look_and_the_deed(context: Context) -> None:
    """Of `delete(expected_seq=…)` and an append at the same time, exactly one succeeds."""
    for number in range(20):
        session_id = f"s{number}"
        log = context.log(session_id)
        append(log, [message("first")])

        delete = partial(context.backend.delete, session_id, expected_seq=1)
        more = partial(append, log, [message("second")])
        jobs = [partial(succeeds, do, SeqConflict, SessionDeleted) for do in (delete, more)]
        # The thread that is started last is often the first to run.
        done = together(jobs if number % 2 else jobs[::-1])
        assert sum(done) == 1


def _mark(log: Log) -> list[Event]:
    return append(log, [NewEvent("session.held", b"{}", control=True)])


def _checks(backend: Backend, session_id: str) -> Callable[[], None]:
    """Return a check that refuses a session with a mark."""

    def check() -> None:
        events = backend.log(session_id, from_trash=True).reader().controls()
        if any(event.kind == "session.held" for event in events):
            raise Held("held", session=session_id, reason="")

    return check


def test_a_check_that_raises_prevents_the_deed(context: Context) -> None:
    """A `check` sees all acknowledged events; if it raises, nothing is deleted or appended."""
    log, check = context.log(), _checks(context.backend, "s")
    before = mixed(log)
    (event,) = log.append(AppendRequest([message("checked")], check=check))
    assert everything(log) == [*before, event]
    (mark,) = _mark(log)
    for deed in (
        lambda: log.append(AppendRequest([message("refused")], check=check)),
        lambda: context.backend.delete("s", check=check),
        lambda: context.backend.delete("s", check=check, timeout=0.0),
    ):
        with pytest.raises(Held):
            deed()
    assert everything(log) == [*before, event, mark]
    with pytest.raises(SessionNotFound):
        context.backend.delete("missing", check=check)


@two_handles
@pytest.mark.parametrize("is_deletion", [True, False])
def test_nothing_is_appended_between_a_check_and_its_deed(
    context: Context, is_deletion: bool
) -> None:
    """F-169: no event that a check would refuse is stored between it and the append that it allowed."""
    backend, other = context.backend, context.other()
    outcomes = set()
    for number in range(20):
        session_id = f"s{number}"
        log = context.log(session_id)
        append(log, [message("first")])
        check = _checks(backend, session_id)

        def deed(
            session_id: str = session_id, log: Log = log, check: Callable[[], None] = check
        ) -> object:
            if is_deletion:
                return backend.delete(session_id, check=check)
            return log.append(AppendRequest([message("checked")], check=check))

        jobs = [
            partial(succeeds, do, Held, SessionDeleted)
            for do in (deed, partial(_mark, other.log(session_id)))
        ]
        turn = 1 if number % 2 else -1
        done, marked = together(jobs[::turn])[::turn]
        if is_deletion:
            assert done != marked
        else:
            kinds = [event.kind for event in everything(log)]
            assert marked
            assert kinds == (
                ["message.added", "message.added", "session.held"]
                if done
                else ["message.added", "session.held"]
            )
        outcomes.add(done)
    assert outcomes


def test_a_purged_session_is_gone_for_good(context: Context) -> None:
    """After `purge`, a session is neither listed nor in the trash, and its id is free for a new one."""
    backend = context.backend
    log = context.log()
    mixed(log)
    append(context.log("other"), [message("stays")])
    backend.delete("s")
    backend.purge("s")
    assert list(backend.ids(trash=True)) == []
    assert list(backend.ids()) == ["other"]
    for handle in (log, context.log()):
        assert (handle.reader().head(), handle.reader().first()) == (None, None)
        assert everything(handle) == []
    assert backend.log("s", from_trash=True).reader().head() is None
    with pytest.raises(SessionNotFound):
        backend.restore("s")
    (event,) = append(log, [message("new")], key="k0", new_only=True)
    assert event.seq == 1
    for handle in (log, context.log(), backend.log("s", from_trash=True)):
        assert contents(everything(handle)) == ["new"]
        assert there(handle.reader().first(), "first").stamp == event.stamp
    assert contents(everything(context.log("other"))) == ["stays"]


def test_of_purge_and_restore_one_wins(context: Context) -> None:
    """Of a `purge` and a `restore` at the same time, exactly one succeeds, completely."""
    for number in range(20):
        session_id = f"s{number}"
        before = append(context.log(session_id), [message(1), message(2)])
        context.backend.delete(session_id)

        purged, restored = together(
            [
                partial(succeeds, partial(do, session_id), SessionNotFound, SessionDeleted)
                for do in (context.backend.purge, context.backend.restore)
            ]
        )
        assert purged != restored, f"purged: {purged}, restored: {restored}"
        assert everything(context.log(session_id)) == (before if restored else [])


def test_the_audit_log_is_no_session(context: Context) -> None:
    """F-58: the audit log keeps events like a session; no id leads to it. test_cursors has the listings."""
    backend = context.backend
    assert everything(backend.internal(AUDIT)) == []
    events = [
        event for number in range(3) for event in append(backend.internal(AUDIT), [_record(number)])
    ]
    assert [event.seq for event in events] == [1, 2, 3]
    assert everything(backend.internal(AUDIT)) == events
    assert backend.internal(AUDIT).verify() == []
    assert backend.internals() == [AUDIT]
    for session_id in ("~audit", "audit", "\x01audit", "internal/audit", "../internal/audit"):
        assert context.log(session_id).reader().head() is None, f"head of {session_id!r}"
        with suppress(SessionNotFound):
            backend.delete(session_id)
    assert everything(backend.internal(AUDIT)) == events


def test_of_a_whole_session_everything_is_salvaged(context: Context) -> None:
    """`salvage` of a valid session yields all of its events, in order, and nothing else."""
    assert list(context.log("missing").salvage()) == []
    before = mixed(context.log(), rounds=3)
    assert list(context.log().salvage()) == list(before)
    context.backend.delete("s")
    with pytest.raises(SessionDeleted):
        list(context.log().salvage())
    assert list(context.backend.log("s", from_trash=True).salvage()) == list(before)


@two_handles
def test_purging_is_seen_by_other_handles(context: Context) -> None:
    """What one handle purges is missing for another that had it open; a later session is new."""
    mine, other = context.log(), context.other()
    mixed(mine)
    theirs, trashed = other.log("s"), other.log("s", from_trash=True)
    assert len(everything(theirs)) == len(everything(trashed))
    context.backend.delete("s")
    assert list(other.ids(trash=True)) == ["s"]
    context.backend.purge("s")
    for log in (theirs, trashed):
        assert log.reader().head() is None
    (event,) = append(theirs, [message("new")])
    assert event.seq == 1
    for log in (mine, theirs, trashed):
        assert contents(everything(log)) == ["new"]
    append(other.internal(AUDIT), [_record(1)])
    assert len(everything(context.backend.internal(AUDIT))) == 1
