"""Checks of sessions that are put together before anybody sees them, and of what whoever copies must know."""

from functools import partial

import msgspec

from hansard.backend.contract import Backend
from hansard.errors import Closed, InvalidEvent, SessionDeleted, SessionExists
from hansard.event.envelope import Draft
from hansard.testing.checks.base import (
    Context,
    check,
    contents,
    equal,
    everything,
    expect,
    message,
    metadata,
    raises,
    there,
    together,
)

_TIME = "2020-02-02T02:02:02.%06dZ"


def _timed(draft: Draft, number: int) -> Draft:
    return msgspec.structs.replace(draft, time=_TIME % number)


def _stage(backend: Backend, *words: str, session_id: str = "s") -> None:
    """Publish a session of some messages."""
    with backend.stage(session_id) as stage:
        for word in words:
            stage.append([message(word)])
        stage.publish()


@check("stage")
def what_is_staged_is_seen_by_nobody(context: Context) -> None:
    """Before it is published, a staged session does not exist, whatever is asked; discarded, it never did."""
    backend = context.backend
    stage = backend.stage("s")
    stage.append([message("a"), metadata(n=1)])
    stage.append([message("b")], key="k")
    for _ in range(2):
        equal(there_is(backend), (None, None, [], [], [], {}), "what is seen of a staged session")
        stage.discard()
    log = context.log()
    log.append([message("c")], new_only=True)
    equal(contents(everything(log)), ["c"], "a session of the same id")


def there_is(backend: Backend) -> tuple[object, ...]:
    """Return all that a backend says of the session `s`."""
    log = backend.log("s")
    listed = (sorted(backend.ids()), sorted(backend.trash()), backend.sizes())
    return log.head(), log.first(), everything(log), *listed


@check("stage")
def what_is_published_is_there_whole(context: Context) -> None:
    """A published session has all events, with their times, kinds, keys and data, and is like any other."""
    backend = context.backend
    drafts = [_timed(message("a"), 1), _timed(metadata(n=1), 2), _timed(message("b"), 3)]
    with backend.stage("s") as stage:
        stage.append(drafts[:2])
        stage.append(drafts[2:], key="k")
        stage.publish()
    log = context.log()
    events = everything(log)
    equal([event.seq for event in events], [1, 2, 3], "seqs")
    equal([event.stamp for event in events], [draft.time for draft in drafts], "times")
    equal([event.raw for event in events], [draft.data for draft in drafts], "data")
    equal([event.key for event in events], [None, None, "k"], "keys")
    equal(log.controls(), [events[1]], "control events")
    head = there(log.head(), "head")
    equal((head.seq, head.created, head.updated), (3, _TIME % 1, _TIME % 3), "where it stands")
    equal(sorted(backend.ids()), ["s"], "ids")
    equal(log.append([message("x")], key="k"), [events[2]], "an append with a key that it has")
    equal(log.append([message("c")], expected_seq=3)[0].seq, 4, "seq of the next append")
    equal(log.verify(), [], "findings")


@check("stage")
def a_staged_session_can_begin_at_any_seq(context: Context) -> None:
    """A session that is staged with `before` begins at the next seq."""
    with context.backend.stage("s", before=7) as stage:
        stage.append([message("a"), message("b")])
        stage.publish()
    equal([event.seq for event in everything(context.log())], [8, 9], "seqs")
    equal(context.log().append([message("c")])[0].seq, 10, "seq of the next append")


@check("stage")
def what_exists_is_not_replaced(context: Context) -> None:
    """To publish over a session, or over one in the trash, is refused, and changes neither."""
    backend = context.backend
    with backend.stage("s") as stage:
        stage.append([message("staged")])
        context.log().append([message("there")])
        with raises(SessionExists, "publishing over a session"):
            stage.publish()
        backend.delete("s")
        with raises(SessionDeleted, "publishing over a deleted session"):
            stage.publish()
        backend.restore("s")
    equal(contents(everything(context.log())), ["there"], "the session that was there")
    backend.delete("s")
    backend.purge("s")
    _stage(backend, "again")
    equal(contents(everything(context.log())), ["again"], "a session published after a purge")


@check("stage")
def one_of_several_is_published(context: Context) -> None:
    """Of several that publish a session of one id at once, one does, whole, and the others are refused."""

    def publish(word: str) -> bool:
        try:
            _stage(context.backend, *[word] * 50)
        except SessionExists:
            return False
        return True

    done = together([partial(publish, word) for word in "abcd"])
    equal(sum(done), 1, "how many were published")
    found = contents(everything(context.log()))
    equal(found, ["abcd"[done.index(True)]] * 50, "the session")


@check("stage")
def a_stage_refuses_what_is_wrong(context: Context) -> None:
    """A key on two appends, and a stage without events, are refused."""
    with context.backend.stage("s") as stage:
        with raises(InvalidEvent, "publishing nothing"):
            stage.publish()
        stage.append([message("a")], key="k")
        with raises(InvalidEvent, "a key that was used"):
            stage.append([message("b")], key="k")
    equal(there_is(context.backend)[0], None, "a session that was refused")


@check("stage")
def staged_large_content_stays(context: Context) -> None:
    """Large content to which only a published stage refers is read whole, and not collected."""
    backend = context.backend
    setattr(backend, "large_content", 1000)  # noqa: B010 - a backend may have slots of its own
    text = "large content " * 200
    with backend.stage("s") as stage:
        stage.append([message(text)])
        stage.publish()
    kept = [
        reference.sha256
        for chunk in context.log().read()
        for gaps in chunk.gaps().values()
        for reference in gaps.references
    ]
    equal(len(kept), 1, "references of the published session")
    equal(backend.collect(lambda _: set(kept)), [], "what was collected")
    equal(contents(everything(context.log())), [text], "the message")


@check("stage")
def a_closed_backend_publishes_nothing(context: Context) -> None:
    """After the backend was closed, a stage of it can only be discarded."""
    stage = context.backend.stage("s")
    stage.append([message("a")])
    context.backend.close()
    with raises(Closed, "appending to a stage of a closed backend"):
        stage.append([message("b")])
    with raises(Closed, "publishing a stage of a closed backend"):
        stage.publish()
    stage.discard()


@check("key")
def an_append_with_a_key_tells_its_length(context: Context) -> None:
    """A chunk says of each append with a key how many events it has, if more than one."""
    log = context.log()
    log.append([message("a"), message("b")])
    log.append([message("c"), message("d"), metadata(n=1)], key="three")
    log.append([message("e")], key="one")
    log.append([message("f"), message("g")], key="two")
    for after in range(9):
        found: dict[int, int] = {}
        for chunk in log.read(after):
            found.update(chunk.keyed())
        expected = {seq: count for seq, count in {3: 3, 7: 2}.items() if seq > after}
        equal(found, expected, f"appends with a key after {after}")
    expect(all(event.key != "" for event in everything(log)), "an empty key")


@check("handles")
def what_is_published_is_seen_by_others(context: Context) -> None:
    """Another handle sees nothing of what is staged, and all of it once it is published."""
    other = context.other()
    with context.backend.stage("s") as stage:
        stage.append([message("a"), message("b")])
        equal(there_is(other), (None, None, [], [], [], {}), "what another sees of a stage")
        stage.publish()
    equal(
        contents(everything(other.log("s"))), ["a", "b"], "what another sees when it is published"
    )
    with raises(SessionExists, "publishing what another has published"):
        _stage(other, "c")
