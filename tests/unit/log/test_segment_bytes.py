"""Besides `log/format`, six modules know the bytes of a segment; all others read and write through them."""

import re
from pathlib import Path

import hansard

#: Functions and constants that frame a line, or take one apart.
FRAMING = re.compile(
    r"\bformat\.(TRAILER|TORN|stored_crc|checked_crc|crc_after|close_line|record|copy_record|plain_record|note)\b"
)

READERS_AND_WRITERS = {
    "log/segment.py", "log/segment_reader.py", "log/segment_scan.py", "log/write_batch.py",
    "log/sealed_segment.py", "log/sealed_writer.py",
}  # fmt: skip


def test_few_modules_know_the_bytes_of_a_segment() -> None:
    """F-20: a second place that frames or parses lines would be a second definition of the format."""
    source = Path(hansard.__file__).parent
    found = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if FRAMING.search(path.read_text(encoding="utf-8"))
    }
    assert found == READERS_AND_WRITERS
