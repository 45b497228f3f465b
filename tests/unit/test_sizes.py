"""Sizes around every limit of the log: every acknowledged event is read, compacted and moved."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import hansard
from hansard.backend.local import compact as compaction
from hansard.event import codec
from hansard.log import (
    format,
    sealed_segment,
    sealed_writer,
    segment_reader,
    segment_scan,
    write_batch,
)
from hansard.transfer import export_file

#: The limits of the log, a thousandth of what they are: modules, name, value.
SMALL = (
    ((sealed_segment, sealed_writer), "FRAME", 4096),
    ((sealed_segment, sealed_writer, compaction), "LAST_FRAME", 352),
    ((sealed_segment,), "LARGEST_FRAME", (1 << 10) + 24_000),
    ((sealed_segment, sealed_writer), "PAGE", 4),
    ((sealed_segment,), "_END", 64),
    ((segment_reader, write_batch), "PIECE", 1 << 10),
    ((segment_reader,), "WINDOW", 256),
    ((segment_reader,), "_NEAR", 512),
    ((segment_scan,), "_PIECE", 1 << 10),
    ((format,), "MAX_LINE", 24_000),
    ((codec,), "MAX_BYTES", 16_000),
    ((codec,), "MAX_BATCH", 64_000),
    ((compaction,), "LARGEST", 16_000),
    ((compaction,), "_BLOCK", 1 << 10),
    ((export_file,), "LONGEST", 40_000),
    ((export_file,), "_LARGEST_APPEND", 128_000),
)
EDGES = (352, 1 << 10, 4096, 15_700, 16_000, 25_000)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every limit of the log small."""
    for modules, name, value in SMALL:
        for module in modules:
            monkeypatch.setattr(module, name, value)


def batches(seed: int, most: int = 16_000) -> Iterator[list[dict[str, str]]]:
    """Yield batches of messages, of sizes around a limit, one by one or as a sum."""
    draw = random.Random(seed)
    for _ in range(draw.randint(1, 6)):
        edge = draw.choice(EDGES)
        count = draw.choice((1, 1, 2, 3, 7, 40))
        whole = draw.random() < 0.5
        sizes = [
            min(most - 200, max(0, (edge // count if whole else edge) + draw.randint(-150, 50)))
            for _ in range(count)
        ]
        letters = draw.choices("abcdefgh", k=most)
        yield [{"role": "user", "content": "".join(letters[:size])} for size in sizes]


def append(store: hansard.Store, given: Iterator[list[dict[str, str]]]) -> list[dict[str, str]]:
    """Append batches, some with a key, with a control event between; return what was accepted."""
    session = store.session("a")
    said = []
    for number, batch in enumerate(given):
        try:
            session.add_messages(batch, key=f"k{number}" if number % 2 else None)
        except hansard.InvalidEvent:
            assert sum(len(message["content"]) + 256 for message in batch) > 50_000
            continue
        said += batch
        session.set_metadata(number=number)
        if number == 2:
            session.compact()
    return said


def check(store: hansard.Store, said: list[dict[str, str]]) -> None:
    """Compare the messages of a session, forwards and backwards, with the appended ones."""
    session = store.session("a")
    assert session.messages() == said
    assert session.messages(last=3) == said[-3:]
    report = store.verify()
    assert report.ok, report


def travel(store: hansard.Store, others: tuple[hansard.Store, ...]) -> None:
    """Compact a session again and again, and move it; compare it each time."""
    said = store.session("a").messages()
    check(store, said)
    exported, copied = others
    for report in (store.compact(), store.compact()):
        assert report.failed == {}
        check(store, said)
    exported.import_session(store.session("a").export(redacted=False))
    check(exported, said)
    assert store.copy_to(copied).failed == {}
    check(copied, said)
    # Compacted once more, framed line by line this time: something in it is to be forgotten.
    session = store.session("a")
    first = next(event.seq for event in session.events() if event.kind == "message.added")
    session.redact(first)
    assert store.compact().failed == {}
    check(store, said[1:])
    for other in others:
        assert other.compact().failed == {}
        check(other, said)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(60))
def test_what_was_acknowledged_survives_every_size(tmp_path: Path, seed: int) -> None:
    """F-79, F-81: messages and batches around every limit are read, sealed_segment, compacted and moved."""
    with (
        hansard.open(tmp_path / "s", durability="os", auto_compact=False) as store,
        hansard.open(tmp_path / "exported", durability="os", auto_compact=False) as exported,
        hansard.open(tmp_path / "copied", durability="os", auto_compact=False) as copied,
    ):
        said = append(store, batches(seed))
        if said:
            check(store, said)
            travel(store, (exported, copied))


@pytest.mark.usefixtures("small")
def test_a_batch_above_the_limit_is_refused_whole(tmp_path: Path) -> None:
    """F-27: what no import could take is not acknowledged; nothing of it is stored."""
    with hansard.open(tmp_path / "s", durability="os", auto_compact=False) as store:
        session = store.session("a")
        with pytest.raises(hansard.InvalidEvent, match="in parts"):
            session.add_messages([{"role": "user", "content": "x" * 15_000}] * 5, key="k")
        assert not store.exists("a")
        session.add_messages([{"role": "user", "content": "x" * 15_000}] * 4, key="k")
        assert session.seq == 4


@pytest.mark.usefixtures("small")
def test_a_long_torn_batch_is_left_out_of_what_is_compressed(tmp_path: Path) -> None:
    """F-99: no frame has to hold a discarded fragment, which may be longer than any frame."""
    with hansard.open(tmp_path / "s", durability="os", auto_compact=False) as store:
        store.session("a").add_message({"role": "user", "content": "before"})
        log = tmp_path / "s" / "sessions" / "a" / "log.jsonl"
        whole = log.read_bytes()
        store.session("a").add_messages([{"role": "user", "content": "torn" * 1000}] * 12)
        torn = log.read_bytes()
    log.write_bytes(torn[:-100])
    assert len(torn) - len(whole) > sealed_segment.LARGEST_FRAME
    with hansard.open(tmp_path / "s", durability="os", auto_compact=False) as store:
        store.session("a").add_message({"role": "user", "content": "after"})
        assert store.compact().failed == {}
        check(store, [{"role": "user", "content": "before"}, {"role": "user", "content": "after"}])
        (found,) = (tmp_path / "s" / "sessions" / "a").glob("*.zst")
        assert b"torn" not in found.read_bytes()


def test_a_segment_that_cannot_be_read_back_replaces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-103: compaction reads its new segment as a reader does, before it removes an original."""
    with hansard.open(tmp_path / "s", durability="os", auto_compact=False) as store:
        for name in ("a", "b"):
            store.session(name).add_messages([{"role": "user", "content": "x" * 5000}] * 3)
        store.session("b").compact()
        with monkeypatch.context() as patched:
            # A writer that frames more than a reader takes.
            patched.setattr(sealed_segment, "LARGEST_FRAME", 10_000)
            report = store.compact()
            assert list(report.failed) == ["a"]
            assert "cannot be read back" in report.failed["a"]
        assert store.verify().ok
        assert len(store.session("a").messages()) == 3
        assert not list((tmp_path / "s").rglob(".tmp-*"))
        assert store.compact().failed == {}
        assert store.verify().ok
