"""Export sessions for other programs.

    from hansard import exporters

    Path("refund.jsonl").write_bytes(b"".join(exporters.export(session, "codex")))

The command is `hansard export --as KIND`. hansard's own JSONL, Markdown and HTML are `session.export`.
Nothing of a framework is imported.

In the model view a summary replaces what it covers. If it was imported from the same program, that program's
own record of it is exported instead, with everything before it.
"""

import io
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, NamedTuple

import msgspec

import hansard
from hansard import Event
from hansard.backend.contract import between, streamed
from hansard.event.kinds import MESSAGE_ADDED, SESSION_FORKED, SUMMARY_ADDED
from hansard.message import claude_entries, origin
from hansard.message.openai_items import items_of
from hansard.message.parse import HIDDEN, origin_of, parse, role_of
from hansard.message.values import as_json, compact
from hansard.state import fold, redaction
from hansard.state.view import PARTIAL, VIEWS, Course, StreamAssembler, View, model
from hansard.transfer.export_file import version

__all__ = ["KINDS", "Kind", "View", "export"]

Kind = Literal["claude-code", "codex", "openai-items", "parquet", "atif", "sts"]

#: The kind of the events that hold a line of a Codex rollout which is not an item.
_CODEX_LINE: Final = "x.codex.line"


def export(
    session: hansard.Session, kind: Kind, *, redacted: bool = True, view: View = "model"
) -> Iterator[bytes]:
    """Yield a session in the format of another program, piece by piece.

    What was imported from that program, or written through its adapter, is written unchanged; other
    messages are converted.

    Args:
        session: the session; a fork includes what it inherits.
        kind: the format, one of `KINDS`.
        redacted: replace what looks like a credential. Redacted messages are never exported.
        view: "model": what a model would see; "history": all messages, also reverted ones.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    if view not in VIEWS:
        raise ValueError(f"view must be one of {', '.join(VIEWS)}, got {view!r}")
    # Read before the first piece is requested: a missing session raises at the call.
    _, write = _FORMATS[kind]
    return write(shared(session, redacted=redacted, view=view, kind=kind))


class SharedSession(NamedTuple):
    """What of a session is exported: the events of the view, and all events, in order."""

    session_id: str
    metadata: dict[str, Any]
    created: str
    events: list[Event]
    history: list[Event]

    @property
    def uuid(self) -> str:
        """The last part of the session's id if that is a UUID, else a UUID made of the id."""
        last = self.session_id.rpartition("/")[2]
        try:
            return str(uuid.UUID(last))
        except ValueError:
            return str(uuid.uuid5(uuid.NAMESPACE_URL, f"hansard:{self.session_id}"))


def shared(session: hansard.Session, *, redacted: bool, view: str, kind: str = "") -> SharedSession:
    """Return the part of a session that is exported for a program."""
    objects = session.share(redact=redacted)
    head = next(objects)
    encode = msgspec.json.encode
    events = [
        Event(one["seq"], one["time"], one["kind"], encode(one["data"]), one.get("key"))
        for one in objects
    ]
    shown = _model(events, kind) if view == "model" else events
    return SharedSession(
        str(head["session"]),
        fold.apply_all(fold.EMPTY, events).metadata,
        events[0].stamp,
        _finished(shown),
        events,
    )


def _model(events: list[Event], kind: str) -> list[Event]:
    """Return the events of the model view for a program."""
    redactions, last = redaction.of(events), events[-1].seq
    ranges = model(Course(events), redactions, last)
    front: list[Event] = []
    summary = ranges.summary
    if summary is not None:
        before = between(events, summary.seq - 2, summary.seq - 1)
        if any(_is_compaction(event, kind) for event in before):
            rest = [event for event in events if event.kind != SUMMARY_ADDED]
            ranges = model(Course(rest), redactions, last)
        else:
            # The lines that describe the session stay, although the summary replaces what is around them.
            front = [event for event in events if event.seq <= summary.data["upto"]]
            front = [event for event in front if _line_type(event) == "session_meta"]
            front.append(_added(summary, summary.data["message"]))
    return [
        *front,
        *(one for begin, end in ranges.forwards() for one in between(events, begin, end)),
    ]


def _finished(events: list[Event]) -> list[Event]:
    """Return events with a message in place of the last part of each unfinished stream."""
    streams = StreamAssembler(redaction.of(events).streams)
    streams.forwards([part for event in events if (part := streamed(event)) is not None])
    ends = {
        seq: message
        for seq, message in streams.unfinished()
        if message["content"] or "tool_calls" in message
    }
    for message in ends.values():
        # Other programs do not know this member.
        del message[PARTIAL]
    return [_added(event, ends[event.seq]) if event.seq in ends else event for event in events]


def _added(event: Event, message: dict[str, Any]) -> Event:
    """Return a message in the place of an event."""
    raw = msgspec.json.encode({"message": message})
    return Event(event.seq, event.stamp, MESSAGE_ADDED, raw)


def _line_type(event: Event) -> object:
    """Return the type of a line of Codex; None if the event is not one."""
    line = event.data.get("line") if event.kind == _CODEX_LINE else None
    return line.get("type") if isinstance(line, dict) else None


def _is_compaction(event: Event, kind: str) -> bool:
    """Return whether an event is a program's record of a summary; an import also stores the summary."""
    if kind == "codex":
        return _line_type(event) == "compacted"
    entry = event.data.get("entry") if event.kind == "x.claude.entry" else None
    return kind == "claude-code" and isinstance(entry, dict) and bool(entry.get("isCompactSummary"))


def _claude_code(session: SharedSession) -> Iterator[bytes]:
    """Yield the lines of a Claude Code transcript, which must be named `<sessionId>.jsonl`.

    Imported entries are written unchanged. Each other message becomes an entry after the last one.
    """
    entries = claude_entries.entries(session.events, session.uuid)
    for entry in entries:
        yield _line(entry)
    title = session.metadata.get("title")
    if isinstance(title, str) and title and not any(claude_entries.titles(entries)):
        yield _line({"type": "custom-title", "customTitle": title, "sessionId": session.uuid})


def _openai_items(session: SharedSession) -> Iterator[bytes]:
    """Yield a JSON array of OpenAI Responses items, as the Agents SDK's sessions and `Runner.run` take it."""
    ids: dict[str, str] = {}
    items = [item for event in session.events for item in _items(event, ids)]
    yield b"[\n" + b",\n".join(map(msgspec.json.encode, items)) + b"\n]\n" if items else b"[]\n"


def _items(event: Event, ids: dict[str, str]) -> list[Any]:
    """Return the OpenAI items of an event's message; `ids` as for `origin.chat_with_ids`."""
    message = event.message
    if not message:
        return []
    chat_of = partial(origin.chat_with_ids, seq=event.seq, ids=ids)
    return [as_json(item) for item in items_of(message, chat_of)]


def _codex(session: SharedSession) -> Iterator[bytes]:
    """Yield the lines of a Codex rollout: a `session_meta`, then imported lines and messages."""
    ids: dict[str, str] = {}
    lines = [line for event in session.events for line in _codex_lines(event, ids)]
    # A fork inherits its parent's first line; the last one is its own.
    heads = [line for line in lines if line.get("type") == "session_meta"]
    yield _line(heads[-1] if heads else _codex_head(session))
    yield from (_line(line) for line in lines if line.get("type") != "session_meta")


def _line(value: dict[str, Any]) -> bytes:
    return msgspec.json.encode(as_json(value)) + b"\n"


def _codex_head(session: SharedSession) -> dict[str, Any]:
    workspace = session.metadata.get("workspace")
    payload = {
        "id": session.uuid,
        "session_id": session.uuid,
        "timestamp": session.created,
        "cwd": workspace if isinstance(workspace, str) else "",
        "originator": "hansard",
        "cli_version": "0.0.0",
        "source": "cli",
    }
    return {"timestamp": session.created, "type": "session_meta", "payload": payload}


def _codex_lines(event: Event, ids: dict[str, str]) -> list[dict[str, Any]]:
    if event.kind == _CODEX_LINE:
        line = event.data.get("line")
        return [{"timestamp": event.stamp, **line}] if isinstance(line, dict) else []
    # The import stored the other members of the line.
    frame = (origin_of(event.message or {}) or {}).get("line")
    before = {"timestamp": event.stamp, **(frame if isinstance(frame, dict) else {})}
    return [
        {**before, "type": "response_item", "payload": _codex_item(item)}
        for item in _items(event, ids)
    ]


def _codex_item(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item as Codex writes it: a message has a type, and its content is a list."""
    if not isinstance(item.get("role"), str):
        return item
    content = item.get("content")
    if isinstance(content, str):
        kind = "output_text" if item["role"] == "assistant" else "input_text"
        content = [{"type": kind, "text": content}]
    return {"type": "message", **item, "content": content}


# -- one record per message ---------------------------------------------------------------------


class _Said(NamedTuple):
    """A chat message; its calls have id, name and arguments, and a result has the id of its call."""

    role: str
    content: str
    thoughts: str
    calls: list[dict[str, str]]
    call_id: str


@dataclass
class _Turn:
    """A message, and the usage of the call that it answers.

    Attributes:
        said: the message as chat messages: each result of a tool, then the rest.
        seqs: those of the message and of its usage.
    """

    event: Event
    message: dict[str, Any]
    said: list[_Said]
    seqs: list[int]
    model: str = ""
    usage: fold.Usage | None = None

    def add(self, seq: int, model: str, usage: fold.Usage) -> None:
        """Add usage that was recorded at a seq."""
        self.seqs.append(seq)
        self.model = model
        self.usage = fold.add_usage(self.usage or fold.Usage(), usage)


#: The roles of a chat, and the source of their steps in ATIF.
_ROLES: Final = {"user": "user", "assistant": "agent", "system": "system", "tool": "system"}


def _turns(session: SharedSession) -> list[_Turn]:
    turns: list[_Turn] = []
    answer: _Turn | None = None
    # Usage is recorded after its answer, but before it by the hooks of the OpenAI Agents SDK.
    early: list[tuple[int, str, fold.Usage]] = []
    ids: dict[str, str] = {}
    for event in session.events:
        if used := fold.usage_of(event):
            if answer and (answer.usage is None or answer is turns[-1]):
                answer.add(event.seq, *used)
            elif turns:
                early.append((event.seq, *used))
        elif message := event.message:
            chats = origin.chat_with_ids(message, event.seq, ids)
            turns.append(_Turn(event, message, _said(message, chats), [event.seq]))
            if role_of(message) == "assistant":
                answer = turns[-1]
                while early:
                    answer.add(*early.pop(0))
    if answer is not None:
        for one in early:
            answer.add(*one)
    return turns


def _said(message: dict[str, Any], chats: list[origin.Message]) -> list[_Said]:
    parts = parse(message).parts
    thoughts = [p.text for p in parts if p.kind == "thinking" and p.value != HIDDEN]
    found = []
    for chat in chats:
        role = "tool" if "tool_call_id" in chat else role_of(chat)
        role = role if role in _ROLES else "user"
        thought = "\n".join(thoughts) if role == "assistant" else ""
        calls = [{"id": call["id"], **call["function"]} for call in chat.get("tool_calls", ())]
        found.append(_Said(role, chat["content"], thought, calls, chat.get("tool_call_id", "")))
    return found


def _sts(session: SharedSession) -> Iterator[bytes]:
    """Yield the lines of a session trace, which the Hugging Face Hub shows: a header, then messages."""
    head = {"type": "session", "harness": "hansard", "id": session.session_id}
    yield _line({**head, "name": fold.title_of(session.metadata) or session.session_id})
    for turn in _turns(session):
        for said in turn.said:
            message: dict[str, Any] = {"role": said.role, "content": said.content}
            if said.thoughts:
                message["reasoningContent"] = said.thoughts
            if said.calls:
                message["toolCalls"] = [
                    {"id": call.pop("id"), "function": call} for call in said.calls
                ]
            if said.role == "tool":
                message["toolCallId"] = said.call_id
            message["timestamp"] = int(turn.event.time.timestamp() * 1000)
            if turn.model and said.role == "assistant":
                message["model"] = turn.model
            yield _line({"type": "message", "message": message})


def _atif(session: SharedSession) -> Iterator[bytes]:
    """Yield a trajectory in the Agent Trajectory Interchange Format: each result in the step that called."""
    steps: list[dict[str, Any]] = []
    callers: dict[str, dict[str, Any]] = {}
    total = fold.Usage()
    model = ""
    turns = _turns(session)
    own = max((event.seq for event in session.history if event.kind == SESSION_FORKED), default=0)
    for turn in turns:
        for said in turn.said:
            step = callers.get(said.call_id) if said.role == "tool" else None
            if step is None:
                message = "" if said.role == "tool" else said.content
                step = {
                    "step_id": len(steps) + 1,
                    "timestamp": turn.event.stamp,
                    "source": _ROLES[said.role],
                    "message": message,
                    "extra": {"seqs": []},
                    **({"is_copied_context": True} if turn.event.seq < own else {}),
                }
                steps.append(step)
            seqs = step["extra"]["seqs"]
            seqs += [seq for seq in turn.seqs if seq not in seqs]
            if said.role == "tool":
                result = {"source_call_id": said.call_id} if said.call_id in callers else {}
                observation = step.setdefault("observation", {"results": []})
                observation["results"].append({**result, "content": said.content})
            elif said.role == "assistant":
                step |= {"reasoning_content": said.thoughts} if said.thoughts else {}
                calls: list[dict[str, Any]] = [
                    {
                        "tool_call_id": call["id"],
                        "function_name": call["name"],
                        "arguments": origin.arguments_of(call["arguments"]),
                    }
                    for call in said.calls
                ]
                step |= {"tool_calls": calls} if calls else {}
                callers |= {call["tool_call_id"]: step for call in calls}
                if turn.usage is not None:
                    step |= {"model_name": turn.model, "metrics": _metrics(turn.usage)}
                    step |= {"llm_call_count": turn.usage.calls} if turn.usage.calls else {}
        if turn.usage is not None:
            total, model = fold.add_usage(total, turn.usage), turn.model
    if not steps:
        raise ValueError(f"{session.session_id}: a trajectory needs a message, and there is none")
    shown = {seq for turn in turns for seq in turn.seqs}
    dropped = Counter(event.kind for event in session.history if event.seq not in shown)
    metrics = {f"total_{name}": value for name, value in _metrics(total).items() if name != "extra"}
    yield _line(
        {
            "schema_version": "ATIF-v1.7",
            "session_id": session.session_id,
            "trajectory_id": session.uuid,
            "agent": {
                "name": "hansard",
                "version": version(),
                **({"model_name": model} if model else {}),
            },
            "steps": steps,
            "final_metrics": {**metrics, "total_steps": len(steps)},
            "extra": {
                "title": fold.title_of(session.metadata),
                "events": len(session.history),
                "represented": len(session.history) - dropped.total(),
                "dropped": dropped,
            },
        }
    )


def _metrics(usage: fold.Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        **({"cost_usd": float(usage.cost)} if usage.cost else {}),
        "extra": {
            "cache_write_tokens": usage.cache_write_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
            # 0 if no cost was recorded.
            **({"cost": format(usage.cost, "f")} if usage.cost else {}),
        },
    }


def _parquet(session: SharedSession) -> Iterator[bytes]:
    """Return a table with a row for each message."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError(
            "a Parquet file needs the package pyarrow: pip install '/path/to/hansard[parquet]'"
        ) from error
    text, number = pa.string(), pa.int64()
    tokens = [name for name in fold.Usage.__struct_fields__ if name.endswith("_tokens")]
    schema = pa.schema(
        {
            "session": text,
            "title": text,
            "seq": number,
            "time": pa.timestamp("us", tz="UTC"),
            "role": text,
            "text": text,
            "thinking": text,
            "tools": pa.list_(text),
            "calls": pa.list_(pa.struct({"id": text, "name": text, "arguments": text})),
            "results": pa.list_(pa.struct({"id": text, "content": text})),
            "model": text,
            **dict.fromkeys(tokens, number),
            "cost": pa.decimal128(38, 18),
            "message": text,
        }
    )
    known = {"session": session.session_id, "title": fold.title_of(session.metadata)}
    rows = []
    for turn in _turns(session):
        calls = [call for one in turn.said for call in one.calls]
        used = {} if turn.usage is None else msgspec.structs.asdict(turn.usage)
        rows.append(
            {
                **known,
                "seq": turn.event.seq,
                "time": turn.event.time,
                "role": role_of(turn.message),
                "text": "\n".join(filter(None, (one.content for one in turn.said))),
                "thinking": "\n".join(filter(None, (one.thoughts for one in turn.said))),
                "tools": [call["name"] for call in calls],
                "calls": calls,
                "results": [
                    {"id": one.call_id, "content": one.content}
                    for one in turn.said
                    if one.role == "tool"
                ],
                "model": turn.model or None,
                **{name: used.get(name) for name in tokens},
                "cost": used.get("cost") or None,
                "message": compact(turn.message),
            }
        )
    file = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows, schema), file, compression="zstd")
    return iter([file.getvalue()])


_FORMATS: Final[dict[str, tuple[str, Callable[[SharedSession], Iterator[bytes]]]]] = {
    "claude-code": ("jsonl", _claude_code),
    "codex": ("jsonl", _codex),
    "openai-items": ("json", _openai_items),
    "parquet": ("parquet", _parquet),
    "atif": ("json", _atif),
    "sts": ("jsonl", _sts),
}

#: The kinds, and the suffixes of their files.
KINDS: Final[dict[str, str]] = {kind: suffix for kind, (suffix, _) in _FORMATS.items()}
