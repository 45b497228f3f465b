"""Every adapter keeps the values that its framework's store keeps, or refuses them before storing anything.

One table of values goes through each adapter, among other values, and through the framework's own store. The
result must equal the given value, or the result of the framework's store.
"""

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

import hansard
from hansard import exporters
from hansard.adapters.langchain import HansardChatMessageHistory
from hansard.adapters.openai_agents import HansardSession
from hansard.message import values
from tests.adapters.table import ADAPTERS, alike, calls, ours


def nested(levels: int) -> Any:
    """Return nested lists and dicts with this many levels."""
    value: Any = "the deepest"
    for level in range(levels):
        value = [value] if level % 2 else {"level": value}
    return value


#: Values that JSON lacks, or that events refuse.
HARD: dict[str, Any] = {
    "int keys": {1: "one", 2: {3: "four"}},
    "int keys that look like texts": {1: "number", "1": "text"},
    "other keys": {True: 1, None: 2, 2.5: 3},
    "infinity": [math.inf, -math.inf],
    "NaN": {"n": math.nan},
    "bytes": {"b": b"\xff\x00", "text": b"YWJj"},
    "half a character": {"text": "half \ud83d", "\udc00": ["\ud800"]},
    "combined": {1: [math.nan, {2: (b"\xff", "\ud800", nested(50))}]},
}
#: JSON values that look like one of the notations.
PLAIN: dict[str, Any] = {
    "marks": {"$map": [[1, 2]], "$bytes": "AA=="},
    "a mark that is alone": {"$float": "nan"},
    "a mark inside": [{"$json": "1"}, {"$map": []}, {"encoded": True}],
    "numbers": [1, True, 1.0, -0.0, 2**70, -(2**70), 1e308],
    "empty": [{}, [], "", None],
    "an empty key": {"": 1, "a/b": 2, "~": 3},
    "text": "a\0b\u2028\x7f",
    "90 levels": nested(90),
}
TABLE = {**HARD, **PLAIN}


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_values_come_back_equal(
    adapter: str, name: str, store: hansard.Store, tmp_path: Path
) -> None:
    """N-64: every adapter returns each value like the framework's own store."""
    given = ["before", TABLE[name], "after"]

    def theirs() -> Any:
        own = calls(adapter)
        return own(own.theirs(tmp_path / "theirs"))

    try:
        found = await ours(adapter, store).keep(given)
    except (TypeError, ValueError):
        with pytest.raises((TypeError, ValueError)):
            await theirs().keep(given)
        assert not store.sessions().items
        return
    if not alike(found, given):
        assert alike(found, await theirs().keep(given))


#: What a call may have stored before it refuses a value, and what never counts.
STORED_BEFORE = {"x.adk.created", "x.adk.intended", "x.adk.settled", "x.strands.session"}

#: LangGraph's deep values are bytes.
REFUSED = [(adapter, levels) for adapter in ADAPTERS for levels in (0, 200, 100_000)]
REFUSED.remove(("langgraph", 200))


@pytest.mark.parametrize(("adapter", "levels"), REFUSED)
async def test_invalid_values_are_refused_before_anything_is_stored(
    adapter: str, levels: int, store: hansard.Store
) -> None:
    """N-64: an object, and a value that is too deep, is refused with all values of the call."""
    wrong = nested(levels) if levels else object()
    with pytest.raises((TypeError, ValueError, RecursionError)):
        await ours(adapter, store).keep(["before", wrong, "after"])
    stored = {
        event.kind
        for info in store.sessions().items
        for event in store.session(info.id).events()
        if not event.kind.startswith("session.")
    }
    assert stored <= STORED_BEFORE


async def test_a_deep_value_of_langgraph_comes_back(store: hansard.Store) -> None:
    """N-64: a value of 200 levels is stored as its bytes, and comes back equal."""
    assert alike(await ours("langgraph", store).keep([nested(200)]), [nested(200)])


def test_values_that_json_lacks_can_be_exported(store: hansard.Store) -> None:
    """An export in another program's format shows values that the format lacks."""
    item: Any = {"role": "user", "content": "half \ud83d", "more": {1: [math.nan, b"\xff"]}}
    asyncio.run(HansardSession("s", store).add_items([item]))
    for kind in ("openai-items", "codex", "claude-code"):
        assert b"half ?" in b"".join(exporters.export(store.session("s"), kind))


@pytest.mark.parametrize("name", TABLE)
def test_the_notation_is_json_that_comes_back(name: str) -> None:
    """Each value comes back with its types from JSON that an event can hold."""
    value = TABLE[name]
    told = values.to_json(value)
    assert values.is_json(told)
    assert alike(values.from_json(json.loads(json.dumps(told))), value)
    assert values.is_json(values.readable(value))


def test_a_text_stays_a_text_that_can_be_found(store: hansard.Store) -> None:
    """Strings in the notation can be searched and scrubbed."""
    history = HansardChatMessageHistory("s", store)
    history.add_messages(
        [HumanMessage("my half \ud83d password", additional_kwargs={1: "my password"})]
    )
    session = store.session("s")
    assert [hit.session for hit in store.search("password")] == ["s"]
    session.scrub("password")
    assert "password" not in json.dumps([event.data for event in session.events()])
    with pytest.raises(hansard.InvalidEvent, match="type object"):
        values.to_json({"a": [object()]})
