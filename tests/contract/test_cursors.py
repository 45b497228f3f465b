"""Checks of cursors: what a consumer that restarts can count on."""

from collections.abc import Callable
from functools import partial

import pytest

from hansard.backend.contract import Cursor
from hansard.errors import Closed, InvalidSessionId, LockTimeout, SeqConflict
from tests.contract.backends import Context, append, message, together, two_handles
from tests.contract.test_keeping import BAD_IDS, IDS

#: What no position is.
BAD_SEQS: tuple[object, ...] = (-1, 2**63, 1.0, "1", None, True)


def _keep(context: Context, name: str, positions: dict[str, int]) -> None:
    with context.backend.cursor(name) as cursor:
        cursor.move(positions)


def _kept(context: Context, name: str) -> dict[str, int]:
    with context.backend.cursor(name) as cursor:
        return cursor.positions()


def test_a_cursor_is_where_it_was_left(context: Context) -> None:
    """A cursor that is closed and opened again has the positions of its last moves, and 0 elsewhere."""
    with context.backend.cursor("c") as cursor:
        assert cursor.positions() == {}, "positions of a new cursor"
        assert cursor.get("s") == 0, "position in a session of which nothing was read"
        cursor.move({"s": 3})
        cursor.move({"s": 5, "t": 1})
        cursor.move({"u": 2**63 - 1})
        assert cursor.get("s") == 5, "position after two moves"
    with context.backend.cursor("c") as cursor:
        assert cursor.positions() == {"s": 5, "t": 1, "u": 2**63 - 1}, "positions, opened again"
        assert cursor.get("t") == 1, "position, opened again"
        assert cursor.name == "c", "name"


def test_a_move_is_whole_or_not_at_all(context: Context) -> None:
    """A move of several positions of which one is refused moves none."""
    with context.backend.cursor("c") as cursor:
        cursor.move({"s": 5, "t": 5})
        with pytest.raises(SeqConflict) as caught:
            cursor.move({"t": 6, "s": 4})
        assert caught.value.actual == 5, "`actual` of the conflict"
        assert caught.value.expected == 4, "`expected` of the conflict"
        for bad in BAD_SEQS:
            with pytest.raises(ValueError, match=r"\w"):
                cursor.move({"t": 7, "u": bad})  # type: ignore[dict-item]
        assert cursor.positions() == {"s": 5, "t": 5}, "positions"
    assert _kept(context, "c") == {"s": 5, "t": 5}, "positions, opened again"


def test_a_cursor_moves_back_only_when_told_to(context: Context) -> None:
    """With `back` a cursor goes back, also to 0; to stay where it is needs no `back`."""
    with context.backend.cursor("c") as cursor:
        cursor.move({"s": 5, "t": 5})
        cursor.move({"s": 5})
        cursor.move({"s": 2, "t": 6}, back=True)
        assert cursor.positions() == {"s": 2, "t": 6}, "positions after a move back"
        cursor.move({"t": 0}, back=True)
    assert _kept(context, "c") == {"s": 2, "t": 0}, "positions, opened again"


def test_what_is_forgotten_is_unknown(context: Context) -> None:
    """A session that was forgotten is at 0 again, and the others are where they were."""
    with context.backend.cursor("c") as cursor:
        cursor.move({"s": 5, "t": 6, "u": 7})
        cursor.forget("s", "never known", "t")
        cursor.forget()
        assert cursor.positions() == {"u": 7}, "positions"
        assert cursor.get("s") == 0, "position in a session that was forgotten"
    with context.backend.cursor("c") as cursor:
        assert cursor.positions() == {"u": 7}, "positions, opened again"
        cursor.move({"s": 1})
    assert _kept(context, "c") == {"u": 7, "s": 1}, "positions after a new beginning"


def test_one_consumer_has_a_cursor_at_a_time(context: Context) -> None:
    """Opening or dropping a cursor that is open raises `LockTimeout`; another name does not matter."""
    with context.backend.cursor("c") as cursor:
        cursor.move({"s": 1})
        with pytest.raises(LockTimeout):
            context.backend.cursor("c")
        with pytest.raises(LockTimeout):
            context.backend.drop_cursor("c")
        _keep(context, "C", {"s": 9})
        cursor.move({"s": 2})
    assert _kept(context, "c") == {"s": 2}, "positions, opened again"
    # One that was never closed, and that nobody has any more, is in nobody's way.
    cursor = context.backend.cursor("c")
    del cursor
    assert _kept(context, "c") == {"s": 2}, "positions after one was forgotten about"


def test_of_consumers_at_the_same_time_one_wins(context: Context) -> None:
    """Of eight threads that open a cursor at once one gets it, each time."""

    def attempt(holder: list[Cursor]) -> bool:
        try:
            holder.append(context.backend.cursor("c"))
        except LockTimeout:
            return False
        return True

    for _ in range(10):
        holder: list[Cursor] = []
        won = together([partial(attempt, holder)] * 8)
        assert won.count(True) == 1, "consumers that got the cursor"
        holder[0].close()


def test_who_waits_gets_a_cursor_that_is_closed(context: Context) -> None:
    """With a `timeout`, opening waits for the one who has the cursor, and then sees its last move."""
    cursor = context.backend.cursor("c")

    def move_and_close() -> dict[str, int]:
        for seq in range(1, 50):
            cursor.move({"s": seq})
        cursor.close()
        return {}

    def wait() -> dict[str, int]:
        with context.backend.cursor("c", timeout=30.0) as mine:
            return mine.positions()

    assert together([wait, move_and_close])[0] == {"s": 49}, "positions after a wait"


def test_threads_move_a_cursor_together(context: Context) -> None:
    """Moves of eight threads through one cursor are all there."""
    with context.backend.cursor("c") as cursor:

        def moves(thread: int) -> None:
            for seq in range(1, 26):
                cursor.move({f"s{thread}": seq, f"t{thread}": seq})
                seen = cursor.positions()
                whole = seen[f"s{thread}"] == seen[f"t{thread}"]
                assert whole, "half of a move was seen"

        together([partial(moves, thread) for thread in range(8)])
    expected = {f"{kind}{thread}": 25 for kind in "st" for thread in range(8)}
    assert _kept(context, "c") == expected, "positions"


def test_cursors_are_kept_apart(context: Context) -> None:
    """Every valid id is the name of a cursor of its own, and a session in it; all are listed."""
    assert context.backend.cursors() == [], "cursors of an empty backend"
    append(context.log("s"), [message("m")])
    for number, name in enumerate(IDS):
        _keep(context, name, {name: number, "s": 1})
    assert context.backend.cursors() == sorted(IDS), "cursors"
    assert list(context.backend.ids()) == ["s"], "ids"
    for number, name in enumerate(IDS):
        assert _kept(context, name) == {name: number, "s": 1}, f"positions of {name!r:.60}"


def test_a_cursor_is_there_from_its_first_move_on(context: Context) -> None:
    """A cursor that was opened and never moved is not listed."""
    with context.backend.cursor("c") as cursor:
        cursor.move({})
        assert context.backend.cursors() == [], "cursors before the first move"
        cursor.move({"s": 1})
        assert context.backend.cursors() == ["c"], "cursors after it"


def test_a_dropped_cursor_begins_anew(context: Context) -> None:
    """A cursor that was dropped is not listed, and starts at 0; dropping one that is not there says so."""
    _keep(context, "c", {"s": 5})
    _keep(context, "d", {"s": 6})
    assert context.backend.drop_cursor("c"), "drop_cursor of a cursor says that there was none"
    assert not context.backend.drop_cursor("c"), "drop_cursor once more says that there was one"
    assert context.backend.cursors() == ["d"], "cursors"
    assert _kept(context, "c") == {}, "positions of a dropped cursor"
    assert _kept(context, "d") == {"s": 6}, "positions of the other"


def test_what_a_caller_gets_of_a_cursor_is_its_own(context: Context) -> None:
    """What was given to `move`, or got from `positions`, can be changed without moving the cursor."""
    with context.backend.cursor("c") as cursor:
        given = {"s": 5}
        cursor.move(given)
        given["s"] = 7
        cursor.positions()["s"] = 9
        cursor.positions().clear()
        assert cursor.positions() == {"s": 5}, "positions"


def test_bad_names_of_cursors_are_refused(context: Context) -> None:
    """A name, or an id, that no backend could keep raises `InvalidSessionId` from every call."""
    with context.backend.cursor("c") as cursor:
        for bad in BAD_IDS:
            calls: tuple[Callable[[str], object], ...] = (
                context.backend.cursor,
                context.backend.drop_cursor,
                cursor.get,
                cursor.forget,
                lambda given: cursor.move({given: 1}),
            )
            for call in calls:
                with pytest.raises(InvalidSessionId):
                    call(bad)  # type: ignore[arg-type]
    assert context.backend.cursors() == [], "cursors"


def test_a_closed_cursor_says_so(context: Context) -> None:
    """After `close` of a cursor, or of its backend, every call raises `Closed`; `close` does not."""
    cursor = context.backend.cursor("c")
    cursor.move({"s": 1})
    cursor.close()
    cursor.close()
    _all_calls_raise_closed(cursor)
    cursor = context.backend.cursor("c")
    assert cursor.positions() == {"s": 1}, "positions, opened again"
    context.backend.close()
    _all_calls_raise_closed(cursor)
    cursor.close()
    for call in (context.backend.cursor, context.backend.drop_cursor):
        with pytest.raises(Closed):
            call("c")
    with pytest.raises(Closed):
        context.backend.cursors()


def _all_calls_raise_closed(cursor: Cursor) -> None:
    calls: dict[str, Callable[[], object]] = {
        "positions": cursor.positions,
        "get": lambda: cursor.get("s"),
        "move": lambda: cursor.move({"s": 2}),
        "move to where it is": lambda: cursor.move({"s": 1}),
        "forget": lambda: cursor.forget("s"),
    }
    for call in calls.values():
        with pytest.raises(Closed):
            call()


@two_handles
def test_handles_share_cursors(context: Context) -> None:
    """A cursor that one handle has open is refused to another, which takes it over where it was left."""
    other = context.other()
    with context.backend.cursor("c") as cursor:
        cursor.move({"s": 4})
        with pytest.raises(LockTimeout):
            other.cursor("c")
        with pytest.raises(LockTimeout):
            other.drop_cursor("c")
        assert other.cursors() == ["c"], "cursors of another handle"
    with other.cursor("c") as cursor:
        assert cursor.positions() == {"s": 4}, "positions in another handle"
        cursor.move({"s": 5})
    assert _kept(context, "c") == {"s": 5}, "positions, opened again in the first"
    assert other.drop_cursor("c"), "drop_cursor by another handle says that there was none"
    assert context.backend.cursors() == [], "cursors"
