"""Checks of forks and streams: where sessions begin, `first`, `ancestor`, `durable=False`, `sync`."""

import pytest

from hansard.errors import SeqConflict, SessionDeleted, SessionExists
from tests.contract.backends import (
    Context,
    answers,
    append,
    begin,
    contents,
    everything,
    is_first,
    message,
    metadata,
    mixed,
    there,
    two_handles,
)

#: Seconds to wait for something that exists already.
_SOON = 2.0


def test_a_session_can_begin_at_any_seq(context: Context) -> None:
    """A session that begins after a seq has its first event at the next one, and continues from there.

    A key of the first append, and of a later one, returns its own events, with their seqs.
    """
    for before in (1, 10, 2**40):
        log = context.log(f"s{before}")
        events = begin(context, [message("a"), metadata(n=1)], before, log.session_id, key="k")
        assert [event.seq for event in events] == [before + 1, before + 2]
        events += append(log, [message("b")], key="l")
        assert append(log, [message("x"), metadata(n=2)], key="k") == events[:2]
        assert append(log, [message("x")], key="l") == events[2:]
        head = there(log.reader().head(), "head")
        assert (head.seq, events[-1].seq) == (before + 3, before + 3)
        assert log.reader().controls() == [events[1]]
        assert log.reader().controls(before + 1) == []
        assert log.wait(before + 2, _SOON)
        assert not log.wait(before + 3, 0.0)
        assert log.verify() == []


def test_what_does_not_exist_is_at_0_wherever_it_begins(context: Context) -> None:
    """Only `expected_seq=0` matches a session that does not exist; then its own seq does."""
    log = context.log()
    with pytest.raises(SeqConflict):
        append(log, [message("a")], expected_seq=7)
    assert log.reader().head() is None
    begin(context, [message("a")], 7)
    with pytest.raises(SeqConflict) as caught:
        append(log, [message("b")], expected_seq=0)
    assert (caught.value.expected, caught.value.actual) == (0, 8)
    with pytest.raises(SessionExists):
        append(log, [message("b")], new_only=True)
    (event,) = append(log, [message("b")], expected_seq=8)
    assert event.seq == 9


def test_first_is_the_first_event_of_the_session_itself(context: Context) -> None:
    """`first` is None without a session, and then the first event."""
    for before in (0, 5):
        log = context.log(f"s{before}")
        assert log.reader().first() is None
        events = begin(context, [metadata(n=1), message("a")], before, log.session_id)
        assert is_first(log, events[0])
        mixed(log)
        assert is_first(log, events[0])
        assert is_first(context.backend.log(f"s{before}"), events[0])


def test_an_ancestor_can_be_read_from_the_trash(context: Context) -> None:
    """Forks of a deleted session read it from the trash; other callers cannot."""
    log = context.log()
    events = mixed(log)
    before = answers(log.reader())
    warm = context.backend.log("s", from_trash=True)
    assert answers(warm.reader()) == before
    context.backend.delete("s")
    for ancestor in (warm, context.backend.log("s", from_trash=True)):
        assert answers(ancestor.reader()) == before
    with pytest.raises(SessionDeleted):
        log.reader().head()
    context.backend.restore("s")
    more = append(log, [message("more")])
    for ancestor in (warm, context.backend.log("s", from_trash=True)):
        assert everything(ancestor) == [*events, *more]


@two_handles
def test_another_handle_reads_ancestors_from_the_trash(context: Context) -> None:
    """A handle whose ancestor another handle deletes, restores and appends to sees the same session."""
    log, other = context.log(), context.other()
    events = mixed(log)
    warm = other.log("s", from_trash=True)
    assert everything(warm) == events
    context.backend.delete("s")
    assert everything(warm) == events
    assert everything(context.other().log("s", from_trash=True)) == events
    context.backend.restore("s")
    events += append(log, [metadata(n=9)])
    assert everything(warm) == events
    assert warm.reader().controls()[-1] == events[-1]


def test_what_is_not_durable_yet_can_be_read_at_once(context: Context) -> None:
    """Events that need not be durable are there like any others, in order, before and after a `sync`."""
    log = context.log()
    first = append(log, [message("a")], durable=False)
    assert everything(log) == first
    first += append(log, [message("b"), metadata(n=1)], durable=False, key="k")
    first += append(log, [message("c")])
    first += append(log, [message("d")], durable=False, expected_seq=4)
    for _ in range(2):
        assert [event.seq for event in everything(log)] == [1, 2, 3, 4, 5]
        assert contents(everything(log)) == ["a", "b", "c", "d"]
        again = append(log, [message("x"), metadata(n=2)], durable=False, key="k")
        assert again == first[1:3]
        log.sync()
    with pytest.raises(SeqConflict):
        append(log, [message("x")], expected_seq=1, durable=False)


@two_handles
def test_what_is_not_durable_yet_is_seen_by_other_handles(context: Context) -> None:
    """Another handle sees events that are not durable yet, and can `sync` events that it did not write."""
    log, other = context.log(), context.other()
    append(log, [message("a")], durable=False)
    theirs = other.log("s")
    assert contents(everything(theirs)) == ["a"]
    append(log, [message("b")], durable=False)
    theirs.sync()
    append(theirs, [message("c")], durable=False)
    assert contents(everything(log)) == ["a", "b", "c"]
    log.sync()
