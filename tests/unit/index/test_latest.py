"""Claims about `latest` and `children` where there is an index: it shows the way, and the logs decide."""

import random
import re
import sqlite3
from pathlib import Path
from zlib import crc32

import pytest

import hansard
from tests.crashlab import faults
from tests.unit.evidence import index_of, log_of
from tests.unit.index import naive
from tests.unit.index.busy import Busy
from tests.unit.index.test_cost import logs_opened

MESSAGE = {"role": "user", "content": "hello"}


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
        busy = Busy(store, rng, folders)
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
            for info in naive.everything(store):
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
    with sqlite3.connect(index_of(root)) as database:
        database.execute("UPDATE session SET updated = '9999' WHERE id = 'a'")
        [(info,)] = database.execute("SELECT info FROM entry WHERE id = 'a'").fetchall()
        wrong = re.sub(r'"updated":"[^"]*"', '"updated":"9999"', info)
        said = (wrong, crc32(wrong.encode()))
        database.execute("UPDATE entry SET info = ?, crc = ? WHERE id = 'a'", said)
        database.execute("UPDATE session SET parent = 'a' WHERE id = 'b'")
    database.close()
    with hansard.open(root, durability="os") as store:
        latest = store.latest()
        assert latest is not None
        assert latest.id == "d"
        assert store.session("a").children() == ["d"]


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
