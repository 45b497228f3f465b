"""Claims about what a change leaves alone: whatever is set, everything else stays as it was."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import Session, Store
from hansard.backend.contract import Log
from hansard.state.projection import Known
from tests.unit.test_forks import MUTATORS

USER = {"role": "user", "content": "what is 6 × 7?"}


# -- nothing else changes -----------------------------------------------------------------------


def furnish(store: Store) -> Session:
    """Return a session that has a parent, children, snapshots, a title and fields that nobody knows."""
    store.session("parent").add_message({"role": "user", "content": "hi"})
    session = store.session("parent").fork("s")
    session.set_metadata(title="T", user="u7", unknown={"deep": {"er": [1]}})
    session.append("x.unknown", {"field": 1})
    session.add_message({"role": "user", "content": "q", "unknown": {"field": 2}})
    session.snapshot("start")
    session.record_usage(model="m", input_tokens=1, output_tokens=2, cost=0.25, cached=3)
    session.fork("child")
    return session


def facts(session: Session) -> dict[str, Any]:
    """Return what a session is, without what was said in it."""
    state = session.state()
    return {
        "parent": (session.parent, state.parent, state.forked_at),
        "children": session.children(),
        "snapshots": [dict(session.snapshots), state.snapshots],
        "metadata": [session.metadata, state.metadata],
        "title": [session.title, state.title, state.named],
        "usage": [session.usage, state.usage],
        "created": state.created,
        "marks": (state.archived, state.closed),
        "kept": next(session.events(after=3)).data,
    }


#: What each mutator is allowed to change.
CHANGES = {
    "set_metadata": {"metadata"},
    "set_title": {"metadata", "title"},
    "record_usage": {"usage"},
    "snapshot": {"snapshots"},
    "archive": {"marks"},
    "close": {"marks"},
    "fork": {"children"},
    "redact": set[str](),
}


@pytest.mark.parametrize("what", [*MUTATORS, "redact"])
def test_a_change_changes_nothing_else(what: str, store: Store) -> None:
    """N-42: parent, children, snapshots, title, usage and unknown fields survive every other change."""
    session = furnish(store)
    before = facts(session)
    if what == "redact":
        session.redact(5)
    else:
        MUTATORS[what](session)
    for seen in (session, store.session("s")):
        after = facts(seen)
        changed = {name for name in before if after[name] != before[name]}
        assert changed == CHANGES.get(what, set())
    if what == "set_metadata":
        assert session.metadata == {**before["metadata"][0], "flavour": "sweet"}


def test_every_cold_read_is_as_rich_as_a_warm_one(tmp_path: Path) -> None:
    """N-21: whichever call comes first, from whoever opens the store, nothing is missing."""
    root = tmp_path / "store"
    with hansard.open(root, durability="os") as store:
        warm = facts(furnish(store))
    single: dict[str, Callable[[Session], object]] = {
        "parent": lambda session: (
            session.parent,
            session.state().parent,
            session.state().forked_at,
        ),
        "children": lambda session: session.children(),
        "snapshots": lambda session: [session.snapshots, session.state().snapshots],
        "metadata": lambda session: [session.metadata, session.state().metadata],
        "title": lambda session: [session.title, session.state().title, session.state().named],
        "usage": lambda session: [session.usage, session.state().usage],
        "created": lambda session: session.state().created,
    }
    for name, read in single.items():
        for read_only in (True, False):
            with hansard.open(root, read_only=read_only, durability="os") as store:
                assert read(store.session("s")) == warm[name], name
    with hansard.open(root, read_only=True) as store:
        (info,) = [info for info in store.sessions().items if info.id == "s"]
        assert (info.title, info.metadata) == ("T", warm["metadata"][0])
        assert facts(store.session("s")) == warm


def test_created_and_model_outlive_a_resume(tmp_path: Path) -> None:
    """N-60: after many runs, with forks and reverts, a session was created when it was, with its model."""
    root = tmp_path / "store"
    with hansard.open(root, durability="os") as store:
        session = store.create("s", metadata={"model": "m-1", "settings": {"temperature": 0.5}})
        created = session.state().created
    for turn in range(4):
        with hansard.open(root, durability="os") as store:
            session = store.session("s")
            session.add_message({"role": "user", "content": str(turn)})
            session.revert(1)
            child = session.fork(f"c{turn}")
            assert child.metadata["model"] == "m-1"
            assert child.state().created > created
            session.summarize(upto=2, message={"role": "system", "content": "short"})
            (info,) = [info for info in store.sessions().items if info.id == "s"]
            assert session.state().created == info.created == created
            assert session.metadata == {"model": "m-1", "settings": {"temperature": 0.5}}


# -- titles -------------------------------------------------------------------------------------


def test_a_person_who_is_faster_by_a_moment_wins(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-54: a manual title that comes between a program's look and its append stays."""
    session, person = store.session("s"), store.session("s")
    session.add_message(USER)
    look = Session._known

    def look_and_be_late(self: Session, log: Log | None = None) -> Known:
        found = look(self, log)
        if self is session:
            person.set_title("Mine")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Session, "_known", look_and_be_late)
        assert session.set_title("guessed", automatic=True) is not None
    for seen in (session, person, store.session("s"), session.fork("c")):
        assert seen.title == seen.state().title == "Mine"
    assert store.sessions(prefix="s").items[0].title == "Mine"
