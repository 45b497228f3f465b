"""`latest` asks the index; for `children` and `prune` it proposes sessions, and the logs decide."""

import re
import sqlite3
from datetime import timedelta
from pathlib import Path
from zlib import crc32

import hansard
from tests.crashlab import faults
from tests.unit.disk_probe import index_of
from tests.unit.index.test_cost import logs_opened
from tests.unit.maintenance.test_trash import say

MESSAGE = {"role": "user", "content": "hello"}


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
