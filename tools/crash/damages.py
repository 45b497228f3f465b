"""Named damages that backups, copies, editors and disks cause, and the expected results.

Each is applied to a copy of the specimen, and everything is read. Every answer about the damaged session
is *right*, is *refused*, or is that of an earlier point (*prefix*); each damage states which. The session
`other` is read unchanged.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hansard.log import format
from tools.crash.specimen import (
    OLDER,
    OTHER,
    READINGS,
    Refused,
    answers,
    copied,
    opened,
    specimen,
)

Expected = Literal["right", "refused", "prefix"]

ALL = ("s", "t", "child")


@dataclass(frozen=True)
class Damage:
    """A kind of damage: how it is caused, in which session, and the expected result."""

    name: str
    do: Callable[[Path], None]
    expected: Expected
    session: str = "s"

    def check(self) -> str:
        """Damage a fresh copy; return what is wrong then, usually nothing."""
        with tempfile.TemporaryDirectory() as place:
            path = copied(Path(place) / "store")
            self.do(path)
            before = _contents(path)
            wrong = self._wrong(path)
            if not wrong and _contents(path) != before:
                return "reading wrote"
            return wrong

    def _wrong(self, path: Path) -> str:  # noqa: PLR0911 - each reason is a sentence
        truth = specimen().truth
        found = answers(path, (self.session, OTHER))
        whole_store = self.do in (_no_marker, _marker_of_the_future)
        if not whole_store and found[OTHER] != truth[OTHER]:
            return f"another session is read otherwise: {found[OTHER]!r}"
        said, right = found[self.session], truth[self.session]
        if self.expected == "right":
            wrong = [name for name in READINGS if said[name] != right[name]]
            return f"wrong, or refused: {wrong}: {said[wrong[0]]!r}" if wrong else ""
        if self.expected == "prefix":
            events: Any = said["events"]
            all_events: Any = right["events"]
            if isinstance(events, Refused) or events != all_events[: len(events)]:
                return f"not an earlier state: {events!r}"
            return ""
        wrong = [
            name
            for name in READINGS
            if not isinstance(said[name], Refused) and said[name] != right[name]
        ]
        if wrong:
            return f"a wrong answer: {wrong[0]}: {said[wrong[0]]!r}"
        if not isinstance(said["events"], Refused):
            return "not detected by reading all events"
        return ""


def _contents(path: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and not file.is_symlink() and not file.name.startswith("index-")
    }


def _log(path: Path, session: str = "s") -> Path:
    return path / "sessions" / session / "log.jsonl"


def _segments(path: Path, session: str = "s") -> list[Path]:
    return sorted((path / "sessions" / session).glob("*.zst"))


def _lines(
    change: Callable[[list[bytes]], list[bytes]], session: str = "child"
) -> Callable[[Path], None]:
    """Return a function that changes the lines of a log."""

    def do(path: Path) -> None:
        log = _log(path, session)
        log.write_bytes(b"".join(change(log.read_bytes().splitlines(keepends=True))))

    return do


def _bytes(change: Callable[[bytes], bytes], session: str = "child") -> Callable[[Path], None]:
    def do(path: Path) -> None:
        log = _log(path, session)
        log.write_bytes(change(log.read_bytes()))

    return do


# -- kinds of damage ----------------------------------------------------------------------------------


def _spliced(path: Path) -> None:
    """Put a record of another session in the middle."""
    foreign = _log(path, OTHER).read_bytes().splitlines(keepends=True)[-1]
    log = _log(path, "child")
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:-1], foreign, lines[-1]]))


def _of_another(path: Path) -> None:
    shutil.copy(_log(path, "t"), _log(path, "child"))


def _stale_log(path: Path) -> None:
    """Restore a log from before it was sealed: one file of a backup."""
    shutil.copy(specimen().path.with_name(OLDER), _log(path))


def _to_segment(change: Callable[[bytes], bytes], number: int = 0) -> Callable[[Path], None]:
    def do(path: Path) -> None:
        segment = _segments(path)[number]
        segment.write_bytes(change(segment.read_bytes()))

    return do


def _no_segment(number: int) -> Callable[[Path], None]:
    return lambda path: _segments(path)[number].unlink()


def _foreign_segment(path: Path) -> None:
    shutil.copy(_segments(path, OTHER)[0], _segments(path)[0])


def _renamed_segment(path: Path) -> None:
    segment = _segments(path)[1]
    segment.rename(segment.with_name(segment.name.replace("7", "8", 1)))


def _swapped_segments(path: Path) -> None:
    one, two = _segments(path)
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)


def _leftover_segment(path: Path) -> None:
    """Leave the uncompressed segment next to the compressed one, as a crash does."""
    directory = path / "sessions" / "t"
    sealed = (directory / "00000000000000000001.jsonl").read_bytes()
    with opened(path) as store:
        store.session("t").compact()
    (directory / "00000000000000000001.jsonl").write_bytes(sealed)


def _checkpoint(change: Callable[[Path], None]) -> Callable[[Path], None]:
    return lambda path: change(path / "sessions" / "s" / "checkpoint")


def _ahead(path: Path) -> None:
    """Give the checkpoint a seq that the log has not reached, and a checksum that fits."""
    checkpoint = path / "sessions" / "s" / "checkpoint"
    line, _, body = checkpoint.read_bytes().partition(b"\n")
    head = re.sub(rb'"seq":\d+', b'"seq":99', line[: 1 - format.TRAILER], count=1)
    checkpoint.write_bytes(format.close_line(head, 0)[0] + body)


def _foreign_checkpoint(path: Path) -> None:
    shutil.copy(path / "sessions" / OTHER / "checkpoint", path / "sessions" / "s" / "checkpoint")


def _zeros(file: Path) -> None:
    file.write_bytes(bytes(784))


def _no_marker(path: Path) -> None:
    (path / "hansard.json").unlink()


def _marker_of_the_future(path: Path) -> None:
    (path / "hansard.json").write_bytes(b'{"hansard":"store","version":2}\n')


def _linked(path: Path) -> None:
    log = _log(path, "child")
    log.rename(path / "elsewhere")
    os.symlink(path / "elsewhere", log)


def _directory(path: Path) -> None:
    _log(path, "child").unlink()
    _log(path, "child").mkdir()


def _derived(path: Path) -> None:
    """Remove or damage everything that is derived or always empty."""
    for index in path.glob("index-*.db"):
        index.write_bytes(b"not a database" * 100)
    (path / "marks" / "epoch").write_bytes(os.urandom(24))
    for name in ("lock", "compaction", "checkpoint"):
        (path / "sessions" / "s" / name).unlink()


def _parent_gone(path: Path) -> None:
    shutil.rmtree(path / "sessions" / "s")


DAMAGES = {
    damage.name: damage
    for damage in (
        # the log
        Damage("a tail of NUL bytes", _bytes(lambda data: data + bytes(4096)), "right", "child"),
        Damage("an unfinished line at the end", _bytes(lambda data: data + b'{"seq'), "right", "child"),
        Damage("the last newline missing", _bytes(lambda data: data[:-1]), "prefix", "child"),
        Damage(
            "NUL bytes in the middle",
            _bytes(lambda data: data[:200] + bytes(32) + data[232:]),
            "refused",
            "child",
        ),
        Damage("a record missing", _lines(lambda found: [found[0], *found[2:]]), "refused", "child"),
        Damage("a record twice", _lines(lambda found: [*found[:2], *found[1:]]), "refused", "child"),
        Damage(
            "two records swapped",
            _lines(lambda found: [found[0], found[2], found[1], *found[3:]]),
            "refused",
            "child",
        ),
        Damage("a record of another session spliced in", _spliced, "refused", "child"),
        Damage("the log of another session", _of_another, "refused", "child"),
        Damage("an older log next to its segments", _stale_log, "prefix"),
        Damage("an empty log", _bytes(lambda _: b""), "refused", "child"),
        Damage("a header cut short", _bytes(lambda data: data[:40]), "refused", "child"),
        Damage(
            "line ends of another system",
            _bytes(lambda data: data.replace(b"\n", b"\r\n")),
            "refused",
            "child",
        ),
        Damage("a byte order mark", _bytes(lambda data: b"\xef\xbb\xbf" + data), "refused", "child"),
        Damage(
            "checksums in capitals",
            _bytes(lambda data: re.sub(rb'"crc":"[0-9a-f]+"', lambda m: b'"crc":"' + m[0][7:].upper(), data)),
            "refused",
            "child",
        ),
        Damage(
            "written again by a JSON tool",
            _bytes(lambda data: data.replace(b'":', b'": ')),
            "refused",
            "child",
        ),
        Damage("a link instead of the log", _linked, "refused", "child"),
        Damage("a directory instead of the log", _directory, "refused", "child"),
        Damage("the parent of a fork missing", _parent_gone, "refused", "child"),
        # sealed segments
        Damage("the first segment missing", _no_segment(0), "refused"),
        Damage("a later segment missing", _no_segment(1), "refused"),
        Damage("a segment of another session", _foreign_segment, "refused"),
        Damage("two segments swapped", _swapped_segments, "refused"),
        Damage("a segment under another seq", _renamed_segment, "refused"),
        Damage("a segment without its end", _to_segment(lambda data: data[:-20]), "refused"),
        Damage(
            "zeros in a segment",
            _to_segment(lambda data: data[:100] + bytes(64) + data[164:]),
            "refused",
        ),
        Damage("an empty segment", _to_segment(lambda _: b"", 1), "refused"),
        Damage("the segment before compression next to it", _leftover_segment, "right", "t"),
        # derived or redundant files
        Damage("no checkpoint", _checkpoint(lambda file: file.unlink()), "right"),
        Damage("a checkpoint of zeros", _checkpoint(_zeros), "right"),
        Damage("a checkpoint ahead of the log", _ahead, "right"),
        Damage("the checkpoint of another session", _foreign_checkpoint, "right"),
        Damage("all derived files missing or damaged", _derived, "right"),
        # files that other sessions need
        Damage("no marker of the store", _no_marker, "refused"),
        Damage("a store of a later version", _marker_of_the_future, "refused"),
    )
}  # fmt: skip
