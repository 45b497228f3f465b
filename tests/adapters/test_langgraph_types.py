"""Stored values of LangGraph can create only allowed types."""

import asyncio
import base64
import dataclasses
import datetime as dt
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

import ormsgpack
import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer, _msgpack_ext_hook_to_json
from langgraph.graph import END, START, StateGraph

import hansard
from hansard.adapters.langgraph import HansardSaver
from hansard.message import langgraph_values as values

AT: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
MARKER = "called.marker"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[hansard.Store]:
    """Return a store; the marker that a hostile value would create is next to it."""
    before = Path.cwd()
    os.chdir(tmp_path)
    with hansard.open("data", durability="os") as opened:
        yield opened
    os.chdir(before)
    assert not (tmp_path / MARKER).exists(), "what a stored value names was called"


def ext(code: int, *told: Any) -> tuple[str, bytes]:
    """Return a value of LangGraph that names something to call."""
    return "msgpack", ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(told)))


def constructor(version: Any, *path: str, **more: Any) -> tuple[str, bytes]:
    """Return the same in the older notation, which is JSON."""
    told = {"lc": version, "type": "constructor", "id": list(path), **more}
    return "json", json.dumps({"nested": [told]}).encode()


TOUCH = f"touch {MARKER}"
SYSTEM = ext(0, "os", "system", TOUCH)
INSIDE = ext(7, ormsgpack.Ext(0, ormsgpack.packb(("os", "system", TOUCH))))
KEYWORDS = {"args": [TOUCH], "shell": True}
HOSTILE = {
    "one argument": (SYSTEM, "os.system"),
    "arguments": (ext(1, "os", "system", [TOUCH]), "os.system"),
    "keywords": (ext(2, "subprocess", "call", KEYWORDS), "subprocess.call"),
    "a method": (ext(3, "pathlib", "Path", MARKER, "touch"), "pathlib.Path.touch"),
    "a pydantic model, version 1": (ext(4, "subprocess", "call", KEYWORDS), "subprocess.call"),
    "a pydantic model, version 2": (ext(5, "subprocess", "call", KEYWORDS), "subprocess.call"),
    "inside of a delta snapshot": (INSIDE, "os.system"),
    "inside of an allowed type": (
        ext(0, "builtins", "set", [ormsgpack.Ext(0, ormsgpack.packb(("os", "system", TOUCH)))]),
        "os.system",
    ),
    "named by what is created": (
        ext(0, ormsgpack.Ext(0, ormsgpack.packb(("builtins", "str", "os"))), "system", TOUCH),
        "builtins.str",
    ),
    "unreadable": (("msgpack", ormsgpack.packb(ormsgpack.Ext(0, b"\xc1"))), "unreadable extension"),
    "JSON": (constructor(2, "os", "system", args=[TOUCH]), "os.system"),
    "JSON of LangChain's": (
        constructor(1, "langchain_core", "prompts", "prompt", "PromptTemplate", kwargs={}),
        "langchain_core.prompts.prompt.PromptTemplate",
    ),
    "JSON whose version is created": (
        constructor({"lc": 2, "type": "constructor", "id": ["decimal", "Decimal"]}, "os", "system"),
        "decimal",
    ),
}


def append_hostile(store: hansard.Store, where: str, given: tuple[str, bytes]) -> None:
    """Add a value to a thread, as another writer of its files could."""
    HansardSaver(store).put(AT, empty_checkpoint(), {"source": "input", "step": 0}, {})
    session = store.session("t")
    (event,) = (event for event in session.events() if event.kind == "x.langgraph.checkpoint")
    packed = values.pack(given)
    assert values.unpack(packed) == given
    # "bytes": the form of values that JSON cannot represent.
    raw = {"type": given[0], "base64": base64.b64encode(given[1]).decode()}
    held = {"value": packed, "item": {"list": [packed]}, "bytes": raw}
    told: dict[str, Any] = {**event.data, "id": "z" * 8}
    if where == "write":
        place = {"ns": "", "checkpoint": event.data["id"], "task": "task", "path": ""}
        session.append("x.langgraph.writes", {**place, "writes": [[0, "x", packed]]})
        return
    told |= (
        {"versions": {"x": "1"}, "values": {"x": held[where]}} if where in held else {where: packed}
    )
    session.append("x.langgraph.checkpoint", told)


@pytest.mark.parametrize("case", HOSTILE)
def test_no_stored_value_calls_a_name(store: hansard.Store, case: str) -> None:
    """Every notation that makes LangGraph call a name raises an error with that name."""
    given, named = HOSTILE[case]
    append_hostile(store, "value", given)
    with pytest.raises(hansard.HansardError, match="not allowed") as caught:
        HansardSaver(store).get_tuple(AT)
    assert named in str(caught.value)


@pytest.mark.parametrize("where", ["value", "item", "bytes", "write", "checkpoint", "metadata"])
def test_each_place_of_a_thread_is_guarded(store: hansard.Store, where: str) -> None:
    """Every call checks values, lists, writes, the checkpoint and its metadata."""
    append_hostile(store, where, SYSTEM)
    saver = HansardSaver(store)
    with pytest.raises(hansard.HansardError, match=r"os\.system"):
        saver.get_tuple(AT)
    with pytest.raises(hansard.HansardError, match=r"os\.system"):
        list(saver.list(None))
    with pytest.raises(hansard.HansardError, match=r"os\.system"):
        asyncio.run(saver.aget_tuple(AT))
    if where in {"value", "item", "bytes"}:
        latest: Any = {"configurable": {**AT["configurable"], "checkpoint_id": "z" * 8}}
        child = {**empty_checkpoint(), "id": "z" * 9, "channel_versions": {}}
        saver.put(latest, child, {"source": "loop", "step": 1}, {})  # type: ignore[arg-type]
        with pytest.raises(hansard.HansardError, match=r"os\.system"):
            saver.get_delta_channel_history(config=AT, channels=["x"])


@pytest.mark.parametrize(
    "serde",
    [
        JsonPlusSerializer(),
        JsonPlusSerializer(allowed_msgpack_modules=True),
        EncryptedSerializer(None, JsonPlusSerializer()),  # type: ignore[arg-type]
    ],
    ids=["LangGraph's default", "everything", "encrypted"],
)
def test_a_given_serializer_is_guarded_as_well(store: hansard.Store, serde: Any) -> None:
    """A serializer that allows everything is limited, also inside one that encrypts."""
    append_hostile(store, "value", SYSTEM)
    with pytest.raises(hansard.HansardError, match=r"os\.system"):
        HansardSaver(store, serde=serde).get_tuple(AT)


def test_a_serializer_that_runs_what_it_reads_is_refused(store: hansard.Store) -> None:
    """The saver refuses serializers that read pickles or any JSON type; a stored pickle is not read."""
    with pytest.raises(ValueError, match="pickle_fallback"):
        HansardSaver(store, serde=JsonPlusSerializer(pickle_fallback=True))
    with pytest.raises(ValueError, match="allowed_json_modules"):
        HansardSaver(store, serde=JsonPlusSerializer(allowed_json_modules=True))
    with pytest.raises(TypeError, match="module and name"):
        HansardSaver(store, allow=["os.system"])  # type: ignore[list-item]
    append_hostile(store, "value", ("pickle", b"cos\nsystem\n(S'touch called.marker'\ntR."))
    with pytest.raises(NotImplementedError, match="pickle"):
        HansardSaver(store).get_tuple(AT)


@dataclasses.dataclass
class Order:
    """An application's type."""

    number: int


class State(TypedDict):
    """A state with an application's type."""

    order: Order
    since: dt.datetime


def ordering(saver: HansardSaver) -> Any:
    """Return a graph whose state has an application's type."""
    builder = StateGraph(State)
    builder.add_node("count", lambda state: {"order": Order(state["order"].number + 1)})
    builder.add_edge(START, "count")
    builder.add_edge("count", END)
    return builder.compile(checkpointer=saver)


def test_an_application_adds_its_own_types(store: hansard.Store) -> None:
    """A type that is not allowed is refused before it is stored; an allowed one comes back."""
    began = {"order": Order(1), "since": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}
    with pytest.raises(hansard.HansardError, match="Order") as caught:
        ordering(HansardSaver(store)).invoke(began, AT, durability="sync")
    assert f"allow=[('{__name__}', 'Order')]" in str(caught.value)
    kinds = {event.kind for event in store.session("t").events()}
    assert "x.langgraph.writes" not in kinds
    for allowed in ([Order], [(__name__, "Order")]):
        saver = HansardSaver(store, allow=allowed)
        ordering(saver).invoke(began, AT)
        again = ordering(HansardSaver(store, allow=allowed))
        assert again.get_state(AT).values == {**began, "order": Order(2)}
    # LangGraph's strict mode adds the types of a graph's state in this way.
    saver = HansardSaver(store).with_allowlist({(__name__, "Order")})
    assert ordering(saver).get_state(AT).values == {**began, "order": Order(2)}
    listed = JsonPlusSerializer(allowed_msgpack_modules=[Order])
    assert ordering(HansardSaver(store, serde=listed)).get_state(AT).values["order"] == Order(2)
    with pytest.raises(hansard.HansardError, match="Order"):
        ordering(HansardSaver(store)).get_state(AT)


def test_messages_in_the_older_notation_are_read(store: hansard.Store) -> None:
    """Imported checkpoints of older versions, which are JSON with LangChain's messages, are read."""
    given = constructor(
        1, "langchain", "schema", "messages", "HumanMessage", kwargs={"content": "hi"}
    )
    append_hostile(store, "value", given)
    found = HansardSaver(store).get_tuple(AT)
    assert found is not None
    assert found.checkpoint["channel_values"]["x"] == {"nested": [HumanMessage("hi")]}


def test_a_hook_of_the_application_decides_itself(store: hansard.Store) -> None:
    """A serializer with a hook is the application's code: the hook decides what it creates."""
    append_hostile(store, "value", ext(0, "somewhere", "Something", "its argument"))
    serde = JsonPlusSerializer(__unpack_ext_hook__=_msgpack_ext_hook_to_json)
    found = HansardSaver(store, serde=serde).get_tuple(AT)
    assert found is not None
    assert found.checkpoint["channel_values"]["x"] == "its argument"
