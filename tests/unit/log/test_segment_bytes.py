"""Few modules know what the bytes of a segment are; everything else reads and writes through them."""

import re
from pathlib import Path

import hansard

#: What frames a line, or takes one apart.
FRAMING = re.compile(
    r"\bformat\.(TRAILER|TORN|stored_crc|checked_crc|crc_after|close_line|record|plain_record|note)\b"
)

READERS_AND_WRITERS = {
    "log/segment.py",
    "log/segment_reader.py",
    "log/borders.py",
    "log/segment_scan.py",
    "log/write_batch.py",
    "log/sealed_segment.py",
    "log/sealed_writer.py",
}

#: The append of one record, without a batch; and a file of its own whose first line ends like a record.
EXCEPTIONS = {"log/writer.py", "log/checkpoint.py"}


def test_only_readers_and_writers_of_segments_know_their_bytes() -> None:
    """F-20: a second place that frames or parses lines would be a second meaning of the format."""
    source = Path(hansard.__file__).parent
    found = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if FRAMING.search(path.read_text(encoding="utf-8"))
    }
    assert found == READERS_AND_WRITERS | EXCEPTIONS
