"""Limit the types that LangGraph creates from stored values.

LangGraph's serializer imports the module and calls the name that a stored value contains, even `os.system`.
`Guarded` first reads a value without creating anything. It refuses the value unless every name in it is on
LangGraph's own strict list or was added by the application.
"""

import copy
import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import ormsgpack
from langchain_core.load.load import ALL_SERIALIZABLE_MAPPINGS
from langgraph.checkpoint.serde import jsonplus
from langgraph.checkpoint.serde._msgpack import SAFE_MSGPACK_METHODS, SAFE_MSGPACK_TYPES
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

import hansard

#: A type, or its module and name.
TypeLike = type | tuple[str, ...]
#: Module and name; of a method, three names.
Name = tuple[str, ...]

#: Maximum bytes of a value whose names are cached.
_SHORT: Final = 4096
#: Index of a method's name, after module, type and argument.
_METHOD: Final = 3


class TypeNotAllowed(hansard.HansardError):
    """A value names a type that the application has not allowed; nothing was imported or called."""


class Guarded(SerializerProtocol):
    """LangGraph's serializer, limited to allowed types: when it writes, and when it reads."""

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
                "serde must not have allowed_json_modules=True: reading calls any name; list types"
            )
        # True, LangGraph's default, means all types: here it adds none.
        self.allowed = SAFE_MSGPACK_TYPES | added | _names(own) | _names(own_json)
        #: An application's hook is the application's code, and decides what it creates.
        self._hooked = serde._custom_unpack_ext_hook  # noqa: SLF001

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return the type and the bytes of a value; `TypeNotAllowed` if it could not be read again."""
        typed = self._serde.dumps_typed(obj)
        self._check(typed)
        return typed

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return a value; `TypeNotAllowed` before anything that it names is imported."""
        self._check(data)
        return self._serde.loads_typed(data)

    def _check(self, typed: tuple[str, bytes]) -> None:
        kind, data = typed
        named: list[Name] = []
        if kind == "msgpack" and not self._hooked:
            data = bytes(data)
            # Cached: the messages of a thread are written and read at each step.
            named = _short_names(data) if len(data) <= _SHORT else _msgpack_names(data)
        elif kind == "json":
            named = _json_names(data)
        for name in named:
            if name not in self.allowed and name not in SAFE_MSGPACK_METHODS:
                dotted = ".".join(name)
                raise TypeNotAllowed(
                    f"LangGraph value: type {dotted!r} is not allowed; nothing was imported or stored. "
                    f"If it is your own type, pass HansardSaver(…, allow=[{name[:2]!r}])"
                )


def guarded(serde: SerializerProtocol, allow: Iterable[TypeLike]) -> SerializerProtocol:
    """Return a serializer limited to allowed types; one that is not LangGraph's is not changed."""
    if isinstance(serde, Guarded):
        return Guarded(serde._serde, [*serde.allowed, *allow])  # noqa: SLF001 - of this module
    if isinstance(serde, JsonPlusSerializer):
        return Guarded(serde, allow)
    if isinstance(serde, EncryptedSerializer):
        # It reads values that are stored without a cipher's name as plain text.
        found = copy.copy(serde)
        found.serde = guarded(serde.serde, allow)
        return found
    return serde


def _name(given: TypeLike) -> Name:
    if isinstance(given, type):
        return (given.__module__, given.__name__)
    if type(given) is tuple and len(given) > 1 and _are_strings(given):
        return given
    raise TypeError(f"allow must hold types or tuples of module and name, got {given!r:.80}")


def _names(own: Any) -> frozenset[Name]:
    """Return the types that a serializer allows; for JSON, a module's name is split at its dots."""
    listed = own if isinstance(own, set) else ()
    return frozenset((".".join(one[:-1]), one[-1]) for one in listed)


def _msgpack_names(data: bytes) -> list[Name]:
    """Return the types and methods that LangGraph would call for MessagePack."""
    found: list[Name] = []

    def hook(code: int, inner: bytes) -> None:
        if code == jsonplus.EXT_NUMPY_ARRAY:
            return  # all other extensions name what they create, or contain some that do
        # An exception in a hook is lost, so an unreadable extension gets a name that no type has.
        try:
            told = ormsgpack.unpackb(inner, ext_hook=hook, option=ormsgpack.OPT_NON_STR_KEYS)
            if code == jsonplus.EXT_DELTA_SNAPSHOT:
                return
            names = [told[0], told[1], *told[_METHOD:][: code == jsonplus.EXT_METHOD_SINGLE_ARG]]
            found.append(tuple(map(str, names)) if _are_strings(names) else (repr(names),))
        except (ValueError, TypeError, LookupError):
            found.append(("unreadable extension", str(code)))

    ormsgpack.unpackb(data, ext_hook=hook, option=ormsgpack.OPT_NON_STR_KEYS)
    return found


_short_names = lru_cache(maxsize=4096)(_msgpack_names)


def _json_names(data: bytes) -> list[Name]:
    """Return the types that LangGraph would call for JSON in LangChain's notation."""
    found: list[Name] = []

    def hook(value: dict[str, Any]) -> dict[str, Any]:
        version, kind, path = (value.get(name) for name in ("lc", "type", "id"))
        if isinstance(version, dict | list) or isinstance(kind, dict | list):
            # Created itself, it could equal a version or a kind.
            found.append((json.dumps(value)[:80],))
        elif version in (1, 2) and kind == "constructor" and path is not None:
            if not isinstance(path, list) or not path or not _are_strings(path):
                found.append((repr(path)[:80],))
            else:
                mapped = ALL_SERIALIZABLE_MAPPINGS.get(tuple(path), tuple(path))
                found.append((".".join(mapped[:-1]), mapped[-1]))
        return value

    json.loads(data, object_hook=hook)
    return found


def _are_strings(names: Iterable[Any]) -> bool:
    return all(isinstance(name, str) for name in names)
