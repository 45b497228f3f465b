"""A file of the store that is not what it should be: see also row 16 of the campaign."""

import os
from pathlib import Path

import pytest

import hansard
from hansard.log import disk


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
