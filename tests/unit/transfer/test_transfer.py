"""A session that was exported is the same when it is imported, or it is not imported at all."""

import json
import re
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import Session, Store
from hansard.backend.contract import check_parent
from hansard.errors import (
    Damaged,
    InvalidExport,
    InvalidSessionId,
    SessionDeleted,
    SessionExists,
    SessionNotFound,
    UnknownFormat,
)
from hansard.transfer import copy
from tests.unit.disk_probe import flip, log_of, tree
from tests.unit.event.keys import KEYS

USER = {"role": "user", "content": "hi"}


@pytest.fixture(params=["memory", "local"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Store]]:
    """Return what makes stores, in memory or on files."""
    opened: list[Store] = []

    def made(**options: Any) -> Store:
        path = "memory:" if request.param == "memory" else tmp_path / f"store{len(opened)}"
        opened.append(hansard.open(path, durability="os", **options))
        return opened[-1]

    yield made
    for store in opened:
        store.close()


def fill(store: Store) -> Session:
    """Make a session with events of every sort, and two generations of forks."""
    session = store.create("a/1", metadata={"title": "Refund", "user": "u7"})
    session.add_message(USER)
    session.add_messages([{"role": "assistant", "content": "x" * 3000}, USER], key="turn-1")
    with session.stream(gather=0) as stream:
        stream.write("par")
        stream.write("tial")
    session.snapshot("here")
    secret = session.add_message({"role": "user", "content": "never mind"})
    child = session.fork("a/2")
    session.redact(secret.seq)
    child.append("x.todo", {"number": 1.50, "deep": [[1]], "text": "\u2028\x85\x7f"}, key="ü")
    child.revert("here")
    child.record_usage(model="m", input_tokens=3, cost=0.25)
    grandchild = child.fork("a/3", at=6)
    open_stream = grandchild.stream(gather=0, role="assistant")
    open_stream.__enter__()
    open_stream.write("I was about to")
    grandchild.summarize(upto=4, message={"role": "system", "content": "short"})
    return session


def exported(session: Session, **options: Any) -> bytes:
    """Return a session as a file."""
    return b"".join(session.export(**{"redacted": False, **options}))


def events_of(data: bytes) -> list[bytes]:
    """Return the lines of the events of a file."""
    return data.splitlines(keepends=True)[1:-1]


def relined(data: bytes, change: Callable[[list[dict[str, Any]]], object]) -> bytes:
    """Return a file whose lines were changed, with the count and checksum that then are right."""
    import hashlib

    lines = [json.loads(line) for line in data.split(b"\n")[:-1]]
    change(lines)
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines[:-1])
    lines[-1] = {**lines[-1], "events": len(lines) - 2}
    lines[-1].pop("sha256", None)
    body += json.dumps(lines[-1]).encode()[:-1]
    return body + b',"sha256":"%b"}\n' % hashlib.sha256(body).hexdigest().encode()


def same(one: Session, other: Session) -> bool:
    """Return whether two sessions show the same messages."""
    return all(
        one.messages(view=view) == other.messages(view=view) for view in ("model", "history")
    )


# -- there and back -----------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [1, 7, 4096])
def test_a_file_may_come_in_any_pieces(
    make: Callable[..., Store], piece: int, tmp_path: Path
) -> None:
    """Pieces of any length, an open file and text are imported alike."""
    source, target = make(), make()
    data = exported(fill(source))
    (tmp_path / "file").write_bytes(data)
    target.import_session((data[at : at + piece] for at in range(0, len(data), piece)), id="pieces")
    target.import_session(data.decode(), id="text")
    with (tmp_path / "file").open("rb") as file:
        target.import_session(file, id="file")
    with (tmp_path / "file").open(encoding="utf-8", newline="") as file:
        target.import_session(file, id="text file")
    for name in ("pieces", "text", "file", "text file"):
        assert same(target.session(name), source.session("a/1"))


def test_a_fork_is_exported_without_its_parents_keys(make: Callable[..., Store]) -> None:
    """N-56: a fork in the middle of a keyed batch, that uses the key again, is imported."""
    source, target = make(), make()
    source.session("p/1").add_messages([USER, USER, USER], key="k")
    fork = source.session("p/1").fork("c/1", at=1)
    own = fork.add_message(USER, key="k")
    target.import_session(exported(fork))
    assert len(target.session("c/1").messages()) == 2
    assert target.session("c/1").add_message(USER, key="k").seq == own.seq


def test_the_event_of_a_fork_can_be_dropped_in_a_copy_and_is_still_the_same(
    make: Callable[..., Store],
) -> None:
    """A drop that covers the event of a fork hides it in a copy that is not a fork, and so in its export.

    The same file is then the same session, also after a compaction has erased what was dropped.
    """
    store = make()
    store.session("a/parent").add_message({"role": "user", "content": "hello"})
    for dropped, data in ((False, {"parent": "a/parent", "seq": 0}), (True, {"redacted": True})):
        child = store.session("a/parent").fork(f"b/{dropped}", at=0)
        child.add_messages([{"role": "user", "content": text} for text in ("one", "two")])
        if dropped:
            child.drop_history(3)
        assert child.parent == "a/parent"
        file, target = exported(child), make()
        target.import_session(file)
        (copy, *_) = target.session(child.id).events()
        assert (copy.kind, {**data, **copy.data}) == ("x.forked", copy.data)
        assert events_of(exported(target.session(child.id))) == events_of(file)
        target.compact()
        assert target.import_session(file).already


# -- redaction ----------------------------------------------------------------------------------


def test_a_fork_whose_parent_is_purged_meanwhile_is_refused(
    make: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-67, N-51: a fork whose parent is purged while it is copied is refused, and leaves nothing."""
    source = make()
    source.session("p").add_message(USER)
    source.session("p").fork("c")
    target = make()

    def check_then_purge(*args: Any) -> None:
        check_parent(*args)
        target.delete("p")
        target.purge("p")

    monkeypatch.setattr("hansard.transfer.copy.check_parent", check_then_purge)
    source.copy_to(target, ["p"])
    assert "'c' needs its parent 'p'" in source.copy_to(target, ["c"]).failed["c"]
    assert list(target.sessions().items) == []
    assert target.trash() == []


def test_two_keys_that_held_credentials_stay_two_appends(make: Callable[..., Store]) -> None:
    """N-56, N-57: redacted keys are left out, so that no two appends become one."""
    source, target = make(), make()
    session = source.session("s")
    _, secret = KEYS[next(iter(KEYS))]
    for number in range(2):
        session.append("x.n", {"n": number}, key=f"{secret} {number}")
    target.import_session(session.export())
    assert [event.data for event in target.session("s").events()] == [{"n": 0}, {"n": 1}]


# -- existing sessions ----------------------------------------------------------------------


def test_an_existing_session_is_never_changed(make: Callable[..., Store]) -> None:
    """N-88: another session with the id, live or deleted, does not change; `id` gives another."""
    source, target = make(), make()
    data = exported(fill(source))
    target.session("a/1").add_message({"role": "user", "content": "mine"})
    with pytest.raises(SessionExists, match="another id"):
        target.import_session(data)
    assert len(list(target.session("a/1").events())) == 1
    target.import_session(data, id="other")
    assert same(target.session("other"), source.session("a/1"))
    target.delete("a/1")
    with pytest.raises(SessionDeleted):
        target.import_session(data)
    with pytest.raises(InvalidSessionId):
        target.import_session(data, id="\0")


def test_an_import_cannot_reach_out_of_its_scope(make: Callable[..., Store]) -> None:
    """N-69: a file that claims to be a fork of another tenant's session is refused."""
    store = make()
    secret = store.session("b/secret")
    secret.add_messages([USER] * 3)
    origin = {"parent": "b/secret", "seq": 0}
    data = relined(exported(secret), _set(1, kind="session.forked", data=origin))
    mine = store.scoped("a/")
    with pytest.raises(InvalidExport, match="begins with a fork"):
        mine.import_session(data, id="a/1")
    with pytest.raises(InvalidSessionId):
        mine.import_session(data)
    assert mine.sessions().items == []


# -- copies -------------------------------------------------------------------------------------


def alike(one: Session, other: Session) -> None:
    """Compare the complete content of two sessions."""
    assert list(one.events()) == list(other.events())
    assert one.state() == other.state()
    assert same(one, other)
    assert (one.parent, one.children()) == (other.parent, other.children())


def test_what_was_redacted_is_not_copied(tmp_path: Path) -> None:
    """N-66: the bytes of a redacted message are not copied, even before a compaction of the source."""
    with (
        hansard.open(tmp_path / "source", durability="os") as source,
        hansard.open(tmp_path / "target", durability="os") as target,
    ):
        fill(source)
        source.copy_to(target)
        alike(source.session("a/2"), target.session("a/2"))
    everything = b"".join(
        path.read_bytes() for path in (tmp_path / "target").rglob("*") if path.is_file()
    )
    assert b"turn-1" in everything
    assert b"never mind" not in everything


@pytest.mark.parametrize("remove", [lambda one: one.redact(2), lambda one: one.drop_history(3)])
def test_what_is_removed_during_a_copy_is_not_shown_in_the_copy(
    make: Callable[..., Store],
    monkeypatch: pytest.MonkeyPatch,
    remove: Callable[[Session], object],
) -> None:
    """N-66: a redaction or a drop that comes during a copy is copied with what it removes."""
    source, target = make(), make()
    session = source.session("s")
    session.add_messages([USER, {"role": "user", "content": "never mind"}, USER])
    write = copy._write  # called after the redactions were read, and before the events are

    def remove_then_write(*args: Any) -> str:
        if session.seq == 3:
            remove(session)
            session.compact()
        return write(*args)

    monkeypatch.setattr(copy, "_write", remove_then_write)
    assert source.copy_to(target).failed == {}
    alike(session, target.session("s"))


def test_what_is_another_session_is_left_alone(make: Callable[..., Store]) -> None:
    """N-88: the first event that differs is named, and neither the session nor its forks change."""
    source, target = make(), make()
    fill(source)
    target.session("a/1").add_message(USER)
    before = list(target.session("a/1").events())
    report = source.copy_to(target)
    assert "event 1 differs" in report.failed["a/1"]
    assert report.failed.keys() == {"a/1", "a/2", "a/3"}
    assert list(target.session("a/1").events()) == before
    assert [info.id for info in target.sessions().items] == ["a/1"]


def test_a_fork_brings_its_parent_along(make: Callable[..., Store]) -> None:
    """N-51: the parent of a copied fork is copied with it, from the trash into the trash."""
    source, target = make(), make()
    fill(source)
    source.delete("a/1")
    told: list[tuple[int, int]] = []
    report = source.copy_to(target, ["a/3"], progress=lambda *place: told.append(place))
    assert report.failed == {}
    assert report.ancestors == ["a/1", "a/2"]
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert target.trash() == ["a/1"]
    assert same(source.session("a/3"), target.session("a/3"))
    source.session("a/3").add_message(USER)
    assert source.copy_to(target, ["a/3"]).failed == {}
    alike(source.session("a/3"), target.session("a/3"))


def test_only_requested_sessions_are_copied(make: Callable[..., Store]) -> None:
    """N-89: sessions are chosen by id, prefix or scope; missing ones are reported."""
    source, target = make(), make()
    for name in ("a/1", "b/1", "b/2"):
        source.session(name).add_message(USER)
    report = source.copy_to(target, ["b/1", "missing"])
    assert (report.sessions, list(report.failed)) == (1, ["missing"])
    source.copy_to(target, prefix="b/")
    assert [info.id for info in target.sessions().items] == ["b/1", "b/2"]
    report = source.copy_to(target.scoped("b/"))
    assert list(report.failed) == ["a/1"]
    with pytest.raises(ValueError, match="itself"):
        source.copy_to(source.scoped("b/"))


# -- invalid files ------------------------------------------------------------------


def test_a_file_that_was_cut_anywhere_is_refused(tmp_path: Path) -> None:
    """N-84, N-88: a truncated file is refused, wherever it was cut, and nothing is imported."""
    with hansard.open("memory:") as source:
        session = source.session("s")
        session.add_messages([USER, USER], key="k")
        data = exported(session)
    with hansard.open(tmp_path / "store", durability="os") as target:
        before = tree(tmp_path)
        for length in range(len(data)):
            with pytest.raises(InvalidExport):
                target.import_session(data[:length])
        assert tree(tmp_path).keys() == before.keys()
        assert target.sessions().items == []  # which makes an index


def _bit(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_a_file_that_was_changed_anywhere_is_refused(rng: Any) -> None:
    """N-88: a flipped bit, more after the end, and another version are noticed; nothing is imported."""
    with hansard.open("memory:") as source, hansard.open("memory:") as target:
        session = source.session("s")
        session.add_messages([USER, USER], key="k")
        data = exported(session)
        for at in rng.sample(range(len(data)), 150):
            with pytest.raises((InvalidExport, UnknownFormat)):
                target.import_session(_bit(data, at), id="s")
            assert target.sessions().items == []
        for more in (data, b"\n", b"{}\n", b" "):
            with pytest.raises(InvalidExport, match=r"last line|truncated"):
                target.import_session(data + more)
        with pytest.raises(UnknownFormat, match="version 2"):
            target.import_session(relined(data, _set(0, version=2)))


def _set(place: int, **members: Any) -> Callable[[list[dict[str, Any]]], None]:
    return lambda lines: lines[place].update(members)


def _deep(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


WRONG: dict[str, tuple[Callable[[list[dict[str, Any]]], object], str]] = {
    "a seq twice": (_set(2, seq=1), "seq 1, expected 2"),
    "a gap": (lambda lines: lines.pop(2), "seq 3, expected 2"),
    "a seq that is text": (_set(1, seq="1"), "not an event"),
    "a time that is none": (_set(1, time="2026-02-30T00:00:00.000000Z"), "time"),
    "another zone": (_set(1, time="2026-01-01T00:00:00.000000+01:00"), "time"),
    "data that are a list": (_set(1, data=[1]), "JSON object"),
    "data that are too deep": (_set(1, data={"a": _deep(200)}), "levels deep"),
    "a message that is text": (_set(1, data={"message": "hi"}), "must be a JSON object"),
    "a message that is nothing": (_set(1, data={"message": None}), "must be a JSON object"),
    "a kind with a line break": (_set(1, kind="x.\n"), "kind"),
    "a key that is empty": (_set(1, key=""), "key"),
    "a key on two appends": (lambda lines: [line.update(key="k") for line in lines[1:3]],
        "idempotency key 'k' is used twice"),
    "more without a key": (_set(1, more=1), "without an append"),
    "more than there are": (_set(3, key="k", more=9), "events missing at the end of an append: 9"),
    "less than nothing": (_set(1, key="k", more=-1), "Expected `int` >= 0 - at `$.more`"),
    "a key inside of an append": (
        lambda lines: [lines[1].update(key="k", more=1), lines[2].update(key="l")],
        "inside another",
    ),
    "a fork of itself": (_set(1, kind="session.forked", data={"parent": "s", "seq": 0}),
        "begins with a fork"),
    "no events": (lambda lines: lines.__delitem__(slice(1, -1)), "no events"),
    "a lineage that is none": (_set(0, lineage=7), "invalid header"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_a_file_that_lies_is_refused(tmp_path: Path, wrong: str) -> None:
    """N-88: a file with a valid count and checksum, and other invalid content, is refused."""
    change, reason = WRONG[wrong]
    with hansard.open("memory:") as source:
        session = source.session("s")
        for _ in range(3):
            session.add_message(USER)
        data = relined(exported(session), change)
    with hansard.open(tmp_path / "store", durability="os") as target:
        before = tree(tmp_path).keys()
        with pytest.raises(InvalidExport, match=re.escape(reason)) as caught:
            target.import_session(data)
        assert caught.value.line >= 1
        assert "nothing was imported" in str(caught.value)
        assert tree(tmp_path).keys() == before


def test_a_line_without_an_end_is_not_read_to_its_end() -> None:
    """N-88: no more than the longest valid line is held in memory."""
    read = 0

    def pieces() -> Iterator[bytes]:
        nonlocal read
        while True:
            read += 8 * 1024 * 1024
            yield b" " * (8 * 1024 * 1024)

    with (
        hansard.open("memory:") as target,
        pytest.raises(InvalidExport, match="a line of more than"),
    ):
        target.import_session(pieces())
    assert read < 80 * 1024 * 1024


def test_a_damaged_session_is_exported_up_to_the_damage_and_says_so(tmp_path: Path) -> None:
    """N-88, N-89: export raises `Damaged` at the damage, and the file up to there is not complete."""
    with hansard.open(tmp_path / "store", durability="os") as store:
        session = store.session("s")
        for number in range(50):
            session.add_message({"role": "user", "content": f"message {number}"})
    log = log_of(tmp_path / "store", "s")
    flip(log)
    pieces: list[bytes] = []
    with hansard.open(tmp_path / "store", read_only=True) as store:
        with pytest.raises(Damaged):
            pieces.extend(store.session("s").export())
        with hansard.open("memory:") as target:
            with pytest.raises(InvalidExport):
                target.import_session(pieces)
            report = store.copy_to(target)
            assert "log.jsonl" in report.failed["s"]
            assert report.sessions == 0


def test_there_must_be_something_to_export(make: Callable[..., Store]) -> None:
    """N-89: exporting a missing session, or an unknown format, raises."""
    store = make()
    with pytest.raises(SessionNotFound):
        store.session("missing").export()
    store.session("s").add_message(USER)
    with pytest.raises(ValueError, match="format must be one of"):
        store.session("s").export("pdf")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="view must be one of"):
        store.session("s").export("html", view="all")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="bytes or str"):
        store.import_session([1, 2])  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("format", ["jsonl", "markdown", "html"])
def test_moving_needs_the_memory_of_a_piece(tmp_path: Path, format: Any) -> None:
    """Exporting and importing 16 MiB takes a fraction of that in memory."""
    with hansard.open(tmp_path / "store", durability="os", auto_compact=False) as store:
        session = store.session("s")
        for _ in range(64):
            session.add_message({"role": "user", "content": "x" * 256 * 1024})
        tracemalloc.start()
        try:
            if format == "jsonl":
                store.import_session(session.export(redacted=False), id="t")
            else:
                for _ in session.export(format, redacted=False):
                    pass
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 8 * 1024 * 1024


def test_a_scoped_copy_takes_nothing_from_outside(make: Callable[..., Store]) -> None:
    """A fork from outside of a scope, and its own forks, are reported; the others are copied."""
    store, target = make(), make()
    store.session("b/0").add_message({"content": "theirs"})
    store.session("b/0").fork("a/1").fork("a/2")
    store.session("a/3").add_message({"content": "mine"})
    report = store.scoped("a/").copy_to(target)
    assert (report.sessions, report.ancestors, list(report.failed)) == (1, [], ["a/1", "a/2"])
    assert "outside of this store; export it" in report.failed["a/1"]
    assert [info.id for info in target.sessions().items] == ["a/3"]
