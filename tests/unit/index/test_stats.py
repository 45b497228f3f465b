"""`store.stats`: sizes, usage and calls of tools. `test_listing` compares it with counting every event."""

from pathlib import Path

import hansard
from hansard import Store


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
