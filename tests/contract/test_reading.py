"""Checks of reading: ranges forwards and backwards, chunks, control events, `wait`."""

import json

from hansard.backend.contract import Chunk, CompactionFilter, Log
from hansard.event.kinds import CONTROL, MESSAGE_ADDED
from tests.contract.backends import (
    PATIENCE,
    Context,
    answers,
    append,
    begin,
    everything,
    message,
    metadata,
    mixed,
    together,
)


def test_every_range_is_the_list_s_slice(context: Context) -> None:
    """`read` yields the events with after < seq <= upto, wherever the session begins."""
    for before in (0, 4):
        log = context.log(f"s{before}")
        events = begin(context, [metadata(n=0)], before, log.session_id) + mixed(log)
        seqs = range(events[-1].seq + 3)
        for after in seqs:
            for upto in (None, *seqs):
                end = seqs[-1] if upto is None else upto
                wanted = [event for event in events if after < event.seq <= end]
                assert everything(log, after, upto) == wanted, f"read({after}, {upto})"
                parts = [chunk.events() for chunk in log.reader().read(after, upto, back=True)]
                found = [event for part in reversed(parts) for event in part]
                assert found == wanted, f"read({after}, {upto}, back=True)"


def test_a_reader_shows_one_moment(context: Context) -> None:
    """A reader's answers do not change with later appends, seals and compactions."""
    log = context.log()
    nothing = log.reader()
    mixed(log)
    assert (nothing.head(), nothing.first(), nothing.controls()) == (None, None, [])
    assert [*nothing.read(), *nothing.read(5), *nothing.read(back=True)] == []
    asked = log.reader()
    then = answers(asked)
    unasked = log.reader()
    mixed(log)
    assert answers(asked) == then
    assert answers(unasked) == then
    log.compact(CompactionFilter(lambda event: event), level=1)
    append(log, [metadata(later=True)])
    assert answers(asked) == then
    assert answers(unasked) == then
    assert answers(log.reader()) != then


def test_chunks_are_in_order_and_bounded(context: Context) -> None:
    """A long session comes in pieces: in order, none missing, none holding most of it."""
    log = context.log()
    _fill(log)
    chunks = [chunk.events() for chunk in log.reader().read()]
    seqs = [event.seq for chunk in chunks for event in chunk]
    assert seqs == list(range(1, _LONG + 1))
    assert max(map(len, chunks)) < _LONG / 2, f"one chunk holds most of {_LONG} events"
    # Some ranges that begin and end far inside.
    ends = [1, _LONG // 3, _LONG // 2 + 1, _LONG - 1, _LONG]
    for after in ends:
        for upto in ends:
            seqs = [event.seq for event in everything(log, after, upto)]
            assert seqs == list(range(after + 1, upto + 1)), f"read({after}, {upto})"


def test_a_chunk_shows_its_messages_three_ways(context: Context) -> None:
    """`events`, `messages` and `messages_json` of a chunk agree."""
    log = context.log()
    mixed(log)
    append(log, [message('\u2028 \x7f \U0001f600 " \\ \n'), message({"deep": [1, 1.0, None]})])
    for after, upto in ((0, None), (3, None), (0, 9), (4, 7)):
        for chunk in log.reader().read(after, upto):
            _check_three_ways(chunk)
    for chunk in log.reader().read(0, 8, back=True):
        _check_three_ways(chunk)


def _check_three_ways(chunk: Chunk) -> None:
    events = [event for event in chunk.events() if event.kind == MESSAGE_ADDED]
    wanted = [(event.seq, event.data["message"]) for event in events]
    assert chunk.messages() == wanted
    assert [(seq, json.loads(raw)) for seq, raw in chunk.messages_json()] == wanted
    for event, (_, raw) in zip(events, chunk.messages_json(), strict=True):
        assert raw in event.raw


def test_what_is_handed_out_is_the_caller_s(context: Context) -> None:
    """Changing a message that was read changes nothing in the session."""
    log = context.log()
    append(log, [message({"list": [1]})])
    for chunk in log.reader().read():
        for event in chunk.events():
            event.data["message"]["content"]["list"].append("event")
        for _, found in chunk.messages():
            found["content"]["list"].append("message")
            found.clear()
    (again,) = log.reader().read()
    assert again.messages() == [(1, {"role": "user", "content": {"list": [1]}})]


def test_chunks_backwards_begin_at_the_end(context: Context) -> None:
    """Backwards, the first chunk holds the last event, and none holds most of a long session."""
    log = context.log()
    _fill(log)
    for upto in (None, _LONG, _LONG // 2 + 1, 1):
        last = _LONG if upto is None else upto
        parts = [
            [event.seq for event in chunk.events()]
            for chunk in log.reader().read(0, upto, back=True)
        ]
        filled = [part for part in parts if part]
        assert filled[0][-1] == last, f"last seq of the first chunk, upto={upto}"
        found = [seq for part in reversed(filled) for seq in part]
        assert found == list(range(1, last + 1)), f"seqs, upto={upto}"
        if upto is None:
            assert max(map(len, parts)) < _LONG / 2, f"one chunk holds most of {_LONG} events"
    few = list(log.reader().read(_LONG - 3, back=True))
    assert len(few) < len(list(log.reader().read(back=True)))


#: A session of some megabytes: more than one chunk of any sensible size.
_LONG = 4_500


def _fill(log: Log) -> None:
    for start in range(0, _LONG, 90):
        append(log, [message("x" * 900 + str(start + place)) for place in range(90)])


def test_controls_are_the_control_events(context: Context) -> None:
    """`controls` returns the control events with after < seq <= upto, in order, and no others."""
    log = context.log()
    for number in range(20):
        append(log, [message(number)])
    assert log.reader().controls() == []
    mixed(log, rounds=3)
    events = everything(log)
    for upto in (None, *range(len(events) + 3)):
        wanted = [
            event
            for event in events
            if event.kind in CONTROL and (upto is None or event.seq <= upto)
        ]
        assert log.reader().controls(upto) == wanted, f"controls({upto})"
        for after in (0, 1, len(events) // 2, len(events)):
            rest = [event for event in wanted if event.seq > after]
            assert log.reader().controls(upto, after=after) == rest, (
                f"controls({upto}, after={after})"
            )


def test_wait_tells_whether_there_is_an_event(context: Context) -> None:
    """`wait` returns True at once if there is an event after `after`, and False when its time is over."""
    log = context.log()
    assert not log.wait(0, 0.02)
    append(log, [message("a"), message("b")])
    assert log.wait(0, 0.0)
    assert log.wait(1, PATIENCE)
    assert not log.wait(2, 0.02)


def test_wait_returns_when_another_thread_appends(context: Context) -> None:
    """Two threads that wait for each other's events in turn get all of them."""
    ping, pong = context.log("ping"), context.log("pong")

    def serve() -> None:
        for turn in range(20):
            append(ping, [message(turn)])
            assert pong.wait(turn, PATIENCE)

    def return_it() -> None:
        for turn in range(20):
            assert ping.wait(turn, PATIENCE)
            append(pong, [message(turn)])

    together([serve, return_it])
    assert len(everything(ping)) + len(everything(pong)) == 40
