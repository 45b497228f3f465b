"""Row 17: all calls on a scoped store, in two stores that differ only outside the scope.

Both stores have the same sessions below `a/`, at the same times. Outside, one has few; the other has more
of everything, with the same words, titles and metadata. Every public method of a scoped store and of its
sessions, found by `dir`, is called in both: an answer, error or progress that differs is a leak.
"""

import atexit
import functools
import json
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

import hansard
from tools.crash.row import Outcome, Row
from tools.crash.specimen import opened, small

#: The scope.
SCOPE: Final = "a/"

#: Ids outside it, also similar ones.
OUTSIDE: Final = ("b/1", "a", "a0", "A/1", "p/parent", "b/none")

BACKENDS: Final = ("files", "memory")

Question = Callable[[hansard.Store], object]


def say(*texts: str) -> list[dict[str, Any]]:
    """Return messages."""
    return [{"role": "user", "content": text} for text in texts]


def common(store: hansard.Store) -> None:
    """Create what both stores have: the scope, and the parent of a fork in it."""
    parent = store.create("p/parent", metadata={"title": "parent title"})
    parent.add_messages(say("inherited refund", "inherited order"))
    first = store.create("a/1", metadata={"title": "refund", "user": "u1"}, workspace="/w")
    first.add_messages(say("where is my refund", "the order 42 is late", "refund"), key="k")
    first.record_usage(model="m", input_tokens=5, output_tokens=2, cost=0.1)
    first.snapshot("here")
    first.fork("a/kid", at=3).add_message(say("a kid of one")[0])
    parent.fork("a/fork").add_messages(say("own words", "refund again"))
    store.create("a/old").add_message(say("old refund")[0])
    store.session("a/old").archive()
    store.create("a/gone").add_message(say("deleted")[0])
    store.delete("a/gone")
    with store.scoped(SCOPE).follow(cursor="c") as follower:
        for _ in range(2):
            follower.take(10)


def apart(store: hansard.Store, *, fork: bool) -> None:
    """Create what only one of the stores has, all outside the scope. `fork`: of a session inside."""
    store.session("p/parent").add_messages(say("secret refund later", "secret"))
    store.session("p/parent").set_metadata(title="secret title", user="u1")
    store.session("p/parent").snapshot("here")
    for number in range(12):
        name = f"b/{number}"
        session = store.create(name, metadata={"title": "refund", "user": "u1"}, workspace="/w")
        session.add_messages(
            say("refund refund order", f"secret {number}", "refund " * 50), key="k"
        )
        session.record_usage(model="m", input_tokens=500, output_tokens=20, cost=9.0)
        session.snapshot("here")
    store.session("b/1").redact(3)
    store.session("b/2").archive()
    for name in ("a", "a0", "A/1"):
        store.session(name).add_message(say("refund near")[0])
    if fork:
        store.session("a/1").fork("b/child", at=3).add_message(say("refund from outside")[0])
    store.session("b/3").compact()
    store.delete("b/4")
    store.delete("b/5")
    store.purge("b/5")
    with store.follow(cursor="outside") as follower:
        follower.take(10)
    store.session("b/6").hold("secret reason")
    store.session("b/7").hold()
    store.session("b/7").release()
    store.set_retention(max_size=10**10, prefix="b/")
    store.search("refund")


#: The stores: one with only the shared sessions, and two with many others.
STORES: Final[dict[str, Callable[[hansard.Store], None]]] = {
    "one": lambda _: None,
    "two": functools.partial(apart, fork=True),
    "two, without a fork of the scope's": functools.partial(apart, fork=False),
}

#: Calls that would lose events of a fork are refused, wherever the fork is; the error does not name it.
REFUSED_FOR_FORKS: Final = {"Store.prune", "Store.purge", "Session.drop_history"}


@functools.cache
def made() -> Path:
    """Return a directory with the stores, created at the first call."""
    place = Path(tempfile.mkdtemp(prefix="hansard-tenants-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    for name, more in STORES.items():
        with small(), opened(place / name) as store:
            common(store)
            more(store)
    return place


# -- calls ------------------------------------------------------------------------------


class _Progress:
    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def __call__(self, done: int, total: int) -> None:
        self.calls.append((done, total))


def _with_progress(call: Callable[..., object]) -> object:
    progress = _Progress()
    return [call(progress=progress), progress.calls[-1:]]


def _pages(store: hansard.Store, **filters: Any) -> object:
    found, cursor = [], None
    while True:
        page = store.sessions(limit=1, cursor=cursor, **filters)
        found += page.items
        cursor = page.next
        if cursor is None:
            return found


def _follow(store: hansard.Store, **options: Any) -> object:
    with store.follow(**options) as follower:
        found = []
        while (followed := follower.take(0.05)) is not None:
            found.append((followed.session, followed.event.seq))
        return sorted(found)


def _copied(store: hansard.Store) -> object:
    with hansard.open("memory:") as target:
        report = store.copy_to(target)
        return [report, {i.id: [*target.session(i.id).events()] for i in target.sessions().items}]


def _with(call: Callable[[hansard.Store, Any], object], *values: object) -> list[Question]:
    """Return a call of a store, with each value."""
    return [functools.partial(_called, call, value) for value in values]


def _called(
    call: Callable[[hansard.Store, Any], object], value: object, store: hansard.Store
) -> object:
    return call(store, value)


def _each(*calls: Callable[[hansard.Session], object]) -> list[Question]:
    """Return calls of a session, for each one in the scope and for some outside."""
    names = ("a/1", "a/fork", "a/kid", "a/none", *OUTSIDE)
    return [
        question
        for call in calls
        for question in _with(lambda store, name, call=call: call(store.session(name)), *names)  # type: ignore[misc]
    ]


def _streamed(session: hansard.Session) -> object:
    with session.stream(gather=0) as stream:
        stream.write("a")
    return session.messages()


def _released(session: hansard.Session) -> object:
    session.hold("case 7")
    return [session.release(), session.parent, [*session.events()]]


_NOON: Final = datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC)

#: Calls of a store, by the method's name.
STORE: Final[dict[str, list[Question]]] = {
    "audit": [lambda s: [*s.audit()]],
    "compact": [lambda s: _with_progress(s.compact)],
    "copy_to": [_copied],
    "count": [
        lambda s: s.count(),
        lambda s: s.count(where={"user": "u1"}),
        lambda s: s.count(parent="p/parent"),
        lambda s: s.count(workspace="/w"),
        lambda s: s.count(damaged=True),
    ],
    "create": [
        lambda s: s.create("a/new", metadata={"n": 1}),
        lambda s: s.create("a/1"),
        *_with(lambda s, name: s.create(name), *OUTSIDE),
    ],
    "cursors": [lambda s: s.cursors()],
    "delete": _with(lambda s, name: s.delete(name), "a/1", "a/gone", "a/none", *OUTSIDE),
    "drop_cursor": _with(lambda s, name: s.drop_cursor(name), "c", "outside", "none"),
    "diagnose": [lambda s: s.diagnose()],
    "exists": _with(lambda s, name: s.exists(name), "a/1", "a/none", *OUTSIDE),
    "follow": [
        _follow,
        lambda s: _follow(s, cursor="c"),
        lambda s: _follow(s, cursor="outside"),
        lambda s: _follow(s, session="a/fork"),
        lambda s: _follow(s, session="b/1"),
        lambda s: _follow(s, prefix="b/"),
    ],
    "health": [lambda s: s.health()[:3]],  # the rest is the free space of the disk
    "import_session": [
        lambda s: s.import_session(s.session("a/1").export(), id="a/imported"),
        lambda s: s.import_session(s.session("a/fork").export(), id="b/1"),
    ],
    "latest": [
        lambda s: s.latest(),
        lambda s: s.latest(workspace="/w"),
        lambda s: s.latest(prefix="b/"),
        lambda s: s.latest(archived=True),
    ],
    "metrics": [lambda s: s.metrics()],
    "prune": [
        lambda s: s.prune(policy=True, dry_run=True),
        lambda s: s.prune(older_than=1, dry_run=True, all_workspaces=True),
        lambda s: s.prune(older_than=timedelta(days=1), keep_last=1, all_workspaces=True),
    ],
    "purge": _with(lambda s, name: s.purge(name), "a/gone", "a/1", "b/4", *OUTSIDE),
    "restore": _with(lambda s, name: s.restore(name), "a/gone", "a/1", "b/4", *OUTSIDE),
    "retention": [lambda s: s.retention()],
    "set_retention": [
        lambda s: s.set_retention(older_than=1),
        lambda s: s.set_retention(older_than=1, all_workspaces=True),
        lambda s: s.set_retention(),
        lambda s: s.set_retention(max_size=0, prefix="b/"),
    ],
    "scoped": [
        lambda s: s.scoped("a/k").sessions(),
        lambda s: s.scoped("b/").sessions(),
        lambda s: s.scoped("a").sessions(),
    ],
    "search": [
        *(
            question
            for options in ({}, {"limit": 2}, {"role": "user"}, {"session": "a/fork"})
            for question in _with(
                lambda s, text, options=options: s.search(text, **options),  # type: ignore[misc]
                *("refund", "refund order", "inherited", "secret", "refun*", "own OR refund"),
            )
        ),
        lambda s: s.search("refund", session="b/1"),
        lambda s: s.search("refund", prefix="b/"),
        lambda s: _with_progress(lambda **k: s.search("refund", **k)),
    ],
    "session": _with(lambda s, name: s.session(name), "a/1", *OUTSIDE),
    "sessions": [
        *_with(
            lambda s, order: _pages(s, order=order),
            *("id", "-updated", "created", "-message_count", "title", "-bytes", "-cost", "tokens"),
        ),
        lambda s: s.sessions(where={"user": "u1"}),
        lambda s: s.sessions(since=_NOON),
        lambda s: s.sessions(until=_NOON),
        lambda s: s.sessions(title="refund"),
        lambda s: s.sessions(workspace="/w"),
        lambda s: s.sessions(parent="p/parent"),
        lambda s: s.sessions(prefix="b/"),
        lambda s: s.sessions(prefix=""),
        lambda s: _with_progress(s.sessions),
    ],
    "stats": [
        lambda s: s.stats(),
        lambda s: s.stats(prefix="b/"),
        lambda s: _with_progress(s.stats),
    ],
    "trash": [lambda s: s.trash()],
    "verify": [lambda s: s.verify()],
}

#: Calls of a session.
SESSION: Final[dict[str, list[Question]]] = {
    "add_message": _each(lambda x: x.add_message({"n": 1}, key="k"), lambda x: x.add_message({})),
    "add_messages": _each(lambda x: x.add_messages(say("x", "y"), expected_seq=4)),
    "append": _each(lambda x: x.append("x.todo", {"n": 1}, key="k")),
    "append_all": _each(lambda x: x.append_all([("x.todo", {"n": 1})])),
    "archive": _each(lambda x: x.archive()),
    "children": _each(lambda x: x.children()),
    "clear": _each(lambda x: x.clear()),
    "close": _each(lambda x: x.close()),
    "compact": _each(lambda x: x.compact()),
    "compare": [
        lambda s: s.session("a/1").compare(s.session("a/fork")),
        lambda s: s.session("a/1").compare(s.session("a/kid")),
        lambda s: s.session("a/1").compare(s.session("b/1")),
    ],
    "drop_history": _each(
        lambda x: x.drop_history(3, dry_run=True), lambda x: x.drop_history(3, reason="r")
    ),
    "dump": _each(lambda x: [(record.file, record.offset, record.raw) for record in x.dump()]),
    "events": _each(lambda x: [*x.events()], lambda x: [*x.events(after=2)]),
    "export": _each(
        lambda x: _undated(b"".join(x.export())),
        lambda x: b"".join(x.export("markdown")),
    ),
    "fork": _each(lambda x: x.fork("a/new", at=2), lambda x: x.fork("b/new", at=2)),
    "hold": _each(lambda x: x.hold(), lambda x: x.hold("case 7")),
    "id": _each(lambda x: x.id),
    "messages": _each(
        lambda x: x.messages(), lambda x: x.messages(view="history"), lambda x: x.messages(last=1)
    ),
    "messages_json": _each(lambda x: x.messages_json()),
    "metadata": _each(lambda x: x.metadata),
    "numbered": _each(lambda x: x.numbered()),
    "pairing": _each(lambda x: x.pairing()),
    "parent": _each(lambda x: x.parent),
    "patch_metadata": _each(lambda x: x.patch_metadata({"a": {"b": 1}})),
    "record_usage": _each(lambda x: x.record_usage(model="m", input_tokens=1)),
    "redact": _each(lambda x: x.redact(2)),
    "release": _each(lambda x: x.release(), _released),
    "reopen": _each(lambda x: x.reopen()),
    "repair": _each(lambda x: x.repair()),
    "restore_into": _each(lambda x: x.restore_into([])),
    "revert": _each(lambda x: x.revert(2), lambda x: x.revert("here")),
    "scrub": _each(lambda x: x.scrub("refund")),
    "seq": _each(lambda x: x.seq),
    "set_metadata": _each(lambda x: x.set_metadata(user="u9")),
    "set_title": _each(lambda x: x.set_title("t", automatic=True)),
    "set_workspace": _each(lambda x: x.set_workspace("/v")),
    "share": _each(lambda x: [*x.share()]),
    "transcript": _each(lambda x: x.transcript(1000)),
    "snapshot": _each(lambda x: x.snapshot("there")),
    "snapshots": _each(lambda x: x.snapshots),
    "state": _each(lambda x: x.state(), lambda x: x.state(at=3), lambda x: x.state(at="here")),
    "stream": _each(_streamed),
    "summarize": _each(lambda x: x.summarize(upto=2, message={"role": "user", "content": "sum"})),
    "title": _each(lambda x: x.title),
    "unarchive": _each(lambda x: x.unarchive()),
    "usage": _each(lambda x: x.usage),
    "verify": _each(lambda x: x.verify()),
    "window": _each(lambda x: x.window(messages=2)),
}

#: Methods that are not called, because they close the store.
PASSED_OVER: Final = {"Store.close"}


def _undated(exported: bytes) -> str:
    """Return an export without the time at which it was made, and the checksum of that."""
    lines = [json.loads(line) for line in exported.splitlines()]
    return json.dumps([{k: v for k, v in x.items() if k not in {"exported", "sum"}} for x in lines])


def public() -> dict[str, list[Question]]:
    """Return the calls for each public name of a store and a session; none for other names."""
    return {
        f"{owner.__name__}.{name}": questions.get(name, [])
        for owner, questions in ((hansard.Store, STORE), (hansard.Session, SESSION))
        for name in dir(owner)
        if not name.startswith("_") and f"{owner.__name__}.{name}" not in PASSED_OVER
    }


def plain(value: object, path: str) -> Any:
    """Return an answer without the path of the store, for comparison."""
    text = repr(msgspec.to_builtins(value, enc_hook=_known))
    return re.sub(r"0x[0-9a-f]+|~?\d{8}T\d+", "", text.replace(path, "STORE"))


def _known(value: object) -> object:
    if isinstance(value, hansard.Session):
        return ["session", value.id]
    if hasattr(value, "__dataclass_fields__") or hasattr(value, "_asdict"):
        return vars(value)
    return repr(value)


def answer(store: hansard.Store, question: Question, path: str) -> str:
    """Return the answer of a call, or the error."""
    try:
        return str(plain(question(store.scoped(SCOPE)), path))
    except (hansard.HansardError, ValueError, TypeError) as error:
        return f"{type(error).__name__}: {error}".replace(path, "STORE")


@dataclass
class Asked:
    """All calls of one method, on one backend."""

    backend: str
    name: str

    @property
    def label(self) -> str:
        """Which."""
        return f"{self.name} of {self.backend}"

    def run(self) -> Outcome:
        """Make each call on a new copy of both stores, and compare."""
        questions = public()[self.name]
        if not questions:
            return Outcome(ok=False, label=self.label, detail="no question asks this: add one")
        wrong = []
        for number, question in enumerate(questions):
            much = list(STORES)[2 if self.name in REFUSED_FOR_FORKS else 1]
            one, two = (self._ask(which, question) for which in ("one", much))
            if one != two:
                wrong.append(f"question {number}:\n{_apart(one, two)}")
        return Outcome(ok=not wrong, label=self.label, detail="\n".join(wrong))

    def _ask(self, which: str, question: Question) -> str:
        if self.backend == "memory":
            with small(), hansard.open("memory:") as store:
                common(store)
                STORES[which](store)
                with small():  # from here on, the time is the same in both
                    return answer(store, question, "memory:")
        with tempfile.TemporaryDirectory(prefix="hansard-tenants-") as directory:
            path = Path(directory) / "store"
            shutil.copytree(made() / which, path)
            with small(), opened(path) as store:
                return answer(store, question, str(path))


def _apart(one: str, two: str) -> str:
    """Return where two texts differ."""
    place = next((n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), 0)
    return "\n".join(f"  {text[max(place - 80, 0) : place + 120]}" for text in (one, two))


#: Both ways to make the stores are known before the first case.
prepare = made

ROW = Row(17, "tenants: a scoped store gives the same answers with any sessions outside", 40, 140)


def cases(count: int, rng: random.Random) -> Iterator[Asked]:
    """Yield every method of every backend, or a random sample."""
    every = [Asked(backend, name) for backend in BACKENDS for name in public()]
    yield from every if count >= len(every) else rng.sample(every, count)
