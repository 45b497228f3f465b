"""Following a store: every event once, in order, from where a consumer was."""

import errno
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest

import hansard
from hansard.errors import DiskFailed
from hansard.follow import Follower


def say(store: hansard.Store, session_id: str, *numbers: int) -> None:
    """Append a message for each number."""
    for number in numbers:
        store.session(session_id).add_message({"n": number})


def taken(follower: Follower) -> list[tuple[str, int]]:
    """Return session and number of every message that is at hand."""
    found = []
    while (item := follower.take(0.0)) is not None:
        if item.event.message is not None:
            found.append((item.session, item.event.message["n"]))
    return found


def test_sessions_can_be_chosen(store: hansard.Store) -> None:
    """`prefix`, `session` and `from_now` select events."""
    say(store, "x/a", 1)
    say(store, "x/b", 2)
    say(store, "y/a", 3)
    assert sorted(taken(store.follow(prefix="x/"))) == [("x/a", 1), ("x/b", 2)]
    assert taken(store.follow(session="y/a")) == [("y/a", 3)]
    late = store.follow(from_now=True)
    assert taken(late) == []
    say(store, "x/a", 4)
    say(store, "new", 5)
    assert sorted(taken(late)) == [("new", 5), ("x/a", 4)]


def test_redacted_content_does_not_come(store: hansard.Store) -> None:
    """An event that was redacted before it was read has no content."""
    say(store, "a", 1, 2)
    store.session("a").redact(1)
    assert taken(store.follow()) == [("a", 2)]
    follower = store.follow()
    events = [item.event for item in iter(lambda: follower.take(0.0), None)]
    assert [event.seq for event in events] == [1, 2, 3]
    assert events[0].data == {"message": None, "redacted": True}


def test_deleted_and_restored_sessions_neither_lose_nor_repeat(store: hansard.Store) -> None:
    """A deleted session is skipped; restored, it continues; recreated, it starts from the beginning."""
    say(store, "a", 1, 2)
    follower = store.follow()
    assert len(taken(follower)) == 2
    store.delete("a")
    assert taken(follower) == []
    store.restore("a")
    say(store, "a", 3)
    assert taken(follower) == [("a", 3)]
    store.delete("a")
    store.purge("a")
    assert taken(follower) == []
    say(store, "a", 4)
    assert taken(follower) == [("a", 4)]


def test_what_a_failed_consumer_had_in_its_hands_comes_again(store: hansard.Store) -> None:
    """An event is processed when the next is requested; one whose handler raised comes again."""
    say(store, "a", 1, 2, 3)

    def handle() -> None:
        with store.follow(cursor="c") as follower:
            for item in follower:
                if item.event.seq == 2:
                    raise KeyError

    with pytest.raises(KeyError):
        handle()
    with store.follow(cursor="c") as follower:
        assert taken(follower) == [("a", 2), ("a", 3)]


def test_commits_can_be_rarer(store: hansard.Store) -> None:
    """`commit_every` saves moves; a dropped follower repeats at most that many events."""
    say(store, "a", *range(10))
    follower = store.follow(cursor="c", commit_every=4)
    for _ in range(7):  # six are done with, four of them remembered
        follower.take(0.0)
    follower._cursor.close()  # type: ignore[union-attr]  # as a crash would
    with store.follow(cursor="c") as again:
        assert taken(again) == [("a", number) for number in range(4, 10)]
    with pytest.raises(ValueError, match="commit_every"):
        store.follow(commit_every=0)


def test_a_damaged_session_is_reported_and_stops_no_other(tmp_path: Path) -> None:
    """N-35: with `on_damage` the others continue; without it the error is raised."""
    with hansard.open(tmp_path / "s", durability="os") as store:
        say(store, "a", 1)
        say(store, "b", 2)
        log = tmp_path / "s" / "sessions" / "a" / "log.jsonl"
        log.write_bytes(log.read_bytes().replace(b'"n":1', b'"n":9'))
    with hansard.open(tmp_path / "s") as store:
        reported = []
        follower = store.follow(on_damage=lambda session, error: reported.append((session, error)))
        assert taken(follower) == [("b", 2)]
        assert [session for session, _ in reported] == ["a"]
        assert isinstance(reported[0][1], hansard.Damaged)
        with pytest.raises(hansard.Damaged):
            taken(store.follow())


@pytest.mark.parametrize(
    "fail",
    [
        hansard.BackendUnavailable("the server is away"),
        DiskFailed("read", "log.jsonl", OSError(errno.EMFILE, "too many open files")),
        KeyboardInterrupt(),
    ],
    ids=lambda fail: type(fail).__name__,
)
def test_a_read_that_failed_is_repeated(
    store: hansard.Store, monkeypatch: pytest.MonkeyPatch, fail: BaseException
) -> None:
    """After an error, the next call reads the session again, without another append."""
    say(store, "a", 1)
    follower = store.follow()
    with monkeypatch.context() as patch:
        patch.setattr("hansard.state.lineage.redactions_of", Mock(side_effect=fail))
        with pytest.raises(type(fail)):
            follower.take(0.0)
    assert taken(follower) == [("a", 1)]


def test_waiting_ends_when_something_comes(store: hansard.Store) -> None:
    """A waiting follower yields what another thread appends, and then the store can be closed."""
    follower = store.follow()
    got: list[tuple[str, int]] = []
    seen = threading.Event()

    def consume() -> None:
        for item in follower:
            got.append((item.session, item.event.data["message"]["n"]))
            seen.set()

    def consume_until_closed() -> None:
        with pytest.raises(hansard.Closed):
            consume()

    thread = threading.Thread(target=consume_until_closed)
    thread.start()
    say(store, "a", 1)
    assert seen.wait(60)
    store.close()
    thread.join(60)
    assert not thread.is_alive()
    assert got == [("a", 1)]
