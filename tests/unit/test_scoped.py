"""A scoped store: one tenant's sessions, and nothing of the others."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hansard
from hansard import InvalidSessionId, Session, Store


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Yield a store with messages of two tenants."""
    where = "memory:" if request.param == "memory" else tmp_path / "s"
    with hansard.open(where, durability="os") as opened:
        for tenant in ("a", "b"):
            for number in range(2):
                opened.session(f"{tenant}/{number}").add_message({"secret of": tenant})
        yield opened


OUTSIDE: dict[str, Callable[[Store], object]] = {
    "session": lambda scoped: scoped.session("b/0"),
    "create": lambda scoped: scoped.create("b/new"),
    "delete": lambda scoped: scoped.delete("b/0"),
    "restore": lambda scoped: scoped.restore("b/0"),
    "purge": lambda scoped: scoped.purge("b/0"),
    "fork": lambda scoped: scoped.session("a/0").fork("b/new"),
    "scoped": lambda scoped: scoped.scoped("b/"),
    "a wider scope": lambda scoped: scoped.scoped("a"),
    "dots": lambda scoped: scoped.session("../b/0"),
    "no text": lambda scoped: scoped.session(7),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("what", OUTSIDE)
def test_nothing_outside_can_be_named(what: str, store: Store) -> None:
    """N-68, N-69: no call of a scoped store reads, writes, forks to, deletes or finds an id outside."""
    before = {info.id: info.seq for info in store.sessions().items}
    scoped = store.scoped("a/")
    with pytest.raises(InvalidSessionId, match="outside"):
        OUTSIDE[what](scoped)
    assert not scoped.exists("b/0")
    assert [report.session for report in scoped.verify().sessions] == ["a/0", "a/1"]
    assert {info.id: info.seq for info in store.sessions().items} == before


def test_closing_a_scope_closes_only_it(store: Store) -> None:
    """After `close` a scoped store raises `Closed`, and the unscoped one works."""
    with store.scoped("a/") as scoped:
        session: Session = scoped.session("a/0")
    with pytest.raises(hansard.Closed):
        scoped.session("a/0")
    with pytest.raises(hansard.Closed):
        scoped.sessions()
    assert session.messages()
    assert store.session("a/0").messages()


def test_cursors_of_two_scopes_are_two(store: Store) -> None:
    """N-68: consumers of two tenants with one cursor name have two cursors."""
    for tenant in ("a", "b"):
        with store.scoped(f"{tenant}/").follow(cursor="mailer") as follower:
            items = []
            while (item := follower.take(0.0)) is not None:
                items.append(item)
        assert {item.session for item in items} == {f"{tenant}/0", f"{tenant}/1"}
        assert store.scoped(f"{tenant}/").cursors() == ["mailer"]
        assert store.scoped(f"{tenant}/").diagnose().cursors == 1
    assert store.cursors() == ["a/mailer", "b/mailer"]
    assert store.scoped("a/").drop_cursor("mailer")
    assert store.cursors() == ["b/mailer"]
