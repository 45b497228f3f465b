"""Checks of sessions that are built before they are visible, and of what a copy must know."""

import threading
from functools import partial

import msgspec
import pytest

from hansard.backend.contract import Backend
from hansard.errors import Closed, InvalidEvent, SessionDeleted, SessionExists, SessionNotFound
from hansard.event.event import NewEvent
from hansard.event.kinds import SessionForked
from tests.contract.backends import (
    PATIENCE,
    Context,
    append,
    contents,
    everything,
    message,
    metadata,
    succeeds,
    there,
    together,
    two_handles,
)

_TIME = "2020-02-02T02:02:02.%06dZ"


def _timed(draft: NewEvent, number: int) -> NewEvent:
    return msgspec.structs.replace(draft, time=_TIME % number)


def _stage(backend: Backend, *words: str, session_id: str = "s") -> None:
    """Publish a session of some messages."""
    with backend.stage(session_id) as stage:
        for word in words:
            stage.append([message(word)])
        stage.publish()


def test_what_is_staged_is_not_visible(context: Context) -> None:
    """Before it is published, a staged session does not exist for any call, nor after it was discarded."""
    backend = context.backend
    stage = backend.stage("s")
    stage.append([message("a"), metadata(n=1)])
    stage.append([message("b")], key="k")
    for _ in range(2):
        assert there_is(backend) == (None, None, [], [], [], {})
        stage.discard()
    log = context.log()
    append(log, [message("c")], new_only=True)
    assert contents(everything(log)) == ["c"]


def there_is(backend: Backend) -> tuple[object, ...]:
    """Return all answers of a backend about the session `s`."""
    log = backend.log("s")
    listed = (sorted(backend.ids()), sorted(backend.ids(trash=True)), backend.stamps())
    return log.reader().head(), log.reader().first(), everything(log), *listed


def test_what_is_published_is_there_whole(context: Context) -> None:
    """A published session has all events, with their times, kinds, keys and data, and is like any other."""
    backend = context.backend
    drafts = [_timed(message("a"), 1), _timed(metadata(n=1), 2), _timed(message("b"), 3)]
    with backend.stage("s") as stage:
        stage.append(drafts[:2])
        stage.append(drafts[2:], key="k")
        stage.publish()
    log = context.log()
    events = everything(log)
    assert [event.seq for event in events] == [1, 2, 3]
    assert [event.stamp for event in events] == [draft.time for draft in drafts]
    assert [event.raw for event in events] == [draft.data for draft in drafts]
    assert [event.key for event in events] == [None, None, "k"]
    assert log.reader().controls() == [events[1]]
    head = there(log.reader().head(), "head")
    assert (head.seq, head.created, head.updated) == (3, _TIME % 1, _TIME % 3)
    assert sorted(backend.ids()) == ["s"]
    assert append(log, [message("x")], key="k") == [events[2]]
    assert append(log, [message("c")], expected_seq=3)[0].seq == 4
    assert log.verify() == []


def test_what_exists_is_not_replaced(context: Context) -> None:
    """To publish over a session, or over one in the trash, is refused, and changes neither."""
    backend = context.backend
    with backend.stage("s") as stage:
        stage.append([message("staged")])
        append(context.log(), [message("there")])
        with pytest.raises(SessionExists):
            stage.publish()
        backend.delete("s")
        with pytest.raises(SessionDeleted):
            stage.publish()
        backend.restore("s")
    assert contents(everything(context.log())) == ["there"]
    backend.delete("s")
    backend.purge("s")
    _stage(backend, "again")
    assert contents(everything(context.log())) == ["again"]


def test_one_of_several_is_published(context: Context) -> None:
    """Of several concurrent publications of one id, one succeeds completely, and the others are refused."""
    jobs = [partial(_stage, context.backend, *[word] * 50) for word in "abcd"]
    done = together([partial(succeeds, job, SessionExists) for job in jobs])
    assert sum(done) == 1
    found = contents(everything(context.log()))
    assert found == ["abcd"[done.index(True)]] * 50


def test_a_stage_refuses_what_is_wrong(context: Context) -> None:
    """A key on two appends, and a stage without events, are refused."""
    with context.backend.stage("s") as stage:
        with pytest.raises(InvalidEvent):
            stage.publish()
        stage.append([message("a")], key="k")
        with pytest.raises(InvalidEvent):
            stage.append([message("b")], key="k")
    assert there_is(context.backend)[0] is None


def test_a_closed_backend_publishes_nothing(context: Context) -> None:
    """After the backend was closed, a stage of it can only be discarded."""
    stage = context.backend.stage("s")
    stage.append([message("a")])
    context.backend.close()
    with pytest.raises(Closed):
        stage.append([message("b")])
    with pytest.raises(Closed):
        stage.publish()
    stage.discard()


def test_an_append_with_a_key_tells_its_length(context: Context) -> None:
    """A chunk has, for each append with a key, its number of events, if more than one."""
    log = context.log()
    append(log, [message("a"), message("b")])
    append(log, [message("c"), message("d"), metadata(n=1)], key="three")
    append(log, [message("e")], key="one")
    append(log, [message("f"), message("g")], key="two")
    for after in range(9):
        found: dict[int, int] = {}
        for chunk in log.reader().read(after):
            found.update(chunk.keyed())
        expected = {seq: count for seq, count in {3: 3, 7: 2}.items() if seq > after}
        assert found == expected, f"appends with a key after {after}"
    assert all(event.key != "" for event in everything(log))


@two_handles
def test_what_is_published_is_seen_by_others(context: Context) -> None:
    """Another handle sees no staged event, and all of them once they are published."""
    other = context.other()
    with context.backend.stage("s") as stage:
        stage.append([message("a"), message("b")])
        assert there_is(other) == (None, None, [], [], [], {})
        stage.publish()
    assert contents(everything(other.log("s"))) == ["a", "b"]
    with pytest.raises(SessionExists):
        _stage(other, "c")


def _fork(backend: Backend, forked: SessionForked, session_id: str = "c") -> None:
    with backend.stage(session_id, before=forked.seq, forked=forked) as stage:
        stage.append([message("fork")])
        stage.publish()


def test_a_fork_is_published_only_with_its_parent(context: Context) -> None:
    """F-67: a fork needs its parent up to a seq, in the trash or not; without it, nothing is stored."""
    backend = context.backend
    append(context.log(), [message("a"), message("b")])
    created = there(context.log().reader().head(), "head").created
    wrong = (
        SessionForked("missing", 1),
        SessionForked("s", 3, created),
        SessionForked("s", 1, "2020-01-01T00:00:00.000000Z"),
    )
    for forked in wrong:
        with pytest.raises(SessionNotFound, match="'c' needs its parent"):
            _fork(backend, forked)
        assert there_is(backend)[3:5] == (["s"], [])
    _fork(backend, SessionForked("s", 2, created))
    backend.delete("s")
    _fork(backend, SessionForked("s", 1, created), "d")
    _fork(backend, SessionForked("s", 1), "e")
    assert sorted(backend.ids()) == ["c", "d", "e"]
    with pytest.raises(SessionExists):
        _fork(backend, SessionForked("s", 1, created), "c")


def test_a_refused_purge_changes_nothing(context: Context) -> None:
    """A purge whose check raises leaves the session in the trash; it can be restored."""
    append(context.log(), [message("a")])
    context.backend.delete("s")

    def refuse() -> None:
        raise SessionExists("a fork")

    with pytest.raises(SessionExists, match="a fork"):
        context.backend.purge("s", refuse)
    assert list(context.backend.ids(trash=True)) == ["s"]
    context.backend.restore("s")
    assert contents(everything(context.log())) == ["a"]


@two_handles
def test_no_fork_is_published_after_a_purge_has_looked_for_forks(context: Context) -> None:
    """F-67: a fork by another handle waits until a purge has ended, and finds no parent."""
    append(context.log(), [message("a")])
    forked = SessionForked("s", 1, there(context.log().reader().head(), "head").created)
    context.backend.delete("s")
    other = context.other()
    published = []

    def fork() -> None:
        published.append(succeeds(partial(_fork, other, forked), SessionNotFound))

    thread = threading.Thread(target=fork)

    def look() -> None:
        assert list(context.backend.ids()) == []
        thread.start()
        thread.join(0.2)  # without the lock it would end: then the test fails, and never otherwise

    context.backend.purge("s", look)
    thread.join(PATIENCE)
    assert published == [False]
    assert list(context.backend.ids()) == []
