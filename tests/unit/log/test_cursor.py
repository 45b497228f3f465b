"""Moving a cursor: what it costs, and what stops it."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from hansard.backend.local import LocalBackend
from hansard.errors import Closed, HansardError
from hansard.log.cursor import SLACK
from tests.crashlab import faults
from tests.unit.disk_probe import Traffic
from tests.unit.log.cursor_files import file_of, keep, kept

#: What every line has besides its places.
FRAME = len('{"move":{},"time":"2026-01-01T12:00:00.000000Z","crc":"01234567"}\n')


def test_many_moves_over_few_sessions_stay_small(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-54, N-73, N-79: 10,000 moves over 10 sessions write their lines, hardly more, and a small file."""
    with backend.cursor("c") as cursor:
        cursor.move({f"session-{n}": 0 for n in range(10)})
        largest = 0
        traffic = Traffic(monkeypatch)
        for number in range(10_000):
            cursor.move({f"session-{number % 10}": 1 + number})
            largest = max(largest, file_of(backend).stat().st_size)
        # A move is one write, also if it writes the file anew.
        assert len(traffic.writes) == 10_000
        each = FRAME + len('"session-0":10000')
        assert traffic.written < 10_000 * each * 1.05
        assert largest < SLACK + 2_000
        assert 5 < sum(size > 2 * each for size in traffic.writes) < 20
        expected = cursor.positions()
    assert kept(backend) == expected


def test_a_move_costs_the_same_with_many_sessions(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-54, N-71, N-73: in a cursor of 10,000 sessions a move writes its one line, and reads nothing."""
    with backend.cursor("c") as cursor:
        cursor.move({f"session-{n:05}": 1 for n in range(10_000)})
        traffic = Traffic(monkeypatch)
        for number in range(500):
            cursor.move({f"session-{number:05}": 2})
        assert set(traffic.writes) == {FRAME + len('"session-00000":2')}
        assert traffic.read == 0
        # In the long run too, what writing anew adds is a constant number of bytes for each move.
        for number in range(20_000):
            cursor.move({f"session-{number % 10_000:05}": 3 + number})
        anew = max(traffic.writes)
        assert traffic.written - sum(size for size in traffic.writes if size < 1000) <= 6 * anew
        assert file_of(backend).stat().st_size <= 2 * anew + SLACK


def test_new_sessions_cost_a_constant_on_average(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-54, N-71: a cursor that only gains sessions is written anew ever more rarely."""
    traffic = Traffic(monkeypatch)
    with backend.cursor("c") as cursor:
        for number in range(10_000):
            cursor.move({f"session-{number:05}": 1})
    each = FRAME + len('"session-00000":1')
    assert traffic.written < 3 * 10_000 * each
    assert len(kept(backend)) == 10_000


def test_a_consumer_that_restarts_often_does_not_write_anew(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-54: what the file would be, written anew, is known after opening, so a restart costs no writing."""
    with backend.cursor("c") as cursor:
        cursor.move({f"session-{n:05}": 1 for n in range(10_000)})
    traffic = Traffic(monkeypatch)
    for number in range(20):
        keep(backend, {"session-00000": 2 + number})
    assert max(traffic.writes) < 200


def test_a_move_to_where_it_is_writes_nothing(
    backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moves that change nothing, and sessions forgotten twice, leave the file alone."""
    with backend.cursor("c") as cursor:
        cursor.move({"s": 1, "t": 2})
        before = file_of(backend).read_bytes()
        cursor.move({"s": 1})
        cursor.move({})
        cursor.forget("unknown")
        cursor.forget()
        assert file_of(backend).read_bytes() == before


@pytest.mark.parametrize("gone", ["c.jsonl", "c.lock", "both"])
def test_files_deleted_under_a_consumer_are_an_error(gone: str, backend: LocalBackend) -> None:
    """N-29: a move into a file that has no name any more would be lost, so it raises."""
    cursor = backend.cursor("c")
    cursor.move({"s": 1})
    for name in ("c.jsonl", "c.lock") if gone == "both" else (gone,):
        Path(backend.where, "cursors", name).unlink()
    if gone == "c.lock":
        cursor.move({"s": 2})  # it is still the only one with this file
        cursor.close()
        assert kept(backend) == {"s": 2}
        return
    for _ in range(2):
        with pytest.raises(Closed, match="deleted while it was open"):
            cursor.move({"s": 2})
    cursor.close()
    assert kept(backend) == {}


def test_errors_say_the_cursor_and_what_to_do(backend: LocalBackend) -> None:
    """A cursor's errors name it, its file, and the next step."""
    with backend.cursor("mail/out") as cursor:
        cursor.move({"s": 5})
        cases: list[tuple[Callable[[], object], str]] = [
            (
                lambda: backend.cursor("mail/out"),
                r"mail\+out\.lock: cursor 'mail/out' is open in this process",
            ),
            (
                lambda: cursor.move({"s": 1}),
                r"cursor 'mail/out' is at seq 5 of session 's'.*back=True",
            ),
            (lambda: backend.cursor(""), "cursor name is empty"),
        ]
        for call, said in cases:
            with pytest.raises(HansardError, match=said):
                call()


def test_what_a_move_syncs(tmp_path: Path) -> None:
    """F-57, N-37: with "sync" names are synced before the first move, and each move after its write."""
    seen: dict[str, list[str]] = {}
    durabilities: tuple[Literal["sync", "os"], ...] = ("sync", "os")
    for durability in durabilities:
        backend = LocalBackend(str(tmp_path / durability), durability=durability)
        with faults.record() as record, backend.cursor("c") as cursor:
            cursor.move({"s": 1})
            cursor.move({"s": 2})
        backend.close()
        seen[durability] = [
            f"sync {Path(call.place).name}"
            if call.operation == "sync_directory"
            else call.operation
            for call in record.calls
            if call.operation in {"write", "sync", "move", "sync_directory"}
        ]
    # The root of the store (here called "sync") too, since the directory in it may be new.
    opening, first, second = (
        ["sync cursors", "sync sync"],
        ["write", "sync", "move", "sync cursors"],
        ["write", "sync"],
    )
    assert seen["sync"] == opening + first + second
    assert seen["os"] == ["write", "sync", "move", "write"]
