"""What an event of the Agent Development Kit is in a session's log, and back.

An event with content is a message that every framework can read (`message.origin`): texts, calls of tools
and their results as blocks. Any other is an event of the kind `x.adk.event`. Both come back equal.

The state that sessions share, an app's or a user's, is a separate session. An event of a conversation can
change up to three sessions: its own, its app's and its user's. They change together, or not at all:

1. In each shared one an *intention* is appended: the changes, and the place that the event is about to take
   in its conversation (session, seq, key).
2. The event is appended to its conversation, at that place or not at all. **This is when it happens.**
3. In each shared one it is appended that the intention was *settled*: from here on its changes count.

A reader that finds an intention which was not settled, because its writer was killed, checks the place in the
conversation: the event is there, or another one is, or none is yet. So the next call that reads the state
completes what was begun, and no two readers can come to different ends.
"""

import hashlib
import json
from contextlib import suppress
from typing import Any, Final, NamedTuple

from google.adk.events.event import Event
from google.adk.sessions.state import State
from google.genai import types

import hansard
from hansard.adapters import projection
from hansard.message import origin, values

#: The name of these events among the origins of messages.
FORMAT: Final = "google-adk"

#: The kinds of events that are not messages: an event without content, and the beginning of a session.
EVENT: Final = "x.adk.event"
CREATED: Final = "x.adk.created"

#: In a shared state: changes that are about to happen, and whether they did.
INTENDED: Final = "x.adk.intended"
SETTLED: Final = "x.adk.settled"

#: What this adapter appends to a session; any of it means that the conversation has continued.
COUNTED: Final = frozenset({"message.added", EVENT, CREATED})


# -- there --------------------------------------------------------------------------------------


def native(event: Event) -> dict[str, Any]:
    """Return an event's members, without the state that lasts for one invocation only."""
    found: dict[str, Any] = values.dumped(event, _dump, Event.model_validate)
    changes = found.get("actions", {}).get("state_delta")
    if changes:
        kept = {
            name: value for name, value in changes.items() if not name.startswith(State.TEMP_PREFIX)
        }
        found["actions"]["state_delta"] = kept
    return found


def _dump(event: Event, mode: values.Mode) -> dict[str, Any]:
    return event.model_dump(mode=mode, exclude_none=True)


def key_of(item: dict[str, Any]) -> str:
    """Return the key of an event: of two that share an id and are not equal, each has its own."""
    text = json.dumps(values.wrap("item", item), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"adk:{item.get('id', '')[:256]}:{digest[:32]}"


def draft(item: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return kind and data of what is to be appended for an event."""
    content = item.get("content") or {}
    parts = content.get("parts")
    if not parts:
        return EVENT, values.wrap("event", item)
    said = [_block(part) for part in parts]
    text = said[0]["text"] if len(said) == 1 and said[0]["type"] == "text" else None
    message = origin.pack(FORMAT, item, role=_role(item), content=said if text is None else text)
    return "message.added", {"message": message}


def _role(item: dict[str, Any]) -> str:
    role = item["content"].get("role")
    if role is None:
        return "user" if item.get("author") == "user" else "assistant"
    return "assistant" if role == "model" else str(role)


def _block(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part as a block that hansard's views know; what it has besides is in the origin."""
    if isinstance(part.get("text"), str):
        if part.get("thought"):
            return {"type": "thinking", "thinking": part["text"]}
        return {"type": "text", "text": part["text"]}
    if "function_call" in part:
        call = part["function_call"]
        given = call.get("args") or {}
        return {
            "type": "tool_use",
            "id": call.get("id", ""),
            "name": call.get("name", ""),
            "input": given,
        }
    if "function_response" in part:
        answer = part["function_response"]
        response = answer.get("response")
        return {
            "type": "tool_result",
            "tool_use_id": answer.get("id", ""),
            "content": [{"json": response}],
        }
    return {"type": next(iter(part), "part")}


# -- and back -----------------------------------------------------------------------------------


def item_of(event: hansard.Event) -> dict[str, Any] | None:
    """Return the JSON of the kit's event that an event is; None if it is none, or was redacted."""
    if event.kind == EVENT:
        found = values.unwrap(event.data, "event")
        return found if isinstance(found, dict) else None
    message = event.message
    return None if message is None else origin.unpack(message, FORMAT)


def events_of(event: hansard.Event) -> list[Event]:
    """Return the kit's events that an event is: also what another framework, or a person, has said."""
    item = item_of(event)
    if item is not None:
        return [Event.model_validate(item)]
    message = event.message
    return [] if message is None else [_other(event, message)]


def _other(event: hansard.Event, message: dict[str, Any]) -> Event:
    parts: list[types.Part] = []
    role = "user"
    for one in origin.chat(message):
        if one["role"] == "tool":
            answer = types.FunctionResponse(
                id=one["tool_call_id"],
                # A chat does not repeat the tool's name with its answer, and the kit wants one.
                name=str(message.get("name") or "tool"),
                response={"result": one["content"]},
            )
            parts.append(types.Part(function_response=answer))
            continue
        role = "model" if one["role"] == "assistant" else "user"
        if one["content"]:
            parts.append(types.Part(text=one["content"]))
        for call in one.get("tool_calls", ()):
            named = {"id": call["id"], "name": call["function"]["name"]}
            given = types.FunctionCall(**named, args=origin.arguments_of(call))
            parts.append(types.Part(function_call=given))
    return Event(
        id=f"hansard-{event.seq}",
        author=role,
        invocation_id=f"hansard-{event.seq}",
        timestamp=event.time.timestamp(),
        content=types.Content(role=role, parts=parts),
    )


# -- what they add up to ------------------------------------------------------------------------


def begin() -> dict[str, Any]:
    """Return what a session without events adds up to."""
    return {"state": {}, "updated": 0.0, "last": None}


def add(value: dict[str, Any], event: hansard.Event) -> None:
    """Add an event to a session's own state: what it changes, when it was, and which it was."""
    if event.kind not in COUNTED:
        return
    if event.kind == CREATED:
        data = event.data
        value["state"].update(values.unwrap(data, "state") or {})
        value["updated"] = data.get("time", event.time.timestamp())
        return
    item = item_of(event)
    if item is None:
        if event.message is not None:
            value.update(updated=event.time.timestamp(), last=f"hansard-{event.seq}")
        return
    for name, changed in item.get("actions", {}).get("state_delta", {}).items():
        if not name.startswith((State.APP_PREFIX, State.USER_PREFIX)):
            value["state"][name] = changed
    value.update(updated=item.get("timestamp", 0.0), last=item.get("id", ""))


# -- what sessions share ------------------------------------------------------------------------


class Place(NamedTuple):
    """The place that an event is about to take in a conversation."""

    session: str
    #: The seq before it.
    after: int
    key: str


def _begin_shared() -> dict[str, Any]:
    return {"state": {}, "open": {}}


def _add_shared(value: dict[str, Any], event: hansard.Event) -> None:
    data = event.data
    if event.kind == INTENDED and "changes" in data:
        value["open"][str(event.seq)] = data
    elif event.kind == SETTLED and "intention" in data:
        intention = value["open"].pop(str(data["intention"]), None)
        if intention is not None and data["happened"]:
            value["state"].update(values.unwrap(intention, "changes"))


class SharedStates:
    """The states of apps and users in one store, and what is known of them."""

    def __init__(self) -> None:
        self._known: projection.Recent[projection.Sum] = projection.Recent(projection.SUMS)

    def of(self, store: hansard.Store, session_id: str) -> dict[str, Any]:
        """Return a shared state, and settle the intentions that were left open."""
        known = self._known.of(
            session_id, lambda name: projection.Sum(store, name, _begin_shared, _add_shared)
        )
        _, value = known.value()
        found: dict[str, Any] = value["state"]
        for seq, intention in value["open"].items():
            happened = _happened(store, intention)
            if happened is None:
                continue
            # A read-only store shows the right state, and leaves the settling to others.
            with suppress(hansard.ReadOnly):
                _settle(known.handle, int(seq), happened=happened)
            if happened:
                found.update(values.unwrap(intention, "changes"))
        return found

    def intend(
        self, store: hansard.Store, session_id: str, changes: dict[str, Any], place: Place
    ) -> "Intention":
        """Append changes that are about to happen."""
        # First what others left open: what happened before this must not be settled after it.
        self.of(store, session_id)
        data = {**values.wrap("changes", changes), **place._asdict()}
        shared = store.session(session_id)
        return Intention(shared, shared.append(INTENDED, data).seq)


class Intention(NamedTuple):
    """Changes of a shared state that are about to happen."""

    shared: hansard.Session
    seq: int

    def settle(self, *, happened: bool) -> None:
        """Append that the changes happened, or that they never will."""
        _settle(self.shared, self.seq, happened=happened)


def _settle(shared: hansard.Session, intention: int, *, happened: bool) -> None:
    # The writer and a reader may both do so: they agree, and the first one counts. No key: it would
    # still be known after a revert that undoes the settling.
    shared.append(SETTLED, {"intention": intention, "happened": happened})


def _happened(store: hansard.Store, intention: dict[str, Any]) -> bool | None:
    """Return whether the event is at its place; None if no event is there yet."""
    try:
        events = store.session(intention["session"]).events(after=intention["after"])
        event = next(events, None)
    except hansard.SessionDeleted:
        # Before it deletes a conversation, the service settles what had happened in it.
        return False
    except hansard.Damaged:
        return None
    return None if event is None else event.key == intention["key"]
