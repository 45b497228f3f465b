"""Lines are framed and parsed as docs/format.md specifies."""

import json
import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.log import format
from tests.format import handwritten_log
from tests.format.grammar import PAGE

TIME = b"2026-01-01T12:00:00.000000Z"

keys = st.none() | st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=20)
numbers = st.integers(0, 2**40)
payloads = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=9), max_size=3)


def encoded(data: dict[str, Any]) -> bytes:
    """Return data as the codec would write them."""
    return msgspec.json.encode(data)


@given(numbers, payloads, keys, numbers, st.booleans(), numbers)
def test_a_record_says_what_went_in(
    seq: int, data: dict[str, Any], key: str | None, more: int, control: bool, ctl: int
) -> None:
    """F-14: framed and decoded, a record has the same seq, time, kind, key, batch, control mark and data."""
    line, _ = format.record(
        seq, TIME, b"x.kind", encoded(data), 7, key=key, more=more, control=control, ctl=ctl
    )
    found = format.decode_line(line)
    assert (found.seq, found.time, found.kind) == (seq, TIME.decode(), "x.kind")
    assert (found.key, found.more, found.control, found.ctl) == (key, more, control, ctl)
    assert json.loads(bytes(found.data)) == data
    assert found.log is None
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")


@given(st.lists(st.tuples(payloads, st.booleans()), min_size=1, max_size=8))
def test_the_checksum_runs_on_over_all_lines(made: list[tuple[dict[str, Any], bool]]) -> None:
    """F-20: each stored value is the CRC-32 of all before it, and many lines are checked together."""
    data = b""
    crc = 0
    for seq, (payload, is_note) in enumerate(made, 1):
        if is_note:
            line, crc = format.note("word", seq, TIME, payload, crc)
        else:
            line, crc = format.record(seq, TIME, b"x.kind", encoded(payload), crc)
        data += line
        assert format.stored_crc(line) == crc == zlib.crc32(data)
    assert format.checked_crc(data, 0) == crc
    # The same from the page alone, by code that shares nothing with this.
    assert len(handwritten_log.lines(data)) == len(made)
    for at in range(0, len(data), 5):
        bad = data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]
        assert format.checked_crc(bad, 0) is None


@pytest.mark.parametrize(
    "digits",
    [b"0123ABCD", b"0123abcD", b" 123abcd", b"+123abcd", b"0x12abcd", b"12_3abcd", b"123abcd", b"g123abcd"],
)  # fmt: skip
def test_only_eight_lower_case_digits_are_a_checksum(digits: bytes) -> None:
    """F-20: what Python's `int` accepts is not a checksum unless it is in canonical form."""
    assert format.stored_crc(b'{"seq":1,"crc":"%b"}\n' % digits) is None
    assert format.stored_crc(b'{"seq":1,"crc":"0123abcd"}\n') is not None
    assert format.stored_crc(b'{"seq":1,"crc":"0123abcd"} \n') is None
    assert format.stored_crc(b'{"seq":1,"crc":"0123abcd"}') is None


def test_the_value_after_a_line_does_not_need_its_trailer() -> None:
    """F-20: after a line with a damaged checksum, the value follows from its body."""
    line, crc = format.record(1, TIME, b"x.kind", b"{}", 99)
    assert format.crc_after(line, 99) == crc
    assert format.crc_after(line[:-12] + b"XXXXXXXX" + line[-4:], 99) == crc


@pytest.mark.parametrize(
    "line",
    [
        b"null\n", b"[]\n", b"{}\n", b'{"seq":1,"time":"t","kind":"k","data":{}}\n',
        b'{"seq":"1","time":"t","kind":"k","data":{},"crc":""}\n',
        b'{"seq":1,"time":2,"kind":"k","data":{},"crc":""}\n',
        b'{"seq":1,"time":"t","kind":"k","more":"1","data":{},"crc":""}\n',
        b'{"seq":1,"time":"t","kind":"k","control":1,"data":{},"crc":""}\n',
        b'{"seq":1,"time":"t","kind":"k","data":{},"crc":""} x\n', b"\xff\n",
    ],
)  # fmt: skip
def test_what_is_no_line_is_not_decoded(line: bytes) -> None:
    """F-13, F-14: the decoder refuses text that is neither record nor note, with any checksum."""
    with pytest.raises((msgspec.MsgspecError, UnicodeDecodeError)):
        format.decode_line(line)


def test_the_constants_agree_with_the_page() -> None:
    """F-13, F-17, F-20, F-29: the page and the code name the same limits, trailer, mark and version."""
    page = PAGE.read_text("utf-8")
    assert "version 1" in page.splitlines()[0]
    assert format.VERSION == 1
    assert "of at most 64 MiB + 16 KiB" in page
    assert format.MAX_LINE == 64 * 2**20 + 16 * 2**10
    assert "at most 64 MiB and 128 levels" in page
    assert format.MAX_DATA == 64 * 2**20
    assert "19-byte trailer" in page
    assert format.TRAILER == 19
    assert "`~torn` 0x0A" in page
    assert format.TORN == b"~torn\n"
