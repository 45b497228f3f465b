"""The async API has the names of the sync one, with the same parameters, results and docstrings."""

import inspect
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, assert_type

import pytest

import hansard
from hansard import aio

TWINS: dict[type, type] = {
    hansard.Store: aio.Store,
    hansard.Session: aio.Session,
    hansard.Stream: aio.Stream,
    hansard.Follower: aio.Follower,
}

# Not awaited, because they use no disk: handles, iterators and context managers.
PLAIN = {
    "Store": {"session", "scoped", "follow", "audit"},
    "Session": {"stream", "events", "dump", "export", "share"},
}

# Known without awaiting.
KNOWN = {"Session": {"id"}, "Stream": {"id", "text", "event", "message"}}

# The special methods that become another one.
SPECIAL = {
    "__enter__": "__aenter__",
    "__exit__": "__aexit__",
    "__iter__": "__aiter__",
    "__next__": "__anext__",
}


def public(cls: type) -> set[str]:
    """Return the public names of a class."""
    return {name for name in dir(cls) if not name.startswith("_")}


def shape(call: Callable[..., Any]) -> list[tuple[object, ...]]:
    """Return the parameters of a call: names, kinds, defaults and types."""
    return [
        (parameter.name, parameter.kind, parameter.default, str(parameter.annotation))
        for parameter in inspect.signature(call).parameters.values()
    ]


def returned(call: Callable[..., Any]) -> str:
    """Return the type of a call's result by name: a session is one of the same side."""
    said = inspect.formatannotation(inspect.signature(call).return_annotation)
    return re.sub(r"[\w.]*\.", "", said).strip("'")


@pytest.mark.parametrize("cls", TWINS, ids=lambda cls: cls.__name__)
def test_a_class_and_its_twin_have_the_same_names_and_parameters(cls: type) -> None:
    """N-75: no name is missing or extra; a method is a coroutine unless it touches nothing."""
    assert public(TWINS[cls]) == public(cls)
    for special, other in SPECIAL.items():
        assert hasattr(cls, special) == hasattr(TWINS[cls], other), other
    for name in public(cls):
        ours = inspect.getattr_static(cls, name)
        twin = inspect.getattr_static(TWINS[cls], name)
        if inspect.isfunction(ours):
            plain = name in PLAIN.get(cls.__name__, ())
            assert shape(twin) == shape(ours), name
            assert inspect.iscoroutinefunction(twin) == (not plain), name
            assert plain or returned(twin) == returned(ours), name
            assert twin.__doc__, name
        else:
            awaited = isinstance(twin, property) and "Coroutine" in str(
                inspect.signature(twin.fget).return_annotation  # type: ignore[arg-type]
            )
            assert awaited == (name not in KNOWN.get(cls.__name__, ())), name


def test_open_takes_the_same() -> None:
    """N-75: `hansard.aio.open` has the parameters of `hansard.open`, and refuses others immediately."""
    assert shape(aio.open) == shape(hansard.open)
    with pytest.raises(TypeError, match="unexpected keyword argument 'color'"):
        aio.open("data", color="red")  # type: ignore[call-arg]


async def types_are_exact(store: aio.Store, session: aio.Session) -> None:
    """Type checkers see the parameters and results of the sync methods. Checked by mypy, never called."""
    event = await assert_type(
        session.add_message({"role": "user"}, key="k", expected_seq=1),
        Coroutine[Any, Any, hansard.Event],
    )
    assert_type(event, hansard.Event)
    assert_type(await session.add_messages([]), list[hansard.Event])
    assert_type(await session.set_title("t", automatic=True), hansard.Event | None)
    assert_type(await session.messages(last=1), list[dict[str, Any]])
    assert_type(await session.seq, int)
    assert_type(await session.title, str | None)
    assert_type(await session.fork("child", at=3), aio.Session)
    assert_type(session.export("jsonl", redacted=False), AsyncIterator[bytes])
    assert_type(session.stream(role="user", name="bot"), aio.Stream)
    assert_type(await store.create("s", metadata={}), aio.Session)
    assert_type(await store.latest(prefix="a"), aio.Session | None)
    assert_type(store.follow(cursor="mine"), aio.Follower)
    assert_type(store.audit(), AsyncIterator[hansard.Event])
    assert_type(aio.open("data", read_only=True), aio.Opening)
    await session.add_message("hello")  # type: ignore[arg-type]
    await session.add_message({}, keys="k")  # type: ignore[call-arg]
    await session.messages(view="all")  # type: ignore[arg-type]
    await session.set_title()  # type: ignore[call-arg]
    await aio.Session.clear()  # type: ignore[call-arg]
