"""`prune` by size, archiving and purging; a dry run reports exactly what a run does."""

import re
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

import hansard
from hansard import Store
from hansard.backend.contract import Backend
from hansard.maintenance import trash
from tests.unit.disk_probe import index_of
from tests.unit.maintenance.test_trash import DAY, listed, prune, say


def size(store: Store) -> int:
    """Return the bytes of all sessions."""
    return sum(info.bytes for info in store.sessions().items)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"keep_last": 1, "archived": True},
        {"max_size": -1},
        {"max_size": 1.5},
        {"max_size": True},
        {"archive_after": 0},
        {"purge_trash": timedelta(0)},
        {"purge_trash": DAY, "workspace": "."},
        {"older_than": DAY, "workspace": ".", "all_workspaces": True},
        *({"older_than": DAY, "keep_last": count} for count in (-1, 1.5, True, None)),
        *({"older_than": age} for age in (0, 0.0, -1, -1.5, timedelta(0), -DAY, True, None, "30")),
        *({"older_than": age} for age in (float("nan"), float("-inf"))),
    ],
)
@pytest.mark.parametrize("dry_run", [True, False])
def test_nothing_is_pruned_unless_it_is_requested(
    store: Store, options: dict[str, Any], dry_run: bool
) -> None:
    """N-87: without an age or a size, or with an invalid one, `prune` is refused and does nothing."""
    say(store, "s", days=99)
    with pytest.raises(ValueError, match=r"pass|must|exclude|keep_last"):
        store.prune(**options, dry_run=dry_run)
    assert listed(store) == ["s"]


def test_the_longest_inactive_go_until_the_rest_fits(store: Store) -> None:
    """`max_size` moves as many sessions as necessary, in the order of their last activity, and no more."""
    for number in range(6):
        say(store, f"s{number}", days=10 - number, content="x" * 1000)
    total, one = size(store), store.sessions().items[0].bytes
    assert prune(store, max_size=total).pruned == []
    assert prune(store, max_size=total - 1).pruned == ["s0"]
    report = prune(store, max_size=2 * one + 10)
    assert report.pruned == ["s1", "s2", "s3"]
    assert report.kept.keys() == {"s4", "s5"}
    assert size(store) <= 2 * one + 10
    assert prune(store, max_size=0).pruned == ["s4", "s5"]


def test_size_comes_after_age(store: Store) -> None:
    """With both, old sessions are always removed, and others only while the rest is too large."""
    for number in range(4):
        say(store, f"s{number}", days=40 if number < 2 else 10 - number, content="x" * 1000)
    one = store.sessions().items[0].bytes
    assert prune(store, older_than=30 * DAY, max_size=3 * one).pruned == ["s0", "s1"]
    assert prune(store, older_than=30 * DAY, max_size=one).pruned == ["s2"]


def test_what_is_protected_from_age_is_protected_from_size(store: Store) -> None:
    """Pinned, held and the newest sessions, and their parents, stay for any size."""
    for days, name in enumerate(("newest", "free", "held", "pinned", "parent")):
        say(store, name, days=days + 1)
    child = store.session("parent").fork("child")
    child.hold()
    store.session("pinned").set_metadata(pinned=True)
    store.session("held").hold()
    report = prune(store, max_size=0, keep_last=2)
    # The fork is new: its first event is one.
    assert report.pruned == ["free"]
    assert report.kept["held"] == report.kept["child"] == report.kept["parent"] == "held"


def test_forks_go_before_their_parents_by_size(store: Store) -> None:
    """By size, a parent is moved only after all of its forks, however long it was inactive."""
    say(store, "parent", days=50)
    say(store, "young", days=1)
    for name in ("a", "b"):
        store.session("parent").fork(name)
    total = size(store)
    report = prune(store, max_size=total - 1)
    assert report.pruned == ["young"]
    assert report.kept["parent"].startswith("last active")
    assert prune(store, max_size=0).pruned == ["a", "b", "parent"]
    assert listed(store) == []


def test_a_parent_that_its_fork_kept_goes_with_it(store: Store) -> None:
    """A parent that is old enough, and was kept for a fork, goes when the size takes the fork."""
    say(store, "parent", days=50)
    store.session("parent").fork("fork")
    report = prune(store, older_than=30 * DAY)
    assert report.kept["parent"] == "has a live child: fork"
    assert prune(store, older_than=30 * DAY, max_size=0).pruned == ["fork", "parent"]


def test_only_archived_sessions_and_forks_of_finished_ones(store: Store) -> None:
    """`archived` and `finished_parent` restrict what age and size take."""
    for name in ("archived", "open", "closed", "busy"):
        say(store, name, days=50)
    store.session("archived").archive()
    store.session("closed").close()
    for parent in ("closed", "busy"):
        store.session(parent).fork(f"{parent}/fork")
    report = prune(store, max_size=0, finished_parent=True)
    assert report.pruned == ["closed/fork"]
    assert report.kept["open"] == "no fork of a finished session"
    report = prune(store, older_than=DAY, archived=True)
    assert report.pruned == ["archived"]
    assert report.kept["open"] == "not archived"


def test_inactive_sessions_are_archived(store: Store) -> None:
    """`archive_after` archives what stays and is inactive, once; pinned sessions stay as they are."""
    for name, days in (("old", 50), ("pinned", 50), ("new", 1), ("very old", 500)):
        say(store, name, days=days)
    store.session("pinned").set_metadata(pinned=True)
    report = prune(store, archive_after=30 * DAY, older_than=365 * DAY)
    assert (report.pruned, report.archived) == (["very old"], ["old"])
    assert [info.id for info in store.sessions(archived=True).items] == ["old"]
    assert prune(store, archive_after=30 * DAY).archived == []
    assert prune(store, older_than=30 * DAY, archived=True).pruned == ["old"]


def test_the_trash_is_purged_by_age(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-87: `purge_trash` purges what has been in the trash for so long, and keeps what forks need."""
    for name in ("None", "b", "parent", "held", "restored"):
        say(store, name)
    store.session("parent").fork("fork")
    for name in ("None", "parent", "held", "restored"):
        store.delete(name)
    store.set_retention(max_size=10**12)
    store.restore("restored")
    store.session("restored").hold()
    with pytest.raises(hansard.Held):
        store.delete("restored")
    assert prune(store, purge_trash=DAY).purged == []
    now = hansard.clock.now()
    monkeypatch.setattr("hansard.clock.now", lambda: now + 2 * DAY)
    report = prune(store, purge_trash=DAY)
    assert report.purged == ["None", "held"]
    assert report.kept["parent"] == "in the trash, with forks that stay"
    store.delete("fork")
    assert prune(store, purge_trash=3 * DAY).purged == []
    assert sorted(prune(store, purge_trash=DAY).purged) == ["fork", "parent"]
    assert store.trash() == []
    assert listed(store) == ["b", "restored"]


def test_what_is_restored_and_deleted_again_during_a_prune_is_not_purged(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-87: `purge_trash` purges by the last deletion, as it is when the session is locked."""
    for name in ("a", "b"):
        say(store, name)
        store.delete(name)
    now = hansard.clock.now()
    monkeypatch.setattr("hansard.clock.now", lambda: now + DAY)
    purge = trash.purge

    def purge_late(backend: Backend, session_id: str, check: Callable[[], object]) -> None:
        if session_id == "a":
            store.restore("a")
            store.delete("a")
        purge(backend, session_id, check)

    monkeypatch.setattr("hansard.maintenance.prune.purge", purge_late)
    report = store.prune(purge_trash=DAY)
    assert (report.purged, store.trash()) == (["b"], ["a"])
    assert report.kept["a"] == "changed by another process"


def test_a_session_without_a_record_of_its_deletion_stays_in_the_trash(store: Store) -> None:
    """`purge_trash` keeps a session if the audit log has no time of its deletion."""
    say(store, "s")
    store._backend.delete("s")
    report = prune(store, purge_trash=0.000001)
    assert (report.purged, store.trash()) == ([], ["s"])
    assert "without a record" in report.kept["s"]


def test_sessions_that_cannot_be_read_stay_in_the_trash_with_their_forks(tmp_path: Path) -> None:
    """N-35, N-87: two that may be forks of one another, or a link, end no `prune`; one alone is purged."""
    with hansard.open(tmp_path / "s", durability="os", auto_compact=False) as store:
        for name in ("a", "b", "c", "d"):
            say(store, name)
            store.delete(name)
        (tmp_path / "s/trash/b/log.jsonl").write_bytes(b"x\n")
        assert prune(store, purge_trash=0.000001, prefix="b").purged == ["b"]
        for name in ("c", "d"):
            (tmp_path / f"s/trash/{name}/log.jsonl").write_bytes(b"x\n")
        report = prune(store, purge_trash=0.000001)
        assert (report.purged, sorted(store.trash())) == ([], ["a", "c", "d"])
        assert set(report.kept.values()) == {"in the trash, with forks that stay"}
        store.session("e").add_message({"n": 1})
        store.delete("e")
        (tmp_path / "s/trash/e/log.jsonl").unlink()
        (tmp_path / "s/trash/e/log.jsonl").symlink_to("lock")
        assert "symbolic link" in prune(store, purge_trash=0.000001).kept["e"]


# -- the policy ---------------------------------------------------------------------------------


def test_a_policy_is_stored_and_applied_when_requested(store: Store) -> None:
    """`set_retention` prunes nothing; `prune(policy=True)` does what its options do."""
    with pytest.raises(ValueError, match="no retention policy"):
        store.prune(policy=True)
    for number in range(4):
        say(store, f"s{number}", days=50 if number < 2 else 1)
    report = store.set_retention(older_than=30 * DAY, archive_after=12 * 3600.0)
    assert report is not None
    assert (report.pruned, report.archived, report.dry_run) == (["s0", "s1"], ["s2", "s3"], True)
    assert len(listed(store)) == 4
    assert store.retention() == {"older_than": 30 * 86400.0, "archive_after": 43200.0}
    with pytest.raises(ValueError, match="excludes"):
        store.prune(policy=True, older_than=DAY)
    done = prune(store, policy=True)
    assert (done.pruned, done.archived) == (report.pruned, report.archived)
    assert store.set_retention() is None
    assert store.retention() == {}


@pytest.mark.parametrize(
    "options",
    [{"older_than": 0}, {"older_than": 1, "workspace": "."}, {"prefix": "a"}, {"max_size": 0}],
)
def test_an_invalid_policy_is_not_stored(store: Store, options: dict[str, Any]) -> None:
    """A policy that `prune` would refuse is refused, and the one before it stays."""
    store.set_retention(max_size=10)
    with pytest.raises(ValueError, match=r"must|pass|workspace"):
        store.set_retention(**options)
    assert store.retention() == {"max_size": 10}
    with pytest.raises(ValueError, match="scoped"):
        store.scoped("t/").set_retention(max_size=10)


def test_a_doctor_warns_before_the_limit(tmp_path: Path) -> None:
    """`diagnose` has a note near the policy's size limit, a problem above it, a note on a small disk."""
    path = tmp_path / "store"
    with hansard.open(path) as store:
        say(store, "s", content="x" * 1000)
        total = size(store)

        def codes() -> list[tuple[str, str]]:
            return [(one.severity, one.code) for one in store.diagnose().diagnostics]

        before = codes()
        for limit, expected in (
            (total * 2, []),
            (total, [("note", "retention-size")]),
            (total - 1, [("problem", "retention-size")]),
            (10**18, [("note", "limit-above-disk")]),
        ):
            store.set_retention(max_size=limit)
            assert [one for one in codes() if one not in before] == expected


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
