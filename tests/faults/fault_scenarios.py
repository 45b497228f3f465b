"""What a store does when a fault occurs, and the states that are allowed afterwards.

A scene has two parts: `prepare` creates a store without faults, and the fault occurs in one of the `steps`.
Another process must then read the state before that step or after it, and the one after it if the step was
acknowledged.
"""

import errno
import functools
import gc
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import follow
from hansard.backend.local.backend import LocalBackend
from hansard.log import disk
from tests.crashlab import faults
from tests.unit.maintenance.test_trash import say
from tools.crash.erasure import leaks

ID = "support/42"
NAME = "support+42"
CHILD = "child"

FIRST = {"role": "user", "content": "first"}
SECOND = {"role": "assistant", "content": "second"}
THIRD = {"role": "user", "content": "third"}
FOURTH = {"role": "assistant", "content": "fourth"}
HIDDEN = "combinationofthecellar"


@dataclass(frozen=True)
class Seen:
    """The content of a session."""

    messages: list[dict[str, Any]]
    metadata: dict[str, Any]


#: What can be read: the sessions by their ids, or the positions of a cursor.
State = dict[str, Any]


def seen(*messages: dict[str, Any], **metadata: Any) -> State:
    """Return the state of a store with one session."""
    return {ID: Seen(list(messages), metadata)}


def look(path: str | Path) -> State:
    """Read all sessions in a read-only store."""
    try:
        store = hansard.open(path, read_only=True)
    except hansard.StoreNotFound:
        return {}
    found: State = {}
    with store:
        for info in store.sessions().items:
            session = store.session(info.id)
            messages = session.messages()
            assert session.messages(last=100) == messages
            assert [event.seq for event in session.events()] == list(range(1, session.seq + 1))
            found[info.id] = Seen(messages, session.metadata)
        assert store.exists(ID) == (ID in found)
        assert store.verify().ok
    return found


Step = Callable[[Any], object]


@dataclass(frozen=True)
class Scene:
    """Steps of a store, and the state before and after each."""

    name: str
    prepare: Callable[[str], None]
    steps: tuple[Step, ...]
    states: tuple[State, ...]
    #: The messages that a step appends, again if it is repeated.
    adds: tuple[tuple[dict[str, Any], ...], ...] = ()
    #: Opens what the steps are done with, and closes it.
    open: Callable[[str], Any] = hansard.open
    look: Callable[[str | Path], State] = look
    #: The last calls only tidy up: their failure is ignored.
    tidies: bool = False
    #: What is refused is in a report, and no error.
    reports: bool = False
    #: Checks what is on the disk once everything was done.
    settle: Callable[[Path], None] = lambda _: None

    def __str__(self) -> str:
        return self.name

    def allowed(self, acknowledged: int) -> tuple[State, ...]:
        """Return the allowed states after a number of acknowledged steps."""
        return self.states[acknowledged : acknowledged + 2]

    def after_retry(self, found: State, acknowledged: int) -> State:
        """Return the state after the steps that were not acknowledged are repeated."""
        if not self.adds:
            return self.states[-1]
        more = [message for added in self.adds[acknowledged:] for message in added]
        before = found.get(ID, Seen([], {}))
        return {**found, ID: Seen([*before.messages, *more], before.metadata)}


def log_of(path: str | Path) -> Path:
    """Return the path of the session's log."""
    return Path(path, "sessions", NAME, "log.jsonl")


# -- what is there before the fault -----------------------------------------------------------------


def _nothing(path: str) -> None:
    assert not os.path.exists(path)


def _empty(path: str) -> None:
    hansard.open(path).close()


def _say(path: str, *messages: dict[str, Any]) -> None:
    with hansard.open(path) as store:
        for message in messages:
            store.session(ID).add_message(message)


def _two_messages(path: str) -> None:
    _say(path, FIRST, SECOND)


def _torn(path: str) -> None:
    _two_messages(path)
    with hansard.open(path) as store:
        store.session(ID).add_messages([THIRD, FOURTH])
    os.truncate(log_of(path), log_of(path).stat().st_size - 10)


def _deleted(path: str) -> None:
    _two_messages(path)
    with hansard.open(path) as store:
        store.delete(ID)


def _failed(path: str) -> None:
    _say(path, FIRST)
    with faults.fail_sync(lost=None), pytest.raises(hansard.SyncFailed):
        _say(path, SECOND)


def _compacted(path: str) -> None:
    _two_messages(path)
    with hansard.open(path) as store:
        _compact(store)


LONG = [{"n": n, "text": "x" * 400} for n in range(20)]


def _several(path: str) -> None:
    """Make two compressed segments, the first much larger, and new events after them."""
    with hansard.open(path) as store:
        session = store.session(ID)
        session.add_messages(LONG)
        _compact(store)
        session.add_messages([{"role": "user", "content": HIDDEN}, FIRST])
        _compact(store)
        session.redact(21)
        session.add_message(SECOND)
    assert len(list(log_of(path).parent.glob("*.zst"))) == 2


def _between(path: str) -> None:
    """Leave a sealed segment without a next one."""
    _two_messages(path)
    _die_compacting(path, only=("move",))


def _twice(path: str) -> None:
    """Leave duplicate segments, as a process that dies in the middle does."""
    _several(path)
    directory = log_of(path).parent
    before = {file.name: file.stat().st_ino for file in directory.iterdir()}
    at = 0
    # Until the new one has its name, and one of the old ones is about to go.
    while all(before.get(file.name) == file.stat().st_ino for file in directory.glob("*.zst")):
        at += 1
        _die_compacting(path, only=("remove",), at=at)
    assert len(list(directory.glob("0*"))) == 3


def _die_compacting(path: str, **death: Any) -> None:
    with hansard.open(path) as store, faults.kill(**death), pytest.raises(faults.Killed):
        _compact(store)
    for left in temporaries(path):
        left.unlink()


# -- the steps ----------------------------------------------------------------------------------------


def _create(store: hansard.Store) -> None:
    store.create(ID, metadata={"user": "u7"})


def _append(message: dict[str, Any]) -> Step:
    return lambda store: store.session(ID).add_message(message)


def _append_two(store: hansard.Store) -> None:
    store.session(ID).add_messages([THIRD, FOURTH])


def _verify(store: hansard.Store) -> None:
    assert store.session(ID).verify().ok


def _compact(store: hansard.Store) -> None:
    assert store.session(ID).compact().failed == {}


def _compact_without_links(store: hansard.Store) -> None:
    with faults.fail(errno.EPERM, only=("link",), lasting=True):
        _compact(store)


@functools.cache
def _exported() -> bytes:
    with hansard.open("memory:") as store:
        store.session(ID).add_messages([FIRST, SECOND])
        return b"".join(store.session(ID).export())


def settle_compaction(stage: Path) -> None:
    """Fail unless a later compaction works, changes nothing, and leaves one file for each event."""
    before = look(stage)
    with hansard.open(stage) as store:
        session = store.session(ID)
        _compact(store)
        assert session.compact().sessions == 0
        assert session.verify().findings == []
    assert look(stage) == before
    assert list(log_of(stage).parent.glob("*.jsonl")) == [log_of(stage)]
    assert leaks(stage, HIDDEN) == []


TWO = seen(FIRST, SECOND)
THREE = seen(FIRST, SECOND, THIRD)
FOUR = seen(FIRST, SECOND, THIRD, FOURTH)
MANY = seen(*LONG, FIRST, SECOND)
PAIR = (THIRD, FOURTH)
FORKED = {**TWO, CHILD: TWO[ID]}

#: Each call of these is struck in every way.
SESSIONS = [
    Scene("open", _nothing, (), ({},)),
    Scene("health", _empty, (lambda store: store.health(),), ({}, {})),
    Scene("create", _empty, (_create,), ({}, seen(user="u7"))),
    Scene("begin", _empty, (_append(FIRST),), ({}, seen(FIRST)), ((FIRST,),)),
    # The first append opens the files and takes the ordinary way, the second the short one.
    Scene("append", _two_messages, (_append(THIRD), _append(FOURTH)), (TWO, THREE, FOUR),
        ((THIRD,), (FOURTH,))),
    Scene("batch", _two_messages, (_append_two,), (TWO, FOUR), (PAIR,)),
    Scene("key", _two_messages, (lambda store: store.session(ID).add_messages(PAIR, key="turn-2"),),
        (TWO, FOUR)),
    Scene("metadata", _two_messages, (lambda store: store.session(ID).set_metadata(title="T"),),
        (TWO, seen(FIRST, SECOND, title="T"))),
    Scene("recover", _torn, (_append_two,), (TWO, FOUR), (PAIR,)),
    Scene("delete", _two_messages, (lambda store: store.delete(ID),), (TWO, {})),
    Scene("restore", _deleted, (lambda store: store.restore(ID),), ({}, TWO)),
    Scene("verify", _failed, (_verify, _append_two), (TWO, TWO, FOUR), ((), PAIR)),
]  # fmt: skip

SEALING = [
    Scene("compact", _two_messages, (_compact,), (TWO, TWO), settle=settle_compaction),
    Scene(
        "compact between appends",
        _two_messages,
        (_append(THIRD), _compact, _append(FOURTH)),
        (TWO, THREE, THREE, FOUR),
        ((THIRD,), (), (FOURTH,)),
        settle=settle_compaction,
    ),
    Scene(
        "compact without links",
        _two_messages,
        (_compact_without_links, _append(THIRD)),
        (TWO, TWO, THREE),
        ((), (THIRD,)),
        settle=settle_compaction,
    ),
    Scene(
        "append after", _compacted, (_append(THIRD),), (TWO, THREE), ((THIRD,),),
        settle=settle_compaction,
    ),
    Scene(
        "go on", _between, (_append(THIRD),), (TWO, THREE), ((THIRD,),), settle=settle_compaction
    ),
    Scene("join and forget", _several, (_compact,), (MANY, MANY), settle=settle_compaction),
    Scene("clean up", _twice, (_compact,), (MANY, MANY), settle=settle_compaction),
]  # fmt: skip

MOVING = [
    # The last call removes the temporary file of the child's log, which has its name by then.
    Scene(
        "fork", _torn, (lambda store: store.session(ID).fork(CHILD),), (TWO, FORKED), tidies=True
    ),
    Scene(
        "import", _empty, (lambda store: store.import_session(_exported()),), ({}, TWO), tidies=True
    ),
]


# -- retention ----------------------------------------------------------------------------------------

DAY = timedelta(days=1)


def make_old(store: hansard.Store, *ids: str) -> None:
    """Create sessions whose last message is nine days old, three times."""
    for session_id in ids * 3:
        say(store, session_id, days=9)


def _old(path: str) -> None:
    with hansard.open(path) as store:
        make_old(store, ID)


def _old_and_deleted(path: str) -> None:
    _old(path)
    with hansard.open(path) as store:
        store.delete(ID)


def _look_for_old(path: str | Path) -> State:
    """Read where the session is, all of it."""
    with hansard.open(path, read_only=True) as store:
        trash = ID in store.trash()
        live = [info.id for info in store.sessions().items]
        if trash or live:
            log = store._backend.log(ID, from_trash=trash)
            assert len(list(log.salvage())) == 3
        recorded = {event.kind for event in store.audit()}
        assert live or recorded & {"session.pruned", "session.deleted"}
        return {"trash": trash, "live": live}


LIVE, TRASHED, PURGED = (
    {"trash": trash, "live": live} for trash, live in ((False, [ID]), (True, []), (False, []))
)

RETENTION = [
    Scene(
        "purge",
        _old_and_deleted,
        (lambda store: store.purge(ID),),
        (TRASHED, PURGED),
        look=_look_for_old,
        tidies=True,
    ),
    Scene(
        "prune",
        _old,
        (lambda store: store.prune(older_than=DAY),),
        (LIVE, TRASHED),
        look=_look_for_old,
        reports=True,
    ),
]


# -- cursors ------------------------------------------------------------------------------------------


class Consumer:
    """An open cursor: what the steps of a cursor are done with."""

    def __init__(self, path: str) -> None:
        self.backend = LocalBackend(path)
        try:
            self.cursor = follow.Cursor(self.backend, "c")
        except BaseException:
            self.backend.close()
            raise

    def close(self) -> None:
        """Close cursor and store."""
        self.backend.close()


def _look_at_cursor(path: str | Path) -> State:
    reader = LocalBackend(str(path), read_only=True)
    try:
        assert follow.cursors(reader) in ([], ["c"])
        return dict(follow.Cursor(reader, "c").positions)
    finally:
        reader.close()


def _moved(path: str) -> None:
    consumer = Consumer(path)
    consumer.cursor.move(PLACES)
    consumer.close()


def _torn_cursor(path: str) -> None:
    _moved(path)
    with Path(path, "internal", "cursor-c", "log.jsonl").open("ab") as file:
        file.write(b'{"seq":9,"time":"2026')


def _move(**positions: int | None) -> Step:
    return lambda consumer: consumer.cursor.move(positions)


def _replace(**positions: int) -> Step:
    """Move, and replace the log."""

    def step(consumer: Consumer) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(follow, "SLACK", -(2**40))
            consumer.cursor.move(positions)

    return step


def _drop(consumer: Consumer) -> None:
    consumer.cursor.close()
    follow.drop_cursor(consumer.backend, "c")


PLACES = {"s": 1, "t": 1}
MOVES = (_move(s=2, t=2), _move(s=3))
PASSED = ({"s": 2, "t": 2}, {"s": 3, "t": 2})


def _cursor(name: str, prepare: Callable[[str], None], steps: Any, *states: State) -> Scene:
    return Scene(
        f"cursor: {name}", prepare, steps, states, open=Consumer, look=_look_at_cursor
    )  # fmt: skip


CURSORS = [
    _cursor("begin", _empty, (_move(s=1), _move(s=2, t=2)), {}, {"s": 1}, PASSED[0]),
    _cursor("append", _moved, MOVES, PLACES, *PASSED),
    _cursor("torn", _torn_cursor, MOVES, PLACES, *PASSED),
    _cursor("forget", _moved, (_move(s=None),), PLACES, {"t": 1}),
    _cursor("replace", _moved, (_replace(s=2, t=2), _replace(s=3)), PLACES, *PASSED),
    _cursor("drop", _moved, (_drop,), PLACES, {}),
]

SCENES = [*SESSIONS, *SEALING, *MOVING, *RETENTION, *CURSORS]


# -- what must not be left ----------------------------------------------------------------------------


class Leftovers:
    """What a fault must not leave: descriptors and threads."""

    def __init__(self) -> None:
        self._threads = threading.active_count()
        self._descriptors = self._count()

    @staticmethod
    def _count() -> int:
        # Where the system does not list them, everything else is still shown.
        return len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0

    def check(self) -> None:
        """Fail if there is more than there was."""
        # Fewer is fine: those of an earlier test have ended.
        if self._count() <= self._descriptors and threading.active_count() <= self._threads:
            return
        # Collect cycles only if necessary: it costs more than the fault.
        gc.collect()
        assert self._count() <= self._descriptors
        assert threading.active_count() <= self._threads


def temporaries(path: str | Path) -> list[Path]:
    """Return all unfinished files of a store."""
    return list(Path(path).rglob(".tmp-*"))


def do_not_wait_for_the_disk(patch: pytest.MonkeyPatch) -> None:
    """Skip syncs: the fault injector decides what they cover, not the disk."""
    patch.setattr(disk, "sync", os.fstat)
    patch.setattr(disk, "sync_directory", os.fstat)
