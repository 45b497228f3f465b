"""Ids and where they lead: into the store, apart from each other, and not outside."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import Store
from tests.unit.disk_probe import index_of, tree

TRAVERSAL = [
    "../../x", "../x", "/etc/x", "..\\x", "a/../b", ".", "..", "...", "./a", "a/.", "a/", "/", "//",
    "~/x", "C:\\x", "\\\\host\\x", "file:///etc/x", "%2e%2e/x", "..%2fx", "a/../../../../x",
    "sessions/../../x", "../hansard.json", "../trash/x", "\n", "a\nb", "$HOME", "`x`", "-rf", "*",
]  # fmt: skip


def every_method(store: Store, session_id: Any) -> list[Callable[[], object]]:
    """Return a call of each public method that takes an id, or follows from one, in an order that works."""
    return [
        lambda: store.exists(session_id),
        lambda: store.session(session_id).messages(),
        lambda: store.create(session_id, metadata={"id": session_id}),
        lambda: store.session(session_id).add_message({"id": session_id}),
        lambda: store.session(session_id).set_metadata(more=1),
        lambda: store.session(session_id).append("x.a", {}),
        lambda: store.session(session_id).messages_json(last=1),
        lambda: list(store.session(session_id).events()),
        lambda: store.session(session_id).state(),
        lambda: store.session(session_id).verify(),
        lambda: store.sessions(prefix=session_id),
        lambda: store.delete(session_id),
        lambda: store.restore(session_id),
        lambda: store.exists(session_id),
    ]


@pytest.mark.parametrize("session_id", TRAVERSAL)
def test_an_id_leads_into_the_store_only(session_id: str, tmp_path: Path) -> None:
    """N-1: every method round-trips an id that looks like a path, and nothing outside the root changes."""
    (tmp_path / "outside" / "x").mkdir(parents=True)
    (tmp_path / "outside" / "store-is-next-to-it.txt").write_text("mine")
    (tmp_path / "x").write_text("mine")
    root = tmp_path / "store"
    with hansard.open(root, durability="os") as store:

        def outside() -> dict[str, Any]:
            # The parent's own times change when the root is made, which was before.
            found = tree(tmp_path)
            return {
                name: seen for name, seen in found.items() if not f"{name}/".startswith("store/")
            }

        before = outside()
        for call in every_method(store, session_id):
            call()
        assert store.session(session_id).messages() == [{"id": session_id}]
        assert [info.id for info in store.sessions().items] == [session_id]
        assert outside() == before
    # Exactly one directory, directly below `sessions`, and nothing new next to it.
    ours = ["hansard.json", "index", index_of(root).name, "internal", "marks", "sessions", "trash"]
    assert sorted(os.listdir(root)) == ours
    (name,) = os.listdir(root / "sessions")
    assert sorted(os.listdir(root / "sessions" / name)) == ["lock", "log.jsonl"]
    assert not Path("/etc/x").exists()


def test_two_roots_are_two_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-9: roots that differ never share a directory, and spellings of one root are one store."""
    monkeypatch.chdir(tmp_path)
    roots = ["a/b", "a_b", "a+b", "a b", "a%2fb", "a.b", "a..b", "a/b_", "b", "other/data"]
    for root in roots:
        with hansard.open(root, durability="os") as store:
            store.session("s").add_message({"root": root})
    for root in roots:
        with hansard.open(root, create=False) as store:
            assert store.session("s").messages() == [{"root": root}]
    one = hansard.open("other/data", durability="os")
    for same in ("./other/data", "other/data/", "other/../other/data", tmp_path / "other" / "data"):
        with hansard.open(same, create=False, durability="os") as store:
            store.session("s").add_message({"by": str(same)})
    assert len(one.session("s").messages()) == 5
    one.close()
