"""What can still be read of a damaged log: everything but the damage (N-34, F-20, F-32)."""

from pathlib import Path

import pytest

import hansard
from hansard import Finding
from hansard.event.event import Event
from hansard.log.format import TORN


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a store whose session has every kind of line: single, batch, control, torn, recovered."""
    place = tmp_path / "store"
    with hansard.open(place, durability="os") as store:
        session = store.session("s")
        session.add_message({"n": 1})
        session.add_messages([{"n": 2}, {"n": 3}, {"n": 4}])
        session.set_metadata(title="T")
        session.add_messages([{"n": 6}, {"n": 7}])
    log = place / "sessions" / "s" / "log.jsonl"
    # A batch of which the first record was written, and then some bytes of the second.
    data = log.read_bytes()
    log.write_bytes(data[:-20])
    with hansard.open(place, durability="os") as store:
        session = store.session("s")
        session.add_messages([{"n": 6}, {"n": 7}])
        session.add_message({"n": 8})
    return place


def lines_of(path: Path) -> list[bytes]:
    """Return the lines of the session's log."""
    return (path / "sessions" / "s" / "log.jsonl").read_bytes().splitlines(keepends=True)


def put(path: Path, lines: list[bytes]) -> None:
    """Replace the log."""
    (path / "sessions" / "s" / "log.jsonl").write_bytes(b"".join(lines))


def salvaged(path: Path) -> list[Event | Finding]:
    """Return what another store object can salvage."""
    with hansard.open(path, read_only=True) as store:
        return list(store._backend.log("s").salvage())


def events_of(found: list[Event | Finding]) -> list[Event]:
    """Return the events among what was salvaged."""
    return [item for item in found if isinstance(item, Event)]


def test_one_damaged_line_costs_no_other(path: Path) -> None:
    """N-34, F-20, F-28: every other event is salvaged, and a finding is in the place of the lost one."""
    with hansard.open(path) as store:
        whole = list(store.session("s").events())
    assert [event.seq for event in whole] == list(range(1, 9))
    lines = lines_of(path)
    put(path, [*lines, lines[-1][:-5]])
    assert salvaged(path) == whole
    assert sum(line.endswith(TORN) for line in lines) == 1
    for number, line in enumerate(lines):
        if line.endswith(TORN):
            continue  # an unfinished append cannot be damaged
        offset = sum(map(len, lines[:number]))
        spoiled = bytearray(line)
        spoiled[line.index(b'"time"') + 10] ^= 1
        put(path, [*lines[:number], bytes(spoiled), *lines[number + 1 :]])
        found = salvaged(path)
        own = [
            event for event in whole if b'"seq":%d,' % event.seq in line and b'"log"' not in line
        ]
        if own and number < len(lines) - 4 and b'"n":6' in line:
            own = []  # of the batch that was never finished
        assert events_of(found) == [event for event in whole if event not in own], number
        damage = [item for item in found if isinstance(item, Finding)]
        assert offset in {finding.offset for finding in damage}, number
        assert {finding.severity for finding in damage} == {"damage"}
    at = next(place for place, line in enumerate(lines) if line.startswith(b'{"seq":3,'))
    put(path, [*lines[:at], b"x" * 20 + b"\n", *lines[at + 1 :]])
    assert [getattr(item, "seq", "lost") for item in salvaged(path)][1:4] == [2, "lost", 4]


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff" * 100, b"null\n"])
def test_of_nothing_nothing_is_salvaged(path: Path, content: bytes) -> None:
    """N-31: a log of which nothing is left yields no event, and raises nothing."""
    put(path, [content])
    assert events_of(salvaged(path)) == []
