"""A source of each kind, as it is, shortened, or changed at random places."""

import json
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from copy import deepcopy
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.importers.sources import FIXTURES, entry
from tests.importers.test_a3s_code import data as a3s_data
from tests.importers.test_codex import head, line, path_of, rollout

#: By the name of a file: JSON, lines of JSON, or tables with their columns and rows.
Sample = dict[str, Any]

GOOD = "0b0b0b0b-0b0b-0b0b-0b0b-0b0b0b0b0b0b"
EVIL = "0e0e0e0e-0e0e-0e0e-0e0e-0e0e0e0e0e0e"
TIME = "2026-01-02T03:04:05.000000+00:00"
SHA = sha256(b"x").hexdigest()


def claude(name: str) -> Sample:
    """Return a transcript with a branch, calls, a summary, a sidechain and other entries."""
    calls = [{"type": "tool_use", "id": f"t{n}", "name": "ls", "input": {}} for n in (1, 2)]
    usage = {"input_tokens": 3, "output_tokens": 4, "cache_read_input_tokens": 1}
    answer = {"role": "assistant", "id": "a", "model": "m", "content": calls, "usage": usage}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1"}]}
    user = {"role": "user", "content": "hi"}
    told: list[Sample] = [
        {"type": "summary", "summary": "s", "leafUuid": "u1"},
        {"type": "user", "uuid": "u1", "parentUuid": None, "message": user, "cwd": "/w"},
        {"type": "assistant", "uuid": "u2", "parentUuid": "u1", "message": answer},
        {"type": "user", "uuid": "u3", "parentUuid": "u2", "message": result},
        {"type": "system", "uuid": "u4", "parentUuid": "u3", "content": "x"},
        {"type": "user", "uuid": "u5", "parentUuid": "u4", "message": user, "teamName": ""},
        {"type": "user", "uuid": "u6", "parentUuid": "u1", "message": user, "isSidechain": False},
        {"type": "user", "uuid": "u7", "parentUuid": "u6", "message": user}
        | {"isCompactSummary": True, "forkedFrom": {"sessionId": "z"}},
    ]
    lines = [{**one, "timestamp": TIME, "sessionId": name} for one in told]
    return {
        f"p/{name}.jsonl": lines,
        f"p/{name}/subagents/agent-1.jsonl": lines[1:3],
        f"p/{name}/subagents/agent-1.meta.json": {"agentType": "x"},
    }


def codex(name: str) -> Sample:
    """Return a rollout, and one that continues it."""
    other = f"{name[:-1]}f"
    base = {"thread_id": name, "end_ordinal_exclusive": 4}
    compacted = line("compacted", 9, message="so far", replacement_history=[{"content": []}])
    return {
        str(path_of(Path(), name)): [*rollout(name), compacted],
        str(path_of(Path(), other)): [head(other, history_base=base), *rollout(other)[1:3]],
    }


def openclaw(name: str) -> Sample:
    """Return an index, a transcript with one of everything, and a branch of it."""
    content = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "toolCall", "id": "c", "name": "f", "arguments": {"a": 1}},
    ]
    usage = {"input": 1, "output": 2, "cacheRead": 1, "cost": {"total": 0.5}}
    said = {"role": "assistant", "content": content, "model": "m", "usage": usage}
    result = {"role": "toolResult", "toolCallId": "c", "content": [{"type": "text", "text": "x"}]}
    first = {"type": "session", "version": 3, "id": name, "timestamp": TIME, "cwd": "/w"}
    lines = [
        entry("a", None, message=said),
        entry("b", "a", message=result),
        entry("c", "a", message={"role": "bashExecution", "command": "ls", "output": "x"}),
        {"type": "custom_message", "id": "d", "parentId": "c", "content": "in"},
        {"type": "compaction", "id": "e", "parentId": "d", "summary": "s", "firstKeptEntryId": "c"},
        {"type": "session_info", "id": "f", "parentId": "e", "name": "T"},
    ]
    index = {"sessionId": name, "sessionFile": f"/x/{name}.jsonl", "label": "L", "archivedAt": None}
    directory = f"agents/{name}/sessions"
    return {
        f"{directory}/sessions.json": {f"k:{name}": index},
        f"{directory}/{name}.jsonl": [first, *lines],
        f"{directory}/{name}-2.jsonl": [{**first, "parentSession": f"{name}.jsonl"}, *lines[:2]],
    }


def praisonai(name: str) -> Sample:
    """Return a session with snapshots, and its child, as the package wrote them."""
    made = FIXTURES / "praisonai" / "hierarchical"
    text = (made / "main.json").read_text(), (made / "child.json").read_text()
    main, child = (json.loads(one.replace('"main"', f'"{name}"')) for one in text)
    kept = {"summary": "s", "message_index": 1, "timestamp": 1}
    main |= {"last_compaction": kept, "archived_messages": [{"role": "user", "content": "old"}]}
    return {f"{name}.json": main, f"{name}-child.json": child | {"session_id": f"{name}-child"}}


def a3s(name: str) -> Sample:
    """Return a session in an envelope, and one without."""
    envelope = {"schema_version": 1, "run_records": [{"id": 1}]}
    return {
        f"v1/sessions/{name}.json": {**envelope, "session": a3s_data(name)},
        f"{name}-2.json": a3s_data(f"{name}-2"),
    }


def workspace(name: str) -> Sample:
    """Return a session, and one that is a list."""
    chat = [{"role": "user", "content": "a", "timestamp": 1e9}, {"role": "assistant"}]
    number = "1" if name == GOOD else "2"
    return {
        f"abcd_170000000{number}.json": {"messages": chat, "title": "T", "created": 1e9},
        f"abce_170000000{number}.json": [*chat],
    }


def openai(name: str) -> Sample:
    """Return a database of sessions with branches, and a list of items."""
    items = [
        {"role": "user", "content": "hi"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]},
    ]
    rows = [[n, name, json.dumps(item), TIME] for n, item in enumerate(items, 1)]
    ways = [[name, n, way, n] for way in ("main", "b") for n in (1, 2, 3)]
    tables = {
        "agent_sessions": (["session_id", "created_at", "updated_at"], [[name, TIME, TIME]]),
        "agent_messages": (["id", "session_id", "message_data", "created_at"], rows),
        "message_structure": (["session_id", "message_id", "branch_id", "sequence_number"], ways),
    }
    return {f"{name}.db": tables, f"{name}.json": items}


def langgraph(name: str) -> Sample:
    """Return a database of threads, serialized as JSON."""
    said: Sample = {"lc": 1, "id": ["langchain_core", "messages"], "kwargs": {"type": "human"}}
    said["kwargs"] |= {"content": "hi", "tool_calls": [{"id": "c", "name": "f", "args": {}}]}
    chat = [said, {"role": "assistant", "content": "x"}]
    rows = []
    for n in (1, 2, 3):
        held = {"messages": chat[:n], "other": n}
        checkpoint = {"v": 1, "ts": TIME, "id": str(n), "channel_values": held}
        checkpoint["channel_versions"] = {"messages": n, "other": 1}
        parent = str(n - 1) if n > 1 else None
        about = json.dumps({"run_id": "r", "step": n})
        rows.append([name, "", str(n), parent, "json", json.dumps(checkpoint), about])
    writes = [[name, "", "1", "task", "", 0, "messages", "json", b"[1]"]]
    columns = "thread_id checkpoint_ns checkpoint_id parent_checkpoint_id type checkpoint metadata"
    of_writes = "thread_id checkpoint_ns checkpoint_id task_id task_path idx channel type value"
    tables = {"checkpoints": (columns.split(), rows), "writes": (of_writes.split(), writes)}
    return {f"{name}.db": tables}


def pydantic(name: str) -> Sample:
    """Return messages, and a database of conversations."""
    media = {"__harness_external_media__": True, "uri": f"media+sha256://{SHA}", "kind": "binary"}
    parts = [{"part_kind": "user-prompt", "content": ["hi", media], "timestamp": TIME}]
    apart = [{"kind": "request", "parts": parts}]
    chat = [
        {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "hi"}]},
        {"kind": "response", "parts": [{"part_kind": "text", "content": "x"}], "timestamp": TIME},
    ]
    summary = json.dumps({"title": "T", "workspace": "/w"})
    tables = {
        "conversations": (
            ["id", "revision", "metadata", "messages", "updated_at"],
            [[name, 1, summary, json.dumps([*chat, *apart]), TIME]],
        ),
        "media": (["sha256", "bytes"], [[SHA, b"x"]]),
    }
    return {f"{name}.json": chat, f"{name}.db": tables}


KINDS = {
    "a3s-code": a3s,
    "claude-code": claude,
    "codex": codex,
    "langgraph": langgraph,
    "openai-agents": openai,
    "openclaw": openclaw,
    "praisonai": praisonai,
    "pydantic-ai": pydantic,
    "workspace": workspace,
}


def written(root: Path, sample: Sample) -> None:
    """Write a sample below a directory."""
    for name, value in sample.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".db"):
            with closing(sqlite3.connect(path)) as connection:
                for table, (columns, rows) in value.items():
                    connection.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
                    marks = ", ".join("?" * len(columns))
                    connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608
                connection.commit()
        elif name.endswith(".jsonl"):
            path.write_text("".join(_text(one) + "\n" for one in value))
        else:
            path.write_text(_text(value))


def _text(value: Any) -> str:
    if isinstance(value, _Deep):
        return value.text()
    # By hand, where something in it is deeper than Python itself would write.
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{_text(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    return json.dumps(value)


class _Deep:
    """JSON of a depth, which must not be walked."""

    def __init__(self, depth: int) -> None:
        self.depth = depth

    def text(self) -> str:
        return '{"a":[' * (self.depth // 2) + "]}" * (self.depth // 2)


#: What replaces a value of JSON, and a cell of a database.
ODD: list[Any] = [
    None, True, 0, -1, 7, 1e308, -1e308, 10**30, -(10**400), 2**63, "", "x", "\ud800", "\0", "../../x",
    "9" * 5000, "\u0663", [], {}, [None], [[]], {"": {}}, {"\ud800": 1},
    _Deep(200), _Deep(600), _Deep(1500), _Deep(100_000),
]  # fmt: skip
CELLS: list[Any] = [
    None, 0, -1, 2**63 - 1, 1e308, "", "x", b"", b"\xff\xfe", "\0", "{}", "[]", "nul", "9" * 5000,
    '{"a":' * 600 + "1" + "}" * 600, "1e999", '{"channel_values": 5}', "NaN",
]  # fmt: skip


def short(sample: Sample) -> Sample:
    """Return a sample as it was before its last items were added."""
    sample = deepcopy(sample)
    for name, value in sample.items():
        if name.endswith(".db"):
            for table in value.keys() & {"agent_messages", "checkpoints"}:
                value[table][1].pop()
        elif isinstance(value, list):
            value.pop()
        else:
            for member in ("messages", "cost_records"):
                del value.get("session", value).get(member, [])[-1:]
    return sample


def changed(sample: Sample, rng: random.Random) -> Sample:
    """Return a sample with one to three of its values replaced, removed or repeated."""
    sample = deepcopy(sample)
    for _ in range(rng.randrange(1, 4)):
        name = rng.choice([*sample])
        if name.endswith(".db"):
            columns, rows = sample[name][rng.choice([*sample[name]])]
            if rows:
                rng.choice(rows)[rng.randrange(len(columns))] = rng.choice(CELLS)
            continue
        holder, key = rng.choice([(sample, name), *_places(sample[name])])
        if (holder is sample and name.endswith(".jsonl")) or rng.random() < 0.2:
            if isinstance(holder, list):
                holder.insert(key, deepcopy(holder[key]))
            elif holder is not sample:
                del holder[key]
        else:
            holder[key] = deepcopy(rng.choice(ODD))
    return sample


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = (
        range(len(value)) if isinstance(value, list) else value if isinstance(value, dict) else ()
    )
    for key in [*keys]:
        yield value, key
        yield from _places(value[key])


def torn(root: Path, names: list[str], rng: random.Random) -> None:
    """Change bytes of a file that was written: flip, cut, repeat or put in some."""
    path = root / rng.choice(names)
    content = bytearray(path.read_bytes())
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(content) or 1)
        length = rng.choice([1, 1, 2, 4, 8, 100])
        how = rng.randrange(4)
        if how == 0:
            content[at : at + length] = rng.randbytes(length)
        elif how == 1:
            del content[at:]
        elif how == 2:
            content[at:at] = content[at : at + length]
        else:
            content[at : at + length] = rng.choice([b"\xff", b"\0", b"{", b'"', b"\n"]) * length
    path.write_bytes(content)
