"""The rules between the lines: a log whose every checksum is right can still be wrong.

The logs here are written by hand with valid checksums, so only the rules of F-15 and F-27 to F-32 can
find what is wrong with them.
"""

import os
from pathlib import Path

import pytest

import hansard
from hansard.log import format, segment_scan
from hansard.log.format import Line, Position
from hansard.log.segment_reader import Segment
from tests.format.handwritten_log import HandwrittenLog

ID = "s"


def findings(log: HandwrittenLog) -> list[segment_scan.ScanFinding]:
    """Return all damage after a log's header."""
    start = len(HandwrittenLog().data)
    mark = Position(start, 0, format.crc32(log.data[:start]))
    return list(segment_scan.findings(mark, log.data[start:]))


def begun() -> HandwrittenLog:
    """Return a log with one record."""
    return HandwrittenLog().message({"n": 1})


def unfinished() -> HandwrittenLog:
    """Return a log whose last batch lacks its last record."""
    return begun().message({"n": 2}, ',"more":2').message({"n": 3}, ',"more":1')


def abandoned() -> HandwrittenLog:
    """Return a log with an abandoned line at its end."""
    log = begun()
    log.data += b'{"seq":2,"ti~torn\n'
    return log


def recovered(log: HandwrittenLog, *, offset: int = 0, length: int = 0) -> HandwrittenLog:
    """Close the unfinished end after the first record, with a note whose range may be wrong by some bytes."""
    edge = len(begun().data)
    log.seq = 1
    torn = {"offset": edge + offset, "bytes": len(log.data) - edge + length}
    return log.note("recovered", torn)


RIGHT = {
    "records": begun().message({"n": 2}),
    "a batch": begun().message({"n": 2}, ',"more":1').message({"n": 3}),
    "two batches": begun().message({}, ',"more":1').message({}).message({}, ',"more":1').message({}),
    "a torn batch at the end": unfinished(),
    "an abandoned line at the end": abandoned(),
    "a recovery": recovered(abandoned()).message({"n": 2}),
    "a recovery of whole records": recovered(unfinished()).message({"n": 2}),
    "a recovery of NUL bytes": begun().torn(bytes(100)).message({"n": 2}),
    "two recoveries": begun().torn(b"{").torn(b"{").message({"n": 2}),
    "notes": begun().note("verified", {}).note("what", {}).message({"n": 2}),
}  # fmt: skip

WRONG = {
    "a seq twice": (begun().record({}, seq=1), "seq 1 where 2 should be"),
    "a seq left out": (begun().record({}, seq=3), "seq 3 where 2 should be"),
    "a seq that goes back": (begun().record({}, seq=0), "seq 0 where 2 should be"),
    "a batch that another append follows": (unfinished().message({"n": 4}, ',"more":4').message({"n": 5}),
        "never finished"),
    "a batch that is too long": (begun().message({}, ',"more":1').message({}, ',"more":1').message({}),
        "never finished"),
    "a batch that a note interrupts": (
        unfinished().line('{"log":"verified","seq":1,"time":"2026","data":{}').message({}),
        "an unfinished append before a note",
    ),
    "an abandoned line that a record follows": (abandoned().message({"n": 2}),
        "an unfinished line inside the log"),
    "an abandoned line that a note follows": (abandoned().note("verified", {}),
        "an unfinished append before a note"),
    "a recovery that begins too early": (recovered(abandoned(), offset=-1, length=1).message({}),
        "which is wrong"),
    "a recovery that begins too late": (recovered(abandoned(), offset=1, length=-1).message({}),
        "which is wrong"),
    "a recovery that ends elsewhere": (recovered(abandoned(), length=5).message({}), "which is wrong"),
    "a recovery of nothing": (begun().note("recovered", {"offset": 0, "bytes": 9}).message({}),
        "which is wrong"),
    "a recovery that does not say of what": (abandoned().note("recovered", {"offset": "here", "bytes": 1}),
        "not a note"),
    "a note with another seq": (
        begun().line('{"log":"verified","seq":7,"time":"2026","data":{}').message({}),
        "the note says seq 7, but the seq before it is 1",
    ),
    "a line that is not a record": (begun().line('{"seq":2').message({}), "not a record"),
    "a line of another shape": (begun().line("[1,2").message({}), "not a record"),
}  # fmt: skip


@pytest.mark.parametrize("log", RIGHT.values(), ids=list(RIGHT))
def test_a_log_that_keeps_the_rules_is_whole(log: HandwrittenLog) -> None:
    """F-27 to F-33: finished appends, notes, recoveries and what a crash leaves at the end are not damage."""
    assert findings(log) == []


@pytest.mark.parametrize(("log", "reason"), WRONG.values(), ids=list(WRONG))
def test_a_log_that_breaks_a_rule_is_damaged_in_spite_of_its_checksums(
    log: HandwrittenLog, reason: str, tmp_path: Path
) -> None:
    """N-26, F-15, F-30, F-32: what no writer writes is found by `verify`, with its place and reason."""
    found = findings(log)
    assert [finding for finding in found if reason in finding.reason]
    assert all(len(HandwrittenLog().data) <= finding.offset < len(log.data) for finding in found)
    with hansard.open(tmp_path / "store") as store:
        store.session(ID).add_message({})
        (tmp_path / "store" / "sessions" / ID / "log.jsonl").write_bytes(log.data)
    with hansard.open(tmp_path / "store") as store:
        assert not store.session(ID).verify().ok


def test_only_complete_appends_are_kept(tmp_path: Path) -> None:
    """F-27: no record of an unfinished batch is kept, nor of a recovered range."""
    log = recovered(unfinished()).message({"n": "a"}, ',"more":1').message({"n": "b"})
    path = tmp_path / "log.jsonl"
    path.write_bytes(log.data)
    kept = list(segment_scan.salvage(Segment(os.open(path, os.O_RDONLY), str(path), None)))
    found = [(line.seq, line.more) for line in kept if isinstance(line, Line)]
    assert found == [(1, 0), (2, 1), (3, 0)]
    assert len(kept) == len(found)


def test_each_line_of_a_batch_is_looked_at_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-77: to salvage a batch costs its length, and not the square of it."""
    log = begun()
    for more in reversed(range(500)):
        log.message({"n": more}, f',"more":{more}' if more else "")
    path = tmp_path / "log.jsonl"
    path.write_bytes(log.data)
    looks: list[segment_scan.ScannedLine] = []

    def look(seen: segment_scan.ScannedLine) -> Line | None:
        looks.append(seen)
        return seen.line

    monkeypatch.setattr(segment_scan.ScannedLine, "record", property(look))
    kept = list(segment_scan.salvage(Segment(os.open(path, os.O_RDONLY), str(path), None)))
    assert len(kept) == 501
    assert len(looks) < 5 * len(kept)
