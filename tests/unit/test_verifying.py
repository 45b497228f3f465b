"""Verify believes no checksum: what is derived from the log is compared with the log, member by member.

Each mutant here has valid checksums and one wrong value. `Session.dump` lists the lines, valid or not.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.backend.local import compact
from hansard.log import names
from hansard.log.sealed_segment import seek_table
from tests.hostile.forge_files import checkpoint as forged
from tests.unit.disk_probe import flip
from tests.unit.log.sealed_files import Parts


def _set(**members: Any) -> Callable[[Parts], object]:
    return lambda parts: parts.index.update(members)


def _frame(member: int, step: int) -> Callable[[Parts], object]:
    def change(parts: Parts) -> None:
        parts.index["frames"][1][member] += step

    return change


def _keys_of_another_seq(parts: Parts) -> None:
    parts.keys[3] = (parts.keys[3][0], parts.keys[3][1] + 1)


def _no_seek(parts: Parts) -> None:
    parts.table = lambda sizes: seek_table([(a, b + 1) for a, b in sizes])


MUTANTS: dict[str, Callable[[Parts], object]] = {
    "version": _set(version=2),
    "session": _set(session="b"),
    "created": _set(created="2020-01-01T00:00:00.000000Z"),
    "before": _set(before=1),
    "last": lambda parts: parts.index.update(last=parts.index["last"] - 1),
    "size": lambda parts: parts.index.update(size=parts.index["size"] - 1),
    "crc": lambda parts: parts.index.update(crc=parts.index["crc"] ^ 1),
    "time": _set(time="2020-01-01T00:00:00.000000Z"),
    "ctl": _set(ctl=0),
    "header": lambda parts: parts.index.update(header=parts.index["header"] - 1),
    "header_crc": _set(header_crc=1),
    "frames: length": _frame(0, 1),
    "frames: offset": _frame(1, 1),
    "frames: seq": _frame(2, 1),
    "frames: crc": _frame(3, 1),
    "keys: one less": lambda parts: parts.keys.pop(3),
    "keys: another seq": _keys_of_another_seq,
    "keys: one more": lambda parts: parts.keys.append((2**64 - 1, 1)),
    "pages": lambda parts: parts.index["pages"][0].__setitem__(0, 1),
    "begins": _set(begins=False),
    "seek table": _no_seek,
}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a store with a sealed segment of several frames, with everything in its index, and another."""
    monkeypatch.setattr("hansard.log.sealed_writer.FRAME", 600)
    with hansard.open(tmp_path / "s", durability="os", auto_compact=False) as store:
        session = store.session("a")
        for number in range(12):
            session.add_message({"role": "user", "content": f"q{number}"}, key=f"k{number}")
        session.set_title("right")
        session.snapshot("here")
        session.redact(2)
        session.stream(gather=0, role="assistant").write("never finished")
        session.compact()
        # So little is not joined with what is before it.
        session.add_message({"n": 1})
        session.compact()
    assert len(segments(tmp_path / "s")) == 2
    return tmp_path / "s"


def segments(path: Path) -> list[Path]:
    """Return the sealed segments of the session."""
    return sorted((path / "sessions" / "a").glob("*.zst"))


def shown(path: Path) -> Any:
    """Return the messages of a session, read with a new handle."""
    with hansard.open(path, read_only=True) as store:
        session = store.session("a")
        return (
            session.messages(view="history"),
            session.metadata,
            session.snapshots,
            session.state().message_count,
            [event.raw for event in session.events() if event.kind != "session.repaired"],
        )


def damage(path: Path) -> list[str]:
    """Return what `verify` finds."""
    with hansard.open(path, read_only=True) as store:
        found = store.verify().findings
    return [finding.reason for finding in found if finding.severity == "damage"]


def test_a_segment_that_is_put_together_again_is_whole(path: Path) -> None:
    """The mutants differ from what is right in what they are called after, and in nothing else."""
    right = shown(path)
    for segment in segments(path):
        Parts(segment).put(lambda _: None)
    assert damage(path) == []
    assert shown(path) == right


@pytest.mark.parametrize("mutant", MUTANTS)
def test_every_member_of_the_index_is_compared_with_the_lines(path: Path, mutant: str) -> None:
    """F-97: a wrong index with right checksums is found, whichever member is wrong; a repair rights it."""
    right = shown(path)
    Parts(segments(path)[0]).put(MUTANTS[mutant])
    assert damage(path)
    if mutant in {"version", "session"}:
        return  # not repairable: another session's, or another version
    with hansard.open(path, auto_compact=False) as store:
        report = store.session("a").repair()
        assert report.ok, report.left
        assert report.repaired
        if not mutant.startswith(("before", "header")):
            assert report.lost == []
            assert shown(path) == right
        assert store.session("a").add_message({"n": 1}, key="k3").seq == 4
        store.compact()
        assert store.compact().sessions == 0
    assert damage(path) == []


def test_a_segment_that_begins_where_none_does_is_found(path: Path) -> None:
    """F-84, F-97: that the log begins here is compared with what is before it."""
    Parts(segments(path)[1]).put(_set(begins=True))
    assert "the log begins here" in damage(path)[0]


def test_a_segment_without_a_fingerprint_is_written_again(path: Path) -> None:
    """F-100: a segment whose index has no fingerprint, or another one, is compacted again."""
    for fingerprint in ("", "0123456789abcdef"):
        Parts(segments(path)[0]).put(_set(fingerprint=fingerprint))
        assert damage(path) == []
        with hansard.open(path, auto_compact=False) as store:
            assert store.compact().sessions == 1
            assert store.compact().sessions == 0


def _sections(data: bytes) -> tuple[bytes, bytes]:
    """Return the control records and the state of a checkpoint."""
    line, _, body = data.partition(b"\n")
    end = json.loads(line)["controls"]
    return body[:end], body[end:]


def _state(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    def changed(data: bytes) -> bytes:
        controls, saved = _sections(data)
        state = json.loads(saved)
        change(state["state"])
        return forged(data, controls, json.dumps(state, separators=(",", ":")).encode())

    return changed


def _controls(change: Callable[[list[bytes]], object]) -> Callable[[bytes], bytes]:
    def changed(data: bytes) -> bytes:
        controls, saved = _sections(data)
        lines = controls.splitlines(keepends=True)
        change(lines)
        return forged(data, b"".join(lines), saved)

    return changed


WRONG: dict[str, Callable[[bytes], bytes]] = {
    "state: a count": _state(lambda state: state.update(message_count=7)),
    "state: metadata": _state(lambda state: state["metadata"].update(title="wrong")),
    "state: a label": _state(lambda state: state["snapshots"].clear()),
    "state: a stream": _state(lambda state: state["streams"].clear()),
    "state: its seq": _state(lambda state: state.update(seq=state["seq"] - 1)),
    "controls: one less": _controls(lambda controls: controls.pop(0)),
    "controls: other data": _controls(
        lambda controls: controls.__setitem__(0, controls[0].replace(b"right", b"wrong"))
    ),
}


@pytest.fixture
def checkpoint(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the checkpoint of a session."""
    monkeypatch.setattr(compact, "CHECKPOINT", 1)
    with hansard.open(path, durability="os", auto_compact=False) as store:
        store.session("a").add_message({"n": 1})
        store.session("a").compact()
    return path / "sessions" / "a" / names.CHECKPOINT


@pytest.mark.parametrize("how", WRONG)
def test_a_checkpoint_is_compared_with_the_log(path: Path, checkpoint: Path, how: str) -> None:
    """N-40, F-168: a wrong checkpoint with valid checksums is found by verify, and removed by repair."""
    right = shown(path)
    assert damage(path) == []
    checkpoint.write_bytes(WRONG[how](checkpoint.read_bytes()))
    (found,) = damage(path)
    assert "delete the file, or repair" in found
    log = (path / "sessions" / "a" / "log.jsonl").read_bytes()
    with hansard.open(path, durability="os", auto_compact=False) as store:
        report = store.session("a").repair()
        assert (report.ok, report.repaired, report.lost, report.kept) == (True, True, [], [])
        assert [finding.where for finding in report.findings] == [str(checkpoint)]
        assert not store.session("a").repair().repaired
    assert not checkpoint.exists()
    assert (path / "sessions" / "a" / "log.jsonl").read_bytes() == log, "nothing happened to it"
    assert shown(path) == right


def test_frames_in_memory_do_not_hide_damage(tmp_path: Path) -> None:
    """N-34: verify reads the disk, also through a handle that has read the segment before."""
    path = tmp_path / "s"
    with hansard.open(path, durability="os", auto_compact=False) as store:
        session = store.session("a")
        session.add_messages([{"n": number} for number in range(200)])
        session.compact()
        assert len(session.messages()) == 200
        (file,) = segments(path)
        flip(file, 100)
        assert not session.verify().ok


@pytest.mark.parametrize("compacted", [False, True])
def test_a_dump_has_every_line_once(tmp_path: Path, *, compacted: bool) -> None:
    """F-12: the records of a dump follow each other without gaps, and hold every event once."""
    with hansard.open(tmp_path, durability="os") as store:
        session = store.session("s")
        for n in range(5):
            session.add_messages([{"n": n}, {"text": "\u2028"}])
        if compacted:
            session.compact()
            session.add_message({"n": 5})
        records = list(session.dump())
        assert list(store.session("missing").dump()) == []
    files = dict.fromkeys(record.file for record in records)
    assert len(files) == (2 if compacted else 1)
    for file in files:
        own = [record for record in records if record.file == file]
        ends = [record.offset + record.length for record in own]
        assert [record.offset for record in own] == [0, *ends[:-1]]
    assert not any(record.problem for record in records)
    assert sum(b'"data":{"message"' in record.raw for record in records) == 10 + compacted


def test_a_dump_of_a_damaged_sealed_segment_says_so(tmp_path: Path) -> None:
    """N-34: what cannot be unpacked is one record with its problem, and the rest is there."""
    with hansard.open(tmp_path, durability="os") as store:
        session = store.session("s")
        session.add_message({"n": 1})
        session.compact()
        session.add_message({"n": 2})
    (sealed,) = (tmp_path / "sessions" / "s").glob("*.zst")
    flip(sealed, 20)
    with hansard.open(tmp_path, read_only=True) as store:
        records = list(store.session("s").dump())
    assert any(record.problem and record.file.endswith(".zst") for record in records)
    assert any(b'{"n":2}' in record.raw for record in records)
