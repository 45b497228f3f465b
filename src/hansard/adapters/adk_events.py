"""Convert events of the Agent Development Kit to events of a session, and back.

An event with content is a message that every framework can read (`message.origin`), with texts, calls and
results as blocks. Any other is an event of the kind `x.adk.event`. Both come back equal.

The state of an app or a user is a separate session. An event of a conversation can change three sessions:
its own, its app's and its user's. They change together, or not at all:

1. An *intention* is appended to each shared state: the changes, and the place that the event will have in its
   conversation (session, seq, key).
2. The event is appended to its conversation, at that place or not at all. **This is when it happens.**
3. It is appended to each shared state that the intention was *settled*: now its changes count.

If a writer is killed in between, a reader finds an intention that was not settled. It checks the place in
the conversation, which has the event, or another one, or none yet. So the next call that reads the state
completes the change, and all readers agree.
"""

import copy
import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from google.adk.events.event import Event
from google.adk.sessions.state import State
from google.genai import types

import hansard
from hansard.adapters.session_projection import AdapterProjection
from hansard.message import origin, values

#: The format of these events in `origin`.
FORMAT: Final = "google-adk"

#: Kinds of events that are not messages: one without content, and the beginning of a conversation.
EVENT: Final = "x.adk.event"
CREATED: Final = "x.adk.created"
#: In a shared state: changes that are about to happen, and whether they did.
INTENDED: Final = "x.adk.intended"
SETTLED: Final = "x.adk.settled"

#: Kinds of events that continue a conversation.
COUNTED: Final = frozenset({"message.added", EVENT, CREATED})

Json = dict[str, Any]


def native(event: Event) -> Json:
    """Return an event's members, without the state of one invocation only."""
    found: Json = values.dumped(
        event,
        lambda one, mode: one.model_dump(mode=mode, exclude_none=True),
        Event.model_validate,
    )
    changes = found.get("actions", {}).get("state_delta")
    if changes:
        found["actions"]["state_delta"] = {
            name: value for name, value in changes.items() if not name.startswith(State.TEMP_PREFIX)
        }
    return found


def key_of(item: Json) -> str:
    """Return the idempotency key of an event; different events with the same id have different keys."""
    text = json.dumps(values.wrap("item", item), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"adk:{item.get('id', '')[:256]}:{digest[:32]}"


def drafts(item: Json) -> list[tuple[str, Json]]:
    """Return the kinds and data to append for an event: itself, and the usage that it reports."""
    usage = _usage_of(item)
    return [_draft(item)] if usage is None else [_draft(item), ("usage.recorded", usage)]


def _draft(item: Json) -> tuple[str, Json]:
    parts = (item.get("content") or {}).get("parts")
    if not parts:
        return EVENT, values.wrap("event", item)
    content = origin.content_of([_block(part) for part in parts])
    role = item["content"].get("role")
    if role is None:
        role = "user" if item.get("author") == "user" else "assistant"
    role = "assistant" if role == "model" else str(role)
    return "message.added", {"message": origin.pack(FORMAT, item, role=role, content=content)}


def _usage_of(item: Json) -> Json | None:
    used = item.get("usage_metadata")
    if not isinstance(used, dict):
        return None

    def total(*names: str) -> int:
        return sum(used.get(f"{name}_token_count") or 0 for name in names)

    counts = {
        "input_tokens": total("prompt", "tool_use_prompt"),
        "output_tokens": total("candidates", "thoughts"),
        "cached_tokens": total("cached_content"),
        "reasoning_tokens": total("thoughts"),
    }
    return origin.usage(item.get("model_version"), counts, response_id=item.get("id", ""))


def _block(part: Json) -> Json:
    """Return a part as a block that all views know; `origin` has the rest of it."""
    if isinstance(part.get("text"), str):
        kind = "thinking" if part.get("thought") else "text"
        return {"type": kind, kind: part["text"]}
    if "function_call" in part:
        call = part["function_call"]
        named = {"id": call.get("id", ""), "name": call.get("name", "")}
        return {"type": "tool_use", **named, "input": call.get("args") or {}}
    if "function_response" in part:
        answer = part["function_response"]
        content = [{"json": answer.get("response")}]
        return {"type": "tool_result", "tool_use_id": answer.get("id", ""), "content": content}
    return {"type": next(iter(part), "part")}


def _item_of(event: hansard.Event) -> Json | None:
    """Return the members of the kit's event; None if it stores none, or was redacted."""
    if event.kind == EVENT:
        found = values.unwrap(event.data, "event")
        return found if isinstance(found, dict) else None
    message = event.message
    return None if message is None else origin.unpack(message, FORMAT)


def events_of(event: hansard.Event) -> list[Event]:
    """Return the kit's event, also for a message of another framework; none for other events."""
    item = _item_of(event) if event.kind in COUNTED else None
    if item is not None:
        return [Event.model_validate(item)]
    message = event.message
    return [] if message is None else [_foreign(event, message)]


def _foreign(event: hansard.Event, message: Json) -> Event:
    parts: list[types.Part] = []
    role = "user"
    for chat in origin.chat(message):
        if chat["role"] == "tool":
            answer = types.FunctionResponse(
                id=chat["tool_call_id"],
                # The kit requires the tool's name, which a chat does not repeat.
                name=str(message.get("name") or "tool"),
                response={"result": chat["content"]},
            )
            parts.append(types.Part(function_response=answer))
            continue
        role = "model" if chat["role"] == "assistant" else "user"
        if chat["content"]:
            parts.append(types.Part(text=chat["content"]))
        for call_id, tool, given in origin.calls_of(chat):
            call = types.FunctionCall(id=call_id, name=tool, args=given)
            parts.append(types.Part(function_call=call))
    name = f"hansard-{event.seq}"
    return Event(
        id=name,
        author=role,
        invocation_id=name,
        timestamp=event.time.timestamp(),
        content=types.Content(role=role, parts=parts),
    )


@dataclass
class Conversation:
    """What the events of a conversation add up to: its state, its time, and the id of its last event."""

    state: Json = field(default_factory=dict)
    updated: float = 0.0
    last: str | None = None


class ConversationProjection(AdapterProjection):
    """The fold of one conversation."""

    def _begin(self) -> None:
        self._value = Conversation()

    def _add(self, event: hansard.Event) -> None:
        value = self._value
        if event.kind == CREATED:
            value.state.update(values.unwrap(event.data, "state") or {})
            value.updated = event.data.get("time", event.time.timestamp())
        item = _item_of(event) if event.kind in COUNTED else None
        if item is not None:
            for name, changed in item.get("actions", {}).get("state_delta", {}).items():
                if not name.startswith((State.APP_PREFIX, State.USER_PREFIX)):
                    value.state[name] = changed
            value.updated, value.last = item.get("timestamp", 0.0), item.get("id", "")
        elif event.message is not None:
            value.updated, value.last = event.time.timestamp(), f"hansard-{event.seq}"

    def read(self) -> tuple[hansard.Event | None, Conversation]:
        """Return the last event, and a copy of what the events add up to."""
        with self.fresh():
            return self._tail.last, copy.deepcopy(self._value)


class SharedState(AdapterProjection):
    """The state of an app or a user."""

    def _begin(self) -> None:
        self._state: Json = {}
        #: Intentions that were not settled, by their seqs.
        self._open: dict[int, Json] = {}

    def _add(self, event: hansard.Event) -> None:
        data = event.data
        if event.kind == INTENDED and "changes" in data:
            self._open[event.seq] = data
        elif event.kind == SETTLED and "intention" in data:
            intention = self._open.pop(data["intention"], None)
            if intention is not None and data["happened"]:
                self._state.update(values.unwrap(intention, "changes"))

    def read(self) -> Json:
        """Return a copy of the state, and settle the intentions that were left open."""
        with self.fresh():
            state, waiting = copy.deepcopy((self._state, self._open))
        for seq, intention in waiting.items():
            happened = self._happened(intention)
            if happened is None:
                continue
            # A read-only store shows the right state, and leaves the settling to others.
            with suppress(hansard.ReadOnly):
                self.settle(seq, happened=happened)
            if happened:
                state.update(values.unwrap(intention, "changes"))
        return state

    def intend(self, changes: Json, *, session: str, after: int, key: str) -> int:
        """Append changes that are about to happen, and the place of their event; return the seq."""
        # First settle what others left open: an earlier change must not be settled later.
        self.read()
        place = {"session": session, "after": after, "key": key}
        return self.handle.append(INTENDED, {**values.wrap("changes", changes), **place}).seq

    def settle(self, intention: int, *, happened: bool) -> None:
        """Append that the changes happened, or that they never will."""
        # The writer and a reader may both do so: they agree, and the first one counts. No idempotency key:
        # it would still be known after a revert that undoes the settling.
        self.handle.append(SETTLED, {"intention": intention, "happened": happened})

    def _happened(self, intention: Json) -> bool | None:
        """Return whether the event is at its place; None if no event is there yet."""
        try:
            session = self._store.session(intention["session"])
            event = next(session.events(after=intention["after"]), None)
        except hansard.SessionDeleted:
            return False  # the service settles what happened before it deletes a conversation
        except hansard.Damaged:
            return None
        return None if event is None else event.key == intention["key"]
