"""Row 17 of the campaign, some cases each time: a scoped store answers the same whatever is outside."""

import random

import pytest

import hansard
from tools.crash.rows import tenants


def test_every_public_method_is_asked() -> None:
    """A new method of a store or a session is asked about tenants, or this fails."""
    assert [name for name, questions in tenants.public().items() if not questions] == []


@pytest.mark.parametrize(
    "name",
    ["Store.sessions", "Store.count", "Store.stats", "Store.exists", "Store.follow", "Store.trash"],
)
def test_a_scoped_store_tells_nothing_of_the_rest(name: str) -> None:
    """Answers, errors and progress are the same in two stores that differ only outside of the scope."""
    outcome = tenants.Asked("memory", name).run()
    assert outcome.ok, outcome.detail


def test_some_methods_tell_nothing_in_a_directory(rng: random.Random) -> None:
    """Likewise of a store in a directory, and some methods by chance."""
    for name in {"Store.search", "Store.copy_to", *rng.sample(sorted(tenants.public()), 4)}:
        outcome = tenants.Asked("files", name).run()
        assert outcome.ok, (outcome.label, outcome.detail)


def test_a_leak_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scoped store that counts what is outside is noticed."""
    count = hansard.Store.count
    leaking = lambda store, **_: count(store) + len([*store._backend.unscoped.ids()])  # noqa: E731
    monkeypatch.setattr(hansard.Store, "count", leaking)
    assert not tenants.Asked("memory", "Store.count").run().ok
