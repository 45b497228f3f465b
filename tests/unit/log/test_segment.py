"""A segment gets its name complete or not at all, and is checked in three steps."""

import os
from pathlib import Path

import pytest

import hansard
from hansard.log import disk, format, names
from hansard.log.segment import create_segment, header
from hansard.log.segment_reader import Segment, open_segment
from tests.format.handwritten_log import HandwrittenLog

TIME = b"2026-01-01T12:00:00.000000Z"


def opened(directory: int, session_id: str | None = "s") -> Segment:
    """Open the segment that is there."""
    segment = open_segment(directory, "log", session_id, writable=False)
    assert segment is not None
    return segment


def test_the_header_says_version_and_session() -> None:
    """F-23: a header is a note with the format's version and the true id; the position after it is right."""
    line, mark = header("é/✓", before=0, time=TIME)
    assert line == HandwrittenLog("é/✓").data
    assert (mark.offset, mark.seq, mark.crc) == (len(line), 0, format.crc32(line))


def test_a_name_that_is_taken_is_not_taken_again(tmp_path: Path, directory: int) -> None:
    """F-25, N-27, N-30: a segment that is there is never replaced, and the attempt leaves nothing."""
    (tmp_path / names.LOG).write_bytes(b"mine")
    with pytest.raises(hansard.DiskFailed):
        create_segment(directory, "log", "s", HandwrittenLog().data)
    assert os.listdir(tmp_path) == [names.LOG]
    assert (tmp_path / names.LOG).read_bytes() == b"mine"


def test_the_version_is_asked_before_the_checksum(tmp_path: Path, directory: int) -> None:
    """F-45, N-44: a newer version may have another checksum, and is refused as unknown, not as damaged."""
    data = HandwrittenLog(version=2).data
    (tmp_path / names.LOG).write_bytes(data[:-5] + b"x" + data[-4:])
    with pytest.raises(hansard.UnknownFormat, match="version 2"):
        opened(directory)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty file"),
        (b"{", "no complete header"),
        (b"{}\n", "not a header"),
        (HandwrittenLog().message({}).data[len(HandwrittenLog().data) :], "not a header"),
        (HandwrittenLog().note("verified", {}).data[len(HandwrittenLog().data) :], "not a header"),
        (HandwrittenLog().data.replace(b'"s"', b'"t"'), "checksum mismatch"),
        (HandwrittenLog("other").data, "session 'other'"),
    ],
)
def test_a_header_that_is_not_ours_is_damage(
    tmp_path: Path, directory: int, data: bytes, reason: str
) -> None:
    """N-8, N-31, F-24, F-25: without a complete header of this session, the file is damaged."""
    (tmp_path / names.LOG).write_bytes(data)
    with pytest.raises(hansard.Damaged, match=reason) as caught:
        opened(directory)
    assert caught.value.offset == 0
    assert caught.value.path == "log"


def test_a_log_is_opened_without_its_id(tmp_path: Path, directory: int) -> None:
    """F-11, F-23: a log under a hashed name has its id in the header."""
    (tmp_path / names.LOG).write_bytes(HandwrittenLog("x" * 900).data)
    assert opened(directory, None).session_id == "x" * 900


def test_reading_continues_after_a_short_read(
    tmp_path: Path, directory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-41: a short read is continued; only the end of the file ends it."""
    content = HandwrittenLog().message({"n": 1}).data
    (tmp_path / names.LOG).write_bytes(content)
    monkeypatch.setattr(disk, "read_at", lambda fd, length, at: os.pread(fd, min(length, 7), at))
    segment = opened(directory)
    assert segment.read(0, len(content)) == content
    assert segment.read_some(10, 10**6) == content[10:]


def test_a_file_that_became_shorter_is_damage(tmp_path: Path, directory: int) -> None:
    """F-26: bytes that are missing are damage, at the place where the file now ends."""
    content = HandwrittenLog().message({"n": 1}).data
    (tmp_path / names.LOG).write_bytes(content)
    segment = opened(directory)
    os.truncate(tmp_path / names.LOG, 50)
    with pytest.raises(hansard.Damaged, match="has been cut") as caught:
        segment.read(20, len(content) - 20)
    assert caught.value.offset == 50
