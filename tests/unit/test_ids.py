"""Ids and where they lead: into the store, apart from each other, and nowhere else."""

import os
import threading
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hansard
from hansard import Store
from hansard.log import names
from tests.contract.test_keeping import BAD_IDS, IDS
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
    (tmp_path / "outside" / "store-is-beside.txt").write_text("mine")
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
    # Exactly one directory, directly below `sessions`, and nothing new beside it.
    ours = ["hansard.json", "index", index_of(root).name, "marks", "sessions", "trash"]
    assert sorted(os.listdir(root)) == ours
    (name,) = set(os.listdir(root / "sessions")) - {names.AUDIT}
    assert sorted(os.listdir(root / "sessions" / name)) == ["lock", "log.jsonl"]
    assert not Path("/etc/x").exists()


@pytest.mark.parametrize("bad", BAD_IDS, ids=[f"{bad!r:.20}" for bad in BAD_IDS])
def test_an_id_that_cannot_be_kept_is_refused_by_every_method(bad: object, tmp_path: Path) -> None:
    """N-1: empty, NUL, too long, a lone surrogate, no text: `InvalidSessionId`, and nothing changes."""
    root = tmp_path / "store"
    for store in (hansard.open(root, durability="os"), hansard.open("memory:")):
        calls: list[Callable[[Any], object]] = [
            store.exists,
            store.create,
            store.delete,
            store.restore,
            *([store.session] if bad is not None else []),  # None asks for a fresh id
        ]
        before = tree(tmp_path)
        for call in calls:
            with pytest.raises(hansard.InvalidSessionId):
                call(bad)
        assert tree(tmp_path) == before
        assert store.sessions().items == []
        store.close()


@pytest.fixture(scope="module")
def populated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with a session of every shape of id, each holding its own id."""
    root = tmp_path_factory.mktemp("ids") / "store"
    with hansard.open(root, durability="os") as store:
        for session_id in IDS:
            store.session(session_id).add_message({"id": session_id})
    return root


def test_names_survive_other_file_systems(populated: Path) -> None:
    """N-5, N-6: names differ after folding case and normalising, and none is a Windows device."""
    names = os.listdir(populated / "sessions")
    assert len(names) == len(IDS)
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        folded = {unicodedata.normalize(form, name).casefold() for name in names}
        assert len(folded) == len(names)
    for name in names:
        assert name.isascii()
        assert name == name.lower()
        assert len(name) <= 200
        assert not name.endswith((".", " "))
        assert not name.startswith(".")
        assert name.split(".")[0] not in {"con", "nul", "aux", "prn"}


@given(
    ids=st.lists(
        st.text(
            st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
            min_size=1,
            max_size=40,
        ),
        unique=True,
        max_size=8,
    )
)
def test_any_distinct_ids_are_distinct_sessions(
    ids: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """N-2: whatever the ids are, distinct ones have distinct contents, and all are listed."""
    root = tmp_path_factory.mktemp("any") / "store"
    with hansard.open(root, durability="os") as store:
        for session_id in ids:
            store.session(session_id).append("x.id", {"id": session_id})
        assert [info.id for info in store.sessions().items] == sorted(ids)
        for session_id in ids:
            assert [event.data["id"] for event in store.session(session_id).events()] == [
                session_id
            ]


def test_two_roots_are_two_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-9: roots that differ never share a directory, and spellings of one root are one store."""
    monkeypatch.chdir(tmp_path)
    roots = [
        "a/b",
        "a_b",
        "a+b",
        "a b",
        "a%2fb",
        "a.b",
        "a..b",
        "a/b_",
        "b",
        "other/data",
        "other/b",
    ]
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


def test_one_of_many_creates(tmp_path: Path) -> None:
    """N-10: of threads that create one id, through stores of their own, exactly one succeeds."""
    stores = [hansard.open(tmp_path / "store", durability="os") for _ in range(8)]
    barrier = threading.Barrier(8)
    made: list[str] = []

    def create(store: Store) -> None:
        for number in range(10):
            barrier.wait(60)
            try:
                store.create(f"s{number}", metadata={"by": id(store)})
            except hansard.SessionExists:
                continue
            except BaseException:
                barrier.abort()
                raise
            made.append(f"s{number}")

    threads = [threading.Thread(target=create, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(made) == [f"s{number}" for number in range(10)]
    assert [info.seq for info in stores[0].sessions().items] == [1] * 10
    for store in stores:
        store.close()
