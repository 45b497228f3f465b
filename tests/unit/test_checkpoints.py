"""Checkpoints: a shortcut to what the events add up to, never believed over the log."""

import errno
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard.backend.local import compact
from hansard.log import disk, names
from tests.crashlab import faults
from tests.faults.workers import replaced
from tests.hostile.forge_files import checkpoint as forged
from tests.hostile.forge_files import checkpoint_head, confined, nested


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> hansard.Store:
    """Return a store that writes a checkpoint for the smallest session."""
    monkeypatch.setattr(compact, "CHECKPOINT", 1)
    return hansard.open(tmp_path / "s", durability="os", auto_compact=False)


def fill(session: hansard.Session, begin: int = 0) -> None:
    """Append an event of every kind."""
    for number in range(begin, begin + 300):
        session.add_message({"role": "user", "n": number})
        if number % 40 == 0:
            session.set_metadata(turn=number, title=f"T{number}")
            session.snapshot(f"at {number}")
            session.record_usage(model="m", input_tokens=1, output_tokens=2, cost=0.25)
    session.stream(gather=0).write(f"never finished {begin}")


def shown(path: Path) -> Any:
    """Return what a session adds up to, for a reader that has read nothing yet."""
    with hansard.open(path, read_only=True) as store:
        session = store.session("a")
        return (
            msgspec.to_builtins(session.state()),
            session.metadata,
            session.snapshots,
            session.messages(),
            session.state(at=100).message_count,
        )


def checkpoint(tmp_path: Path) -> Path:
    """Return the file."""
    return tmp_path / "s" / "sessions" / "a" / names.CHECKPOINT


def test_a_state_is_taken_up_where_it_was_saved(store: hansard.Store, tmp_path: Path) -> None:
    """Resuming reads a checkpoint and a tail, not the events before it."""
    session = store.session("a")
    fill(session)
    before = shown(tmp_path / "s")
    session.compact()
    session.add_message({"role": "user", "n": "new"})
    assert checkpoint(tmp_path).exists()
    with hansard.open(tmp_path / "s", read_only=True) as fresh, faults.record() as seen:
        state = fresh.session("a").state()
    opened = [Path(call.place).name for call in seen.calls if call.operation == "open_file"]
    assert state.message_count == before[0]["message_count"] + 1
    assert state.metadata == before[1]
    assert names.CHECKPOINT in opened
    assert not [name for name in opened if name.endswith(".zst")]


HARM: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda _: None,
    "empty": lambda _: b"",
    "cut": lambda data: data[: len(data) // 2],
    "garbage": lambda data: random.Random(1).randbytes(len(data)),
    "a newer version": lambda data: _said(data, checkpoint=9),
    "another session's": lambda data: _said(data, session="b"),
    "another log's": lambda data: _said(data, created="1999-01-01T12:00:00.000000Z"),
    "of another history": lambda data: _said(data, previous=1),
    "a flipped bit in its seq": lambda data: data.replace(b'"seq":3', b'"seq":2', 1),
    "a flipped bit in the state": lambda data: data[:-20] + bytes([data[-20] ^ 1]) + data[-19:],
    "ahead of the log": lambda data: _said(data, seq=10**6),
    "a seq in the middle of a segment": lambda data: _said(data, seq=100),
    "a newer state": lambda data: data.replace(
        b'{"version":2,"redactions"', b'{"version":7,"redactions"'
    ),
    "nothing but depth": lambda _: b'{"checkpoint":%s' % nested(100_000).encode(),
    "a member that is deep": lambda _: b'{"x":%s}\n' % nested(900).encode(),
    "control records that are none": lambda data: forged(data, b"nonsense\n", b""),
    "control records whose data are none": lambda data: forged(
        data, b'{"seq":1,"time":"","kind":"metadata.set","data":[],"crc":""}\n', b""
    ),
    "lengths below zero": lambda data: forged(data, b"12345", b"67890", controls=-5, state=15),
    "a seq below zero": lambda data: forged(data, b"", b"", seq=-1),
}


def _said(data: bytes, **members: Any) -> bytes:
    line, _, body = data.partition(b"\n")
    return checkpoint_head({**json.loads(line), **members}) + body


@pytest.mark.parametrize("harm", HARM)
def test_a_checkpoint_is_never_believed_over_the_log(
    harm: str, store: hansard.Store, tmp_path: Path
) -> None:
    """N-40, F-108, F-109: missing, damaged, forged, foreign, newer or ahead, it changes no answer."""
    session = store.session("a")
    fill(session)
    session.compact()
    fill(session, 1000)
    right = shown(tmp_path / "s")
    data = HARM[harm](checkpoint(tmp_path).read_bytes())
    if data is None:
        checkpoint(tmp_path).unlink()
    else:
        checkpoint(tmp_path).write_bytes(data)
    assert shown(tmp_path / "s") == right
    report = session.verify()
    assert report.ok
    notes = [finding for finding in report.findings if finding.where == str(checkpoint(tmp_path))]
    assert len(notes) == len(report.findings) == (harm != "missing"), "what is passed over is noted"
    assert all("readers ignore it" in finding.reason for finding in notes)
    session.compact()
    assert shown(tmp_path / "s") == right
    assert checkpoint(tmp_path).exists()


def test_a_compaction_that_cannot_remove_the_checkpoint_erases_nothing(
    store: hansard.Store, tmp_path: Path
) -> None:
    """F-168: it must not report that it erased what the checkpoint still holds."""
    session = store.session("a")
    session.set_metadata(note="SECRET")
    session.compact()
    assert b"SECRET" in checkpoint(tmp_path).read_bytes()
    session.scrub("SECRET")
    remove = disk.remove

    def refused(directory: int, name: str) -> None:
        if name == names.CHECKPOINT:
            raise OSError(errno.EIO, "injected")
        remove(directory, name)

    with replaced("remove", refused), pytest.raises(hansard.DiskFailed):
        session.compact()
    assert session.compact().blanked == 1
    assert b"SECRET" not in checkpoint(tmp_path).read_bytes()


@pytest.mark.parametrize("sealed", [False, True])
def test_a_log_that_was_restored_does_not_believe_a_later_checkpoint(
    store: hansard.Store, tmp_path: Path, *, sealed: bool
) -> None:
    """F-109: what was appended after a restore counts, also past the seq of the checkpoint that was left."""
    session = store.session("a")
    session.set_title("first")
    session.compact()
    files = {file: file.read_bytes() for file in checkpoint(tmp_path).parent.glob("*.*")}
    session.set_title("forgotten")
    session.add_message({"n": 1})
    session.compact()
    seq, left = session.seq, checkpoint(tmp_path).read_bytes()
    store.close()
    for file in checkpoint(tmp_path).parent.glob("*.*"):
        file.unlink()
    for file, data in files.items():
        file.write_bytes(data)
    with hansard.open(tmp_path / "s", durability="os", auto_compact=False) as again:
        restored = again.session("a")
        restored.set_title("second")
        while restored.seq < seq:
            restored.add_message({"n": 2})
        if sealed:
            restored.compact()
            checkpoint(tmp_path).write_bytes(left)
        restored.add_message({"n": 3})
        assert restored.state().title == restored.title == "second"
    assert shown(tmp_path / "s")[1] == {"title": "second"}


@pytest.mark.parametrize("more", [0, 3])
def test_an_open_handle_folds_a_restored_log_again(
    store: hansard.Store, tmp_path: Path, more: int
) -> None:
    """N-19: a state that a handle keeps ends with an event that the restored log does not have."""
    session = store.session("a")
    session.add_message({"n": 1})
    (log,) = (tmp_path / "s").rglob("log.jsonl")
    before = log.read_bytes()
    session.add_message({"n": 2})
    assert session.state().message_count == 2
    restored = log.with_suffix(".restored")
    restored.write_bytes(before)
    restored.replace(log)
    with hansard.open(tmp_path / "s", durability="os") as other:
        for _ in range(more):
            other.session("a").record_usage(model="m")
        assert session.state() == other.session("a").state()
    assert (session.state().seq, session.state().message_count) == (1 + more, 1)


def test_a_checkpoint_takes_no_memory_that_it_does_not_fill(
    store: hansard.Store, tmp_path: Path
) -> None:
    """N-77: a small checkpoint is read with little memory, though a large one may be half a gigabyte."""
    fill(store.session("a"))
    store.session("a").compact()
    assert checkpoint(tmp_path).exists()
    program = """
import sys, hansard
with hansard.open(sys.argv[1]) as store:
    print(store.session("a").state().message_count)
"""
    assert confined(program, tmp_path / "s", memory=300 << 20) == "300\n"
