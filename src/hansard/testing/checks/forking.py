"""Checks of what forks and streams are made of: `before`, `first`, `ancestor`, `durable=False`, `sync`."""

from hansard.backend.contract import Log
from hansard.errors import Closed, SeqConflict, SessionDeleted, SessionExists
from hansard.event.envelope import Event
from hansard.testing.checks.base import (
    Context,
    check,
    contents,
    equal,
    everything,
    expect,
    message,
    metadata,
    mixed,
    raises,
    there,
)

#: How long to wait for what is there already.
_SOON = 2.0


def _back(log: Log, upto: int | None = None, after: int = 0) -> list[Event]:
    """Return the events that `read_back` yields, in order."""
    chunks = [chunk.events() for chunk in log.read_back(upto, after)]
    return [event for chunk in reversed(chunks) for event in chunk]


# -- before -------------------------------------------------------------------------------------


@check("before")
def a_session_can_begin_at_any_seq(context: Context) -> None:
    """A session that is made with `before` has its first event at the next seq, and goes on from there."""
    for before in (1, 10, 2**40):
        log = context.log(f"s{before}")
        events = log.append([message("a"), metadata(n=1)], new_only=True, before=before)
        equal([event.seq for event in events], [before + 1, before + 2], "seqs of the first append")
        events += log.append([message("b")])
        head = there(log.head(), "head")
        equal((head.seq, events[-1].seq), (before + 3, before + 3), "seq after the next append")
        equal(log.controls(), [events[1]], "control events")
        equal(log.controls(before + 1), [], "control events up to a seq before them")
        expect(log.wait(before + 2, _SOON), "wait does not see the last event")
        expect(not log.wait(before + 3, 0.0), "wait sees an event that is not there")
        equal(log.verify(), [], "findings")


@check("before")
def ranges_of_a_session_that_begins_late_are_by_seq(context: Context) -> None:
    """Each range, forwards and backwards, holds the events of these seqs; before the first there are none."""
    log = context.log()
    log.append([metadata(n=0)], new_only=True, before=4)
    mixed(log)
    events = everything(log)
    equal([event.seq for event in events], list(range(5, 18)), "seqs")
    for after in range(19):
        for upto in [None, *range(19)]:
            end = 17 if upto is None else upto
            wanted = [event for event in events if after < event.seq <= end]
            equal(everything(log, after, upto), wanted, f"read({after}, {upto})")
            equal(_back(log, upto, after), wanted, f"read_back({upto}, {after})")
            for chunk in log.read(after, upto):
                seqs = [seq for seq, _ in chunk.messages()]
                equal([seq for seq, _ in chunk.messages_json()], seqs, "seqs of messages")


@check("before")
def before_counts_only_for_what_begins(context: Context) -> None:
    """`before` says nothing to a session that exists: its seqs go on without a gap."""
    log = context.log()
    log.append([message("a")])
    (event,) = log.append([message("b")], before=10)
    equal(event.seq, 2, "seq of an append with `before`")
    equal([found.seq for found in everything(log)], [1, 2], "seqs")


@check("before")
def what_does_not_exist_is_at_0_wherever_it_begins(context: Context) -> None:
    """`expected_seq=0` matches a session that does not exist, also with `before`; then its own seq does."""
    log = context.log()
    with raises(SeqConflict, "expected_seq=7 of a session that does not exist"):
        log.append([message("a")], expected_seq=7, before=7)
    equal(log.head(), None, "head after a conflict")
    log.append([message("a")], expected_seq=0, before=7, key="k")
    with raises(SeqConflict, "expected_seq=0 of a session that begins late") as caught:
        log.append([message("b")], expected_seq=0)
    equal((caught[0].expected, caught[0].actual), (0, 8), "what the conflict says")
    with raises(SessionExists, "new_only of a session that begins late"):
        log.append([message("b")], new_only=True, before=7)
    (event,) = log.append([message("b")], expected_seq=8)
    equal(event.seq, 9, "seq")


@check("before")
def keys_of_a_session_that_begins_late_count_once(context: Context) -> None:
    """A key of the first append, and of a later one, returns its own events, with their seqs."""
    log = context.log()
    first = log.append([message("a"), message("b")], key="k", before=100)
    second = log.append([message("c")], key="l")
    equal(log.append([message("x")], key="k", before=3), first, "events of the first key")
    equal(log.append([message("x")], key="l"), second, "events of the second key")
    equal(len(everything(log)), 3, "events")


# -- first --------------------------------------------------------------------------------------


@check("first")
def first_is_the_first_event_of_the_session_itself(context: Context) -> None:
    """`first` is None for no session, and then the first event, whatever follows it."""
    for before in (0, 5):
        log = context.log(f"s{before}")
        equal(log.first(), None, "first of a session that does not exist")
        events = log.append([metadata(n=1), message("a")], before=before)
        equal(log.first(), events[0], "first")
        mixed(log)
        equal(log.first(), events[0], "first after more events")
        equal(context.backend.log(f"s{before}").first(), events[0], "first of another handle")


@check("first")
def first_of_a_deleted_session_is_an_error(context: Context) -> None:
    """`first` raises `SessionDeleted` in the trash, and is of the new session once the name is another's."""
    log = context.log()
    (old,) = log.append([message("old")])
    context.backend.delete("s")
    with raises(SessionDeleted, "first of a deleted session"):
        log.first()
    context.backend.restore("s")
    equal(log.first(), old, "first after restore")
    context.backend.delete("s")
    context.backend.purge("s")
    equal(log.first(), None, "first of a purged session")
    (new,) = log.append([message("new")], before=3)
    equal(log.first(), new, "first of another session with the name")


# -- ancestor -----------------------------------------------------------------------------------


@check("ancestor")
def an_ancestor_reads_like_the_session(context: Context) -> None:
    """`ancestor` gives the same events, head, first and controls as `log`, also of what comes later."""
    ancestor = context.backend.ancestor("s")
    equal((ancestor.head(), ancestor.first()), (None, None), "what does not exist")
    equal(everything(ancestor), [], "events of what does not exist")
    log = context.log()
    for _ in range(2):
        mixed(log)
        _same(ancestor, log)
    equal(list(context.backend.ids()), ["s"], "ids")


def _same(ancestor: Log, log: Log) -> None:
    equal(ancestor.head(), log.head(), "head")
    equal(ancestor.first(), log.first(), "first")
    equal(ancestor.controls(), log.controls(), "control events")
    equal(ancestor.controls(4), log.controls(4), "control events up to a seq")
    equal(everything(ancestor), everything(log), "events")
    equal(everything(ancestor, 2, 5), everything(log, 2, 5), "events of a range")
    equal(_back(ancestor, 5, 2), _back(log, 5, 2), "events of a range, backwards")


@check("ancestor")
def an_ancestor_can_be_read_from_the_trash(context: Context) -> None:
    """What was forked from a deleted session reads it from the trash; nobody else does."""
    log = context.log()
    events = mixed(log)
    head = log.head()
    warm = context.backend.ancestor("s")
    equal(everything(warm), events, "events")
    context.backend.delete("s")
    for ancestor in (warm, context.backend.ancestor("s")):
        equal(everything(ancestor), events, "events in the trash")
        equal(_back(ancestor), events, "events in the trash, backwards")
        equal(ancestor.first(), events[0], "first in the trash")
        seqs = [event.seq for event in ancestor.controls()]
        equal(seqs, [2, 4, 8, 10], "control events in the trash")
        found = there(ancestor.head(), "head in the trash")
        equal((found.seq, found.created), (12, there(head, "head").created), "head in the trash")
    with raises(SessionDeleted, "log() of a deleted session"):
        log.head()
    context.backend.restore("s")
    more = log.append([message("more")])
    for ancestor in (warm, context.backend.ancestor("s")):
        equal(everything(ancestor), [*events, *more], "events after restore")


@check("handles")
def another_handle_reads_ancestors_from_the_trash(context: Context) -> None:
    """A handle whose ancestor another handle deletes, restores and appends to sees the same session."""
    log, other = context.log(), context.other()
    events = mixed(log)
    warm = other.ancestor("s")
    equal(everything(warm), events, "events")
    context.backend.delete("s")
    equal(everything(warm), events, "events after another handle's delete")
    equal(everything(context.other().ancestor("s")), events, "events of a handle that comes later")
    context.backend.restore("s")
    events += log.append([metadata(n=9)])
    equal(everything(warm), events, "events after another handle's append")
    equal(warm.controls()[-1], events[-1], "the last control event")


# -- durable, sync ------------------------------------------------------------------------------


@check("sync")
def what_is_not_durable_yet_can_be_read_at_once(context: Context) -> None:
    """Events that need not be durable are there like any others, in order, before and after a `sync`."""
    log = context.log()
    first = log.append([message("a")], durable=False)
    equal(everything(log), first, "events")
    first += log.append([message("b"), metadata(n=1)], durable=False, key="k")
    first += log.append([message("c")])
    first += log.append([message("d")], durable=False, expected_seq=4)
    for _ in range(2):
        equal([event.seq for event in everything(log)], [1, 2, 3, 4, 5], "seqs")
        equal(contents(everything(log)), ["a", "b", "c", "d"], "contents")
        equal(log.append([message("x")], key="k", durable=False), first[1:3], "events of the key")
        log.sync()
    with raises(SeqConflict, "a wrong expected_seq"):
        log.append([message("x")], expected_seq=1, durable=False)


@check("handles")
def what_is_not_durable_yet_is_seen_by_other_handles(context: Context) -> None:
    """Another handle sees what need not be durable at once, and can `sync` what it did not write."""
    log, other = context.log(), context.other()
    log.append([message("a")], durable=False)
    theirs = other.log("s")
    equal(contents(everything(theirs)), ["a"], "contents")
    log.append([message("b")], durable=False)
    theirs.sync()
    theirs.append([message("c")], durable=False)
    equal(contents(everything(log)), ["a", "b", "c"], "contents")
    log.sync()


@check("sync")
def a_closed_backend_syncs_nothing(context: Context) -> None:
    """`sync` and `first` of a closed backend, and its ancestors, raise `Closed`."""
    log = context.log()
    log.append([message("a")])
    ancestor = context.backend.ancestor("s")
    context.backend.close()
    for call in (log.sync, log.first, ancestor.head, ancestor.first):
        with raises(Closed, "a call after close"):
            call()
