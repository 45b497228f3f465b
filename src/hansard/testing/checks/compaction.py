"""Checks of compaction: what is rewritten says what it said, and what is to be forgotten is gone."""

import msgspec

from hansard.backend.contract import Forget, Log
from hansard.errors import SeqConflict, SessionDeleted, SessionNotFound
from hansard.event import codec
from hansard.event.envelope import Draft, Event
from hansard.event.kinds import MESSAGE_PART
from hansard.testing.checks.base import (
    Context,
    check,
    equal,
    everything,
    expect,
    message,
    mixed,
    raises,
    there,
    together,
)

_LEVEL = 1

#: Compact, and forget nothing.
NOTHING = Forget(lambda event: event, frozenset(), frozenset(), lambda _seq, _ended: False)

_INSTEAD = b'{"message":null,"redacted":true}'


def _without(*seqs: int) -> Forget:
    """Return what forgets the data of some events."""

    def mask(event: Event) -> Event:
        if event.seq not in seqs:
            return event
        return Event(event.seq, event.stamp, event.kind, _INSTEAD, event.key)

    return Forget(mask, frozenset(seqs), frozenset(), lambda _seq, _ended: False)


def _everything_said(log: Log) -> list[object]:
    """Return all that a log says."""
    head = there(log.head(), "head")
    backwards = [event for chunk in log.read_back() for event in reversed(chunk.events())]
    return [
        everything(log),
        everything(log, 3, 7),
        backwards[::-1],
        log.controls(),
        log.first(),
        (head.seq, head.created, head.updated),
        log.verify(),
    ]


@check("compact")
def compaction_changes_nothing_that_is_said(context: Context) -> None:
    """Events, control events, the first one and the head are after a compaction what they were before."""
    log = context.log()
    for _ in range(3):
        mixed(log)
        before = _everything_said(log)
        log.compact(NOTHING, level=_LEVEL)
        equal(_everything_said(log), before, "a compacted session")
        log.compact(NOTHING, level=_LEVEL)
        equal(_everything_said(log), before, "a session compacted twice")
    equal(there(log.head(), "head").seq, 32, "the last seq, with two keys that were known")


@check("compact")
def a_compacted_session_goes_on(context: Context) -> None:
    """Appends, expected seqs and waiting go on behind a compaction, where the session was."""
    log = context.log()
    mixed(log)
    log.compact(NOTHING, level=_LEVEL)
    with raises(SeqConflict, "a wrong seq behind a compaction"):
        log.append([message("x")], expected_seq=11)
    (event,) = log.append([message("next")], expected_seq=12)
    equal(event.seq, 13, "the next seq")
    expect(log.wait(12, 1.0), "the next event was not waited for")
    equal(everything(log, 12), [event], "what was appended behind a compaction")


@check("compact")
def keys_survive_compaction(context: Context) -> None:
    """A key that was given before a compaction counts once, and its events are returned."""
    log = context.log()
    first = log.append([message("a"), message("b")], key="k")
    for number in range(3):
        log.append([message(number)], key=f"k{number}")
        log.compact(NOTHING, level=_LEVEL)
    equal(log.append([message("again")], key="k"), first, "the events of a key")
    equal(there(log.head(), "head").seq, 5, "the last seq")


@check("compact")
def what_is_to_be_forgotten_is_gone(context: Context) -> None:
    """The data of an event that is to be forgotten are replaced; its place, time, kind and key stay."""
    log = context.log()
    (secret,) = log.append([message("secret")], key="k")
    log.append([message("kept")])
    log.compact(NOTHING, level=_LEVEL)
    done = log.compact(_without(secret.seq), level=_LEVEL)
    equal(done.blanked, 1, "the number of events whose data went")
    (found, other) = everything(log)
    equal(found, msgspec.structs.replace(secret, raw=_INSTEAD), "the event whose data went")
    equal(other.raw, message("kept").data, "the data of another event")
    equal(log.compact(_without(secret.seq), level=_LEVEL).blanked, 0, "what went a second time")
    equal(
        log.append([message("x")], key="k")[0].seq, secret.seq, "the key of an event without data"
    )


@check("compact")
def what_was_said_before_a_bound_is_gone(context: Context) -> None:
    """Before a bound, what was said goes and what was done stays; compacted again, nothing more goes."""
    log = context.log()
    said = [
        event for number in range(8) for event in log.append([message(number)], key=f"{number}")
    ]
    done = log.append([Draft("metadata.set", b'{"metadata":{"n":1}}', control=True)])
    log.append([message("kept")])
    log.compact(NOTHING, level=_LEVEL)
    before = everything(log)

    def mask(event: Event) -> Event:
        if event.seq >= bound or event.kind != "message.added":
            return event
        return Event(event.seq, event.stamp, event.kind, _INSTEAD, event.key)

    forget = Forget(mask, frozenset(), frozenset(), lambda _seq, _ended: False)
    for bound, gone in ((5, 4), (5, 0), (10, 4), (10, 0)):
        blanked = log.compact(forget._replace(before=bound), level=_LEVEL).blanked
        equal(blanked, gone, f"the number of events that went before {bound}")
        equal(everything(log), [mask(event) for event in before], "the events")
    equal(log.controls(), done, "the control events")
    equal(log.append([message("x")], key="3")[0].seq, said[3].seq, "the key of an event that went")


@check("compact")
def parts_stay_unless_they_may_go(context: Context) -> None:
    """What parts of a stream say stays if it may not go, and the whole message stays in any case."""
    log = context.log()
    for text in ("a", "b"):
        part = codec.encode({"stream": "st", "text": text})
        log.append([Draft(MESSAGE_PART, part, control=False)])
    whole = codec.encode({"message": {"role": "user", "content": "ab"}, "stream": "st"})
    log.append([Draft("message.added", whole, control=False)])
    before = everything(log)
    log.compact(NOTHING, level=_LEVEL)
    equal(everything(log), before, "parts that may not go")
    log.compact(NOTHING._replace(drop_part=lambda _seq, _ended: True), level=_LEVEL)
    equal(everything(log)[2], before[2], "the whole message")
    equal([event.seq for event in everything(log)], [1, 2, 3], "the seqs")


@check("compact")
def who_reads_reads_on_beside_compaction(context: Context) -> None:
    """A reading that was begun before a compaction ends as it would have without."""
    log = context.log()
    expected = [event for number in range(30) for event in log.append([message(number)])]
    chunks = log.read()
    log.compact(NOTHING, level=_LEVEL)
    log.append([message("later")])
    log.compact(NOTHING, level=_LEVEL)
    found = [event for chunk in chunks for event in chunk.events()]
    equal(found[:30], expected, "what a reader finds that began before")
    expect(len(found) in {30, 31}, "a reader found an event twice")


@check("compact")
def appends_and_compaction_at_the_same_time(context: Context) -> None:
    """What is appended while others compact is there once, in order."""
    log = context.log()
    log.append([message("first")])

    def append(name: str) -> None:
        for number in range(30):
            log.append([message(f"{name}{number}")])

    def compact() -> None:
        for _ in range(10):
            log.compact(NOTHING, level=_LEVEL)

    together([lambda: append("a"), lambda: append("b"), compact])
    events = everything(log)
    equal([event.seq for event in events], list(range(1, 62)), "the seqs")
    said = [event.data["message"]["content"] for event in events]
    for name in "ab":
        wanted = [f"{name}{number}" for number in range(30)]
        equal([text for text in said if text[0] == name], wanted, f"the messages of {name}")
    equal(log.verify(), [], "what is wrong afterwards")


@check("compact")
def what_is_not_there_cannot_be_compacted(context: Context) -> None:
    """Compacting what does not exist, or was deleted, is an error; restored, a session can be compacted."""
    with raises(SessionNotFound, "compacting what was never begun"):
        context.log("nobody").compact(NOTHING, level=_LEVEL)
    expect("nobody" not in set(context.backend.ids()), "compacting has made a session")
    log = context.log()
    mixed(log)
    before = everything(log)
    context.backend.delete("s")
    with raises(SessionDeleted, "compacting what was deleted"):
        log.compact(NOTHING, level=_LEVEL)
    context.backend.restore("s")
    log.compact(NOTHING, level=_LEVEL)
    equal(everything(log), before, "a session that was restored and compacted")


@check("handles")
def a_compacted_session_is_the_same_elsewhere(context: Context) -> None:
    """A handle that was opened before a compaction through another one reads, appends and finds keys."""
    log = context.log()
    other = context.other().log("s")
    log.append([message("a")], key="k")
    mixed(other)
    log.compact(NOTHING, level=_LEVEL)
    equal(everything(other), everything(log), "the events elsewhere")
    equal(other.append([message("b")], key="k")[0].seq, 1, "a key elsewhere")
    equal(other.append([message("c")])[0].seq, 14, "the next seq elsewhere")
    other.compact(NOTHING, level=_LEVEL)
    equal(_everything_said(other), _everything_said(log), "what both say")
