"""Checks of `Log.append`: one event, batches, `expected_seq`, `new_only`, keys, threads."""

import re
from functools import partial

import msgspec
import pytest

from hansard.backend.contract import Log
from hansard.errors import InvalidEvent, SeqConflict, SessionExists
from hansard.event import codec
from hansard.event.event import Event, NewEvent
from tests.contract.backends import (
    Context,
    append,
    contents,
    everything,
    message,
    metadata,
    mixed,
    succeeds,
    there,
    together,
)

_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def test_what_append_returns_is_what_is_read(context: Context) -> None:
    """Appended events are returned exactly as every later read gives them, with seqs 1, 2, 3 …."""
    log = context.log()
    returned = mixed(log)
    assert [event.seq for event in returned] == list(range(1, len(returned) + 1))
    assert everything(log) == returned


def test_data_come_back_as_the_bytes_that_went_in(context: Context) -> None:
    """N-15, N-36, N-64: data are stored verbatim: order of keys, numbers, separators, hostile names."""
    log = context.log()
    samples = [
        {"z": 1, "a": {"y": 2, "b": 3}},
        {"float": 1.0, "tiny": 5e-324, "minus": -0.0, "integer": 10**30, "deep": [[[[]]]]},
        {"text": '\u2028 \u2029 \x85 \x0b \x0c \r \n \t \x00 \u00e9 e\u0301 \U0001f600 " \\'},
        {"__class__": "x", "__proto__": {}, "seq": 7, "crc": "00000000", "": None},
        {"end": '","crc":"00000000"}\n'},
        {},
    ]
    kinds = ["x.sample", "future.kind", "X", "a" * 100, "!#[]~", "x.a"]
    drafts = [
        NewEvent(kind, codec.encode(sample), control=False)
        for kind, sample in zip(kinds, samples, strict=True)
    ]
    for one in drafts:
        append(log, [one])
    append(log, drafts)
    events = everything(log)
    assert [event.raw for event in events] == [one.data for one in drafts] * 2
    assert [event.kind for event in events] == kinds * 2


def test_stamps_are_times_in_utc(context: Context) -> None:
    """Every event has the time at which it was written; one copied from elsewhere keeps its own."""
    log = context.log()
    (event,) = append(log, [message("now")])
    assert _STAMP.fullmatch(event.stamp), f"not a time in UTC with microseconds: {event.stamp!r}"
    then = "2001-02-03T04:05:06.000007Z"
    (copied,) = append(log, [msgspec.structs.replace(message("then"), time=then)])
    assert copied.stamp == then
    assert [one.stamp for one in everything(log)] == [event.stamp, then]
    assert there(log.reader().head(), "head").updated == then


def test_the_head_says_where_the_session_stands(context: Context) -> None:
    """The head has the last seq, the last event's time, and a beginning that never changes."""
    log = context.log()
    append(log, [message("first")])
    first = there(log.reader().head(), "head after an append")
    assert first.updated == everything(log)[-1].stamp
    assert first.created <= first.updated
    size = log.reader().size()
    assert size > 0
    events = mixed(log)
    last = there(log.reader().head(), "head after more appends")
    assert (last.seq, last.created) == (1 + len(events), first.created)
    assert last.updated == events[-1].stamp
    assert log.reader().size() > size


def test_a_refused_batch_leaves_nothing(context: Context) -> None:
    """If a batch's condition does not hold, none of its events is appended."""
    log = context.log()
    append(log, [message("there")])
    with pytest.raises(SeqConflict):
        append(log, [message(1), metadata(two=2), message(3)], key="k", expected_seq=7)
    assert contents(everything(log)) == ["there"]
    assert log.reader().controls() == []
    assert len(append(log, [message("now")], key="k")) == 1


def test_no_reader_sees_half_a_batch(context: Context) -> None:
    """While one thread appends batches, another thread reads complete ones only."""
    log = context.log()
    size, rounds = 7, 30

    def write() -> None:
        for number in range(rounds):
            append(log, [message([number, place]) for place in range(size)])

    def read() -> None:
        seen = 0
        while seen < size * rounds:
            found = everything(log)
            assert len(found) % size == 0
            assert len(found) >= seen
            seen = len(found)

    together([write, read])


def test_an_append_needs_the_expected_seq(context: Context) -> None:
    """`expected_seq` is the last seq, 0 without a session; another one raises `SeqConflict`."""
    log = context.log()
    with pytest.raises(SeqConflict):
        append(log, [message("a")], expected_seq=1)
    assert log.reader().head() is None
    assert list(context.backend.ids()) == []
    append(log, [message("a")], expected_seq=0)
    assert list(context.backend.ids()) == ["s"]
    append(log, [message("b"), message("c")], expected_seq=1)
    append(log, [message("d")], expected_seq=3)
    for wrong in (0, 1, 3, 99):
        with pytest.raises(SeqConflict) as caught:
            append(log, [message("e")], expected_seq=wrong)
        assert (caught.value.expected, caught.value.actual) == (wrong, 4)
    assert contents(everything(log)) == ["a", "b", "c", "d"]


def test_one_of_many_wins(context: Context) -> None:
    """Of threads that expect the same seq, exactly one appends."""
    log = context.log()
    for seq in range(5):
        jobs = [partial(append, log, [message(name)], expected_seq=seq) for name in range(8)]
        won = together([partial(succeeds, job, SeqConflict) for job in jobs])
        assert won.count(True) == 1, f"winners from seq {seq}"
    assert len(everything(log)) == 5


def test_new_only_makes_or_refuses(context: Context) -> None:
    """`new_only` makes a session that does not exist, and raises `SessionExists` for one that does."""
    log = context.log()
    append(log, [message("made")], new_only=True)
    with pytest.raises(SessionExists):
        append(log, [message("again")], new_only=True)
    assert contents(everything(log)) == ["made"]
    make = partial(append, context.log("raced"), [message("made")], new_only=True)
    won = together([partial(succeeds, make, SessionExists)] * 8)
    assert won.count(True) == 1
    assert len(everything(context.log("raced"))) == 1


def test_a_key_counts_once(context: Context) -> None:
    """A second append with a key returns the events of the first, of which the first event has the key."""
    log = context.log()
    append(log, [message("before")])
    first = append(log, [message("a"), metadata(b=1), message("c")], key="turn")
    append(log, [message("after")])
    again = append(log, [message("something"), metadata(b=2), message("else")], key="turn")
    assert again == first
    assert [event.repeated for event in [*first, *again]] == [False] * 3 + [True] * 3
    for other in ([message("a")], [message("a"), message("b"), message("c")]):
        with pytest.raises(InvalidEvent, match="key 'turn' was used for 3 events"):
            append(log, other, key="turn")
    assert [event.key for event in everything(log)] == [None, "turn", None, None, None]


def test_a_known_key_comes_before_a_conflict(context: Context) -> None:
    """A retry with its old `expected_seq` is not a conflict: its first try has succeeded."""
    log = context.log()
    first = append(log, [message("a")], key="k", expected_seq=0)
    append(log, [message("b")])
    assert append(log, [message("a")], key="k", expected_seq=0) == first


def test_a_key_of_a_replaced_event_is_known(context: Context) -> None:
    """A retry returns an event whose kind a repair or a redacted copy has replaced."""
    log = context.log()
    for kind in ("event.lost", "message.redacted"):
        replaced = NewEvent(kind, b'{"kind":"message.added"}', control=False)
        first = append(log, [replaced], key=kind)
        assert append(log, [message("a")], key=kind) == first


def test_keys_are_any_text(context: Context) -> None:
    """Keys differ if a character does, and belong to their session."""
    log = context.log()
    keys = ["k", "K", " k", 'quote"\\', "line\nbreak", "\u00e9", "e\u0301", "\u2028", "k" * 1024]
    keys += ["\U0001f600" * 1024, "\U0001f600" * 1023 + "\U0001f601"]
    for key in keys:
        append(log, [message(key)], key=key)
    for key in keys:
        (event,) = append(log, [message("again")], key=key)
        assert event.key == key
        assert contents([event]) == [key]
    assert len(everything(log)) == len(keys)
    (elsewhere,) = append(context.log("other"), [message("mine")], key="k")
    assert elsewhere.seq == 1


def test_a_key_counts_once_among_threads(context: Context) -> None:
    """Of threads that append with one key, one appends, and all get its events."""
    log = context.log()
    for key in ("first", "second", "third"):
        given = together(
            [
                partial(append, log, [message([key, name]), message("end")], key=key)
                for name in range(8)
            ]
        )
        for events in given:
            assert events == given[0], f"events of key {key!r}"
    assert len(everything(log)) == 6


def test_threads_share_a_session(context: Context) -> None:
    """8 threads × 50 appends: every event once, seqs without gaps, each writer's order kept."""
    writers, each = 8, 50

    def write(log: Log, name: int) -> list[Event]:
        return [event for turn in range(each) for event in append(log, [message([name, turn])])]

    returned = together([partial(write, context.log(), name) for name in range(writers)])
    events = everything(context.log())
    assert [event.seq for event in events] == list(range(1, writers * each + 1))
    for name in range(writers):
        own = [event for event in events if contents([event])[0][0] == name]
        assert own == returned[name], f"events of writer {name}"
        assert [turn for _, turn in contents(own)] == list(range(each)), f"order of writer {name}"


def test_appends_and_reads_are_counted(context: Context) -> None:
    """A batch is one append with its events, a repeated key none, and a refused one is an error."""
    counters, log = context.backend.counters, context.log()
    before = counters.metrics()
    append(log, [message("one")])
    append(log, [message("two"), message("three")], key="k")
    append(log, [message("two"), message("three")], key="k")
    with pytest.raises(SeqConflict):
        append(log, [message("four")], expected_seq=1)
    with pytest.raises(InvalidEvent):
        append(log, [metadata(title="another kind")], key="k")
    append(log, [message("four")])
    reads = counters.metrics().reads
    log.reader()
    after = counters.metrics()
    assert (after.appends - before.appends, after.events - before.events) == (3, 4)
    assert after.errors - before.errors == 2
    assert after.bytes - before.bytes >= 4 * len(message("one").data)
    assert after.reads - reads == 1
