"""Legal holds: what is refused while a session is held, and the effect on its ancestors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import Held, Session, Store
from hansard.backend.contract import Backend
from hansard.maintenance import hold
from tests.crashlab import faults
from tests.unit.disk_probe import log_of
from tests.unit.sample_messages import HIDDEN
from tools.crash.erasure import leaks


def talk(session: Session, count: int = 3) -> Session:
    """Add messages that contain a text to be searched for."""
    session.add_messages([{"role": "user", "content": f"{HIDDEN} {n}"} for n in range(count)])
    return session


#: What removes something of a session.
REMOVALS: dict[str, Callable[[Store, Session], object]] = {
    "delete": lambda store, session: store.delete(session.id),
    "redact": lambda _, session: session.redact(1),
    "scrub": lambda _, session: session.scrub(HIDDEN),
    "drop": lambda _, session: session.drop_history(2),
    "a dry drop": lambda _, session: session.drop_history(2, dry_run=True),
}


@pytest.mark.parametrize("removal", REMOVALS)
def test_nothing_of_a_held_session_is_removed(store: Store, removal: str) -> None:
    """F-169: each removal raises `Held` with the reason, changes nothing, and works after the release."""
    session = talk(store.session("s"))
    event = session.hold("case 7")
    assert (event.kind, event.data) == ("session.held", {"reason": "case 7"})
    before = list(session.events())
    with pytest.raises(Held, match="case 7") as caught:
        REMOVALS[removal](store, session)
    assert (caught.value.session, caught.value.reason) == ("s", "case 7")
    assert list(session.events()) == before
    released = session.release()
    assert released is not None
    assert released.kind == "session.released"
    REMOVALS[removal](store, session)


def test_a_held_session_is_read_and_continued(store: Store) -> None:
    """A hold changes no view, is not activity, and is shown by state and listings."""
    session = talk(store.session("s"))
    messages, updated = session.messages(), store.sessions().items[0].updated
    session.hold()
    assert session.messages() == messages
    assert session.state().held
    assert store.sessions().items[0].updated == updated
    assert [info.id for info in store.sessions(held=True).items] == ["s"]
    assert store.count(held=False) == 0
    session.add_message({"role": "user", "content": "more"})
    session.hold("another reason")
    assert session.state().holds == {"": "another reason"}
    session.release()
    assert session.release() is None
    assert store.count(held=True) == 0
    assert not session.state().held


def test_a_second_hold_keeps_the_reason_of_the_first(store: Store) -> None:
    """A hold of a held session appends only another reason, also to the ancestors; a release ends it."""
    parent = talk(store.session("parent"))
    fork = parent.fork("fork")
    first = fork.hold("case 7")
    ends = parent.seq, fork.seq
    assert fork.hold() == fork.hold("case 7") == first
    assert (parent.seq, fork.seq) == ends
    second = fork.hold("case 8")
    assert second.seq == fork.seq > first.seq
    assert fork.hold() == second
    assert (fork.state().holds, parent.state().holds) == ({"": "case 8"}, {"fork": "case 8"})
    assert parent.hold().seq == parent.seq  # held for its fork only until now
    assert parent.state().holds == {"fork": "case 8", "": ""}
    parent.release()
    fork.release()
    assert fork.hold().seq == fork.seq
    assert (fork.state().holds, parent.state().holds) == ({"": ""}, {"fork": ""})


def test_a_session_that_does_not_exist_is_not_held(store: Store) -> None:
    """N-89: a hold of a missing session raises, and creates nothing."""
    for call in (store.session("s").hold, store.session("s").release):
        with pytest.raises(hansard.SessionNotFound):
            call()
    assert not store.exists("s")
    with pytest.raises(hansard.InvalidEvent):
        talk(store.session("s")).hold(7)  # type: ignore[arg-type]


def test_a_refused_deletion_is_in_the_audit_log(store: Store) -> None:
    """F-60, F-177: the audit log has the attempt to delete a held session, and that it was refused."""
    talk(store.session("s")).hold()
    with pytest.raises(Held):
        store.delete("s")
    assert [event.kind for event in store.audit()] == ["session.deleted", "session.kept"]
    assert [*store.audit()][1].data["reason"] == "Held"


def test_a_hold_that_reached_the_trash_prevents_a_purge(store: Store) -> None:
    """F-169: a session that is held in the trash, as another program may have put it there, is not purged."""
    talk(store.session("s")).hold()
    store._backend.delete("s")
    with pytest.raises(Held):
        store.purge("s")
    store.restore("s").release()
    store.delete("s")
    store.purge("s")


# -- forks --------------------------------------------------------------------------------------


def test_the_ancestors_of_a_held_fork_are_held(store: Store) -> None:
    """F-170: what a held fork shows is not removed in its ancestors, and they are released with it."""
    root = talk(store.session("root"))
    middle = talk(root.fork("middle"))
    leaf = talk(middle.fork("leaf"))
    leaf.hold("case 7")
    for session in (root, middle, leaf):
        for removal in ("delete", "redact", "scrub"):
            with pytest.raises(Held):
                REMOVALS[removal](store, session)
    assert root.state().holds == middle.state().holds == {"leaf": "case 7"}
    middle.hold()
    leaf.release()
    store.delete("leaf")
    assert root.state().holds == {"middle": ""}
    assert middle.state().holds == {"": ""}
    middle.release()
    assert not root.state().held
    root.redact(1)


def test_a_fork_of_a_held_session_keeps_what_it_inherits(store: Store) -> None:
    """F-170: a fork of a held session is not held itself, but hides no inherited event."""
    parent = talk(store.session("parent"))
    before = parent.fork("before")
    parent.hold("case 7")
    after = parent.fork("after")
    for fork in (before, after):
        talk(fork)
        assert not fork.state().held
        for removal in ("redact", "scrub", "drop"):
            with pytest.raises(Held, match="'parent'"):
                REMOVALS[removal](store, fork)
        fork.redact(fork.seq)
        store.delete(fork.id)
    parent.release()


def test_a_fork_whose_ancestor_is_in_the_trash_is_not_held(store: Store) -> None:
    """F-170: a hold of a fork is refused while an ancestor is in the trash, and the error names it."""
    fork = talk(store.session("parent")).fork("fork")
    store.delete("parent")
    with pytest.raises(hansard.SessionDeleted, match="'parent', which is in the trash"):
        fork.hold()
    assert not fork.state().held
    store.restore("parent")
    fork.hold()


def test_a_hold_that_a_kill_left_is_released_with_the_ancestor(store: Store) -> None:
    """F-170: a hold for a fork that is not held, as a kill leaves it, ends with a release of the ancestor."""
    parent = talk(store.session("parent"))
    fork = parent.fork("fork")
    hold._append(store._backend, "parent", "session.held", fork="fork")
    with pytest.raises(Held, match="'fork'"):
        store.delete("parent")
    assert parent.release() is None
    assert not parent.state().held
    fork.hold()
    assert parent.release() is None
    assert parent.state().holds == {"fork": ""}


@pytest.mark.parametrize(
    ("call", "word", "other"),
    [
        ("hold", "session.held", "fork"),
        ("hold", "session.held", "parent"),
        ("release", "session.released", "fork"),
    ],
)
def test_a_hold_and_a_release_at_the_same_time_leave_no_held_fork_without_its_ancestors(
    store: Store, monkeypatch: pytest.MonkeyPatch, call: str, word: str, other: str
) -> None:
    """F-170: between the ancestors' events and the fork's own, another process releases or holds it."""
    parent = talk(store.session("parent"))
    fork = parent.fork("fork")
    if call == "release":
        fork.hold()
    append = hold._append

    def interrupted(backend: Backend, session_id: str, kind: str, *check: Any, **facts: Any) -> Any:
        own = kind == word and "fork" not in facts
        if own:
            monkeypatch.setattr(hold, "_append", append)
        if own and call == "hold":
            store.session(other).release()
        done = append(backend, session_id, kind, *check, **facts)
        if own and call == "release":
            fork.hold()
        return done

    monkeypatch.setattr(hold, "_append", interrupted)
    getattr(fork, call)()
    assert fork.state().held
    with pytest.raises(Held, match="'fork'"):
        parent.redact(1)
    fork.release()
    parent.redact(1)


def test_a_hold_makes_that_of_the_ancestors_durable(tmp_path: Path) -> None:
    """F-170: what a process stored and did not sync before it was killed is synced by the next hold."""
    with hansard.open(tmp_path, durability="os") as store:
        talk(store.session("parent")).fork("fork").hold("case 7")
    with hansard.open(tmp_path, durability="os") as store, faults.record() as seen:
        store.session("fork").hold("case 7")
    synced = {Path(call.place).parent.name for call in seen.calls if call.operation == "sync"}
    assert synced == {"fork", "parent"}


# -- bytes, damage, other writers ---------------------------------------------------------------


def test_compaction_erases_nothing_of_a_held_session(path: Path) -> None:
    """F-176: what was redacted before a hold stays stored until it is released; then compaction erases it."""
    with hansard.open(path, durability="os", auto_compact=False) as store:
        session = talk(store.session("s"), count=1)
        session.redact(1)
        session.hold()
        for _ in range(2):
            assert session.compact().blanked == 0
            assert session.messages(view="history") == []
        assert leaks(path / "sessions", HIDDEN)
        assert session.verify().ok
        session.release()
        assert session.compact().blanked == 1
        assert not leaks(path / "sessions", HIDDEN)


def test_a_damaged_session_is_held_by_what_can_be_read(path: Path) -> None:
    """F-169: damage elsewhere in its log does not release a session."""
    with hansard.open(path, durability="os", auto_compact=False) as store:
        session = talk(store.session("s"))
        session.hold("case 7")
        talk(session)
    log = log_of(path, "s")
    data = log.read_bytes()
    log.write_bytes(data.replace(HIDDEN.encode(), b"?" * len(HIDDEN), 1))
    with hansard.open(path, durability="os", auto_compact=False) as store:
        for removal in (store.delete, lambda name: store.session(name).redact(1)):
            with pytest.raises((Held, hansard.Damaged)):
                removal("s")
        with pytest.raises(Held):
            hold.check(store._backend, "s")
        assert store.exists("s")


def test_swapped_lines_release_no_hold(path: Path) -> None:
    """F-111, F-169: of a damaged session, the order of the seqs decides, and not that of the lines."""
    with hansard.open(path, durability="os", auto_compact=False) as store:
        session = talk(store.session("s"))
        session.hold()
        session.release()
        session.hold("case 7")
    log = log_of(path, "s")
    *lines, released, held = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines, held, released]))
    with hansard.open(path) as store, pytest.raises(Held, match="case 7"):
        hold.check(store._backend, "s")


def test_a_damaged_sealed_segment_hides_no_hold_and_keeps_no_session(path: Path) -> None:
    """F-169, N-35: a session with a damaged sealed segment is deleted, unless the rest says it is held."""
    with hansard.open(path, durability="os", auto_compact=False) as store:
        for name in ("free", "held"):
            session = talk(store.session(name))
            session.compact()
            if name == "held":
                session.hold("case 7")
            talk(session)
            sealed = path / "sessions" / name / "00000000000000000001.jsonl.zst"
            sealed.write_bytes(sealed.read_bytes()[:-3] + b"???")
    with hansard.open(path, durability="os", auto_compact=False) as store:
        store.delete("free")
        assert not store.exists("free")
        with pytest.raises(Held, match="case 7"):
            store.delete("held")
        assert store.exists("held")


@pytest.mark.parametrize("removal", ["delete", "redact", "scrub", "drop"])
def test_another_process_cannot_hold_between_check_and_removal(
    path: Path, monkeypatch: pytest.MonkeyPatch, removal: str
) -> None:
    """F-169: during the last check of a removal, a hold by another handle waits for the session's lock."""
    check = hold.check
    # The first check of a drop is without the lock, for the dry run.
    left = 2 if removal == "drop" else 1

    def check_while_another_holds(backend: Backend, session_id: str) -> None:
        nonlocal left
        left -= 1
        check(backend, session_id)
        if not left:
            with pytest.raises(hansard.LockTimeout):
                other.session("s").hold()

    with (
        hansard.open(path, durability="os", auto_compact=False) as store,
        hansard.open(path, durability="os", auto_compact=False, lock_timeout=0) as other,
    ):
        session = talk(store.session("s"))
        monkeypatch.setattr(hold, "check", check_while_another_holds)
        REMOVALS[removal](store, session)
    assert left == 0
