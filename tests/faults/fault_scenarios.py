"""What a store does when a fault occurs, and the states that are allowed afterwards.

A scene has two parts: `prepare` creates a store without faults, and the fault occurs in one of the `steps`.
Another process must then read the state before that step or after it, and the one after it if the step was
acknowledged.
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
    """The content of the session; None for messages: the session does not exist."""

    messages: list[dict[str, Any]] | None
    metadata: dict[str, Any]


NONE = Seen(None, {})
TWO = Seen([FIRST, SECOND], {})
THREE = Seen([FIRST, SECOND, THIRD], {})
FOUR = Seen([FIRST, SECOND, THIRD, FOURTH], {})


Step = Callable[[hansard.Store], object]


@dataclass(frozen=True)
class Scene:
    """Steps of a store, and the state before and after each."""

    name: str
    prepare: Callable[[str], None]
    steps: tuple[Step, ...]
    states: tuple[Seen, ...]
    #: The messages that a step appends, again if it is repeated.
    adds: tuple[tuple[dict[str, Any], ...], ...] = ()

    def __str__(self) -> str:
        return self.name

    def allowed(self, acknowledged: int) -> tuple[Seen, ...]:
        """Return the allowed states after a number of acknowledged steps."""
        return self.states[acknowledged : acknowledged + 2]

    def after_retry(self, seen: Seen, acknowledged: int) -> Seen:
        """Return the state after the steps that were not acknowledged are repeated."""
        if not self.adds:
            return self.states[-1]
        more = [message for added in self.adds[acknowledged:] for message in added]
        return Seen([*(seen.messages or []), *more], seen.metadata)


def log_of(path: str | Path) -> Path:
    """Return the path of the session's log."""
    return Path(path, "sessions", NAME, "log.jsonl")


def look(path: str | Path) -> Seen:
    """Read the session in a read-only store."""
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
