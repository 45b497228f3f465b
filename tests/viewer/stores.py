"""A store with all that the pages show, and texts that attack them."""

import base64
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from unittest import mock

import hansard

#: A credential, in the form of a vendor.
SECRET = "sk-ant-api03-" + "A1b2C3d4" * 12

#: Texts that try to run, load or hide something.
HOSTILE = [
    "<script>window.broken = 1</script><img src=x onerror='window.broken = 1'>",
    "[a](javascript:window.broken=1) [b](data:text/html,<script>1</script>) <javascript:alert(1)>",
    "![spy](https://evil.example/a.png) ![spy](//evil.example/b.png)",
    "<svg onload='window.broken = 1'><style>body{display:none}</style>",
    "\u202egnp.exe\u2066 \x1b]0;title\x07\x1b[2J ",
    "| a |\n|:-:|\n| <b onclick='window.broken=1'>b</b> |",
    '```"><script>window.broken=1</script>\nx\n```',
    "{{ 7 * 7 }} {% raw %} </article></main></body></html>",
]

#: Ids that are paths, markup or parameters.
IDS = [
    "../../etc/passwd", '"><script>window.broken=1</script>', "a?b=c&d=e#f", "%2e%2e%2f", "a b\u00e9",
]  # fmt: skip


def picture() -> str:
    """Return a picture of 40 × 20 pixels as base64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + checksum

    rows = b"".join(b"\0" + bytes((40 + 5 * y, 120, 200 - 4 * y)) * 40 for y in range(20))
    head = struct.pack(">IIBBBBB", 40, 20, 8, 2, 0, 0, 0)
    data = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + data).decode()


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    """Return a message."""
    return {"role": role, "content": content, **more}


def call(id: str, name: str = "shell", arguments: str = "{}") -> dict[str, Any]:
    """Return a call of a tool."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _clock() -> Iterator[int]:
    """Yield times that pass unevenly: some seconds, and half an hour before the thanks."""
    now = 1_790_000_000_000_000_000
    while True:
        for seconds in (0.4, 1.2, 2.5, 7.3, 0.9, 3.1, 0.2, 0.2, 4.8, 0.2, 1900, 30):
            now += int(seconds * 1e9)
            yield now


def fill(store: hansard.Store) -> None:
    """Add sessions of some days in September 2026 to a store."""
    clock = SimpleNamespace(time_ns=_clock().__next__, strftime=time.strftime, gmtime=time.gmtime)
    with mock.patch("hansard.log.format.clock", clock):
        _fill(store)


def _fill(store: hansard.Store) -> None:
    """Add a conversation with tools, a fork, a subagent, a plan, an attack."""
    session = store.create(
        "support/42", metadata={"title": "Refund for order 1042", "user": "u7", "model": "large-2"}
    )
    session.add_message(said("system", "You help customers of a shop. Be brief."))
    question = "Where is my refund for order **1042**? I sent the shoes back last week."
    session.add_message(said("user", question))
    calls = [
        call("c1", "find_order", '{"query": "order 1042", "limit": 5}'),
        call("c2", "read_file", '{"path": "policies/refunds.md"}'),
    ]
    thought = "The order first, then the policy."
    session.add_message(said("assistant", None, reasoning_content=thought, tool_calls=calls))
    order = '{"order": 1042, "state": "returned", "days": 6}'
    session.add_message(said("tool", order, tool_call_id="c1"))
    policy = "# Refunds\n\nWithin **ten days** of the return."
    session.add_message(said("tool", policy, tool_call_id="c2"))
    session.record_usage(model="large-2", input_tokens=1840, output_tokens=96, cost=0.0041)
    session.snapshot("looked up")
    answer = (
        "Your return arrived on Monday. The refund takes up to **ten days**:\n\n"
        "| step | state |\n| --- | --- |\n| return | done |\n| refund | by Friday |\n\n"
        "```python\ndue = arrived + timedelta(days=10)  # see policies/refunds.md\n```\n\n"
        "See [the policy](https://example.org/refunds)."
    )
    session.add_message(said("assistant", answer))
    session.record_usage(model="large-2", input_tokens=2210, output_tokens=240, cost=0.0065)
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture()}"}}
    thanks = {"type": "text", "text": "Thanks! This is the label:"}
    session.add_message(said("user", [thanks, image]))
    session.append("x.note", {"text": "A **polite** customer.", "seq": 11})
    helper = store.create("support/42/agent-1", metadata={"title": "Ask the warehouse"})
    helper.add_message(said("user", "Has the warehouse sent 1042 on?"))
    helper.add_message(said("assistant", "It is packed."))
    fork = session.fork("support/42-b")
    fork.set_metadata(title="Refund for order 1042, second try")
    fork.add_message(said("assistant", "I have asked the warehouse."))
    session.add_message(said("assistant", f"Keep this: {SECRET}"))
    session.record_usage(model="small-1", input_tokens=300, output_tokens=20)
    plan = store.create("plans/launch", metadata={"title": "Plan of the launch in spring"})
    for number in range(70):
        plan.add_message(said("user", f"Question {number} of the launch"))
        plan.add_message(said("assistant", f"Answer {number}"))
    attack = store.create("attack", metadata={"title": HOSTILE[0], "</script>": HOSTILE[4]})
    for text in HOSTILE:
        attack.add_message(said("user", text))
        attack.add_message(said("assistant", [{"type": text[:20], "text": "x"}]))
    words = store.create(
        "words", metadata={"title": "T" * 200, "model": "m" * 90, "k" * 60: "v" * 300}
    )
    words.add_message(said("user", "w" * 900 + f"\n\n# {'H' * 90}\n\n`{'c' * 300}`"))
    edit = {"file_path": f"/{'d' * 200}/a.py", "text": "line\n" * 90}
    use = {"type": "tool_use", "id": "w1", "name": "t" * 90, "input": edit}
    words.add_message(said("assistant", [use]))
    failure = {"type": "tool_result", "tool_use_id": "w1", "content": "r" * 900, "is_error": True}
    words.add_message(said("user", [failure]))
    words.record_usage(model="m" * 90, input_tokens=12_345_678, output_tokens=999_999, cost=12.5)
    for id in IDS:
        with suppress(hansard.InvalidSessionId):
            store.session(id).add_message(said(HOSTILE[0], "an id"))
