"""What a repair does: views, forks, keys, batches, and the report."""

import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

import hansard
from hansard import Session, Store
from hansard.backend.contract import RepairHints
from hansard.backend.local import repair
from hansard.log.format import Line
from tests.unit.disk_probe import flip

LOST = {1, 3, 5, 8, 9}


def message(text: str) -> dict[str, str]:
    """Return a message of a person."""
    return {"role": "user", "content": text}


def damage(path: Path, session_id: str, old: bytes, new: bytes) -> bytes:
    """Alter some bytes of a session's log, and return it as it is now."""
    file = path / "sessions" / session_id / "log.jsonl"
    data = file.read_bytes()
    assert old in data
    data = data.replace(old, new, 1)
    file.write_bytes(data)
    return data


def test_nothing_to_repair(session: Session, store: Store) -> None:
    """N-62: on every backend, a valid session does not change, and a missing one is an error."""
    session.add_message(message("one"))
    log = store._backend.log("s")
    assert log.repair(RepairHints(1, "x"), missing=True).findings in ((), [])
    report = session.repair()
    assert (report.session, report.repaired, report.ok, report.kept) == ("s", False, True, [])
    assert session.seq == 1
    with pytest.raises(hansard.SessionNotFound):
        store.session("missing").repair()


def test_places_stay_what_they_are(path: Path) -> None:
    """N-48, N-49, F-113: snapshots, reverts and forks refer to the same seqs after a repair."""
    with hansard.open(path, durability="os") as store:
        session = store.session("s")
        for text in ("one", "two", "three"):
            session.add_message(message(text))
        session.snapshot("here")
        session.add_message(message("four"))
        child = session.fork("child", at=3)
        session.revert("here")
        session.add_message(message("five"))
    damage(path, "s", b'"two"', b'"twx"')
    with hansard.open(path, durability="os") as store:
        session, child = store.session("s"), store.session("child")
        report = session.repair()
        assert report.lost == [(2, 2)]
        assert report.ok
        assert session.snapshots == {"here": 3}
        assert session.messages() == [message("one"), message("three"), message("five")]
        assert session.messages(at="here") == [message("one"), message("three")]
        assert child.messages() == [message("one"), message("three")]
        assert session.state().kinds["event.lost"] == 1
        assert session.window(messages=1) == [message("five")]
        assert store.verify().ok


def test_forks_know_what_the_session_has_forgotten(path: Path) -> None:
    """N-50, F-112: forks provide the last seq and the first time of a log that lost them."""
    with hansard.open(path, durability="os") as store:
        session = store.session("s")
        for number in range(5):
            session.add_message(message(str(number)))
        store.session("s").fork("child").add_message(message("child"))
    (path / "sessions/s/log.jsonl").write_bytes(b"\0" * 99)
    with hansard.open(path, durability="os") as store:
        report = store.session("s").repair()
        assert report.lost == [(1, 5)]
        assert store.session("s").seq == 6
        assert store.session("child").messages() == [message("child")]
        assert store.verify().ok


def test_a_fork_is_repaired_like_any_other(path: Path) -> None:
    """N-50, F-112: a fork with a damaged header still begins after its parent's events."""
    with hansard.open(path, durability="os") as store:
        store.session("s").add_messages([message("one"), message("two")])
        store.session("s").fork("child").add_message(message("three"))
    damage(path, "child", b'"log":"header"', b'"log":"hexder"')
    with hansard.open(path, durability="os") as store:
        child = store.session("child")
        assert child.repair().lost == []
        assert child.parent == "s"
        assert child.messages() == [message("one"), message("two"), message("three")]
        assert [event.seq for event in child.events()] == [1, 2, 3, 4, 5]


def test_a_torn_tail_stays_a_torn_tail(path: Path) -> None:
    """N-33, F-28: a torn tail is neither an event nor a lost one, even with damage before it."""
    with hansard.open(path, durability="os") as store:
        store.session("s").add_messages([message("one"), message("two")])
    file = path / "sessions/s/log.jsonl"
    whole = file.read_bytes()
    with hansard.open(path, durability="os") as store:
        store.session("s").add_messages([message("three"), message("four")])
    torn = file.read_bytes()[len(whole) :]
    for tail in (torn[:20], torn[: torn.index(b"\n") + 1], torn[:-1], bytes(50)):
        file.write_bytes(whole.replace(b'"one"', b'"onx"') + tail)
        with hansard.open(path, durability="os") as store:
            report = store.session("s").repair()
            assert (report.lost, report.ok) == ([(1, 1)], True)
            assert store.session("s").messages() == [message("two")]


def test_lost_control_events_are_counted(path: Path) -> None:
    """F-113: a lost event that others name as a control event is reported as one."""
    with hansard.open(path, durability="os") as store:
        session = store.session("s")
        session.add_message(message("one"))
        session.set_metadata(title="gone")
        session.add_message(message("two"))
    damage(path, "s", b'"gone"', b'"gonx"')
    with hansard.open(path, durability="os") as store:
        report = store.session("s").repair()
        assert (report.lost, report.controls) == ([(2, 2)], 1)
        assert store.session("s").title is None


def test_a_session_with_a_long_id(path: Path) -> None:
    """N-7, F-11, F-112: an id that only the header has is not invented; a caller that knows it can repair."""
    long = "x" * 300
    with hansard.open(path, durability="os") as store:
        store.session(long).add_message(message("one"))
    [directory] = [found for found in (path / "sessions").iterdir() if "%~" in found.name]
    file = directory / "log.jsonl"
    bad = b"?" + file.read_bytes()[1:]
    file.write_bytes(bad)
    with hansard.open(path, durability="os") as store:
        with pytest.raises(hansard.Damaged):
            store.session(directory.name).repair()
        assert file.read_bytes() == bad
        assert store.session(long).repair().ok
        assert store.session(long).messages() == [message("one")]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_of_several_segments_is_gone(path: Path, place: int) -> None:
    """F-115: the events of a missing sealed segment are given up only if that is requested."""
    with hansard.open(path, durability="os", auto_compact=False) as store:
        for part in range(3):
            for number in range(4):
                store.session("s").add_message(message(f"{part} {number}"))
            log: Any = store._backend.log("s")
            log._writer.seal()
        store.session("s").add_message(message("last"))
    (path / "sessions/s" / f"{4 * place + 1:020d}.jsonl").unlink()
    with hansard.open(path, durability="os", auto_compact=False) as store:
        session = store.session("s")
        report = session.repair()
        assert (report.repaired, report.ok) == (False, False)
        report = session.repair(missing=True)
        assert (report.lost, report.ok) == ([(4 * place + 1, 4 * place + 4)], True)
        session.compact()
        assert session.verify().ok
        assert len(session.messages()) == 9
        assert [event.seq for event in session.events()] == list(range(1, 15))


def test_a_second_name_of_the_damaged_file(path: Path) -> None:
    """N-39, F-116: a second name, left by a crash during sealing, does not count as a sealed segment."""
    with hansard.open(path, durability="os", auto_compact=False) as store:
        store.session("s").add_messages([message("one"), message("two")])
    damage(path, "s", b'"one"', b'"onx"')
    file = path / "sessions/s/log.jsonl"
    file.with_name(f"{1:020d}.jsonl").hardlink_to(file)
    with hansard.open(path, durability="os", auto_compact=False) as store:
        session = store.session("s")
        assert session.repair().ok
        session.compact()
        assert session.messages() == [message("two")]
        assert session.verify().ok


def test_appends_are_whole_again() -> None:
    """F-27: a lost event stays a member of its append, and an append that was cut off ends."""
    right = {1: 0, 2: 2, 3: 1, 4: 0, 5: 0, 6: 0, 7: 0, 8: 0, 9: 0}
    found = {1: 0, 2: 2, 3: 0, 4: 0, 5: 0, 6: 3, 7: 0, 8: 0, 9: 0}
    lines = [
        Line(seq, "t", msgspec.Raw(b"{}"), "", more=more, kind="event.lost" if seq in LOST else "x")
        for seq, more in found.items()
    ]
    shown = repair.finished((line, b"") for line in lines)
    assert {line.seq: line.more for line, _ in shown} == right


@pytest.mark.parametrize("where", ["active", "sealed", "compressed"])
def test_members_of_another_version_are_kept(path: Path, where: str) -> None:
    """N-43, F-14, F-99, F-113: unknown members of records survive a compaction, and a repair of any file."""
    with hansard.open(path, durability="os", auto_compact=False) as store:
        store.session("a").add_message(message("one"))
    log = path / "sessions" / "a" / "log.jsonl"
    for seq in (2, 3, 4):
        body = (
            b'{"seq":%d,"time":"2026-01-01T00:00:00.000000Z","kind":"message.added",'
            b'"later":{"x":[%d]},"data":{"message":{"n":%d}}'
        ) % (seq, seq, seq)
        data = log.read_bytes() + body
        log.write_bytes(data + b',"crc":"%08x"}\n' % zlib.crc32(data))
    with hansard.open(path, durability="os", auto_compact=False) as store:
        session = store.session("a")
        if where == "compressed":
            session.redact(1)
            session.compact()
            (file,) = log.parent.glob("*.zst")
            assert b'"later":{"x":[2]}' in lines_of(file)
            _spoil_the_index(file)
        elif where == "sealed":
            store._backend.log("a")._writer.seal()  # type: ignore[attr-defined]
            (file,) = log.parent.glob("0*.jsonl")
            file.write_bytes(file.read_bytes().replace(b'"n":3', b'"n":9'))
        else:
            damage(path, "a", b'"n":3', b'"n":9')
    with hansard.open(path, durability="os", auto_compact=False) as store:
        report = store.session("a").repair()
        assert (report.repaired, report.ok) == (True, True)
        kept = [2, 3, 4] if where == "compressed" else [2, 4]
        assert report.lost == ([] if where == "compressed" else [(3, 3)])
        found = b"".join(
            lines_of(file) for file in log.parent.iterdir() if not file.name.startswith("damaged")
        )
        for seq in kept:
            assert b'"later":{"x":[%d]}' % seq in found


def _spoil_the_index(file: Path) -> None:
    flip(file, file.read_bytes().rindex(b'"session":') + 3)


def lines_of(file: Path) -> bytes:
    """Return the records of a file of a log."""
    data = file.read_bytes()
    if file.suffix != ".zst":
        return data
    with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as reader:
        return bytes(reader.read())


def test_a_repaired_segment_is_erased_once(path: Path) -> None:
    """N-45, N-76, F-100: after a repair of a lost index, redacted parts and messages are erased, once."""
    with hansard.open(path, durability="os", auto_compact=False) as store:
        session = store.session("a")
        session.add_messages([message(f"{number} of many") for number in range(200)])
        session.redact(7)
        stream = session.stream(gather=0, role="assistant")
        stream.write("the hidden word")
        session.compact()
        stream.write("more")
        (file,) = (path / "sessions" / "a").glob("*.zst")
        _spoil_the_index(file)
    with hansard.open(path, durability="os", auto_compact=False) as store:
        session = store.session("a")
        assert session.repair().lost == []
        # From its later part: only the index knows the one in the segment.
        session.redact(203)
        session.compact()
        for kept in (path / "sessions" / "a").glob("damaged*"):
            kept.unlink()
        files = (path / "sessions" / "a").iterdir()
        assert not any(b"the hidden word" in lines_of(file) for file in files)
        report = session.compact()
        assert (report.sessions, report.blanked) == (0, 0)
        assert session.verify().ok
