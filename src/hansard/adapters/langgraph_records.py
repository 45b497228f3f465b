"""What LangGraph holds, turned into what is stored of it, and back.

`New` and `Held` are a channel's value on its way in and out; `Gathered` is a checkpoint on its way out.
`MirroredMessages` is what a checkpoint adds to the conversation that every framework can read. `copied` is a
thread on its way into another one.

LangGraph's serializer imports the module and calls the name that a stored value gives, whatever they are:
`os.system`, for example. `Guarded` reads a value first without creating anything, and refuses it unless every
name in it is on LangGraph's own strict list or was added by the application.
"""

import copy
import json
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import msgspec

import hansard
from hansard.adapters.langgraph_thread import EMPTY, Checkpoint, Mirrored, Thread, Value
from hansard.adapters.opening import missing
from hansard.message import langgraph_values as values
from hansard.message.langgraph_values import CHECKPOINT, REMOVED, WRITES
from hansard.message.origin import call_of
from hansard.message.values import as_json

try:
    import ormsgpack
    from langchain_core.load.load import ALL_SERIALIZABLE_MAPPINGS
    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import CheckpointTuple
    from langgraph.checkpoint.serde import jsonplus
    from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_METHODS, SAFE_MSGPACK_TYPES
    from langgraph.checkpoint.serde.base import SerializerProtocol
    from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
    from langgraph.checkpoint.serde.types import _DeltaSnapshot
except ImportError as error:
    missing("langgraph", "langgraph", "langgraph", error)

#: A type, or its module and name.
TypeLike = type | tuple[str, ...]
#: Module and name; of a method, three names.
Name = tuple[str, ...]

_CREATING: Final = frozenset(
    {
        jsonplus.EXT_CONSTRUCTOR_SINGLE_ARG,
        jsonplus.EXT_CONSTRUCTOR_POS_ARGS,
        jsonplus.EXT_CONSTRUCTOR_KW_ARGS,
        jsonplus.EXT_METHOD_SINGLE_ARG,
        jsonplus.EXT_PYDANTIC_V1,
        jsonplus.EXT_PYDANTIC_V2,
    }
)
#: Values of at most this many bytes are short.
_SHORT: Final = 4096
#: Where a method's name is, after module, type and argument.
_METHOD: Final = 3

_ROLES: Final = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant"}

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder(order="sorted").encode


def load(serde: SerializerProtocol, packed: dict[str, Any]) -> Any:
    """Return a value from what is stored of it."""
    return serde.loads_typed(values.unpack(packed))


def config_of(thread_id: str, ns: str, checkpoint_id: str) -> RunnableConfig:
    """Return how LangGraph names a checkpoint."""
    named = {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}
    return {"configurable": named}


# -- values -------------------------------------------------------------------------------------


class New:
    """A value that is about to be stored. Items of a list are serialized one by one.

    Attributes:
        value: what the graph holds.
        base, keep: the list that it begins like, and how much of it; None, 0 if there is none.
    """

    def __init__(self, serde: SerializerProtocol, value: Any) -> None:
        self.value = value
        self.base: Value | None = None
        self.keep = 0
        if type(value) is list and value:
            self._items = [serde.dumps_typed(item) for item in value]
            self._marks = [values.mark(item) for item in self._items]
        else:
            self._items = []
            self._packed = values.pack(serde.dumps_typed(value))

    def packed(self, thread: Thread, ns: str, channel: str) -> dict[str, Any]:
        """Return what is to be stored: of a list, what is not at the beginning of the newest one."""
        if not self._items:
            return self._packed
        self.base, self.keep = thread.newest(ns, channel), 0
        if self.base is not None:
            for mine, known in zip(self._marks, thread.marks(self.base), strict=False):
                if mine != known:
                    break
                self.keep += 1
        packed: dict[str, Any] = {"list": [values.pack(item) for item in self._items[self.keep :]]}
        if self.base is not None and self.keep:
            packed |= {"base": self.base.seq, "keep": self.keep}
        return packed


class Held:
    """A stored value that was taken out of a thread, to be turned into what it was."""

    __slots__ = ("_items", "_packed")

    def __init__(self, thread: Thread, value: Value) -> None:
        self._items: list[bytes] | None = None
        self._packed: dict[str, Any] = {}
        if value.length < 0:
            self._packed = thread.packed(value)
        else:
            self._items = list(thread.items(value))

    def told(self, serde: SerializerProtocol) -> Any:
        """Return the value."""
        if self._items is None:
            return load(serde, self._packed)
        return [serde.loads_typed(values.typed(item)) for item in self._items]


class Gathered:
    """All that is stored of a checkpoint, taken out of a thread while its lock was held."""

    def __init__(self, thread: Thread, checkpoint: Checkpoint) -> None:
        self._put = thread.put_of(checkpoint)
        self._values = {
            channel: Held(thread, value)
            for channel, value in checkpoint.values.items()
            if value.length != EMPTY
        }
        ordered = thread.writes(checkpoint)
        thread.fetch(write.seq for _, write in ordered)
        self._writes = [(task, write.channel, thread.written(write)) for task, write in ordered]

    def told(self, serde: SerializerProtocol, thread_id: str) -> CheckpointTuple:
        """Return the checkpoint as LangGraph has it."""
        put = self._put
        checkpoint = load(serde, _decode(put.checkpoint))
        checkpoint["channel_versions"] = put.versions
        checkpoint["channel_values"] = {
            channel: held.told(serde) for channel, held in self._values.items()
        }
        return CheckpointTuple(
            config=config_of(thread_id, put.ns, put.id),
            checkpoint=checkpoint,
            metadata=load(serde, _decode(put.metadata)),
            parent_config=None if put.parent is None else config_of(thread_id, put.ns, put.parent),
            pending_writes=[
                (task, channel, load(serde, packed)) for task, channel, packed in self._writes
            ],
        )


# -- the conversation ---------------------------------------------------------------------------


class MirroredMessages:
    """What a checkpoint adds to the conversation, compared with what was mirrored before.

    Attributes:
        messages: what is new.
        back: the seq to which the conversation goes back before that; None if it only continues.
        noted: what the checkpoint's event says about it; None if nothing changes.
    """

    def __init__(
        self, thread: Thread, channel: str, new: New | None, written: Sequence[Any]
    ) -> None:
        """`written`: what was written to a channel of which only that is stored."""
        known = [mark for mark, _ in thread.mirrored]
        if new is None or new.value is None:
            kept, natives = len(known), [item for value in written for item in _listed(value)]
        elif new.base is not None and new.base is thread.mirror and new.keep == new.base.length:
            # All of it was mirrored, and the rest is new: as it is nearly always.
            kept, natives = len(known), new.value[new.keep :]
        else:
            kept, natives = 0, _listed(new.value)
        messages = [message for message in map(_message, natives) if message is not None]
        marks = [blake2b(_encode(message), digest_size=16).hexdigest() for message in messages]
        common = 0
        if not kept:
            for mark, before in zip(marks, known, strict=False):
                if mark != before:
                    break
                common += 1
            kept = common
        self.messages = messages[common:]
        self.back: int | None = None
        if kept < len(known):
            self.back = thread.mirrored[kept - 1][1] if kept else thread.mirrored[0][1] - 1
        self.noted: dict[str, Any] | None = None
        if self.messages or self.back is not None:
            self.noted = msgspec.to_builtins(Mirrored(channel, kept, marks[common:]))


def _listed(value: Any) -> list[Any]:
    if isinstance(value, _DeltaSnapshot):
        value = value.value
    return value if isinstance(value, list) else [value]


def _message(native: Any) -> dict[str, Any] | None:
    """Return a message in the common form; None if it is not a message."""
    if isinstance(native, BaseMessage):
        role = _ROLES.get(native.type, native.type)
        message: dict[str, Any] = {"role": role, "content": native.content}
        made = getattr(native, "tool_calls", ())
        calls = [call_of(call["id"] or "", call["name"], call["args"]) for call in made]
        if calls:
            message["tool_calls"] = calls
        for name in ("tool_call_id", "name"):
            if isinstance(found := getattr(native, name, None), str):
                message[name] = found
        if native.type == "remove":
            return None
    elif isinstance(native, dict) and isinstance(native.get("role"), str) and "content" in native:
        message = dict(native)
    else:
        return None
    return dict(as_json(message))


# -- to another thread --------------------------------------------------------------------------


def copied(source: Thread, after: int) -> list[tuple[str, dict[str, Any]]]:
    """Return the events that add all that a thread holds to another one, whose last seq is `after`."""
    events: list[tuple[str, dict[str, Any]]] = []
    hidden: dict[str, list[str]] = {}
    places: dict[int, int] = {}
    ordered = sorted(source.checkpoints.values(), key=lambda one: one.seq)
    for one in ordered:
        places[one.seq] = after + len(events) + 1
        events.append((CHECKPOINT, _copied_put(source, one, places)))
        events += ((WRITES, data) for data in _copied_writes(source, one))
        if one.hidden:
            hidden.setdefault(one.ns, []).append(one.id)
    if hidden:
        events.append((REMOVED, {"checkpoints": hidden}))
    return events


def _copied_put(source: Thread, one: Checkpoint, places: dict[int, int]) -> dict[str, Any]:
    data: dict[str, Any] = _decode(source.raw(one.seq))
    data.pop("mirrored", None)
    data["values"] = told = {}
    for channel, value in one.values.items():
        if value.seq != one.seq and value.seq in places:
            continue  # it is found by its version
        if value.length < 0:
            told[channel] = source.packed(value) if value.length != EMPTY else None
            continue
        items = [_decode(item) for item in source.items(value)]
        told[channel] = {"list": items}
        if value.seq == one.seq and value.base is not None and value.base.seq in places:
            place = {"base": places[value.base.seq], "keep": value.keep}
            told[channel] = {"list": items[value.keep :], **place}
    return data


def _copied_writes(source: Thread, one: Checkpoint) -> Iterator[dict[str, Any]]:
    for seq in sorted({write.seq for _, write in source.writes(one)}):
        data: dict[str, Any] = _decode(source.raw(seq))
        yield data


# -- types that may be created ------------------------------------------------------------------


class TypeNotAllowed(hansard.HansardError):
    """A value names a type that the application has not allowed; nothing was imported or called."""


class Guarded(SerializerProtocol):
    """LangGraph's serializer, limited to types that are allowed: when it writes, and when it reads."""

    def __init__(self, serde: JsonPlusSerializer, allow: Iterable[TypeLike]) -> None:
        if serde.pickle_fallback:
            raise ValueError(
                "serde must not have pickle_fallback=True: reading a pickle runs any code that is in it"
            )
        added = frozenset(map(_name, allow))
        self._serde = serde.with_msgpack_allowlist(added)
        own, own_json = serde._allowed_msgpack_modules, serde._allowed_json_modules  # noqa: SLF001
        if own_json is True:
            raise ValueError(
                "serde must not have allowed_json_modules=True: reading calls whatever is named; list types"
            )
        #: True means all of them, and is LangGraph's default: then only what `allow` adds.
        self.allowed = SAFE_MSGPACK_TYPES | added | _names(own) | _names(own_json)
        #: An application's own hook creates what it likes, and is its own code.
        self._hooked = serde._custom_unpack_ext_hook  # noqa: SLF001

    def with_types(self, allow: Iterable[TypeLike]) -> "Guarded":
        """Return one that allows more types."""
        return Guarded(self._serde, [*self.allowed, *allow])

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return the type and the bytes of a value that can be read again."""
        typed = self._serde.dumps_typed(obj)
        self._check(typed)
        return typed

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return a value; `TypeNotAllowed` before anything that it names is imported."""
        self._check(data)
        return self._serde.loads_typed(data)

    def _check(self, typed: tuple[str, bytes]) -> None:
        kind, data = typed
        if kind == "msgpack" and not self._hooked:
            named = _named_msgpack(data)
        elif kind == "json":
            named = _named_json(data)
        else:
            return
        for name in named:
            if name not in self.allowed and name not in SAFE_MSGPACK_METHODS:
                dotted = ".".join(name)
                raise TypeNotAllowed(
                    f"LangGraph value: type {dotted!r} is not allowed; nothing was imported or stored. "
                    f"If it is your own type, pass HansardSaver(…, allow=[{name[:2]!r}])"
                )


def guarded(serde: SerializerProtocol, allow: Iterable[TypeLike]) -> SerializerProtocol:
    """Return a serializer limited to allowed types; one that is not LangGraph's as it is."""
    if isinstance(serde, Guarded):
        return serde.with_types(allow)
    if isinstance(serde, JsonPlusSerializer):
        return Guarded(serde, allow)
    if isinstance(serde, EncryptedSerializer):
        # Values that are stored without a cipher's name are read as plain text.
        found = copy.copy(serde)
        found.serde = guarded(serde.serde, allow)
        return found
    return serde


def _name(given: TypeLike) -> Name:
    if isinstance(given, type):
        return (given.__module__, given.__name__)
    if type(given) is tuple and len(given) > 1 and _are_texts(given):
        return given
    raise TypeError(f"allow must hold types or tuples of module and name, got {given!r:.80}")


def _names(own: Any) -> frozenset[Name]:
    """Return what a serializer allows; of JSON, a path has one element for each part of a module's name."""
    listed = own if isinstance(own, set) else ()
    return frozenset((".".join(one[:-1]), one[-1]) for one in listed)


def _named_msgpack(data: bytes) -> list[Name]:
    """Return the types and methods that MessagePack would have LangGraph call.

    Of short values it is remembered: the messages of a thread are written and read at each step.
    """
    data = bytes(data)
    return _named_short(data) if len(data) <= _SHORT else _named(data)


@lru_cache(maxsize=4096)
def _named_short(data: bytes) -> list[Name]:
    return _named(data)


def _named(data: bytes) -> list[Name]:
    found: list[Name] = []

    def hook(code: int, inner: bytes) -> None:
        if code not in _CREATING and code != jsonplus.EXT_DELTA_SNAPSHOT:
            return
        # What a hook raises is lost, so what cannot be read is noted, too: no type has that name.
        try:
            told = ormsgpack.unpackb(inner, ext_hook=hook, option=ormsgpack.OPT_NON_STR_KEYS)
            if code == jsonplus.EXT_DELTA_SNAPSHOT:
                return
            names = [told[0], told[1], *told[_METHOD:][: code == jsonplus.EXT_METHOD_SINGLE_ARG]]
            found.append(tuple(map(str, names)) if _are_texts(names) else (repr(names),))
        except (ValueError, TypeError, LookupError):
            found.append(("unreadable extension", str(code)))

    ormsgpack.unpackb(data, ext_hook=hook, option=ormsgpack.OPT_NON_STR_KEYS)
    return found


def _named_json(data: bytes) -> list[Name]:
    """Return the types that JSON in LangChain's notation would have it call."""
    found: list[Name] = []

    def hook(value: dict[str, Any]) -> dict[str, Any]:
        version, kind, path = (value.get(name) for name in ("lc", "type", "id"))
        if isinstance(version, dict | list) or isinstance(kind, dict | list):
            # Itself something to be created, which might equal a version or a kind.
            found.append((json.dumps(value)[:80],))
        elif version in (1, 2) and kind == "constructor" and path is not None:
            if not isinstance(path, list) or not path or not _are_texts(path):
                found.append((repr(path)[:80],))
            else:
                mapped = ALL_SERIALIZABLE_MAPPINGS.get(tuple(path), tuple(path))
                found.append((".".join(mapped[:-1]), mapped[-1]))
        return value

    json.loads(data, object_hook=hook)
    return found


def _are_texts(names: Iterable[Any]) -> bool:
    return all(isinstance(name, str) for name in names)
