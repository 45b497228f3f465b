"""Row 16 of the campaign, some cases each time: a file of the store is not what it should be."""

import os
from pathlib import Path

import pytest

import hansard
from hansard.log import disk
from tools.crash import hostile
from tools.crash.rows import hostile_files
from tools.crash.rows.hostile_files import Disguise

#: Each kind of guise once, in a place where it once was, or could be, believed.
TRIED = (
    ("hansard.json", "a pipe"),
    ("sessions/s", "a link to a directory"),
    ("sessions/s/log.jsonl", "a device that swallows"),
    ("sessions/s/lock", "a link to nothing"),
    ("sessions/s/checkpoint", hostile.OTHERS),
    ("sessions/s/00000000000000000001.jsonl.zst", "a bomb"),
    ("marks/epoch", "a socket"),
    ("index.db", "a pipe"),
    ("index.db-journal", "a crafted journal"),
    ("trash", "a full directory"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("file", "guise"), TRIED)
def test_a_hostile_file_does_no_harm(file: str, guise: str) -> None:
    """Nothing outside changes, nothing hangs, and every answer is right or refused."""
    hostile_files.prepare()
    outcome = Disguise(file, guise).run()
    assert outcome.ok, outcome.detail


def test_every_kind_of_file_is_tried() -> None:
    """The cases are made of the files that a store has, so that a new kind is tried without being named."""
    kinds = " ".join(hostile.files())
    for part in ("hansard.json", "log.jsonl", "lock", "compaction", "checkpoint", "jsonl.zst"):
        assert part in kinds
    for part in (
        "index.db-wal",
        "index.db-journal",
        "internal/cursor-",
        "marks/",
        "trash/",
        "internal/audit",
    ):
        assert part in kinds


@pytest.mark.parametrize("empty", [False, True])
def test_a_sparse_log_is_refused_without_reading_all_of_it(
    empty: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log of a tebibyte that is one hole is damaged; no call reads more of it than a few records."""
    with hansard.open(tmp_path, durability="os") as store:
        store.session("a").add_message({"n": 1})
    log = tmp_path / "sessions" / "a" / "log.jsonl"
    if empty:
        os.truncate(log, 0)
    os.truncate(log, 2**40)
    read = 0

    def counted(descriptor: int, length: int, offset: int) -> bytes:
        nonlocal read
        data = os.pread(descriptor, length, offset)
        read += len(data)
        assert read < 2**31, "it reads on and on"
        return data

    monkeypatch.setattr(disk, "read_at", counted)
    with hansard.open(tmp_path, read_only=True) as store:
        with pytest.raises(hansard.Damaged):
            store.session("a").messages()
        assert store.sessions().items[0].damaged
        assert not store.verify().ok
