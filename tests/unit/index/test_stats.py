"""`store.stats` agrees with counting every event, after any history."""

import random
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest

import hansard
from hansard import Store, Usage
from hansard.index import DayStats, StoreStats
from tests.unit.disk_probe import index_of
from tests.unit.index import reference_listing
from tests.unit.index.random_store import RandomStore


def counted(store: Store) -> StoreStats:
    """Count every event of every session, without `raw_bytes`."""
    infos = reference_listing.everything(store)
    readable = [info for info in infos if not info.damaged]
    days: dict[str, Counter[str]] = {}
    models: dict[str, Usage] = {}
    for info in readable:
        days.setdefault(info.created_stamp[:10], Counter())["sessions"] += 1
        for event in reference_listing.own_events(store.session(info.id)):
            day = days.setdefault(event.stamp[:10], Counter())
            day["events"] += 1
            day["messages"] += event.kind == "message.added"
            if event.kind == "usage.recorded" and "model" in event.data:
                names = ("input_tokens", "output_tokens")
                day["tokens"] += sum(event.data.get(name, 0) for name in names)
                add(models, event)
    return StoreStats(
        sessions=len(infos),
        archived=sum(info.archived for info in readable),
        damaged=len(infos) - len(readable),
        forks=sum(reference_listing.parent_of(store, info.id) is not None for info in infos),
        events=sum(day["events"] for day in days.values()),
        messages=sum(day["messages"] for day in days.values()),
        bytes=sum(info.bytes for info in readable),
        days={day: DayStats(**count) for day, count in sorted(days.items())},
        models=dict(sorted(models.items())),
        workspaces=dict(
            sorted(Counter(info.workspace for info in readable if info.workspace).items())
        ),
    )


def add(models: dict[str, Usage], event: hansard.Event) -> None:
    """Add one call of a model."""
    data = event.data
    used = models.get(data["model"], Usage())
    models[data["model"]] = Usage(
        used.calls + 1,
        used.input_tokens + data.get("input_tokens", 0),
        used.output_tokens + data.get("output_tokens", 0),
        cost=used.cost + Decimal(data.get("cost") or 0),
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "os"])
def test_stats_agree_with_the_events(kind: str, tmp_path: Path, rng: random.Random) -> None:
    """After random calls, each event counts once, in the store and in a scoped store."""
    root = tmp_path / "store"
    with hansard.open("memory:" if kind == "memory" else root, durability="os") as store:
        assert store.stats() == StoreStats()
        assert store.stats().compression == 1.0
        busy = RandomStore(store, rng, [tmp_path])
        for turn in range(12):
            busy.do(rng.choice([1, 1, 2, 15]))
            for part in (store, store.scoped("a/")):
                found = part.stats()
                expected = counted(part)
                assert same(found, expected)
            some = store.stats(prefix="b/")
            assert some.sessions == store.count(prefix="b/")
            if kind == "os" and turn % 5 == 3:
                index_of(root).unlink()
        with hansard.open("memory:" if kind == "memory" else root, read_only=True) as reader:
            assert kind == "memory" or same(reader.stats(), counted(reader))


def same(found: StoreStats, expected: StoreStats) -> bool:
    """Compare two results, without `raw_bytes`."""
    names = [name for name in StoreStats.__struct_fields__ if name != "raw_bytes"]
    for name in names:
        assert getattr(found, name) == getattr(expected, name), name
    return found.raw_bytes >= 0


def test_compaction_does_not_change_raw_bytes(tmp_path: Path) -> None:
    """Compaction reduces `bytes`; `raw_bytes`, the size without compression, stays."""
    with hansard.open(tmp_path / "store", durability="os", auto_compact=False) as store:
        for number in range(3):
            session = store.session(f"s{number}")
            session.add_messages([{"role": "user", "content": "the same again " * 10}] * 2000)
        before = store.stats()
        assert (
            before.bytes
            == before.raw_bytes
            == sum(
                path.stat().st_size for path in (tmp_path / "store").glob("sessions/*/log.jsonl")
            )
        )
        assert before.compression == 1.0
        store.compact()
        after = store.stats()
        assert after.bytes < before.bytes / 5
        # A few bytes more: each segment has a header.
        assert before.raw_bytes <= after.raw_bytes < before.raw_bytes + 3 * 4096
        assert after.compression == after.raw_bytes / after.bytes > 5
        assert (after.events, after.messages) == (before.events, before.messages) == (6000, 6000)
        assert after.days == before.days


def test_scrubbed_usage_leaves_the_totals(store: Store) -> None:
    """Usage that was counted before it was scrubbed is counted again, without the scrubbed name."""
    session = store.session("s")
    session.record_usage(model="secret-model", input_tokens=5)
    session.record_usage(model="m", input_tokens=7)
    assert set(store.stats().models) == {"m", "secret-model"}
    session.scrub("secret-model")
    assert "secret-model" not in store.stats().models
    assert store.stats().models["m"].input_tokens == 7


def test_calls_and_failures_are_counted_by_tool(store: Store) -> None:
    """Calls of each framework count once, failed results too, also when a session has grown since."""
    session = store.session("s")
    call = {"id": "c", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    session.add_messages(
        [
            {"role": "user", "content": "no call, only the word function"},
            {"role": "assistant", "content": None, "tool_calls": [call, {**call, "id": "d"}]},
            {"role": "tool", "tool_call_id": "c", "content": "found"},
            {"role": "tool", "tool_call_id": "d", "content": "timeout", "status": "error"},
        ]
    )
    assert store.stats().tools == {"find": (2, 1)}
    used = {"type": "tool_use", "id": "e", "name": "read", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "e", "content": "no file", "is_error": True}
    bedrock = {"toolResult": {"toolUseId": "f", "status": "error", "content": [{"text": "no"}]}}
    session.add_messages(
        [
            {"role": "assistant", "content": [{"type": "text", "text": "So:"}, used]},
            {"role": "user", "content": [{"type": "text", "text": "Here:"}, result]},
            {"role": "assistant", "content": [{"toolUse": {"toolUseId": "f", "name": "ask", "input": {}}}]},
            {"role": "user", "content": [bedrock]},
            {"kind": "response", "parts": [
                {"part_kind": "tool-call", "tool_name": "add", "tool_call_id": "g"}]},
            {"kind": "request", "parts": [
                {"part_kind": "retry-prompt", "tool_name": "add", "tool_call_id": "g", "content": "x"}]},
            {"role": "tool", "content": 7, "tool_calls": 3, "message": "tool"},
        ]
    )  # fmt: skip
    assert store.stats().tools == {"add": (1, 1), "ask": (1, 1), "find": (2, 1), "read": (1, 1)}
    late = {"role": "tool", "tool_call_id": "h", "content": "no", "status": "error"}
    for message in ({"role": "assistant", "tool_calls": [{**call, "id": "h"}]}, late):
        session.add_message(message)
        tools = store.stats().tools
    assert tools["find"] == (3, 2)
    assert "" not in tools
    store.session("s").record_usage(model="m", input_tokens=5, output_tokens=2)
    assert [day.tokens for day in store.stats().days.values()] == [7]
