"""A store: opening, making, finding, deleting and listing sessions; looking after them."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import Store
from tests.unit.disk_probe import tree


@pytest.mark.parametrize("options", [{"create": False}, {"read_only": True}])
@pytest.mark.parametrize("what", ["missing", "empty", "foreign"])
def test_open_without_leave_to_create_creates_nothing(
    what: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """N-62: `create=False` and `read_only=True` raise `StoreNotFound` without a store."""
    path = tmp_path / "data"
    if what != "missing":
        path.mkdir()
    if what == "foreign":
        (path / "notes.txt").write_text("mine")
    before = tree(tmp_path)
    with pytest.raises(hansard.StoreNotFound):
        hansard.open(path, **options)
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: hansard.open(""), ValueError, "path"),
        (lambda: hansard.open("a\0b"), ValueError, "NUL"),
        (lambda: hansard.open(7), TypeError, "PathLike"),  # type: ignore[arg-type]
        (lambda: hansard.open("x", durability="fast"), ValueError, "durability"),  # type: ignore[arg-type]
        (lambda: hansard.open("x", lock_timeout=-1), ValueError, "lock_timeout"),
        (lambda: hansard.open("x", lock_timeout=float("nan")), ValueError, "lock_timeout"),
        (lambda: hansard.open("x", schema="a"), ValueError, "schema is only for"),
        (lambda: hansard.open("memory:", "sync"), TypeError, "positional"),  # type: ignore[call-arg,arg-type]
    ],
)
def test_a_bad_option_is_named_and_makes_nothing(
    call: Callable[[], Store],
    error: type[Exception],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An invalid argument of `open` raises an error that names it, and nothing is created."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=says):
        call()
    assert os.listdir(tmp_path) == []


def test_a_closed_store_says_so(store: Store) -> None:
    """Every call on a closed store raises `Closed`; nothing seems to be empty (N-31)."""
    session = store.session("a")
    session.add_message({"n": 1})
    store.close()
    store.close()
    calls: list[Callable[[], object]] = [
        lambda: session.add_message({"n": 2}),
        session.messages,
        lambda: session.messages(last=1),
        lambda: list(session.events()),
        lambda: next(session.events(follow=True)),
        lambda: session.seq,
        lambda: session.metadata,
        session.state,
        session.verify,
        lambda: store.exists("a"),
        lambda: store.create("b"),
        lambda: store.delete("a"),
        lambda: store.restore("a"),
        store.sessions,
        store.verify,
        store.health,
        store.diagnose,
    ]
    for call in calls:
        with pytest.raises(hansard.Closed):
            call()
