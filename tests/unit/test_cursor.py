"""Cursors in files: what a move costs, what is on the disk, and what stops a consumer."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest

from hansard import follow
from hansard.backend.contract import CURSOR, AppendRequest
from hansard.backend.local.backend import LocalBackend
from hansard.backend.local.log import LocalLog
from hansard.errors import Damaged, LockTimeout, ReadOnly
from hansard.event.event import NewEvent
from hansard.follow import _FRAME, Cursor, cursors, drop_cursor
from tests.contract.test_cursors import keep, positions_of
from tests.crashlab import faults
from tests.unit.disk_probe import Traffic, tree

#: Calls that change something, or make it durable.
CHANGES = {"create_file", "write", "sync", "move", "remove", "link", "sync_directory"}


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[LocalBackend]:
    """Return an empty store that does not sync."""
    made = LocalBackend(str(tmp_path / "store"), durability="os")
    yield made
    made.close()


def directory_of(backend: LocalBackend, name: str = "c") -> Path:
    """Return where a cursor with a plain name is."""
    return Path(backend.where, "internal", f"cursor-{name}")


def test_a_move_costs_the_same_with_many_sessions(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-163, N-71, N-73: in a cursor of 10,000 sessions a move writes its one line, and reads nothing."""
    cursor = Cursor(backend, "c")
    cursor.move({f"session-{n:05}": 1 for n in range(10_000)})
    cursor.move({"session-00000": 2})
    traffic = Traffic(monkeypatch)
    for number in range(1, 500):
        cursor.move({f"session-{number:05}": 2})
    assert max(traffic.writes) < 3 * _FRAME
    assert traffic.read == 0
    # In the long run too, what replacing adds is a constant number of bytes for each move.
    for number in range(10_000):
        cursor.move({f"session-{number % 10_000:05}": 3 + number})
    replaced = [size for size in traffic.writes if size > 10_000]
    assert 0 < len(replaced) < 10


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_what_a_move_syncs(
    durability: Literal["sync", "os"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-163, N-37: a move is one write, synced in a "sync" store; a new log is synced in any store.

    It is synced, then renamed under the lock, then its directory is synced.
    """
    backend = LocalBackend(str(tmp_path / "store"), durability=durability)
    other = LocalBackend(str(tmp_path / "store"), durability=durability)
    cursor = Cursor(backend, "c")
    cursor.move({"s": 1})
    with faults.record() as record:
        cursor.move({"s": 2})
    done = [call.operation for call in record.calls if call.operation in CHANGES]
    assert done == (["write", "sync"] if durability == "sync" else ["write"])
    monkeypatch.setattr(follow, "SLACK", -(2**40))
    busy = []
    log = other.internal(CURSOR + "c")
    assert isinstance(log, LocalLog)

    def look(call: faults.Call, arguments: tuple[object, ...], result: object) -> None:
        if call.operation == "move":
            with pytest.raises(LockTimeout):
                log.files.root.pass_lock(log.files.name, 0.0)
            busy.append(True)

    with faults.record(watch=look) as record:
        cursor.move({"s": 3})
    changes = [call for call in record.calls if call.operation in CHANGES]
    done = [call.operation for call in changes]
    renamed = done.index("move")
    assert done[:3] == ["create_file", "write", "sync"]
    assert done[renamed + 1 :] == ["sync_directory", "sync_directory"]
    assert [Path(call.place).name for call in changes[renamed + 1 :]] == ["cursor-c", "internal"]
    assert busy == [True]
    backend.close()
    other.close()


def test_reading_positions_writes_nothing(backend: LocalBackend) -> None:
    """F-162, N-62: a read-only store returns the positions next to a consumer; moves are refused."""
    reader = LocalBackend(backend.where, read_only=True)
    before = tree(Path(backend.where))
    assert (cursors(reader), Cursor(reader, "c").positions) == ([], {})
    assert tree(Path(backend.where)) == before
    cursor = Cursor(backend, "c")
    for seq in range(1, 500):
        cursor.move({"s": seq, "padding" * 50: seq})
        assert Cursor(reader, "c").positions["s"] == seq
    assert cursors(reader) == ["c"]
    before = tree(Path(backend.where))
    writes: list[Callable[[], object]] = [
        lambda: Cursor(reader, "c").move({"s": 3000}),
        lambda: drop_cursor(reader, "c"),
        lambda: drop_cursor(reader, "none"),
    ]
    for write in writes:
        with pytest.raises(ReadOnly):
            write()
    assert tree(Path(backend.where)) == before
    reader.close()


def test_a_store_with_cursors_opens_and_lists_its_sessions(backend: LocalBackend) -> None:
    """F-1, F-158, F-159: cursors are neither sessions nor foreign files, even if the marker is lost."""
    for name in ("c", "sessions", "audit", "x"):
        keep(backend, name, {"s": 1})
    (Path(backend.where) / "hansard.json").unlink()
    with_cursors = LocalBackend(backend.where)
    assert list(with_cursors.ids()) == []
    assert cursors(with_cursors) == ["audit", "c", "sessions", "x"]
    with_cursors.close()


def test_foreign_directories_are_no_cursors(backend: LocalBackend) -> None:
    """F-158: directories with other names are neither listed nor changed."""
    keep(backend, "c", {"s": 1})
    place = Path(backend.where, "internal")
    for name in ("cursor-Foo", "cursor-%61", "Cursor-c", "cursor", "-c", ".x"):
        (place / name).mkdir()
        (place / name / "log.jsonl").write_bytes(b"mine")
    assert cursors(backend) == ["c"]
    assert positions_of(backend, "c") == {"s": 1}
    assert drop_cursor(backend, "c")
    assert len(list(place.iterdir())) == 6


def test_a_damaged_cursor_is_listed_and_can_be_dropped(backend: LocalBackend) -> None:
    """N-35: a damaged cursor hides no other, and can be dropped while its error is handled."""
    long = "x" * 1000
    for name in ("a", "b", long):
        keep(backend, name, {"s": 1})
    assert cursors(backend) == ["a", "b", long]
    hashed = next(path for path in Path(backend.where, "internal").iterdir() if "%~" in path.name)
    for directory in (directory_of(backend, "a"), hashed):
        (directory / "log.jsonl").write_bytes(b"rubbish\n")
    # Only the log itself had the name of a long one, so the list has what there is.
    listed = cursors(backend)
    assert listed == ["a", "b", hashed.name.removeprefix("cursor-")]
    for name in ("a", listed[-1]):
        with pytest.raises(Damaged, match="drop the cursor") as caught:
            Cursor(backend, name)
        # Its frames live as long as the error does, and must not hold the lock.
        assert caught.value.__traceback__ is not None
        assert drop_cursor(backend, name)
    assert cursors(backend) == ["b"]
    assert positions_of(backend, long) == {}


@pytest.mark.parametrize(
    ("kind", "data"), [("moved", '{"positions":{"s":-1}}'), ("opened", "{}"), ("moved", "{}")]
)
def test_an_event_of_another_meaning_is_damage(kind: str, data: str, backend: LocalBackend) -> None:
    """F-162: a malformed event of a cursor's kind is damage."""
    keep(backend, "c", {"s": 1})
    event = NewEvent(f"cursor.{kind}", data.encode(), control=False)
    backend.internal(CURSOR + "c").append(AppendRequest([event]))
    with pytest.raises(Damaged, match="event 3 is not an event of a cursor"):
        Cursor(backend, "c")
