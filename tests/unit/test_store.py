"""A store: opening, making, finding, deleting and listing sessions; looking after them."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import Store
from tests.unit.disk_probe import log_of, tree

# -- open ---------------------------------------------------------------------------------------


def test_open_makes_a_store_and_opens_it_again(tmp_path: Path) -> None:
    """`open` makes the directory, with what is missing above it, and finds it the next time."""
    path = tmp_path / "deep" / "below" / "data"
    with hansard.open(path) as store:
        store.session("a").add_message({"n": 1})
    assert sorted(os.listdir(path)) == ["hansard.json", "marks", "sessions", "trash"]
    assert (path / "hansard.json").read_text() == '{"hansard":"store","version":1}\n'
    again: list[Any] = [str(path), os.fsencode(path), path]
    for same in again:
        with hansard.open(same, create=False) as store:
            assert store.session("a").messages() == [{"n": 1}]


def test_an_empty_directory_becomes_a_store(tmp_path: Path) -> None:
    """An empty directory is made into a store; one with other files in it is refused as it is."""
    hansard.open(tmp_path).close()
    assert (tmp_path / "hansard.json").is_file()
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    before = tree(other)
    with pytest.raises(hansard.UnsafePath, match=r"notes\.txt"):
        hansard.open(other)
    assert tree(other) == before


@pytest.mark.parametrize("options", [{"create": False}, {"read_only": True}])
@pytest.mark.parametrize("what", ["missing", "empty", "foreign"])
def test_open_without_leave_to_create_creates_nothing(
    what: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """N-62: `create=False` and `read_only=True` raise `StoreNotFound` where no store is."""
    path = tmp_path / "data"
    if what != "missing":
        path.mkdir()
    if what == "foreign":
        (path / "notes.txt").write_text("mine")
    before = tree(tmp_path)
    with pytest.raises(hansard.StoreNotFound):
        hansard.open(path, **options)
    assert tree(tmp_path) == before


def test_a_file_is_no_store(tmp_path: Path) -> None:
    """A file where the directory should be is refused and left alone."""
    path = tmp_path / "data"
    path.write_text("mine")
    with pytest.raises(hansard.UnsafePath):
        hansard.open(path)
    assert path.read_text() == "mine"


@pytest.mark.parametrize("version", [0, 2, 999, -1])
def test_an_unknown_version_is_refused(version: int, tmp_path: Path) -> None:
    """N-44, F-2, F-45: a store, or a log, of another major version is refused and left as it is."""
    root = tmp_path / "s"
    with hansard.open(root, durability="os") as store:
        for name in "ab":
            store.session(name).add_message({"n": 1})
    log = log_of(root, "a")
    log.write_bytes(log.read_bytes().replace(b'"version":1', b'"version":%d' % version, 1))
    before = tree(root)
    with hansard.open(root, durability="os") as store:
        calls: list[Callable[[], object]] = [
            store.session("a").messages,
            lambda: store.session("a").add_message({"n": 2}),
            lambda: store.delete("a"),
        ]
        for call in calls:
            with pytest.raises(hansard.UnknownFormat, match=f"version {version}"):
                call()
        assert store.exists("a")
        assert {info.id: bool(info.damaged) for info in store.sessions().items} == {
            "a": True,
            "b": False,
        }
    # A listing keeps its index beside the sessions; what may be deleted at any time need not stay as it was.
    sessions = {name: seen for name, seen in before.items() if name.startswith("sessions")}
    assert {name: seen for name, seen in tree(root).items() if name in sessions} == sessions
    marker = root / "hansard.json"
    marker.write_text(f'{{"hansard":"store","version":{version},"later":1}}\n')
    before = tree(root)
    for read_only in (True, False):
        with pytest.raises(hansard.UnknownFormat, match=f"version {version}"):
            hansard.open(root, read_only=read_only)
    assert tree(root) == before


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: hansard.open(""), ValueError, "path"),
        (lambda: hansard.open("a\0b"), ValueError, "NUL"),
        (lambda: hansard.open(7), TypeError, "PathLike"),  # type: ignore[arg-type]
        (lambda: hansard.open("x", durability="fast"), ValueError, "durability"),  # type: ignore[arg-type]
        (lambda: hansard.open("x", lock_timeout=-1), ValueError, "lock_timeout"),
        (lambda: hansard.open("x", lock_timeout=float("nan")), ValueError, "lock_timeout"),
        (lambda: hansard.open("x", schema="a"), ValueError, "schema is for a database"),
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
    """A wrong argument of `open` is an error that names it, and nothing appears."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=says):
        call()
    assert os.listdir(tmp_path) == []


def test_memory_stores_are_apart() -> None:
    """N-9: each `memory:` is a store of its own."""
    one, two = hansard.open("memory:"), hansard.open("memory:")
    one.session("a").add_message({"n": 1})
    assert not two.exists("a")
    assert two.session("a").messages() == []


def test_a_closed_store_says_so(store: Store) -> None:
    """After `close`, handles and store raise `Closed`; nothing looks empty (N-31)."""
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
    ]
    for call in calls:
        with pytest.raises(hansard.Closed):
            call()


def test_what_a_store_and_a_session_look_like(store: Store) -> None:
    """Store and session show where they are."""
    assert "hansard.Store" in repr(store)
    assert "'a/b'" in repr(store.session("a/b"))


# -- session, create, exists --------------------------------------------------------------------


def test_a_session_exists_from_its_first_event_on(store: Store) -> None:
    """A handle makes no session; the first event does."""
    session = store.session("a")
    assert session.id == "a"
    assert not store.exists("a")
    assert (session.seq, session.messages(), session.metadata) == (0, [], {})
    assert list(session.events()) == []
    assert session.state() == hansard.State()
    assert store.sessions().items == []
    assert session.append("x.start", {}).seq == 1
    assert store.exists("a")


def test_create_makes_a_session_once(store: Store) -> None:
    """`create` writes the first event with its metadata, and raises `SessionExists` after that."""
    session = store.create("a", metadata={"title": "Refund", "tags": ["x"]})
    assert session.metadata == {"title": "Refund", "tags": ["x"]}
    assert [event.kind for event in session.events()] == ["session.created"]
    with pytest.raises(hansard.SessionExists):
        store.create("a", metadata={"title": "Other"})
    store.session("b").add_message({"n": 1})
    with pytest.raises(hansard.SessionExists):
        store.create("b")
    assert session.metadata["title"] == "Refund"
    assert store.session("b").seq == 1
    assert store.create("c").metadata == {}


@pytest.mark.parametrize(
    "metadata", [[], [1], "text", 7, {"k": {1, 2}}, {1: 2}, {"k": float("nan")}, {"k": "\ud800"}]
)
def test_bad_metadata_make_no_session(metadata: Any, store: Store) -> None:
    """N-89: `create` with metadata that cannot be stored raises `InvalidEvent`, and no session is."""
    with pytest.raises(hansard.InvalidEvent, match="metadata"):
        store.create("a", metadata=metadata)
    assert not store.exists("a")
    assert store.sessions().items == []
    assert store.create("a").seq == 1


def test_a_damaged_session_exists(tmp_path: Path) -> None:
    """N-31: a session that cannot be read exists, is listed with a flag, and is not made anew."""
    with hansard.open(tmp_path / "s", durability="os") as store:
        for name in ("bad", "good"):
            store.session(name).add_message({"n": 1})
    log_of(tmp_path / "s", "bad").write_bytes(b"")
    with hansard.open(tmp_path / "s", durability="os") as store:
        assert store.exists("bad")
        flags = {info.id: bool(info.damaged) for info in store.sessions().items}
        assert flags == {"bad": True, "good": False}
        for call in (lambda: store.create("bad"), lambda: store.session("bad").messages()):
            with pytest.raises(hansard.Damaged):
                call()
    assert log_of(tmp_path / "s", "bad").read_bytes() == b""


# -- delete and restore -------------------------------------------------------------------------


def test_a_deleted_session_comes_back_whole(store: Store) -> None:
    """`delete` takes a session out of sight, and `restore` brings back all that it had."""
    session = store.create("a", metadata={"title": "T"})
    session.add_messages([{"n": 1}, {"n": 2}], key="k")
    before = list(session.events())
    info = store.sessions().items[0]
    store.delete("a")
    assert not store.exists("a")
    assert store.sessions().items == []
    assert store.verify().sessions == []
    calls: list[Callable[[], object]] = [
        session.messages,
        lambda: session.messages(last=0),
        lambda: session.messages_json(at=0),
        session.state,
        lambda: session.add_message({"n": 3}),
    ]
    for call in calls:
        with pytest.raises(hansard.SessionDeleted):
            call()
    with pytest.raises(hansard.SessionDeleted):
        store.create("a")
    restored = store.restore("a")
    assert list(restored.events()) == list(session.events()) == before
    again = store.sessions().items[0]
    assert (again.created, again.updated, again.seq) == (info.created, info.updated, info.seq)
    assert session.add_messages([{"n": 9}], key="k") == before[1:]
    assert session.add_message({"n": 3}).seq == 4


# -- sessions -----------------------------------------------------------------------------------


def test_a_listing_says_what_is_there(store: Store) -> None:
    """A line of the listing has id, seq, times, size, metadata and title."""
    session = store.create("a", metadata={"title": "Refund"})
    event = session.add_message({"n": 1})
    (info,) = store.sessions().items
    assert (info.id, info.seq, info.title, info.damaged) == ("a", 2, "Refund", "")
    assert info.metadata == {"title": "Refund"}
    assert info.updated == event.stamp
    assert info.created == next(session.events()).stamp
    assert info.bytes > 0
    store.session("b").set_metadata(title=7)
    assert [found.title for found in store.sessions().items] == ["Refund", None]


def test_a_listing_has_pages(store: Store) -> None:
    """Pages follow one another by cursor, in the order of ids, and no session is on two or on none."""
    ids = [f"{group}/{number}" for group in "ab" for number in range(7)]
    for session_id in reversed(ids):
        store.session(session_id).add_message({"id": session_id})
    assert [info.id for info in store.sessions().items] == ids
    assert store.sessions().next is None
    for limit in (1, 3, 7, 14, 100):
        found: list[str] = []
        cursor = None
        while True:
            page = store.sessions(limit=limit, cursor=cursor)
            assert len(page.items) <= limit
            found += [info.id for info in page.items]
            cursor = page.next
            if cursor is None:
                break
        assert found == ids
    assert [info.id for info in store.sessions(prefix="b/").items] == ids[7:]
    first = store.sessions(prefix="b/", limit=6)
    assert [info.id for info in store.sessions(prefix="b/", cursor=first.next).items] == ["b/6"]
    assert store.sessions(prefix="c").items == []
    for limit in (0, -1):
        with pytest.raises(ValueError, match="limit"):
            store.sessions(limit=limit)


def test_a_listing_is_plain_data(store: Store) -> None:
    """What a listing gives can be pickled and changed without effect on the store (N-63)."""
    session = store.create("a", metadata={"tags": ["x"]})
    page = store.sessions()
    assert pickle.loads(pickle.dumps(page)) == page  # noqa: S301
    page.items[0].metadata["tags"].append("y")
    assert session.metadata == {"tags": ["x"]}


# -- verify and health --------------------------------------------------------------------------


def test_verify_reports_every_session(store: Store) -> None:
    """`verify` has one report for each session, all without findings in a store as it was written."""
    for name in "cab":
        store.session(name).add_messages([{"n": 1}, {"n": 2}])
    report = store.verify()
    assert report.ok
    assert report.findings == []
    assert [(one.session, one.seq) for one in report.sessions] == [("a", 2), ("b", 2), ("c", 2)]
    assert store.session("a").verify() == report.sessions[0]
    with pytest.raises(hansard.SessionNotFound):
        store.session("nobody").verify()


def test_one_bad_session_hides_no_other_from_verify(tmp_path: Path) -> None:
    """N-35: `verify` reports a session that cannot be opened, and all others."""
    with hansard.open(tmp_path / "s", durability="os") as store:
        for name in ("damaged", "good", "linked", "newer"):
            store.session(name).add_message({"n": 1})
    log_of(tmp_path / "s", "damaged").write_bytes(b"null\n")
    log = log_of(tmp_path / "s", "newer")
    log.write_bytes(log.read_bytes().replace(b'"version":1', b'"version":2', 1))
    log_of(tmp_path / "s", "linked").unlink()
    log_of(tmp_path / "s", "linked").symlink_to(log)
    with hansard.open(tmp_path / "s", read_only=True) as store:
        report = store.verify()
    assert not report.ok
    assert {one.session: one.ok for one in report.sessions} == {
        "damaged": False,
        "good": True,
        "linked": False,
        "newer": False,
    }


def test_health_says_where_and_how(store: Store, tmp_path: Path) -> None:
    """`health` says where the store is, its durability, and that it can be written."""
    health = store.health()
    assert health.writable
    assert health.durability in {"none", "os", "sync"}
    assert health.where in {"memory:", str(tmp_path / "store")}
    assert store.sessions().items == []
