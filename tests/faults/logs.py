"""Logs to truncate and to damage, and the true answers at each of their bytes.

`rich_log` is a small log that contains every kind of line: header, records with key, batch and control
mark, an abandoned line, and each note that does not end the session. `Truth` says what a reader must
return for a log that ends at a given byte.
"""

import dataclasses
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.log.format import TORN
from tests.crashlab import faults

ID = "s"

Message = dict[str, Any]


@dataclass(frozen=True)
class Truth:
    """What a reader must return for a log that ends at `offset` or in a torn tail after it."""

    offset: int
    messages: list[Message]
    metadata: dict[str, Any]
    seq: int
    #: A sync has failed here, and no process has verified it yet.
    shut: bool = False


class Log:
    """The bytes of a log, with the truth at each place between two appends."""

    def __init__(self, data: bytes, truths: list[Truth]) -> None:
        self.data = data
        self.truths = truths

    def at(self, offset: int) -> Truth:
        """Return the truth of the log cut at an offset."""
        return [truth for truth in self.truths if truth.offset <= offset][-1]

    @property
    def whole(self) -> Truth:
        """The truth of the log as it is."""
        return self.truths[-1]

    @property
    def start(self) -> int:
        """Where the header ends."""
        return self.data.index(b"\n") + 1


class Bench:
    """A store with one session, whose log is put there byte by byte."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with hansard.open(path, durability="os") as store:
            store.session(ID).add_message({"n": 0})
        self.file = path / "sessions" / ID / "log.jsonl"
        # As a directory looks that was written to: then a refused append changes nothing at all.
        assert (self.file.parent / "lock").exists()

    def put(self, data: bytes) -> None:
        """Replace the log."""
        # Written over, and cut at the end: ext4 syncs a file that is emptied and rewritten.
        with self.file.open("r+b", buffering=0) as file:
            file.write(data)
            file.truncate(len(data))

    def reader(self) -> hansard.Store:
        """Open the store again, to read."""
        return hansard.open(self.path, read_only=True)

    def writer(self) -> hansard.Store:
        """Open the store again, to write."""
        return hansard.open(self.path, durability="os")


class _Maker:
    """Writes a log by using a store as a program would, and notes down what is true after each step."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.messages: list[Message] = []
        self.metadata: dict[str, Any] = {}
        self.truths: list[Truth] = []
        shutil.rmtree(bench.file.parent)

    def note_down(self, offset: int | None = None, *, shut: bool = False) -> None:
        with self.bench.reader() as store:
            seq = store.session(ID).seq
        place = self.bench.file.stat().st_size if offset is None else offset
        self.truths.append(Truth(place, list(self.messages), dict(self.metadata), seq, shut))

    def add(self, *added: Message, key: str | None = None) -> None:
        with self.bench.writer() as store:
            store.session(ID).add_messages(added, key=key)
        self.messages.extend(added)
        self.note_down()

    def add_other(self) -> None:
        with self.bench.writer() as store:
            store.session(ID).append("x.todo", {"done": False})
        self.note_down()

    def set_metadata(self, **changes: Any) -> None:
        with self.bench.writer() as store:
            store.session(ID).set_metadata(**changes)
        self.metadata.update(changes)
        self.note_down()

    def tear(self, keep: int, more: bytes = b"") -> None:
        """Leave a batch unfinished, as a crash does."""
        file = self.bench.file
        size = file.stat().st_size
        with self.bench.writer() as store:
            store.session(ID).add_messages([{"lost": 1}, {"lost": 2}])
        whole = file.read_bytes()
        os.truncate(file, size)
        with file.open("ab") as opened:
            opened.write(whole[size : size + keep] + more)

    def fail_sync(self, message: Message) -> None:
        """Append a message whose sync fails."""
        with (
            hansard.open(self.bench.path) as store,
            faults.fail_sync(lost=None),
            pytest.raises(hansard.SyncFailed),
        ):
            store.session(ID).add_message(message)
        self.messages.append(message)
        # Between the message and the note the log is open: it was not acknowledged yet.
        self.note_down(self.bench.file.read_bytes().rindex(b'{"log":"failed"'))
        self.note_down(shut=True)

    def verify(self) -> None:
        with self.bench.writer() as store:
            assert store.session(ID).verify().ok
        self.note_down()

    def log(self) -> Log:
        data = self.bench.file.read_bytes()
        log = Log(data, [Truth(data.index(b"\n") + 1, [], {}, 0), *self.truths])
        # A recovery is written together with the append that needed it, and is complete before it.
        begin = 0
        for line in data.splitlines(keepends=True):
            begin += len(line)
            if line.startswith(b'{"log":"recovered"'):
                self.truths.append(dataclasses.replace(log.at(begin), offset=begin))
        truths = sorted([log.truths[0], *self.truths], key=lambda truth: truth.offset)
        return Log(data, truths)


def rich_log(place: Path) -> Log:
    """Return a log with every kind of line in it."""
    maker = _Maker(Bench(place / "rich"))
    maker.add({"n": 1})
    maker.add({"n": 2}, {"n": 3}, key="k")
    maker.set_metadata(title="é")
    maker.tear(keep=130)
    maker.add({"n": 4})
    maker.tear(keep=20, more=bytes(9))
    maker.add_other()
    maker.fail_sync({"n": 5})
    maker.verify()
    maker.set_metadata(user="u7")
    maker.add({"n": 6})
    log = maker.log()
    words = [b'"log":"%b"' % word for word in (b"header", b"recovered", b"failed", b"verified")]
    marks = [TORN, b'"key":', b'"more":1', b'"control":true', b'"ctl":']
    assert all(word in log.data for word in [*words, *marks])
    return log
