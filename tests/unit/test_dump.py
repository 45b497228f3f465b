"""What `Session.dump` yields."""

from pathlib import Path

import pytest

import hansard
from tests.unit.disk_probe import flip


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
