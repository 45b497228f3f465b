"""Parts become one message, or nothing, whichever way they are read."""

import random
from itertools import pairwise

from hansard.backend.contract import StreamPart
from hansard.state.view import StreamAssembler


def part(seq: int, stream: str, text: str, *, first: bool = False) -> StreamPart:
    """Return a part of a message."""
    return StreamPart(seq, stream, {"role": "user"} if first else None, text, over=False)


def over(seq: int, stream: str) -> StreamPart:
    """Return the end of a message."""
    return StreamPart(seq, stream, None, "", over=True)


SAID = [
    part(1, "a", "a1", first=True),
    part(2, "b", "b1", first=True),
    part(3, "a", "a2"),
    over(4, "b"),
    part(5, "c", "c1", first=True),
    part(7, "d", "d1", first=True),
    part(9, "c", "c2"),
    over(10, "d"),
    part(11, "e", "e1", first=True),
]

LEFT = [
    (3, {"role": "user", "content": "a1a2", "partial": True}),
    (9, {"role": "user", "content": "c1c2", "partial": True}),
    (11, {"role": "user", "content": "e1", "partial": True}),
]


def pieces(rng: random.Random) -> list[list[StreamPart]]:
    """Return what was said, cut into chunks somewhere."""
    cuts = [0, *sorted(rng.sample(range(len(SAID) + 1), 3)), len(SAID)]
    return [SAID[begin:end] for begin, end in pairwise(cuts)]


def test_parts_add_up_forwards_and_backwards(rng: random.Random) -> None:
    """N-59: unfinished messages are at their last part, in order, however the log is cut into chunks."""
    for _ in range(50):
        forwards, backwards = StreamAssembler(frozenset()), StreamAssembler(frozenset())
        chunks = pieces(rng)
        last = []
        for chunk in chunks:
            forwards.forwards(chunk)
        for chunk in reversed(chunks):
            last += backwards.backwards(chunk)
        assert forwards.unfinished() == backwards.unfinished() == LEFT
        assert sorted(one.seq for one in last) == [seq for seq, _ in LEFT]
        assert not forwards.cut()
        assert not backwards.cut()


def test_a_beginning_is_looked_for_further_back() -> None:
    """A message whose first part was not read is cut until its beginning is found."""
    streams = StreamAssembler(frozenset())
    streams.forwards(SAID[6:])
    assert streams.cut()
    streams.complete(SAID[5:6])
    assert streams.cut()
    streams.complete(SAID[:5])
    assert not streams.cut()
    assert streams.unfinished() == LEFT[1:]
