"""What is too large is refused in bounded memory, going in and on the disk."""

import os
from pathlib import Path

import pytest

import hansard
from hansard.log import format
from tests.hostile.forge_files import confined
from tests.unit.disk_probe import log_of, tree

MEBIBYTE = 1 << 20


@pytest.mark.slow
def test_a_message_of_64_mebibytes_is_the_limit(tmp_path: Path) -> None:
    """N-74, F-17: a message just below the limit comes back equal; one above it is refused completely."""
    with hansard.open(tmp_path / "s", durability="os", auto_compact=False) as store:
        session = store.session("a")
        largest = {"content": "x" * (format.MAX_DATA - 32)}
        for message in ({"n": 1}, largest, {"n": 2}):
            session.add_message(message)
        before = tree(tmp_path)
        with pytest.raises(hansard.InvalidEvent, match="keep large content elsewhere"):
            session.add_message({"content": "x" * format.MAX_DATA})
        with pytest.raises(hansard.InvalidEvent, match="67,108,"):
            session.add_messages([{"n": 3}, {"content": "\u00e9" * (format.MAX_DATA // 2)}])
        assert tree(tmp_path) == before
    with hansard.open(tmp_path / "s", durability="os", auto_compact=False) as store:
        session = store.session("a")
        assert session.messages(last=2) == [largest, {"n": 2}]
        assert session.messages(at=2)[1]["content"] == largest["content"]
        assert session.add_message({"n": 3}).seq == 4


#: Reads a session, for a process with no more memory than a few lines of the largest size take.
READING = """
import sys
import hansard
store = hansard.open(sys.argv[1], durability="os", auto_compact=False)
session = store.session("a")
calls = {
    "messages": session.messages,
    "last": lambda: session.messages(last=1),
    "events": lambda: list(session.events()),
    "seq": lambda: session.seq,
    "append": lambda: session.add_message({"n": 3}),
    "delete": lambda: store.delete("a"),
}
for name in sys.argv[3].split():
    try:
        calls[name]()
    except hansard.Damaged as error:
        assert error.offset == int(sys.argv[2]), (name, error)
        assert "longer than a record can be" in str(error), (name, error)
    else:
        raise AssertionError(name)
report = session.verify()
assert not report.ok
print([(finding.offset, finding.length) for finding in report.findings])
assert [info.id for info in store.sessions().items if info.damaged] == ["a"]
assert store.session("b").messages() == [{"n": 1}]
assert store.exists("a")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "ends", "calls"),
    [
        (70 * MEBIBYTE, False, "messages last events seq append delete"),
        (70 * MEBIBYTE, True, "messages append"),
        (512 * MEBIBYTE, True, "messages"),
        (MEBIBYTE * MEBIBYTE, False, "messages"),
    ],
    ids=["70 MiB", "70 MiB and a newline", "512 MiB", "1 TiB"],
)
def test_a_line_without_end_is_reported_in_bounded_memory(
    size: int, ends: bool, calls: str, tmp_path: Path
) -> None:
    """N-74, F-13: a line longer than a record can be is `Damaged` at its first byte, for any size."""
    with hansard.open(tmp_path / "s", durability="os", auto_compact=False) as store:
        for name in "ab":
            store.session(name).add_message({"n": 1})
    log = log_of(tmp_path / "s", "a")
    offset = log.stat().st_size
    with open(log, "ab") as file:
        file.write(b"x")
    os.truncate(log, offset + size)  # a hole: the bytes are NUL, and take no space
    if ends:
        with open(log, "ab") as file:
            file.write(b"x\n")
    length = log.stat().st_size - offset
    before = log.stat()
    found = confined(READING, tmp_path / "s", offset, calls, memory=420 * MEBIBYTE)
    assert found.strip() == f"[({offset}, {length})]"
    after = log.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
