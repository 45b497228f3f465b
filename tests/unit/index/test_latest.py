"""Claims about `latest`, `children` and `prune`: the index shows the way, and the logs decide."""

import os
import random
import re
import sqlite3
from datetime import timedelta
from pathlib import Path
from zlib import crc32

import pytest

import hansard
from tests.crashlab import faults
from tests.unit.disk_probe import index_of, log_of
from tests.unit.index import reference_listing
from tests.unit.index.random_store import RandomStore
from tests.unit.index.test_cost import logs_opened
from tests.unit.maintenance.test_trash import say

MESSAGE = {"role": "user", "content": "hello"}


@pytest.mark.parametrize("indexed", [False, True])
def test_touching_a_file_does_not_make_its_session_the_latest(
    tmp_path: Path, *, indexed: bool
) -> None:
    """N-61: whether there was an index before or not, the times of events decide, and not those of files."""
    root = tmp_path / "store"
    with hansard.open(root, durability="os") as store:
        for name in "abc":
            store.session(name).add_message(MESSAGE)
        if indexed:
            store.sessions()
        os.utime(log_of(root, "a"), (2e9, 2e9))
        store.session("a").set_title("touched")
        latest = store.latest()
        assert latest is not None
        assert latest.id == "c"
        assert index_of(root).exists()


def test_a_damaged_newest_session_is_reported_and_not_skipped(tmp_path: Path) -> None:
    """N-61: what the index calls the newest is read; if it is damaged by now, no older one is taken."""
    root = tmp_path / "store"
    with hansard.open(root, durability="os") as store:
        for name in "abc":
            store.session(name).add_message(MESSAGE)
            store.session(name).add_message(MESSAGE)
        store.sessions()
    log = log_of(root, "c")
    data = bytearray(log.read_bytes())
    data[data.rindex(b'"content"') + 1] ^= 1
    log.write_bytes(data)
    with hansard.open(root, durability="os") as store:
        for _ in range(2):
            with pytest.raises(hansard.Damaged, match="'c' may be the newest"):
                store.latest()
            older = store.latest(skip_damaged=True)
            assert older is not None
            assert older.id == "b"
            assert [info.id for info in store.sessions(damaged=True).items] == ["c"]


@pytest.mark.slow
def test_the_latest_is_the_same_with_an_index_and_without(
    tmp_path: Path, rng: random.Random
) -> None:
    """N-61, N-86: whatever was done, an index changes neither the latest of any kind nor any children."""
    root = tmp_path / "store"
    folders = [tmp_path / "work", tmp_path / "play"]
    for folder in folders:
        folder.mkdir()
    with (
        hansard.open(root, durability="os") as store,
        hansard.open(root, read_only=True) as without,
    ):
        busy = RandomStore(store, rng, folders)
        for _ in range(15):
            busy.do(rng.choice([1, 3, 10]))
            store.sessions()
            for archived in (True, False):
                for prefix in ("", "a/", "b"):
                    for workspace in (None, *folders):
                        found, expected = (
                            one.latest(archived=archived, prefix=prefix, workspace=workspace)
                            for one in (store, without)
                        )
                        assert (found and found.id) == (expected and expected.id)
            for info in reference_listing.everything(store):
                expected_children = without.session(info.id).children()
                assert store.session(info.id).children() == expected_children
                assert len(expected_children) == info.children


def test_an_index_that_is_wrong_is_not_believed(tmp_path: Path) -> None:
    """N-61: if the log of the session that should be the newest says otherwise, all logs are asked."""
    root = tmp_path / "store"
    with hansard.open(root, durability="os") as store:
        for name in "abc":
            store.session(name).add_message(MESSAGE)
        store.session("a").fork("d").set_title("a fork")
        store.sessions()
    falsify(root, "a", r'"updated":"[^"]*"', '"updated":"9999"', updated="9999")
    falsify(root, "b", "", "", parent="a")
    with hansard.open(root, durability="os") as store:
        latest = store.latest()
        assert latest is not None
        assert latest.id == "d"
        assert store.session("a").children() == ["d"]


def falsify(root: Path, session_id: str, old: str, new: str, **columns: object) -> None:
    """Change what the index says about a session, checksum and all."""
    with sqlite3.connect(index_of(root)) as database:
        ask = "SELECT info FROM index_entry WHERE id = ?"
        [(info,)] = database.execute(ask, (session_id,)).fetchall()
        wrong = re.sub(old, new, info, count=1)
        said = (wrong, crc32(wrong.encode()), session_id)
        database.execute("UPDATE index_entry SET info = ?, crc = ? WHERE id = ?", said)
        for column, value in columns.items():
            change = f"UPDATE index_session SET {column} = ? WHERE id = ?"  # noqa: S608 - our own names
            database.execute(change, (value, session_id))
    database.close()


def test_nothing_is_pruned_because_the_index_is_wrong(tmp_path: Path) -> None:
    """N-87: the log decides on what the index calls old, not pinned, or of no workspace."""
    root = tmp_path / "store"
    with hansard.open(root, durability="os") as store:
        for name in ("young", "pinned", "placed", "old"):
            say(store, name, days=0 if name == "young" else 9)
        store.session("pinned").set_metadata(pinned=True)
        store.session("placed").set_workspace(tmp_path)
        store.sessions()
    falsify(root, "young", r'"updated":"[^"]*"', '"updated":"2001"', updated="2001")
    falsify(root, "pinned", '"pinned":true', '"pinned":false')
    falsify(root, "placed", "", "", workspace=None)
    with hansard.open(root, durability="os") as store:
        report = store.prune(older_than=timedelta(days=1))
        assert report.pruned == store.trash() == ["old"]
        assert report.kept["pinned"] == "pinned"
        assert report.kept["young"].startswith("active since")
        assert report.kept["placed"].startswith("belongs to the workspace")


def test_a_wrong_time_in_the_index_takes_no_place_among_the_newest(tmp_path: Path) -> None:
    """N-87: `keep_last` keeps what the logs call the newest."""
    root = tmp_path / "store"
    with hansard.open(root, durability="os") as store:
        for days, name in enumerate(("newest", "older", "oldest"), 7):
            say(store, name, days=days)
        store.sessions()
    falsify(root, "oldest", r'"updated":"[^"]*"', '"updated":"9999"', updated="9999")
    with hansard.open(root, durability="os") as store:
        report = store.prune(older_than=timedelta(days=1), keep_last=1)
        assert report.kept["newest"] == "one of the newest 1"
        assert report.pruned == ["older"]


def test_the_latest_of_many_costs_a_look_at_a_few(tmp_path: Path) -> None:
    """N-76: with an index, finding the latest session, or the forks of one, opens no log of the others."""
    with hansard.open(tmp_path / "store", durability="os") as store:
        for number in range(400):
            store.session(f"s{number}").add_message(MESSAGE)
        store.session("s7").fork("fork")
        store.sessions()
        with faults.record() as disk:
            latest = store.latest()
            assert latest is not None
            assert latest.id == "fork"
            assert store.session("s7").children() == ["fork"]
        assert logs_opened(disk) <= {"fork", "s7"}
