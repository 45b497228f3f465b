"""Compaction changes files and not views: equal before and after, and no work is done twice."""

import base64
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import Store
from tests.crashlab import faults
from tests.hostile.forge_files import confined
from tests.unit.disk_probe import tree
from tests.unit.sample_messages import talk


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Return an empty store."""
    with hansard.open(tmp_path / "store", durability="os") as store:
        yield store


def test_a_key_is_found_when_a_reader_saw_the_next_segment_first(store: Store, root: Path) -> None:
    """N-56: a writer that knows the keys of a segment learns those of the next from its beginning."""
    session = store.session("s")
    for number in range(30):
        session.add_message({"n": number}, key=f"k{number}")
    with hansard.open(root) as other:
        other.session("s").compact()
        other.session("s").add_message({"n": "x"}, key="theirs")
    assert session.seq == 31
    assert session.add_message({"n": "y"}, key="theirs").seq == 31
    assert session.add_message({"n": "z"}, key="k0").seq == 1
    assert session.add_message({"n": "new"}, key="ours").seq == 32


@pytest.mark.slow
def test_total_work_is_linear_in_the_log(store: Store, root: Path) -> None:
    """N-73: over 64 rounds of fifty appends and a compaction each byte is rewritten a few times."""
    session = store.session("s")
    written = 0

    def watch(call: faults.Call, _: tuple[Any, ...], result: Any) -> None:
        nonlocal written
        if call.operation == "write" and "tmp-0" in call.place:
            written += result

    with faults.record(watch=watch):
        for _ in range(64):
            session.add_messages([{"n": n, "text": os.urandom(20).hex()} for n in range(50)])
            session.compact()
    size = sum(path.stat().st_size for path in root.glob("sessions/s/*.zst"))
    assert session.seq == 3_200
    # 6 is the logarithm of 64. Compacting everything each time would be 32 times the size.
    assert size < written < 8 * size
    assert len(list(root.glob("sessions/s/*.zst"))) <= 8


def test_what_is_compact_is_left_alone(store: Store, root: Path) -> None:
    """N-76: a store in which nothing happened since is not written to: every file is the one it was."""
    for number in range(5):
        talk(store.session(f"s{number}"))
    assert store.compact().sessions == 5
    before = tree(root)
    with faults.record() as calls:
        assert store.compact().sessions == 0
    assert tree(root) == before
    assert not [call for call in calls.calls if call.operation in {"write", "move", "create_file"}]
    store.session("s3").add_message({"new": "text " * 1000})
    assert store.compact().sessions == 1
    after = tree(root)
    assert {name: seen for name, seen in after.items() if "/s3" not in name} == {
        name: seen for name, seen in before.items() if "/s3" not in name
    }


def _size(root: Path, name: str) -> int:
    return sum(os.stat(path).st_size for path in (root / "sessions" / name).iterdir())


@pytest.mark.parametrize("count", [1, 60, 1500])
def test_the_report_is_the_bytes_of_the_files(store: Store, root: Path, count: int) -> None:
    """N-45: `before` and `after` are the sizes of all files, also of a second compaction and a checkpoint."""
    session = store.session("s")
    session.add_messages([{"n": n, "text": os.urandom(200).hex()} for n in range(count)])
    for _ in range(2):
        before = _size(root, "s")
        report = session.compact()
        assert (report.before, report.after, report.sessions) == (before, _size(root, "s"), 1)
        session.add_message({"text": os.urandom(200).hex()})
    assert (root / "sessions" / "s" / "checkpoint").exists() == (count == 1500)
    session.compact()
    assert session.compact() == hansard.CompactReport()


def test_short_sessions_are_rewritten_only_if_they_become_smaller(store: Store, root: Path) -> None:
    """N-76: a log that fits into a block stays; a longer one gets smaller, even of random text."""
    for count in range(1, 60):
        session = store.session(f"s{count:02}")
        for n in range(count):
            session.add_message({"content": base64.b64encode(os.urandom(90)).decode()}, key=f"k{n}")
        before = _size(root, session.id)
        report = store.compact(prefix=session.id)
        assert report.sessions == (before > 4096)
        if report.sessions:
            assert (report.before, report.after) == (before, _size(root, session.id))
            assert report.after < before
    assert store.compact().sessions == 0


@pytest.mark.parametrize("closed", [True, False])
def test_fragments_of_torn_appends_are_erased_from_short_sessions(
    store: Store, root: Path, closed: bool
) -> None:
    """N-33: a session that would only grow is rewritten if its log has what a killed writer left."""
    session = store.session("s")
    session.add_message({"role": "user", "content": "hi"})
    assert not store.compact().sessions
    with (root / "sessions" / "s" / "log.jsonl").open("ab") as file:
        file.write(b'{"seq":2,"time":"20')
    if closed:
        session.add_message({"role": "user", "content": "ho"})
    assert store.compact().sessions == 1
    assert not [record for record in session.dump() if record.problem]
    assert not [record for record in session.dump() if b"recovered" in record.raw]


MEMORY = """
import resource, sys, hansard
with hansard.open(sys.argv[1], durability="os", auto_compact=False) as store:
    session = store.session("s")
    text = "x" * 900
    for n in range(60):
        session.add_messages([{"n": n, "m": m, "text": f"{text}{n * m}"} for m in range(1000)])
    session.messages(last=1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    report = session.compact()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert report.before > 50_000_000, report
    print((after - before) // 1024)
"""


@pytest.mark.slow
def test_memory_is_bounded(tmp_path: Path) -> None:
    """N-79: a session of 60 MB is compacted in a fraction of its size."""
    assert int(confined(MEMORY, tmp_path / "store")) < 60
