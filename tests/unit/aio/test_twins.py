"""The async API has the names of the sync one, with the same parameters: none is missing, none drifts."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

import hansard
import hansard.follow
import hansard.stream
from hansard import aio

TWINS: dict[type, type] = {
    hansard.Store: aio.Store,
    hansard.Session: aio.Session,
    hansard.stream.Stream: aio.Stream,
    hansard.follow.Follower: aio.Follower,
}

# What is not awaited, because it touches nothing: handles, and what is iterated or entered later.
PLAIN = {
    (hansard.Store, "session"),
    (hansard.Store, "scoped"),
    (hansard.Store, "follow"),
    (hansard.Store, "audit"),
    (hansard.Session, "stream"),
    (hansard.Session, "events"),
    (hansard.Session, "dump"),
    (hansard.Session, "export"),
    (hansard.Session, "share"),
}

# What is known without asking anybody.
KNOWN = {
    (hansard.Session, "id"),
    (hansard.stream.Stream, "id"),
    (hansard.stream.Stream, "text"),
    (hansard.stream.Stream, "event"),
}

# The special methods that become another one.
SPECIAL = {
    "__enter__": "__aenter__",
    "__exit__": "__aexit__",
    "__iter__": "__aiter__",
    "__next__": "__anext__",
}

MEMBERS = [(cls, name) for cls in TWINS for name in dir(cls) if not name.startswith("_")]


def shape(call: Callable[..., Any]) -> list[tuple[object, ...]]:
    """Return the parameters of a call: names, kinds, defaults and types."""
    return [
        (parameter.name, parameter.kind, parameter.default, str(parameter.annotation))
        for parameter in inspect.signature(call).parameters.values()
    ]


def returned(call: Callable[..., Any]) -> str:
    """Return the type of what a call returns, in words: a session is one of the same side."""
    said = inspect.formatannotation(inspect.signature(call).return_annotation)
    return re.sub(r"[\w.]*\.", "", said).strip("'")


@pytest.mark.parametrize(
    ("cls", "name"), MEMBERS, ids=lambda value: getattr(value, "__name__", value)
)
def test_every_public_name_has_its_twin(cls: type, name: str) -> None:
    """N-75: every method has an async twin with the same parameters, and every property is awaited."""
    ours = inspect.getattr_static(cls, name)
    twin = inspect.getattr_static(TWINS[cls], name, None)
    assert twin is not None, f"hansard.aio.{TWINS[cls].__name__} has no {name}"
    if not inspect.isfunction(ours):
        assert not inspect.isfunction(twin)
        awaited = isinstance(twin, property) and str(
            inspect.signature(twin.fget).return_annotation  # type: ignore[arg-type]
        ).startswith("collections.abc.Awaitable[")
        assert awaited == ((cls, name) not in KNOWN)
        return
    assert shape(twin) == shape(ours)
    assert inspect.iscoroutinefunction(twin) == ((cls, name) not in PLAIN)
    if (cls, name) not in PLAIN:
        assert returned(twin) == returned(ours)
    assert twin.__doc__, f"{name} has no docstring"


@pytest.mark.parametrize("cls", TWINS, ids=lambda cls: cls.__name__)
def test_no_twin_has_a_name_of_its_own(cls: type) -> None:
    """N-75: what is not in the sync API is not in the async one, and what can be entered can be there."""
    public = {name for name in dir(TWINS[cls]) if not name.startswith("_")}
    assert public <= {name for name in dir(cls) if not name.startswith("_")}
    for plain, awaited in SPECIAL.items():
        assert hasattr(cls, plain) == hasattr(TWINS[cls], awaited), awaited


def test_open_takes_the_same() -> None:
    """N-75: `hansard.aio.open` takes what `hansard.open` takes."""
    assert shape(aio.open) == shape(hansard.open)
