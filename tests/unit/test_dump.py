"""What `Session.dump` yields, and what `compact(dry_run=True)` says: nothing is written for either."""

from pathlib import Path

import pytest

import hansard
from tests.unit.disk_probe import tree


def test_a_dry_run_counts_what_a_compaction_rewrites(tmp_path: Path) -> None:
    """N-87: before and after a redaction, a dry run tells which sessions a compaction rewrites."""
    with hansard.open(tmp_path, durability="os", auto_compact=False) as store:
        session = store.session("s")
        session.add_messages([{"n": n} for n in range(50)])

        def planned() -> tuple[int, int]:
            before = tree(tmp_path)
            found = session.compact(dry_run=True)
            assert found.dry_run
            assert store.compact(dry_run=True).before == found.before
            assert tree(tmp_path) == before
            return found.sessions, found.blanked

        def done() -> tuple[int, int]:
            report = session.compact()
            assert not report.dry_run
            return report.sessions, report.blanked

        assert planned() == done() == (1, 0)
        assert planned() == done() == (0, 0)
        session.redact(7)  # which lies in the sealed segment
        assert planned() == done() == (1, 1)
        secret = session.add_message({"secret": 1})
        session.redact(secret.seq)
        assert planned() == done() == (1, 1)
        assert planned() == (0, 0)


def test_a_dry_run_works_where_nothing_can_be_written(tmp_path: Path) -> None:
    """N-62: a store that is open for reading can be asked; to compact it is refused."""
    with hansard.open(tmp_path, durability="os") as store:
        store.session("s").add_message({"n": 1})
    with hansard.open(tmp_path, read_only=True) as store:
        assert store.compact(dry_run=True).sessions == 1
        with pytest.raises(hansard.ReadOnly):
            store.session("s").compact()
        with pytest.raises(hansard.SessionNotFound):
            store.session("missing").compact(dry_run=True)


@pytest.mark.parametrize("compacted", [False, True])
def test_a_dump_has_every_line_once(tmp_path: Path, *, compacted: bool) -> None:
    """F-12: the records of a dump stand end to end in each file, and hold every event once."""
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
    data = bytearray(sealed.read_bytes())
    data[20] ^= 1
    sealed.write_bytes(data)
    with hansard.open(tmp_path, read_only=True) as store:
        records = list(store.session("s").dump())
    assert any(record.problem and record.file.endswith(".zst") for record in records)
    assert any(b'{"n":2}' in record.raw for record in records)
