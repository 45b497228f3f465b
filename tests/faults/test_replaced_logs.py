"""Claims about a log that an editor, `mv` or `rm` replaces or removes while writers have it open: F-165."""

import errno
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.backend.local.log import LocalChunk, LocalReader
from hansard.errors import Damaged, DiskFailed
from hansard.log import disk, store_directory
from tests.faults.workers import Crew, Wire, open_store, replaced, until
from tests.unit.disk_probe import log_of

Change = Callable[[Path], None]
Way = Callable[[hansard.Session, str], object]


def _renamed_over(log: Path) -> None:
    shutil.copyfile(log, log.with_name("new"))
    log.with_name("new").rename(log)


def _sed(log: Path) -> None:
    # Attached, the suffix is understood by both kinds of sed.
    subprocess.run(["sed", "-i.bak", "s/no such text//", log], check=True)


def _renamed_away(log: Path) -> None:
    log.rename(log.with_name("log.jsonl~"))
    shutil.copyfile(log.with_name("log.jsonl~"), log)


def _linked_and_renamed_over(log: Path) -> None:
    log.with_name("backup").hardlink_to(log)
    _renamed_over(log)


def _removed(log: Path) -> None:
    log.unlink()


def _linked_and_removed(log: Path) -> None:
    log.with_name("backup").hardlink_to(log)
    log.unlink()


def _edited(log: Path) -> None:
    log.with_name("new").write_bytes(log.read_bytes().replace(b"before", b"BEFORE"))
    log.with_name("new").rename(log)


def _cut(log: Path) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    log.with_name("new").write_bytes(b"".join(lines[:-1]))
    log.with_name("new").rename(log)


EQUAL = (_renamed_over, _sed, _renamed_away, _linked_and_renamed_over)
CHANGES = (*EQUAL, _removed, _linked_and_removed, _edited, _cut)


def _stream(session: hansard.Session, text: str) -> None:
    with session.stream(gather=0) as stream:
        stream.write(text)


WAYS: dict[str, Way] = {
    "one": lambda session, text: session.add_message({"text": text}),
    "batch": lambda session, text: session.add_messages([{"text": text}, {"text": "second"}]),
    "key": lambda session, text: session.add_message({"text": text}, key=text),
    "stream": _stream,
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the store is."""
    return tmp_path / "store"


@pytest.fixture(params=["os", "sync"])
def store(request: pytest.FixtureRequest, path: Path) -> hansard.Store:
    """Return a store with a session that has been appended to, in each way, by this process."""
    store = open_store(str(path), request.param)
    for name, way in WAYS.items():
        way(store.session("s"), f"before by {name}")
    return store


@pytest.fixture(params=["settled", "fresh"])
def _known(
    request: pytest.FixtureRequest,
    store: hansard.Store,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Let the session's directory have changed long ago, so that its time is relied on; or just now."""
    if request.param == "settled":
        monkeypatch.setattr(store_directory, "_TICK", 0)
        store.session("s").add_message({"text": "before"})
        _let_the_clock_tick(log_of(path, "s").parent)


def _let_the_clock_tick(directory: Path) -> None:
    """Wait until a change would have another time than the directory's last one."""
    witness = directory.parent / "witness"

    def has_ticked() -> bool:
        witness.touch()
        return witness.stat().st_ctime_ns > directory.stat().st_ctime_ns

    until(has_ticked)
    witness.unlink()


def _found(path: Path) -> str:
    """Return all that a process finds that opens the store now."""
    with hansard.open(path, read_only=True) as store:
        return str([event.data for event in store.session("s").events()])


@pytest.mark.usefixtures("_known")
@pytest.mark.parametrize("way", WAYS.values(), ids=list(WAYS))
@pytest.mark.parametrize("change", CHANGES)
def test_appends_to_a_log_that_was_taken_away_are_refused(
    store: hansard.Store, path: Path, change: Change, way: Way
) -> None:
    """N-18, N-29, F-165: an append to a log that was removed or replaced is refused; the next one is not."""
    log = log_of(path, "s")
    change(log)
    there = log.read_bytes() if log.exists() else b""
    with pytest.raises(DiskFailed, match="while it was open; nothing was appended") as caught:
        way(store.session("s"), "after")
    assert caught.value.errno == errno.ESTALE
    assert (log.read_bytes() if log.exists() else b"") == there
    if change is _edited:
        with pytest.raises(Damaged, match="checksum mismatch"):
            way(store.session("s"), "once more")
        return
    # Another process continues in the new file too, and its events are not overwritten.
    with open_store(str(path), "os") as other:
        other.session("s").add_message({"text": "the other"})
    way(store.session("s"), "once more")
    found = _found(path)
    assert found.index("the other") < found.index("once more")
    assert ("before" in found) == (change not in {_removed, _linked_and_removed})
    assert store.verify().ok


def test_a_log_that_is_removed_before_its_sync_is_not_acknowledged(path: Path) -> None:
    """N-29, F-165: an append whose file was unlinked between its write and its sync is an error."""
    store = open_store(str(path), "sync")
    session = store.session("s")
    session.add_message({"text": "before"})
    log = log_of(path, "s")
    sync = disk.sync

    def remove_then_sync(descriptor: int) -> None:
        log.unlink()
        sync(descriptor)

    with (
        replaced("sync", remove_then_sync),
        pytest.raises(DiskFailed, match="removed before this append was durable"),
    ):
        session.add_message({"text": "lost"})
    session.add_message({"text": "after"})
    assert "after" in _found(path)


def test_what_was_sealed_and_compacted_before_its_sync_is_acknowledged(path: Path) -> None:
    """F-165: a segment that compaction removes after the write has kept its events."""
    store = open_store(str(path), "sync")
    session = store.session("s")
    session.add_message({"text": "before"})
    sync = disk.sync
    done: list[int] = []

    def compact_then_sync(descriptor: int) -> None:
        if not done:
            done.append(1)
            with Crew() as crew:
                crew.start(_compact, str(path)).result()
        sync(descriptor)

    with replaced("sync", compact_then_sync):
        session.add_message({"text": "after"})
    assert "after" in _found(path)


def _compact(_: Wire, path: str) -> None:
    with open_store(path, "sync") as store:
        store.session("s").compact()


def test_a_log_that_is_missing_before_its_sealed_segments_is_not_begun_again(
    tmp_path: Path, path: Path
) -> None:
    """N-30, F-175: with sealed segments and no `log.jsonl`, an append is refused, and creates nothing."""
    store = open_store(str(path), "os")
    session = store.session("s")
    session.add_message({"text": "before"})
    session.compact()
    session.add_message({"text": "before"})
    log = log_of(path, "s")
    log.rename(tmp_path / "kept")
    with pytest.raises(DiskFailed):
        session.add_message({"text": "after"})
    with pytest.raises(Damaged, match="missing"):
        session.add_message({"text": "after"})
    assert not log.exists()
    (tmp_path / "kept").rename(log)
    session.add_message({"text": "after"})
    assert [event.seq for event in session.events()] == [1, 2, 3]


def test_a_log_that_is_missing_after_its_sealed_segments_is_damage(path: Path) -> None:
    """N-30, N-35, F-175: no reader takes such a session for one that does not exist."""
    with open_store(str(path), "os") as store:
        store.session("other").add_message({"text": "other"})
        store.session("s").add_messages([{"text": "before"}] * 3)
        store.session("s").compact()
    log = log_of(path, "s")
    log.unlink()
    with open_store(str(path), "os") as store:
        session = store.session("s")
        for read in (session.messages, session.state, lambda: session.seq, session.repair):
            with pytest.raises(Damaged, match="missing"):
                read()
        assert {item.id: bool(item.damaged) for item in store.sessions().items} == {
            "other": False,
            "s": True,
        }
        assert [report.session for report in store.verify().sessions if not report.ok] == ["s"]
        log.touch()
        assert session.repair().lost == []
        assert session.messages() == [{"text": "before"}] * 3


def _forked(store: hansard.Store) -> None:
    store.session("other").fork("s")


def _imported(store: hansard.Store) -> None:
    store.import_session(b"".join(store.session("other").export()), id="s")


@pytest.mark.parametrize("begin", [_forked, _imported])
def test_a_staged_log_does_not_continue_the_sealed_segments_of_another(
    tmp_path: Path, path: Path, begin: Callable[[hansard.Store], None]
) -> None:
    """N-30, F-136, F-175: a fork or an import gets no name that has sealed segments and no log."""
    with open_store(str(path), "os") as store:
        store.session("other").add_message({"text": "other"})
        session = store.session("s")
        session.add_messages([{"text": "before"}] * 3)
        session.compact()
    log = log_of(path, "s")
    log.rename(tmp_path / "kept")
    with open_store(str(path), "os") as store:
        with pytest.raises(Damaged, match="missing"):
            begin(store)
        assert not log.exists()
        (tmp_path / "kept").rename(log)
        assert store.session("s").messages() == [{"text": "before"}] * 3
        assert store.verify().ok


def test_an_append_asks_the_system_no_more_than_before(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-165: to know that its files have their names, an append asks once, for the directory's time."""
    monkeypatch.setattr(store_directory, "_TICK", 0)
    session = open_store(str(path), "os").session("s")
    for _ in range(3):
        session.add_message({"text": "before"})
    calls: list[str] = []

    def counted(name: str) -> Any:
        real = getattr(disk, name)

        def call(*args: Any) -> Any:
            calls.append(name)
            return real(*args)

        return call

    for name in ("status_of", "links", "identity", "size", "write"):
        monkeypatch.setattr(disk, name, counted(name))
    session.add_message({"text": "after"})
    assert calls == ["status_of", "size", "write"]


def test_a_read_continues_in_the_file_that_replaced_the_log(tmp_path: Path) -> None:
    """F-41: if the log was replaced and a sealed segment is missing, a call continues from its last seq.

    A repair does that: it writes all events into one new segment, and removes the others.
    """
    path = tmp_path / "store"
    whole = tmp_path / "whole.jsonl"
    with hansard.open(path, durability="os") as store:
        session = store.session("s")
        session.add_messages([{"n": number} for number in range(6)])
        session.set_title("kept")
        shutil.copyfile(log_of(path, "s"), whole)
        session.compact()
        session.add_message({"n": 6})
        log = store._backend.log("s")
        asked = log.reader()
        seqs: list[int] = []
        for chunk in asked.read(back=True):
            seqs += [event.seq for event in reversed(chunk.events())]
            if seqs == [8]:
                (sealed,) = log_of(path, "s").parent.glob("*.zst")
                sealed.unlink()
                whole.rename(log_of(path, "s"))
        assert seqs == [8, 7, 6, 5, 4, 3, 2, 1]
        assert [event.kind for event in asked.controls()] == ["metadata.set"]
        head = asked.head()
        assert head is not None
        assert head.seq == 8
        assert [event.seq for chunk in asked.read(2, 7) for event in chunk.events()] == [
            *range(3, 8)
        ]
        assert log.reader().head() != head


def test_a_read_backwards_that_continues_in_another_file_keeps_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No event after the requested seq is read because the file was replaced during the read."""
    with hansard.open(tmp_path / "store", durability="os") as store:
        session = store.session("s")
        for n in range(50):
            session.append("x.y", {"n": n})
        log = session._log
        log.reader()  # remembers where event 50 ends
        for n in range(1000):
            session.append("x.y", {"n": n, "text": "z" * 100})
        real = LocalReader._backwards
        left = [2]

        def replaced_after_two(self: LocalReader, after: int, upto: int) -> Iterator[LocalChunk]:
            for chunk in real(self, after, upto):
                yield chunk
                left[0] -= 1
                if left[0] == 0:
                    raise Damaged("log.jsonl", 0, "replaced", "")

        monkeypatch.setattr(LocalReader, "_backwards", replaced_after_two)
        monkeypatch.setattr(LocalReader, "_renew", lambda *_: None)
        found = [
            event.seq for chunk in log.reader().read(0, 50, back=True) for event in chunk.events()
        ]
        assert sorted(found) == list(range(1, 51))
