"""`latest` asks the index; for `children` and `prune` it proposes sessions, and the logs decide."""

import random
import re
import sqlite3
from datetime import timedelta
from pathlib import Path
from zlib import crc32

import pytest

import hansard
from tests.crashlab import faults
from tests.unit.disk_probe import index_of
from tests.unit.index import reference_listing
from tests.unit.index.random_store import RandomStore
from tests.unit.index.test_cost import logs_opened
from tests.unit.maintenance.test_trash import say

MESSAGE = {"role": "user", "content": "hello"}


@pytest.mark.slow
def test_the_latest_is_the_same_with_an_index_and_without(
    tmp_path: Path, rng: random.Random
) -> None:
    """N-61, N-86: after random calls, a store with an index and one without agree."""
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


def falsify(root: Path, session_id: str, old: str, new: str, **columns: object) -> None:
    """Change the row of a session in the index, with a valid checksum."""
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
    """N-87: the log decides whether a session is old, pinned, or belongs to a workspace."""
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
        assert report.kept["young"].startswith("last active")
        assert report.kept["placed"].startswith("belongs to the workspace")


def test_latest_opens_few_logs(tmp_path: Path) -> None:
    """N-76: with an index, `latest` and `children` open no log of other sessions."""
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
