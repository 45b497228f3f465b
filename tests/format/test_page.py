"""docs/format.md agrees with the code: its worked example is a log, and its grammar fits real lines."""

import json
import re
from pathlib import Path

import pytest

import hansard
from hansard.log import format
from tests.faults.logs import rich_log
from tests.format import handwritten_log
from tests.format.grammar import PAGE, grammar, pattern

SECTION = re.search(r"^## 12\. .*?(?=^## )", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def block(language: str) -> str:
    """Return the one block of the worked example in this language."""
    assert SECTION is not None
    found = re.findall(rf"^```{language}\n(.*?)^```$", SECTION[0], re.DOTALL | re.MULTILINE)
    assert len(found) == 1
    return str(found[0])


EXAMPLE = block("jsonl").encode()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store whose session `demo` is the worked example."""
    with hansard.open(tmp_path / "store") as made:
        made.session("demo").add_message({})
    (tmp_path / "store" / "sessions" / "demo" / "log.jsonl").write_bytes(EXAMPLE)
    return tmp_path / "store"


def test_the_worked_example_is_a_log_that_says_what_the_page_says(store: Path) -> None:
    """F-12 to F-34: the bytes on the page are read as the messages, metadata and seq next to them."""
    with hansard.open(store) as opened:
        session = opened.session("demo")
        assert session.messages() == json.loads(block("json"))
        assert session.messages(last=2) == json.loads(block("json"))[-2:]
        assert session.metadata == {"title": "Greeting"}
        assert session.seq == 5
        assert [event.key for event in session.events()] == [None, "turn-1", None, None, None]
        assert [found.severity for found in session.verify().findings] == ["note"]
        again = session.add_messages([{"again": True}, {"again": True}], key="turn-1")
        assert [event.seq for event in again] == [2, 3]
        session.add_message({"more": True})
        assert len(session.messages()) == 5


def test_the_table_of_the_worked_example_is_right() -> None:
    """F-12: each line has the offset and length of the table."""
    assert SECTION is not None
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \|", SECTION[0], re.MULTILINE)
    lines = EXAMPLE.splitlines(keepends=True)
    expected = []
    for number, line in enumerate(lines, 1):
        expected.append((number, EXAMPLE.index(line), len(line)))
    assert [tuple(map(int, row)) for row in rows] == expected
    assert f"{len(EXAMPLE)} bytes" in SECTION[0]


def test_the_code_writes_the_lines_of_the_worked_example() -> None:
    """F-14, F-20: framed by the code, the example's records and notes come out byte for byte."""
    crc = 0
    framed = 0
    for raw in EXAMPLE.splitlines(keepends=True):
        if raw.endswith(format.TORN):
            crc = format.crc32(raw, crc)
            continue
        line = format.decode_line(raw)
        if line.log is None:
            made, crc = format.copy_record(line, crc, ctl=line.ctl)
        else:
            time, data = line.time.encode(), json.loads(bytes(line.data))
            made, crc = format.note(line.log, line.seq, time, data, crc, ctl=line.ctl)
        assert made == raw
        framed += 1
    assert framed == 7


def test_the_worked_example_cut_before_its_recovery_is_torn(store: Path) -> None:
    """F-28, F-29: up to `~torn`, or short of it, the example is a log with a torn tail, as on the page."""
    log = store / "sessions" / "demo" / "log.jsonl"
    note = EXAMPLE.index(b'{"log":"recovered"')
    for cut in (note, note - 6, note + 10):
        log.write_bytes(EXAMPLE[:cut])
        with hansard.open(store) as opened:
            session = opened.session("demo")
            assert session.messages() == json.loads(block("json"))[:3]
            assert [finding.severity for finding in session.verify().findings] == ["note"]
            session.add_message({"n": 1})
            assert session.seq == 5
            assert [found.severity for found in session.verify().findings] == ["note"]


def test_real_logs_are_what_the_grammar_says(tmp_path: Path) -> None:
    """F-12 to F-14: a log with every kind of line fits the page's grammar, line by line and in full."""
    rules = grammar()
    assert {"segment", "record", "note", "header", "trailer", "discarded", "torn"} <= set(rules)
    log = rich_log(tmp_path).data
    for data in (EXAMPLE, log, log[:-20], log + bytes(10)):
        assert re.fullmatch(pattern("segment", rules), data, re.DOTALL)
    for raw in log.splitlines(keepends=True):
        rule = "discarded" if raw.endswith(format.TORN) else "record"
        rule = "note" if raw.startswith(b'{"log"') else rule
        assert re.fullmatch(pattern(rule, rules), raw), raw


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'{"seq":1,', b'{"seq": 1,'),
        (b'{"seq":1,', b'{"time":1,'),
        (b".000000Z", b".000Z"),
        (b"Z", b"+00:00"),
        (b'"kind":"message.added"', b'"kind":"message added"'),
        (b'"crc":"', b'"crc":"F'),
        (b'"}\n', b'"} \n'),
    ],
)
def test_the_grammar_is_strict(old: bytes, new: bytes) -> None:
    """F-14, F-20: the grammar does not fit a record that is written in another way."""
    log = handwritten_log.HandwrittenLog().message({"n": 1}).data
    record = log[log.index(b'{"seq":1') :]
    rule = pattern("record", grammar())
    assert re.fullmatch(rule, record)
    assert not re.fullmatch(rule, record.replace(old, new, 1))
