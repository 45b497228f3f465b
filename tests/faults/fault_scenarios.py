"""What a store is doing when a fault strikes, and what may be found afterwards.

A scene has two parts: `prepare` makes a store in peace, and one of the `steps` is struck. Whatever
the fault, a stranger who opens the store afterwards must find the state from before that step, or
the one from after it; and if the step was acknowledged, the one from after.
"""

import gc
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.log import disk
from tests.crashlab import faults

ID = "support/42"
NAME = "support+42"

FIRST = {"role": "user", "content": "first"}
SECOND = {"role": "assistant", "content": "second"}
THIRD = {"role": "user", "content": "third"}
FOURTH = {"role": "assistant", "content": "fourth"}


@dataclass(frozen=True)
class Seen:
    """What a stranger reads of the one session; None for messages: there is no session."""

    messages: list[dict[str, Any]] | None
    metadata: dict[str, Any]


NONE = Seen(None, {})
TWO = Seen([FIRST, SECOND], {})
THREE = Seen([FIRST, SECOND, THIRD], {})
FOUR = Seen([FIRST, SECOND, THIRD, FOURTH], {})


Step = Callable[[hansard.Store], object]


@dataclass(frozen=True)
class Scene:
    """Something that a store does in steps, and what a stranger sees before and after each."""

    name: str
    prepare: Callable[[str], None]
    steps: tuple[Step, ...]
    states: tuple[Seen, ...]
    #: The messages that a step appends, once more if it is done once more.
    adds: tuple[tuple[dict[str, Any], ...], ...] = ()

    def __str__(self) -> str:
        return self.name

    def allowed(self, acknowledged: int) -> tuple[Seen, ...]:
        """Return what a fault may leave once so many steps have been acknowledged."""
        return self.states[acknowledged : acknowledged + 2]

    def after_going_on(self, seen: Seen, acknowledged: int) -> Seen:
        """Return the state once the steps that were not acknowledged have been done again."""
        if not self.adds:
            return self.states[-1]
        more = [message for added in self.adds[acknowledged:] for message in added]
        return Seen([*(seen.messages or []), *more], seen.metadata)


def log_of(path: str | Path) -> Path:
    """Return the path of the session's log."""
    return Path(path, "sessions", NAME, "log.jsonl")


def look(path: str | Path) -> Seen:
    """Read the session as a stranger would, in a store opened for this, which writes nothing."""
    try:
        store = hansard.open(path, read_only=True)
    except hansard.StoreNotFound:
        return NONE
    with store:
        session = store.session(ID)
        if not store.exists(ID):
            assert store.sessions().items == []
            return NONE
        assert [info.id for info in store.sessions().items] == [ID]
        assert store.verify().ok
        messages = session.messages()
        assert session.messages(last=100) == messages
        assert [event.seq for event in session.events()] == list(range(1, session.seq + 1))
        return Seen(messages, session.metadata)


def _nothing(path: str) -> None:
    assert not os.path.exists(path)


def _empty(path: str) -> None:
    hansard.open(path).close()


def _two_messages(path: str) -> None:
    with hansard.open(path) as store:
        store.session(ID).add_message(FIRST)
        store.session(ID).add_message(SECOND)


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
    with hansard.open(path) as store:
        store.session(ID).add_message(FIRST)
        with faults.fail_sync(lost=None), pytest.raises(hansard.SyncFailed):
            store.session(ID).add_message(SECOND)


def _create(store: hansard.Store) -> None:
    store.create(ID, metadata={"user": "u7"})


def _append(message: dict[str, Any]) -> Step:
    return lambda store: store.session(ID).add_message(message)


def _append_two(store: hansard.Store) -> None:
    store.session(ID).add_messages([THIRD, FOURTH])


def _append_with_key(store: hansard.Store) -> None:
    store.session(ID).add_messages([THIRD, FOURTH], key="turn-2")


def _set_title(store: hansard.Store) -> None:
    store.session(ID).set_metadata(title="T")


def _verify(store: hansard.Store) -> None:
    assert store.session(ID).verify().ok


def _delete(store: hansard.Store) -> None:
    store.delete(ID)


def _restore(store: hansard.Store) -> None:
    store.restore(ID)


ONE = Seen([FIRST], {})
CREATED = Seen([], {"user": "u7"})
TITLED = Seen([FIRST, SECOND], {"title": "T"})
PAIR = (THIRD, FOURTH)

SCENES = [
    Scene("open", _nothing, (), (NONE,)),
    Scene("health", _empty, (lambda store: store.health(),), (NONE, NONE)),
    Scene("create", _empty, (_create,), (NONE, CREATED)),
    Scene("begin", _empty, (_append(FIRST),), (NONE, ONE), ((FIRST,),)),
    # The first append opens the files and takes the ordinary way, the second the short one.
    Scene(
        "append",
        _two_messages,
        (_append(THIRD), _append(FOURTH)),
        (TWO, THREE, FOUR),
        ((THIRD,), (FOURTH,)),
    ),
    Scene("batch", _two_messages, (_append_two,), (TWO, FOUR), (PAIR,)),
    Scene("key", _two_messages, (_append_with_key,), (TWO, FOUR)),
    Scene("metadata", _two_messages, (_set_title,), (TWO, TITLED)),
    Scene("recover", _torn, (_append_two,), (TWO, FOUR), (PAIR,)),
    Scene("delete", _two_messages, (_delete,), (TWO, NONE)),
    Scene("restore", _deleted, (_restore,), (NONE, TWO)),
    Scene("verify", _failed, (_verify, _append_two), (TWO, TWO, FOUR), ((), PAIR)),
]


class Leftovers:
    """What a fault must not leave behind: descriptors and threads."""

    def __init__(self) -> None:
        self._threads = threading.active_count()
        self._descriptors = self._count()

    @staticmethod
    def _count() -> int:
        # Where the system does not list them, everything else is still shown.
        return len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0

    def check(self) -> None:
        """Fail if there is more than there was."""
        # Fewer is no fault of this test: what an earlier one left has ended meanwhile.
        if self._count() <= self._descriptors and threading.active_count() <= self._threads:
            return
        # What cycles hold is nobody's. Looked for only if it must be: each time costs more than the fault.
        gc.collect()
        assert self._count() <= self._descriptors
        assert threading.active_count() <= self._threads


def temporaries(path: str | Path) -> list[Path]:
    """Return all files of a store that are somebody's unfinished work."""
    return list(Path(path).rglob(".tmp-*"))


def do_not_wait_for_the_disk(patch: pytest.MonkeyPatch) -> None:
    """Let syncs return at once: what they covered is what the fault injector says, not the disk."""
    patch.setattr(disk, "sync", os.fstat)
    patch.setattr(disk, "sync_directory", os.fstat)
