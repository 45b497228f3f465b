"""The trash, purging, pruning and their record: N-51, N-52, N-87."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import InUse, PruneReport, Session, Store
from hansard.backend.contract import AppendRequest
from hansard.event.event import NewEvent
from hansard.event.kinds import MESSAGE_ADDED
from tests.crashlab import faults
from tests.unit.disk_probe import flip, log_of, tree

DAY = timedelta(days=1)


def ago(days: float) -> str:
    """Return the time some days ago, as events have it."""
    return (datetime.now(UTC) - timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def say(store: Store, session_id: str, *, days: float = 0.0, content: str = "hi") -> Session:
    """Append a message, some days ago."""
    raw = json.dumps({"message": {"role": "user", "content": content}}).encode()
    draft = NewEvent(MESSAGE_ADDED, raw, control=False, time=ago(days))
    store._backend.log(session_id).append(AppendRequest([draft]))
    return store.session(session_id)


def listed(store: Store) -> list[str]:
    """Return the ids of all sessions."""
    return [info.id for info in store.sessions().items]


def told(store: Store) -> list[tuple[str, str]]:
    """Return kind and session of each record of the audit log."""
    return [(event.kind, event.data.get("session", "")) for event in store.audit()]


def prune(store: Store, **options: Any) -> PruneReport:
    """Prune, after a dry run on the same store that must come to the same result and change nothing."""
    before = listed(store), store.trash(), told(store)
    would = store.prune(dry_run=True, **options)
    assert (listed(store), store.trash(), told(store)) == before
    done = store.prune(**options)
    assert (would.pruned, would.kept) == (done.pruned, done.kept)
    assert (would.archived, would.purged) == (done.archived, done.purged)
    assert (would.dry_run, done.dry_run) == (True, False)
    return done


# -- trash and purge ------------------------------------------------------------------------------


def test_the_way_of_a_session_through_the_trash(store: Store) -> None:
    """N-51: a session is deleted, listed in the trash, restored, deleted and purged; then its id is free."""
    say(store, "s").set_metadata(title="T")
    store.delete("s")
    assert (listed(store), store.trash()) == ([], ["s"])
    assert store.restore("s").title == "T"
    assert (listed(store), store.trash()) == (["s"], [])
    store.delete("s")
    store.purge("s")
    assert (listed(store), store.trash(), store.exists("s")) == ([], [], False)
    assert store.create("s").seq == 1
    assert told(store) == [
        ("session.deleted", "s"),
        ("session.restored", "s"),
        ("session.deleted", "s"),
        ("session.purged", "s"),
    ]
    assert [event.data["seq"] for event in store.audit()] == [2, 2, 2, 2]


@pytest.mark.parametrize("call", ["delete", "restore", "purge"])
def test_what_is_not_there_is_refused_and_leaves_no_record(store: Store, call: str) -> None:
    """N-89: a call with the wrong id raises, does nothing and records nothing."""
    say(store, "live")
    with pytest.raises(hansard.SessionNotFound, match="'missing'"):
        getattr(store, call)("missing")
    if call != "delete":
        with pytest.raises(hansard.SessionNotFound, match=r"not deleted: `store\.delete"):
            getattr(store, call)("live")
    assert told(store) == []
    assert listed(store) == ["live"]


def test_children_of_an_earlier_session_of_the_name_do_not_count(store: Store) -> None:
    """N-51, F-66: a fork of an earlier session with the same id does not count as a fork of this one."""
    say(store, "s", days=3).fork("child")
    store.delete("s")
    # As a crash, or another program, may leave it: the parent is missing, its fork is not.
    store._backend.purge("s")
    say(store, "s", days=2)
    store.delete("s")
    store.purge("s")
    assert store.trash() == []


def test_a_session_that_may_be_a_child_keeps_its_parent(path: Path) -> None:
    """N-51, N-34, F-66: if damage hides the parent of a session, no session that it may need is purged."""
    with hansard.open(path, durability="os") as store:
        say(store, "parent").fork("child").add_message({"role": "user", "content": "x"})
        say(store, "stranger")
        say(store, "stranger")
        store.delete("parent")
    whole = {name: log_of(path, name).read_bytes() for name in ("child", "stranger")}

    def spoil(name: str, line: int) -> None:
        lines = whole[name].splitlines(keepends=True)
        lines[line] = lines[line].replace(b'"time":"2', b'"time":"3')
        log_of(path, name).write_bytes(b"".join(lines))

    for name, line in (("child", 1), ("child", 2), ("stranger", 1)):
        spoil(name, line)
        with hansard.open(path, durability="os") as store, pytest.raises(InUse):
            store.purge("parent")
        log_of(path, name).write_bytes(whole[name])
    # The second event is damaged, and the first shows that it is not a fork.
    with hansard.open(path, durability="os") as store:
        store.delete("child")
        store.purge("child")
        spoil("stranger", 2)
        store.purge("parent")


def test_a_damaged_session_in_the_trash_can_be_purged(path: Path) -> None:
    """N-31: an unreadable session can be purged; its record has no seq."""
    with hansard.open(path) as store:
        say(store, "s")
        store.delete("s")
        (path / "trash" / "s" / "log.jsonl").write_bytes(b"\xff")
        assert store.trash() == ["s"]
        store.purge("s")
        assert store.trash() == []
        assert list(store.audit())[-1].data == {"session": "s"}


def test_foreign_files_in_the_trash_are_not_sessions(path: Path) -> None:
    """N-87, N-4, F-62: a file, a link or an empty directory in the trash is neither listed nor removed."""
    with hansard.open(path) as store:
        trash = path / "trash"
        (trash / "notes.json").write_text("{}")
        (trash / "empty").mkdir()
        (trash / "link").symlink_to(path)
        say(store, "s")
        store.delete("s")
        assert store.trash() == ["s"]
        before = tree(trash / "notes.json"), tree(trash / "empty")
        for name in ("notes.json", "link"):
            with pytest.raises(hansard.HansardError):
                store.purge(name)
        store.purge("s")
        assert (tree(trash / "notes.json"), tree(trash / "empty")) == before
        assert (trash / "link").is_symlink()


# -- prune: what stays ----------------------------------------------------------------------------


def test_prune_takes_what_is_old_and_nothing_else(store: Store) -> None:
    """N-87, F-16: sessions are moved by their latest activity; a title is not activity, a pin keeps them."""
    say(store, "old", days=40).set_title("T")
    say(store, "older", days=400)
    say(store, "young", days=2)
    say(store, "mixed", days=90)
    say(store, "mixed", days=3)
    # The clock was set back: the last event is not the latest.
    say(store, "set back", days=1)
    say(store, "set back", days=400)
    pinned = say(store, "pinned", days=90)
    pinned.set_metadata(pinned=True)
    say(store, "held", days=90).hold()
    for age in (float("inf"), 1e15, timedelta.max):
        assert prune(store, older_than=age).pruned == []
    report = prune(store, older_than=30 * DAY)
    assert report.pruned == ["old", "older"]
    assert (report.kept.pop("pinned"), report.kept.pop("held")) == ("pinned", "held")
    assert set(report.kept) == {"young", "mixed", "set back"}
    assert all(reason.startswith("last active: 2") for reason in report.kept.values())
    assert store.trash() == ["old", "older"]
    assert store.restore("old").title == "T"
    pinned.set_metadata(pinned=None)
    assert prune(store, older_than=float(30 * 86400)).pruned == ["old", "pinned"]


def test_other_workspaces_survive(store: Store, tmp_path: Path) -> None:
    """N-87: by default only sessions without a workspace are moved; otherwise those of one, or of all."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    say(store, "none", days=9)
    say(store, "mine", days=9).set_workspace(ours)
    say(store, "plain", days=9).set_metadata(workspace=str(ours))
    say(store, "other", days=9).set_workspace(theirs)
    report = prune(store, older_than=DAY)
    assert report.pruned == ["none"]
    assert str(ours) in report.kept["mine"]
    store.restore("none")
    report = prune(store, older_than=DAY, workspace=ours)
    assert report.pruned == ["mine", "plain"]
    assert report.kept == {
        "none": "belongs to no workspace",
        "other": "belongs to another workspace",
    }
    for name in ("mine", "plain"):
        store.restore(name)
    assert prune(store, older_than=DAY, all_workspaces=True).pruned == [
        "mine", "none", "other", "plain",
    ]  # fmt: skip


def test_the_newest_of_each_workspace_survive(store: Store, tmp_path: Path) -> None:
    """N-87: `keep_last` counts per workspace, including sessions that stay anyway."""
    for place in ("a", "b"):
        for number in range(4):
            say(store, f"{place}{number}", days=10 + number).set_workspace(tmp_path / place)
    say(store, "n0", days=1)
    say(store, "n1", days=10)
    say(store, "n2", days=11)
    report = prune(store, older_than=5 * DAY, keep_last=2, all_workspaces=True)
    assert report.pruned == ["a2", "a3", "b2", "b3", "n2"]
    assert report.kept["a0"] == "one of the newest 2"
    assert report.kept["n0"].startswith("last active")
    assert prune(store, older_than=5 * DAY, keep_last=1, workspace=tmp_path / "a").pruned == ["a1"]


def test_prune_minds_the_prefix(store: Store) -> None:
    """N-87, N-69: with a prefix, and in a scoped store, no other session is checked or moved."""
    for name in ("a/1", "a/2", "b/1"):
        say(store, name, days=9)
    assert prune(store, older_than=DAY, prefix="a/1") == PruneReport(["a/1"], {}, dry_run=False)
    scoped = store.scoped("a/")
    assert prune(scoped, older_than=DAY) == PruneReport(["a/2"], {}, dry_run=False)
    assert (listed(store), scoped.trash()) == (["b/1"], ["a/1", "a/2"])
    store.delete("b/1")
    assert {name for _, name in told(scoped)} == {"a/1", "a/2"}
    with pytest.raises(hansard.InvalidSessionId):
        scoped.purge("b/1")


def test_a_chain_goes_from_its_end_and_stays_from_its_end(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-52, N-87: a live session at the end of a chain keeps its ancestors, and no others."""
    names = [f"s{number:02d}" for number in range(40)]
    session = say(store, names[0])
    for name in names[1:]:
        session = session.fork(name)
    later = hansard.clock.now() + 2 * DAY
    monkeypatch.setattr("hansard.clock.now", lambda: later)
    store.session(names[20]).set_metadata(pinned=True)
    report = prune(store, older_than=DAY)
    # The pin is inherited by none of the later ones: they were forked before.
    assert report.pruned == names[21:]
    assert report.kept[names[20]] == "pinned"
    assert report.kept[names[0]] == f"has a live child: {names[1]}"
    store.session(names[20]).set_metadata(pinned=None)
    assert prune(store, older_than=DAY).pruned == names[:21]


def test_damaged_sessions_survive(path: Path) -> None:
    """N-87, N-35: unreadable sessions are reported and kept."""
    with hansard.open(path, durability="os") as store:
        for name in ("hurt", "gone", "whole"):
            say(store, name, days=9)
            say(store, name, days=9)
    log_of(path, "gone").write_bytes(b"")
    flip(log_of(path, "hurt"), -40)
    with hansard.open(path, durability="os") as store:
        report = prune(store, older_than=DAY, all_workspaces=True)
        assert report.pruned == ["whole"]
        assert set(report.kept) == {"hurt", "gone"}
        assert all(reason.startswith("cannot be read: ") for reason in report.kept.values())
        assert store.trash() == ["whole"]


# -- the record -----------------------------------------------------------------------------------


def test_the_record_says_what_was_pruned_and_why(store: Store, tmp_path: Path) -> None:
    """N-65: the record has ids, seqs, times and options, and no content."""
    say(store, "s", days=9, content="sk-very-secret").set_metadata(user="u7")
    store.session("s").set_workspace(tmp_path)
    before = store.sessions().items[0].updated_stamp
    store.prune(older_than=2 * DAY, keep_last=0, workspace=tmp_path, prefix="s")
    (event,) = store.audit()
    assert event.kind == "session.pruned"
    assert event.data == {
        "session": "s",
        "seq": 3,
        "updated": before,
        "older_than": 172800.0,
        "workspace": str(tmp_path.resolve()),
        "prefix": "s",
    }
    assert b"secret" not in event.raw


def test_the_record_is_no_session(path: Path) -> None:
    """N-4: the audit log is not listed and not pruned, and `verify` checks it."""
    with hansard.open(path) as store:
        say(store, "s", days=9)
        store.delete("s")
        assert listed(store) == []
        assert store.verify().sessions == []
        assert store.prune(older_than=1e-6, all_workspaces=True) == PruneReport(
            [], {}, dry_run=False
        )
        log = path / "internal" / "audit" / "log.jsonl"
        assert b'"session":"\\u0000audit"' in log.read_bytes()
        log.write_bytes(log.read_bytes().replace(b"deleted", b"DELETED"))
    with hansard.open(path) as store:
        report = store.verify()
        assert [(found.session, found.ok) for found in report.sessions] == [("~audit", False)]
        with pytest.raises(hansard.Damaged, match=r"nothing was done.*move that directory away"):
            store.restore("s")
        assert store.trash() == ["s"]


def test_what_cannot_be_recorded_is_not_done(path: Path) -> None:
    """N-29: if the record cannot be written, the call raises and nothing was done."""
    with hansard.open(path, durability="os") as store:
        for name in ("live", "old"):
            say(store, name, days=9)
        say(store, "dead", days=9)
        store.delete("dead")
        before = listed(store), store.trash(), told(store)
        calls: list[Callable[[], object]] = [
            lambda: store.delete("live"),
            lambda: store.restore("dead"),
            lambda: store.purge("dead"),
            lambda: store.prune(older_than=DAY),
        ]
        for call in calls:
            # Lasting: the first that fails may be that of a change marker, which is not needed.
            with (
                faults.fail(5, only=("write",), lasting=True),
                pytest.raises(hansard.DiskFailed, match="internal/audit"),
            ):
                call()
            assert (listed(store), store.trash(), told(store)) == before


def test_a_session_can_be_purged_on_a_full_disk(path: Path) -> None:
    """N-29: `purge` works on a full disk, and records afterwards."""
    with hansard.open(path, durability="os") as store:
        say(store, "s")
        store.delete("s")
        with faults.fail(28, only=("write",)) as fault:
            store.purge("s")
        assert fault.fired
        assert store.trash() == []
        assert told(store)[-1] == ("session.purged", "s")


def test_a_refusal_is_recorded_too(path: Path) -> None:
    """N-87: a prune that is refused at the last moment records a `session.kept`."""
    with hansard.open(path, durability="os") as store:
        say(store, "s", days=9)
        with hansard.open(path, durability="os") as other:
            seen: list[str] = []

            def watch(call: faults.Call, arguments: tuple[Any, ...], result: Any) -> None:
                # Between the announcement and the deed.
                if call.operation == "write" and "internal/audit" in call.place and not seen:
                    seen.append(call.place)
                    other.session("s").add_message({"role": "user", "content": "wait"})

            with faults.record(watch=watch):
                report = store.prune(older_than=DAY)
        assert seen
        assert report == PruneReport([], {"s": "appended to by another process"}, dry_run=False)
        assert listed(store) == ["s"]
        announced, kept = store.audit()
        assert (announced.kind, kept.kind) == ("session.pruned", "session.kept")
        assert kept.data == {"session": "s", "record": announced.seq, "reason": "SeqConflict"}


def test_a_purge_that_is_refused_after_a_lost_connection_is_recorded_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """F-177: PostgreSQL checks again after a lost connection; a fork that it finds then refuses the purge."""
    with hansard.open("memory:") as store:
        say(store, "s")
        store.delete("s")
        purge = store._backend.purge

        def purge_again(session_id: str, check: Callable[[], object]) -> None:
            def twice() -> None:
                check()
                store.restore("s")
                store.session("s").fork("fork")
                store.delete("s")
                check()

            purge(session_id, twice)

        monkeypatch.setattr(store._backend, "purge", purge_again)
        with pytest.raises(InUse):
            store.purge("s")
        (announced,) = [event for event in store.audit() if event.kind == "session.purged"]
        kept = list(store.audit())[-1]
        assert kept.data == {"session": "s", "record": announced.seq, "reason": "InUse"}
