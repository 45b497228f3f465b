"""Checks of compaction: content stays the same, and redacted data is erased."""

import msgspec
import pytest

from hansard.backend.contract import CompactionFilter
from hansard.errors import SeqConflict, SessionDeleted, SessionNotFound
from hansard.event.event import Event, NewEvent
from tests.contract.backends import (
    Context,
    answers,
    append,
    everything,
    message,
    mixed,
    there,
    together,
    two_handles,
)

_LEVEL = 1

#: Compact, and forget nothing.
NOTHING = CompactionFilter(lambda event: event)

_INSTEAD = b'{"message":null,"redacted":true}'


def _without(*seqs: int) -> CompactionFilter:
    """Return what forgets the data of some events."""

    def mask(event: Event) -> Event:
        if event.seq not in seqs:
            return event
        return Event(event.seq, event.stamp, event.kind, _INSTEAD, event.key)

    return CompactionFilter(mask, dict.fromkeys(seqs, b""))


def test_compaction_changes_nothing_that_is_said(context: Context) -> None:
    """Events, control events, the first one and the head are after a compaction what they were before."""
    log = context.log()
    for _round in range(3):
        mixed(log)
        before = answers(log.reader())
        for _ in range(2):
            log.compact(NOTHING, level=_LEVEL)
            assert (answers(log.reader()), log.verify()) == (before, [])
    assert there(log.reader().head(), "head").seq == 32


def test_a_compacted_session_continues(context: Context) -> None:
    """Appends, expected seqs and waiting continue after a compaction."""
    log = context.log()
    mixed(log)
    log.compact(NOTHING, level=_LEVEL)
    with pytest.raises(SeqConflict):
        append(log, [message("x")], expected_seq=11)
    (event,) = append(log, [message("next")], expected_seq=12)
    assert event.seq == 13
    assert log.wait(12, 60.0)
    assert everything(log, 12) == [event]


def test_keys_survive_compaction(context: Context) -> None:
    """A key that was given before a compaction counts once, and its events are returned."""
    log = context.log()
    first = append(log, [message("a"), message("b")], key="k")
    for number in range(3):
        append(log, [message(number)], key=f"k{number}")
        log.compact(NOTHING, level=_LEVEL)
    assert append(log, [message("again"), message("x")], key="k") == first
    assert there(log.reader().head(), "head").seq == 5


def test_what_is_to_be_forgotten_is_gone(context: Context) -> None:
    """The data of an event that is to be forgotten are replaced; its place, time, kind and key stay."""
    log = context.log()
    (secret,) = append(log, [message("secret")], key="k")
    append(log, [message("kept")])
    log.compact(NOTHING, level=_LEVEL)
    done = log.compact(_without(secret.seq), level=_LEVEL)
    assert done.blanked == 1
    (found, other) = everything(log)
    assert found == msgspec.structs.replace(secret, raw=_INSTEAD)
    assert other.raw == message("kept").data
    assert log.compact(_without(secret.seq), level=_LEVEL).blanked == 0
    assert append(log, [message("x")], key="k")[0].seq == secret.seq


def test_what_was_said_before_a_bound_is_gone(context: Context) -> None:
    """Before a bound, messages are removed and control events stay; a second compaction removes nothing."""
    log = context.log()
    said = [
        event for number in range(8) for event in append(log, [message(number)], key=f"{number}")
    ]
    done = append(log, [NewEvent("metadata.set", b'{"metadata":{"n":1}}', control=True)])
    append(log, [message("kept")])
    log.compact(NOTHING, level=_LEVEL)
    before = everything(log)

    def mask(event: Event) -> Event:
        if event.seq >= bound or event.kind != "message.added":
            return event
        return Event(event.seq, event.stamp, event.kind, _INSTEAD, event.key)

    forget = CompactionFilter(mask)
    for bound, erased in ((5, 4), (5, 0), (10, 4), (10, 0)):
        blanked = log.compact(msgspec.structs.replace(forget, before=bound), level=_LEVEL).blanked
        assert blanked == erased, f"the number of events erased before {bound}"
        assert everything(log) == [mask(event) for event in before]
    assert log.reader().controls() == done
    assert append(log, [message("x")], key="3")[0].seq == said[3].seq


def test_appends_and_compaction_at_the_same_time(context: Context) -> None:
    """What is appended while others compact is there once, in order."""
    log = context.log()
    append(log, [message("first")])

    def write(name: str) -> None:
        for number in range(30):
            append(log, [message(f"{name}{number}")])

    def compact() -> None:
        for _ in range(10):
            log.compact(NOTHING, level=_LEVEL)

    together([lambda: write("a"), lambda: write("b"), compact])
    events = everything(log)
    assert [event.seq for event in events] == list(range(1, 62))
    said = [event.data["message"]["content"] for event in events]
    for name in "ab":
        wanted = [f"{name}{number}" for number in range(30)]
        assert [text for text in said if text[0] == name] == wanted, f"the messages of {name}"
    assert log.verify() == []


def test_what_is_not_there_cannot_be_compacted(context: Context) -> None:
    """Compacting what does not exist, or was deleted, is an error; restored, a session can be compacted."""
    with pytest.raises(SessionNotFound):
        context.log("missing").compact(NOTHING, level=_LEVEL)
    assert "missing" not in set(context.backend.ids())
    log = context.log()
    mixed(log)
    before = everything(log)
    context.backend.delete("s")
    with pytest.raises(SessionDeleted):
        log.compact(NOTHING, level=_LEVEL)
    context.backend.restore("s")
    log.compact(NOTHING, level=_LEVEL)
    assert everything(log) == before


@two_handles
def test_a_compacted_session_is_the_same_elsewhere(context: Context) -> None:
    """A handle that was opened before a compaction through another one reads, appends and finds keys."""
    log = context.log()
    other = context.other().log("s")
    append(log, [message("a")], key="k")
    mixed(other)
    log.compact(NOTHING, level=_LEVEL)
    assert everything(other) == everything(log)
    assert append(other, [message("b")], key="k")[0].seq == 1
    assert append(other, [message("c")])[0].seq == 14
    other.compact(NOTHING, level=_LEVEL)
    assert answers(other.reader()) == answers(log.reader())
