"""A backend under test, and what the tests of the contract do with it."""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec
import pytest

from hansard.backend.contract import AppendRequest, Backend, Log, LogReader
from hansard.event import codec
from hansard.event.event import Event, NewEvent
from hansard.event.kinds import MESSAGE_ADDED, METADATA_SET

#: Returns an empty backend.
Factory = Callable[[], Backend]

#: Returns a second, independent handle to what a backend stores.
Reopen = Callable[[Backend], Backend]

#: Seconds that a thread may take before its test fails.
PATIENCE = 60.0

#: Backends whose content outlives the object. Memory's does not.
SHARED = ("files-os", "files-sync", "postgres-16", "postgres-18")

#: A test that opens what a backend stores a second time.
two_handles = pytest.mark.parametrize("context", SHARED, indirect=True)

Value = TypeVar("Value")


class Context:
    """An empty backend for one test.

    Attributes:
        backend: the backend, empty at first.
    """

    def __init__(self, factory: Factory, reopen: Reopen | None = None) -> None:
        self.backend = factory()
        self._reopen = reopen
        self._others: list[Backend] = []

    def log(self, session_id: str = "s") -> Log:
        """Return a session of the backend."""
        return self.backend.log(session_id)

    def other(self) -> Backend:
        """Return one more handle to what the backend stores; it is closed after the test."""
        assert self._reopen is not None
        backend = self._reopen(self.backend)
        self._others.append(backend)
        return backend

    def close(self) -> None:
        """Close everything that the test has opened."""
        for backend in [*self._others, self.backend]:
            backend.close()


def there(value: Value | None, what: str) -> Value:
    """Return the value; fail if it is None."""
    assert value is not None, f"{what}: there is none"
    return value


def message(content: object) -> NewEvent:
    """Return a draft of a message with this content."""
    raw = codec.encode({"message": {"role": "user", "content": content}})
    return NewEvent(MESSAGE_ADDED, raw, control=False)


def metadata(**changes: object) -> NewEvent:
    """Return a draft of a control event."""
    return NewEvent(METADATA_SET, codec.encode({"metadata": changes}), control=True)


def append(log: Log, events: Sequence[NewEvent], **options: Any) -> list[Event]:
    """Append events with the options of a request, and return them."""
    return log.append(AppendRequest(events, **options))


def begin(
    context: Context,
    events: Sequence[NewEvent],
    before: int,
    session_id: str = "s",
    key: str | None = None,
) -> list[Event]:
    """Begin a session after a seq, and return its events."""
    with context.backend.stage(session_id, before=before) as stage:
        stage.append(events, key=key)
        stage.publish()
    return everything(context.log(session_id))


def everything(log: Log, after: int = 0, upto: int | None = None) -> list[Event]:
    """Return the events that `read` yields."""
    return [event for chunk in log.reader().read(after, upto) for event in chunk.events()]


def answers(reader: LogReader) -> list[object]:
    """Return all answers of a reader of a session that exists."""
    forwards = [event for chunk in reader.read() for event in chunk.events()]
    beyond = [event for chunk in reader.read(2, 999) for event in chunk.events()]
    backwards = [chunk.events() for chunk in reader.read(0, 999, back=True)]
    first = reader.first()
    assert first is not None
    return [
        reader.head(),
        (first.seq, first.stamp, first.kind),
        reader.controls(),
        reader.controls(999, after=1),
        forwards,
        beyond,
        [event for chunk in reversed(backwards) for event in chunk],
    ]


def is_first(log: Log, event: Event) -> bool:
    """Return whether an event is the session's first; its data may be left out."""
    found = log.reader().first()
    return found in {event, msgspec.structs.replace(event, raw=b"{}")}


def contents(events: Iterable[Event]) -> list[Any]:
    """Return the contents of the messages among some events."""
    return [event.data["message"]["content"] for event in events if event.kind == MESSAGE_ADDED]


def mixed(log: Log, rounds: int = 2) -> list[Event]:
    """Append events of every shape, in appends of one and of several, and return all of them."""
    events: list[Event] = []
    for number in range(rounds):
        events += append(log, [message(f"one {number}")])
        events += append(log, [metadata(round=number)])
        events += append(log, [message("first of three"), metadata(inside=number), message("last")])
        events += append(
            log, [NewEvent("x.todo", b'{"done":false}', control=False)], key=f"k{number}"
        )
    return events


def succeeds(do: Callable[[], object], *refusals: type[Exception]) -> bool:
    """Return whether a call succeeds, or is refused with one of these errors."""
    try:
        do()
    except refusals:
        return False
    return True


def together(jobs: Sequence[Callable[[], Value]]) -> list[Value]:
    """Run jobs at the same time, one thread each, and return what they return, in order."""
    results: dict[int, Value] = {}
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(jobs))

    def work(place: int, job: Callable[[], Value]) -> None:
        try:
            barrier.wait(PATIENCE)
            results[place] = job()
        except BaseException as error:  # noqa: BLE001 - raised again below, in the test's thread
            errors.append(error)

    threads = [
        threading.Thread(target=work, args=(place, job), daemon=True)
        for place, job in enumerate(jobs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive(), f"a thread did not return within {PATIENCE:g} s"
    if errors:
        raise errors[0]
    return [results[place] for place in range(len(jobs))]
