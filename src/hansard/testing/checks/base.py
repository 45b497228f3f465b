"""Say what a check is, and give checks their tools.

Above: the files of checks, `testing.contract`.  Below: `backend.contract`, `event`.
A check is a function with a claim as its docstring. It gets a `Context` with a fresh, empty
backend, and raises if the claim is not true. `expect` and `equal` raise by themselves, so that
the suite means the same under `python -O`.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from hansard.backend.contract import Backend, Log
from hansard.event import codec
from hansard.event.envelope import Draft, Event
from hansard.event.kinds import MESSAGE_ADDED, METADATA_SET

#: Returns a fresh, empty backend.
Factory = Callable[[], Backend]

#: Returns a second, independent handle to what a backend stores.
Reopen = Callable[[Backend], Backend]

#: How long a thread of a check may take before the check has failed.
PATIENCE = 60.0

Value = TypeVar("Value")


class Broken(AssertionError):
    """A backend does not do as the contract says."""


class Context:
    """A fresh backend for one check.

    Attributes:
        backend: the backend, empty at first.
    """

    def __init__(self, factory: Factory, reopen: Reopen | None) -> None:
        self.backend = factory()
        self._reopen = reopen
        self._others: list[Backend] = []

    def log(self, session_id: str = "s") -> Log:
        """Return a session of the backend."""
        return self.backend.log(session_id)

    def other(self) -> Backend:
        """Return one more handle to what the backend stores; it is closed after the check."""
        if self._reopen is None:
            raise Broken("this check needs `reopen`, which was not given")
        backend = self._reopen(self.backend)
        self._others.append(backend)
        return backend

    def close(self) -> None:
        """Close everything that the check has opened."""
        for backend in [*self._others, self.backend]:
            backend.close()


class Check(NamedTuple):
    """One promise, and how to see whether a backend keeps it."""

    name: str
    #: What it is about: a name in `contract.CAPABILITIES`.
    capability: str
    #: The promise, as a sentence.
    claim: str
    run: Callable[[Context], None]

    def __call__(self, factory: Factory, reopen: Reopen | None = None) -> None:
        """Run on a fresh backend; raises if the promise is broken."""
        context = Context(factory, reopen)
        try:
            self.run(context)
        finally:
            context.close()


#: All checks, in the order in which their files are imported.
CHECKS: list[Check] = []


def check(
    capability: str,
) -> Callable[[Callable[[Context], None]], Callable[[Context], None]]:
    """Make a function a check of a capability. Its docstring is the claim."""

    def register(run: Callable[[Context], None]) -> Callable[[Context], None]:
        CHECKS.append(Check(run.__name__, capability, run.__doc__ or run.__name__, run))
        return run

    return register


# -- saying what must be so ---------------------------------------------------------------------


def expect(condition: object, otherwise: str) -> None:
    """Raise unless the condition holds."""
    if not condition:
        raise Broken(otherwise)


def equal(actual: Value, expected: Value, what: str) -> None:
    """Raise unless two values are equal."""
    if actual != expected:
        raise Broken(f"{what}: expected {expected!r:.300}, got {actual!r:.300}")


def there(value: Value | None, what: str) -> Value:
    """Return the value, or raise if it is None."""
    if value is None:
        raise Broken(f"{what}: there is none")
    return value


@contextmanager
def raises(error: type[Exception], what: str) -> Iterator[list[Any]]:
    """Raise unless the block raises the error; what it raised is then in the list."""
    caught: list[Any] = []
    try:
        yield caught
    except error as found:
        caught.append(found)
        expect(str(found), f"{what}: {error.__name__} says nothing")
    except Exception as found:
        raise Broken(f"{what}: expected {error.__name__}, got {found!r:.300}") from found
    else:
        raise Broken(f"{what}: expected {error.__name__}, and nothing was raised")


# -- making and reading events ------------------------------------------------------------------


def message(content: object) -> Draft:
    """Return a draft of a message with this content."""
    raw = codec.encode({"message": {"role": "user", "content": content}})
    return Draft(MESSAGE_ADDED, raw, control=False)


def metadata(**changes: object) -> Draft:
    """Return a draft of a control event."""
    return Draft(METADATA_SET, codec.encode({"metadata": changes}), control=True)


def everything(log: Log, after: int = 0, upto: int | None = None) -> list[Event]:
    """Return the events that `read` yields."""
    return [event for chunk in log.read(after, upto) for event in chunk.events()]


def contents(events: Iterable[Event]) -> list[Any]:
    """Return the contents of the messages among some events."""
    return [event.data["message"]["content"] for event in events if event.kind == MESSAGE_ADDED]


def mixed(log: Log, rounds: int = 2) -> list[Event]:
    """Append events of every shape, in appends of one and of several, and return all of them."""
    events: list[Event] = []
    for number in range(rounds):
        events += log.append([message(f"one {number}")])
        events += log.append([metadata(round=number)])
        events += log.append([message("first of three"), metadata(inside=number), message("last")])
        events += log.append([Draft("x.todo", b'{"done":false}', control=False)], key=f"k{number}")
    return events


def together(jobs: Sequence[Callable[[], Value]]) -> list[Value]:
    """Run jobs at the same time, one thread each, and return what they return, in order."""
    results: dict[int, Value] = {}
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(jobs))

    def work(place: int, job: Callable[[], Value]) -> None:
        try:
            barrier.wait(PATIENCE)
            results[place] = job()
        except BaseException as error:  # noqa: BLE001 - raised again below, in the check's own thread
            errors.append(error)

    threads = [
        threading.Thread(target=work, args=(place, job), daemon=True)
        for place, job in enumerate(jobs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        expect(not thread.is_alive(), f"a thread did not come back within {PATIENCE:g} s")
    if errors:
        raise errors[0]
    return [results[place] for place in range(len(jobs))]
