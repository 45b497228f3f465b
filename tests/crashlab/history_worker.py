"""One process of a history: threads that make all kinds of calls, and journal each call and answer.

`histories` starts it and may kill it at any moment. Each thread has its own journal, to which each line is
one write: what a killed worker had asked is there, and so is what it was told, unless it died in between.
"""

import importlib
import json
import os
import random
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import hansard
from tests.crashlab.faults import Death
from tests.crashlab.history_values import EMPTY, Record, digest, message, view_digest

#: What is asked, and how often compared with the others.
WEIGHTS: Final = {
    "append": 30,
    "keyed": 14,
    "expecting": 12,
    "read": 12,
    "view": 6,
    "revert": 4,
    "list": 4,
    "search": 2,
    "fork": 3,
    "create": 3,
    "begin": 2,
    "delete": 3,
    "restore": 4,
    "purge": 0,
    "compact": 3,
}

#: The same for a history of forks whose parents are deleted, restored, purged and forked concurrently (F-67).
FORKING: Final = dict.fromkeys(("create", "begin"), 0) | {
    "fork": 24,
    "list": 24,
    "restore": 24,
    "delete": 16,
    "purge": 24,
    "append": 20,
    "keyed": 5,
    "expecting": 5,
}

#: Which errors are answers, and to what. Anything else is a failure.
_GONE: Final = {"SessionDeleted"}
REFUSALS: Final[Mapping[str, set[str]]] = {
    # InvalidEvent: the key has a batch of another size, which `history_checks` verifies.
    "append": {"InvalidEvent", "SeqConflict", *_GONE},
    "revert": {"InvalidEvent", *_GONE},
    "read": _GONE,
    "view": _GONE,
    "fork": {"SessionNotFound", "SessionExists", *_GONE},
    "create": {"SessionExists", *_GONE},
    "delete": {"SessionNotFound", *_GONE},
    # Another may delete it again before it is quite there.
    "restore": {"SessionNotFound", *_GONE},
    "purge": {"InUse", "SessionNotFound"},
    # Another process is compacting it.
    "compact": {"LockTimeout", "SessionNotFound", *_GONE},
}

#: Sessions that are never deleted, and sessions that are.
STEADY: Final = ("steady/0", "steady/1")
MORTAL: Final = ("mortal/0", "mortal/1")
#: Forks without appends, which are forked and purged.
_TWIGS: Final = "twig/"

#: Maximum forks and created sessions: a history has few sessions with many callers.
_FAMILY: Final = 8
#: Number of shared keys of a session.
_KEYS: Final = 400
#: How often a long message repeats its name: about 40,000 bytes.
_LONG: Final = 3_000


class Orders(NamedTuple):
    """The orders of a worker."""

    path: str
    options: dict[str, Any]
    directory: str
    name: str
    seed: int
    threads: int
    #: How many operations each thread makes.
    operations: int
    #: Unanswered appends with a key of a killed worker, which are repeated. Session, key, operation, size.
    retries: Sequence[tuple[str, str, str, int]]
    #: A function to call first, as `module:name`.
    prepare: str
    weights: Mapping[str, int]
    #: The call at which the worker kills itself.
    death: Death | None


class Thread:
    """One thread of a worker: asks, and journals."""

    def __init__(self, orders: Orders, store: hansard.Store, number: int) -> None:
        self._name = f"{orders.name}.{number}"
        self._weights = orders.weights
        self._store = store
        self._rng = random.Random(f"{orders.seed} {self._name}")
        self._count = 0
        self._made = 0
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._journal = os.open(os.path.join(orders.directory, self._name), flags, 0o600)
        self._family: list[str] = []
        self._twigs: list[str] = []
        self._kept: list[tuple[str, str, str, int]] = list(orders.retries if number == 0 else [])
        self._read: dict[str, tuple[int, str]] = {}
        self._said: list[tuple[str, str]] = []

    def run(self, operations: int, weights: Mapping[str, int]) -> None:
        """Make a number of random calls."""
        while self._kept:
            self._append(*self._kept.pop())
        names, shares = list(weights), list(weights.values())
        while self._count < operations:
            getattr(self, f"_do_{self._rng.choices(names, shares)[0]}")()

    def close(self) -> None:
        """Close the journal."""
        os.close(self._journal)

    def _write(self, line: list[Any]) -> None:
        os.write(self._journal, json.dumps(line).encode() + b"\n")

    def _next(self) -> str:
        self._count += 1
        return f"{self._name}.{self._count}"

    def _ask(
        self,
        do: str,
        session: str,
        asked: dict[str, Any],
        call: Callable[[], dict[str, Any]],
        name: str = "",
    ) -> dict[str, Any] | None:
        """Journal a question, ask it, journal the answer; None if it was refused."""
        name = name or self._next()
        self._write(["asked", name, do, session, asked, time.monotonic_ns()])
        try:
            result = call()
        except hansard.HansardError as error:
            returned = time.monotonic_ns()
            kind = type(error).__name__
            said: dict[str, Any] = {"error": kind, "says": str(error)}
            if isinstance(error, hansard.SeqConflict):
                said["actual"] = error.actual
            if kind in REFUSALS.get(do, ()):
                self._write(["refused", name, said, returned])
            else:
                said["trace"] = traceback.format_exc()
                self._write(["failed", name, said, returned])
            return None
        except Exception as error:  # noqa: BLE001 - whatever it is, the history shows it
            said = {"error": type(error).__name__, "says": str(error)}
            said["trace"] = traceback.format_exc()
            self._write(["failed", name, said, time.monotonic_ns()])
            return None
        self._write(["ok", name, result, time.monotonic_ns()])
        return result

    def _somewhere(self) -> str:
        return self._rng.choice((*STEADY, *STEADY, *MORTAL, *self._family))

    def _last(self, session: str) -> int | None:
        """Return the last seq; None if it cannot be read, which the next call will journal."""
        try:
            return self._store.session(session).seq
        except hansard.HansardError:
            return None

    def _append(
        self,
        session: str,
        key: str | None,
        content: str = "",
        size: int = 1,
        expected: int | None = None,
    ) -> None:
        name = self._next()
        of = content or name
        # From the content's name only: a retry must have the same content.
        chance = random.Random(of)
        # Only a record that is longer than what the system writes in one piece can be torn by a kill.
        pad = _LONG if chance.random() < 0.01 else chance.choice((0, 1, 2, 5, 60))
        said = [message(of, place, size, pad) for place in range(size)]

        def call() -> dict[str, Any]:
            handle = self._store.session(session)
            if size == 1:
                events = [handle.add_message(said[0], key=key, expected_seq=expected)]
            else:
                events = handle.add_messages(said, key=key, expected_seq=expected)
            first = events[0].message or {}
            return {"seqs": [event.seq for event in events], "of": first.get("op")}

        asked = {"key": key, "expected": expected, "of": of, "size": size}
        result = self._ask("append", session, asked, call, name)
        if result is not None and key is None:
            self._said.append((session, f"{of}/0/0" if pad else ""))

    def _do_append(self) -> None:
        self._append(self._somewhere(), None, size=self._rng.choice((1, 1, 2, 3, 5)))

    def _do_keyed(self) -> None:
        session = self._somewhere()
        size = self._rng.choice((1, 1, 3))
        if self._rng.random() < 0.4:
            # A shared key: the first writer's message is stored.
            key = f"{session} shared {self._rng.randrange(_KEYS)}"
            self._append(session, key, size=size)
            return
        of = f"{self._name}.{self._count + 1}"
        key = f"{session} {of}"
        self._append(session, key, size=size)
        while self._rng.random() < 0.5:
            self._append(session, key, of, size)

    def _do_expecting(self) -> None:
        session = self._somewhere()
        expected = self._last(session)
        if expected is None:
            return
        self._append(session, None, expected=expected, size=self._rng.choice((1, 2)))

    def _do_read(self) -> None:
        session = self._somewhere()
        after, before = self._read.get(session, (0, EMPTY))
        if self._rng.random() < 0.3:
            after, before = 0, EMPTY

        def call() -> dict[str, Any]:
            found = [record(event) for event in self._store.session(session).events(after=after)]
            return {"seq": found[-1].seq if found else after, "digest": digest(before, found)}

        result = self._ask("read", session, {"after": after}, call)
        if result is not None:
            self._read[session] = result["seq"], result["digest"]

    def _do_view(self) -> None:
        session = self._somewhere()

        def call() -> dict[str, Any]:
            found = EMPTY
            for said in self._store.session(session).messages():
                found = view_digest(found, said)
            return {"digest": found}

        self._ask("view", session, {}, call)

    def _do_list(self) -> None:
        def call() -> dict[str, Any]:
            return {"sessions": {info.id: info.seq for info in self._store.sessions().items}}

        result = self._ask("list", "", {}, call)
        if result is not None:
            known = sorted(set(result["sessions"]) - {*STEADY, *MORTAL})
            self._twigs = [one for one in known if one.startswith(_TWIGS)][-2:]
            known = [one for one in known if not one.startswith(_TWIGS)]
            self._family = self._rng.sample(known, min(len(known), _FAMILY))

    def _do_search(self) -> None:
        session, word = self._rng.choice(self._said) if self._said else ("", "")
        if not word:
            return

        def call() -> dict[str, Any]:
            hits = self._store.search(f'"{word}"', limit=1000)
            return {"found": sorted({hit.session for hit in hits})}

        self._ask("search", session, {"word": word}, call)

    def _do_revert(self) -> None:
        session = self._somewhere()
        last = self._last(session)
        if last is None:
            return
        to = self._rng.randrange(max(0, last - 20), last + 1)
        self._ask(
            "revert",
            session,
            {"to": to},
            lambda: {"seq": self._store.session(session).revert(to).seq},
        )

    def _do_fork(self) -> None:
        session = self._rng.choice((self._somewhere(), *self._twigs))
        if self._made >= _FAMILY:
            return
        last = self._last(session)
        if last is None:
            return
        self._made += 1
        name = self._next()
        purging = self._weights["purge"] and self._rng.random() < 0.5
        child = f"{_TWIGS if purging else 'fork/'}{name}"
        at = self._rng.choice((None, self._rng.randrange(last + 1)))

        def call() -> dict[str, Any]:
            self._store.session(session).fork(child, at=at)
            return {}

        if self._ask("fork", session, {"child": child, "at": at}, call, name) is not None:
            (self._twigs if purging else self._family).append(child)

    def _do_create(self) -> None:
        if self._made >= _FAMILY:
            return
        self._made += 1
        name = self._next()
        # Few names, and all workers count alike: several want the same one at the same time.
        session = f"new/{self._made}"
        self._ask(
            "create",
            session,
            {},
            lambda: {"seq": self._store.create(session, metadata={"op": name}).seq},
            name,
        )

    def _do_begin(self) -> None:
        if self._made < _FAMILY:
            self._made += 1
            self._append(
                f"begun/{self._name}.{self._count + 1}", None, size=self._rng.choice((1, 3))
            )

    def _do_delete(self) -> None:
        self._change("delete", self._store.delete)

    def _do_restore(self) -> None:
        self._change("restore", self._store.restore)

    def _do_purge(self) -> None:
        if self._twigs:
            twig = self._twigs[-1]
            self._change("delete", self._store.delete, twig)
            if self._change("purge", self._store.purge, twig):
                self._twigs.pop()

    def _change(self, do: str, call: Callable[[str], object], session: str = "") -> bool:
        session = session or self._rng.choice(MORTAL)
        done = self._ask(do, session, {}, lambda: {"done": call(session) is None or True})
        return done is not None

    def _do_compact(self) -> None:
        session = self._somewhere()

        def call() -> dict[str, Any]:
            self._store.session(session).compact()
            return {}

        self._ask("compact", session, {}, call)


def record(event: hansard.Event) -> Record:
    """Return an event as the checker compares it."""
    return Record(event.seq, event.kind, event.data, event.key, event.stamp)


def work(orders: Orders, errors: str) -> None:
    """Carry out the orders; write a fatal error to a file."""
    try:
        _work(orders)
    except BaseException:
        with open(errors, "w", encoding="utf-8") as file:
            traceback.print_exc(file=file)
        raise


def _work(orders: Orders) -> None:
    if orders.prepare:
        module, _, function = orders.prepare.partition(":")
        getattr(importlib.import_module(module), function)()
    with hansard.open(orders.path, **orders.options) as store:
        if orders.death is not None:
            orders.death.arm()
        workers = [Thread(orders, store, number) for number in range(orders.threads)]
        with ThreadPoolExecutor(orders.threads) as pool:
            running = [
                pool.submit(worker.run, orders.operations, orders.weights) for worker in workers
            ]
        for worker, ended in zip(workers, running, strict=True):
            worker.close()
            ended.result()
