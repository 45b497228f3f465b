"""Check a store with a damaged file: the damage is detected or harmless; no answer is wrong."""

import functools
import tempfile
from pathlib import Path

from tests.faults.logs import Bench, Log, rich_log
from tests.faults.test_damage import answers as answers_of
from tests.faults.test_damage import check_damaged
from tests.faults.test_torn_tails import check_torn
from tools.crash.specimen import (
    KEY,
    OTHER,
    File,
    Refused,
    answers,
    opened,
    put,
    retried,
    specimen,
)

#: The complete log, with every kind of line; the other files are those of the specimen.
LOG = "log"


class PlainLog:
    """A log with every kind of line, and a store to store it in."""

    def __init__(self) -> None:
        place = Path(tempfile.mkdtemp(prefix="hansard-log-"))
        self.log: Log = rich_log(place)
        self.bench = Bench(place / "store")
        self.before_the_last = answers_of(self.bench, self.log.data[: self.log.truths[-2].offset])

    def check_flipped(self, data: bytes, at: int) -> str:
        """Return what is wrong once a bit of a byte was flipped."""
        # Without its newline the last line is a torn tail, which a crash could have left.
        allowed = [self.before_the_last] if at == len(data) - 1 else []
        try:
            check_damaged(self.bench, data, *allowed)
        except AssertionError as error:
            return f"not noticed, or not everywhere: {error}"
        return ""

    def check_cut(self, length: int) -> str:
        """Return what is wrong once the log was cut."""
        data = self.log.data[:length]
        try:
            if length < self.log.start:
                check_damaged(self.bench, data)
            else:
                check_torn(self.bench, data, self.log.at(length))
        except AssertionError as error:
            return f"more is lost than was cut off, or not appended to: {error}"
        return ""


@functools.cache
def plain_log() -> PlainLog:
    """Return the log of this process."""
    return PlainLog()


def check(file: File, data: bytes) -> tuple[str, bool]:
    """Replace bytes in a file of the specimen, read, and restore the file.

    Returns what is wrong, mostly nothing, and whether the damage was detected. Undetected damage is harmless:
    every answer is right.
    """
    found = specimen()
    path = found.path / file.path
    right = path.read_bytes()
    put(path, data)
    try:
        return _wrong(file)
    finally:
        put(path, right)


#: All events and their state, the last events read backwards, and the control records.
_WAYS = ("messages", "last", "metadata")


def _wrong(file: File) -> tuple[str, bool]:
    found = specimen()
    wrong, noticed = _answered(file)
    if wrong or noticed or file.spare:
        return wrong, noticed
    if "s" in file.sessions:
        # A checkpoint is read instead of the segments; without it, they are read.
        checkpoint = found.path / found.file("checkpoint").path
        away = checkpoint.with_suffix(".away")
        checkpoint.rename(away)
        try:
            wrong, noticed = _answered(file)
        finally:
            away.rename(checkpoint)
    if not wrong and not noticed:
        with opened(found.path, read_only=True) as store:
            noticed = any(store.session(name).verify().findings for name in file.sessions)
    return wrong, noticed


def _answered(file: File) -> tuple[str, bool]:
    found = specimen()
    noticed = False
    said = answers(found.path, file.sessions, _WAYS)
    if OTHER not in said:
        said |= answers(found.path, (OTHER,), _WAYS[:1])
    asked = [(name, reading) for name, found_of_it in said.items() for reading in found_of_it]
    for name, reading in asked:
        answer = said[name][reading]
        if isinstance(answer, Refused):
            noticed = True
            if file.spare or name not in file.sessions:
                return f"{reading} of {name} is refused: {answer}", noticed
        elif answer != found.truth[name][reading]:
            return f"{reading} of {name} is wrong: {answer!r}", noticed
    if "s" in file.sessions and not noticed:
        log = found.path / "sessions" / "s" / "log.jsonl"
        before = log.read_bytes()
        seq = retried(found.path, "s", KEY)
        put(log, before)
        if seq not in {1, None}:
            return f"an append with a key that was used is there again, as {seq}", noticed
        noticed = seq is None
    return "", noticed
