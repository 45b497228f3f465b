"""A store with all that the pages show, and texts that attack them."""

import base64
import struct
import time
import zlib
from collections.abc import Iterator
from types import SimpleNamespace
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
    "\u202egnp.exe\u2066 \x1b]0;title\x07\x1b[2J \ud800",
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
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = b"".join(
        b"\0" + bytes((40 + 5 * x, 120, 200 - 4 * y) * 1)[:3] * 40 for y in range(20) for x in [y]
    )
    head = struct.pack(">IIBBBBB", 40, 20, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head)
    data += chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return base64.b64encode(data).decode()


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
    session.add_message({"role": "system", "content": "You help customers of a shop. Be brief."})
    session.add_message(
        {
            "role": "user",
            "content": "Where is my refund for order **1042**? I sent the shoes back last week.",
        }
    )
    order, policy = '{"query": "order 1042", "limit": 5}', '{"path": "policies/refunds.md"}'
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "find_order", "arguments": order}},
        {"id": "c2", "type": "function", "function": {"name": "read_file", "arguments": policy}},
    ]
    session.add_message(
        {
            "role": "assistant",
            "reasoning_content": "The order first, then the policy.",
            "content": None,
            "tool_calls": calls,
        }
    )
    session.add_message(
        {
            "role": "tool",
            "tool_call_id": "c1",
            "content": '{"order": 1042, "state": "returned", "days": 6}',
        }
    )
    session.add_message(
        {
            "role": "tool",
            "tool_call_id": "c2",
            "content": "# Refunds\n\nWithin **ten days** of the return.",
        }
    )
    session.record_usage(model="large-2", input_tokens=1840, output_tokens=96, cost=0.0041)
    session.snapshot("looked up")
    session.add_message(
        {
            "role": "assistant",
            "content": "Your return arrived on Monday. The refund takes up to **ten days**:\n\n"
            "| step | state |\n| --- | --- |\n| return | done |\n| refund | by Friday |\n\n"
            "```python\ndue = arrived + timedelta(days=10)  # see policies/refunds.md\n```\n\n"
            "See [the policy](https://example.org/refunds).",
        }
    )
    session.record_usage(model="large-2", input_tokens=2210, output_tokens=240, cost=0.0065)
    session.add_message(
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "Thanks! This is the label:"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture()}"}},
            ],
        }
    )
    session.append("x.note", {"text": "A **polite** customer.", "seq": 11})
    helper = store.create("support/42/agent-1", metadata={"title": "Ask the warehouse"})
    helper.add_message({"role": "user", "content": "Has the warehouse sent 1042 on?"})
    helper.add_message({"role": "assistant", "content": "It is packed."})
    fork = session.fork("support/42-b")
    fork.set_metadata(title="Refund for order 1042, second try")
    fork.add_message({"role": "assistant", "content": "I have asked the warehouse."})
    session.add_message({"role": "assistant", "content": f"Keep this: {SECRET}"})
    session.record_usage(model="small-1", input_tokens=300, output_tokens=20)
    plan = store.create("plans/launch", metadata={"title": "Plan of the launch in spring"})
    for number in range(70):
        plan.add_message({"role": "user", "content": f"Question {number} of the launch"})
        plan.add_message({"role": "assistant", "content": f"Answer {number}"})
    attack = store.create("attack", metadata={"title": HOSTILE[0], "</script>": HOSTILE[4][:-2]})
    for text in HOSTILE:
        attack.add_message({"role": "user", "content": text.replace("\ud800", "")})
        attack.add_message(
            {
                "role": "assistant",
                "content": [{"type": text[:20].replace("\ud800", ""), "text": "x"}],
            }
        )
    words = store.create(
        "words", metadata={"title": "T" * 200, "model": "m" * 90, "k" * 60: "v" * 300}
    )
    words.add_message({"role": "user", "content": "w" * 900 + f"\n\n# {'H' * 90}\n\n`{'c' * 300}`"})
    edit = {"file_path": f"/{'d' * 200}/a.py", "text": "line\n" * 90}
    words.add_message(
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "w1", "name": "t" * 90, "input": edit}],
        }
    )
    failure = {"type": "tool_result", "tool_use_id": "w1", "content": "r" * 900, "is_error": True}
    words.add_message({"role": "user", "content": [failure]})
    words.record_usage(model="m" * 90, input_tokens=12_345_678, output_tokens=999_999, cost=12.5)
    for id in IDS:
        try:
            store.session(id).add_message({"role": HOSTILE[0], "content": "an id"})
        except hansard.InvalidSessionId:
            continue
