"""Failures of one session, repeated compactions, and the report."""

from pathlib import Path
from random import Random

import pytest
import zstandard

import hansard
from hansard.backend.local import compact as backend_compaction
from hansard.log.sealed_writer import SealedWriter
from tests.unit.disk_probe import Traffic, flip


def test_a_session_that_cannot_be_compacted_stops_no_other(tmp_path: Path) -> None:
    """N-35, N-89: a damaged session is reported with the reason, and the others are compacted."""
    with hansard.open(tmp_path / "store") as store:
        for name in ("a", "b", "c"):
            store.session(name).add_messages([{"n": n} for n in range(50)])
    log = tmp_path / "store" / "sessions" / "b" / "log.jsonl"
    data = flip(log)
    with hansard.open(tmp_path / "store") as store:
        done: list[tuple[int, int]] = []
        report = store.compact(progress=lambda *how_far: done.append(how_far))
        assert report.sessions == 2
        assert list(report.failed) == ["b"]
        assert "log.jsonl" in report.failed["b"]
        assert store.compact(prefix="a").failed == {}
    assert log.read_bytes() == data


def test_compacting_again_reads_what_is_new(
    tmp_path: Path, rng: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-71: compacted segments are neither read nor written again."""
    monkeypatch.setattr(backend_compaction, "LARGEST", 200_000)
    noise = [{"content": rng.randbytes(30_000).hex()} for _ in range(50)]
    with hansard.open(tmp_path / "store", auto_compact=False) as store:
        session = store.session("s")
        session.add_messages(noise)
        session.compact()
        before = sum(path.stat().st_size for path in (tmp_path / "store").rglob("*.zst"))
        traffic = Traffic(monkeypatch)
        session.add_message({"content": "new"})
        assert session.compact().sessions == 1
    # The end of each segment, with its index, is.
    assert traffic.read < 300_000 < before
    assert traffic.written < 50_000


@pytest.mark.parametrize("error", [zstandard.ZstdError("not enough memory"), MemoryError()])
def test_whatever_fails_in_one_session_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """N-35: a foreign exception is reported for its session, and the others are compacted."""
    real = SealedWriter.finish

    def finish(sealer: SealedWriter) -> None:
        if sealer.session_id == "b":
            raise error
        real(sealer)

    monkeypatch.setattr(SealedWriter, "finish", finish)
    with hansard.open(tmp_path / "store", auto_compact=False) as store:
        for name in "abc":
            store.session(name).add_message({"content": "x" * 5000})
        report = store.compact()
        assert (report.sessions, list(report.failed)) == (2, ["b"])
        assert type(error).__name__ in report.failed["b"]
        assert store.verify().ok
        monkeypatch.undo()
        assert store.compact().sessions == 1
