"""Import LangGraph threads: the SQLite files of its `SqliteSaver` and `AsyncSqliteSaver`.

A thread becomes the session in which `adapters.langgraph.HansardSaver` would have stored it, so a graph
continues it. Values stay as LangGraph serialized them. A checkpoint that cannot be decoded, for example
because it is encrypted, is reported and left out.
"""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import msgspec

from hansard.importers import database
from hansard.importers.foreign_json import Unreadable, list_of, member, parse_time, text_in
from hansard.importers.source import Files, ForeignSession, Item, SourceEntry
from hansard.message import langgraph_values as values
from hansard.message.langgraph_values import CHECKPOINT, FORMAT, MARK, WRITES

#: The channel whose messages become the conversation.
_MIRRORED: Final = "messages"

#: The required columns of the two tables.
_PLACE: Final = frozenset({"thread_id", "checkpoint_ns", "checkpoint_id"})
_CHECKPOINTS: Final = _PLACE | {"parent_checkpoint_id", "type", "checkpoint"}
_WRITES: Final = _PLACE | {"task_id", "idx", "channel"}

#: LangGraph's serializations, and how to read and write each.
_FORMATS: Final[dict[str, Any]] = {
    "msgpack": (msgspec.msgpack.decode, msgspec.msgpack.encode),
    "json": (Files.decode, msgspec.json.encode),
}

#: Codes of LangGraph's MessagePack extensions: pydantic models (1 and 2), and a list stored as its changes.
_MODELS: Final = frozenset({4, 5})
_SNAPSHOT: Final = 7
#: A model is its module, its class, and at this index its members.
_MEMBERS: Final = 2

#: A namespace, and the id of a checkpoint in it.
Place = tuple[str, str]
#: A row of the table `writes`: task, path, index, channel, type, value.
Write = tuple[Any, ...]


def find(files: Files) -> Iterator[SourceEntry]:
    """Yield the databases."""
    for path in database.paths(files):
        yield files.entry(_read, path)


def _read(files: Files, path: Path) -> Iterator[ForeignSession]:
    with database.opened(files, path) as connection:
        if not connection.has("checkpoints", _CHECKPOINTS):
            raise Unreadable("no table of LangGraph checkpoints")
        where = connection.name
        query = "SELECT DISTINCT thread_id FROM checkpoints ORDER BY thread_id"
        for (thread_id,) in list(connection.rows("checkpoints", query)):
            items: list[Item] = []
            with files.item(f"{where}:checkpoints:{thread_id!s:.80}"):
                if not isinstance(thread_id, str):
                    raise Unreadable(f"the id of a thread is not a text: {thread_id!r:.80}")
                items = _Thread(connection, thread_id).items()
            if items:
                yield ForeignSession(connection.prefix + thread_id, items, where, {MARK: FORMAT})


class _Thread:
    """One thread of a database."""

    def __init__(self, connection: database.Database, thread_id: str) -> None:
        self._connection = connection
        self._thread_id = thread_id
        self._versions: dict[Place, dict[str, Any]] = {}
        self._items: list[Item] = []
        #: Ids of the messages whose usage is imported.
        self._counted: set[str] = set()

    def items(self) -> list[Item]:
        """Return the checkpoints, oldest first, each followed by its messages and writes."""
        query = (
            "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata "
            "FROM checkpoints WHERE thread_id = ? ORDER BY checkpoint_id, checkpoint_ns"
        )
        writes = self._writes()
        rows = self._connection.rows("checkpoints", query, self._thread_id)
        #: The mark of each mirrored message, and the number of items up to it.
        known: list[tuple[str, int]] = []
        for ns, name, parent, kind, blob, about in rows:
            try:
                data, held, time = self._checkpoint((ns, name), parent, kind, blob, about)
            except Exception as error:  # noqa: BLE001 - anything may be wrong with foreign bytes
                why = f"unknown serializer {kind!r}" if kind not in _FORMATS else f"{error}"
                self._report("checkpoints", name, f"cannot be decoded: {why:.200}; it is left out")
                continue
            added, usage = None, list[Item]()
            if not ns and _MIRRORED in data["values"]:
                # Without a value, only the writes of the parent checkpoint are stored.
                value, written = held.get(_MIRRORED), writes.get((ns, parent or ""), [])
                natives = _natives(value, written)
                messages = list(filter(None, map(_message, natives)))
                usage = self._usage(natives, time)
                added = values.mirror_change(known, messages, more=value is None)
            if added is not None:
                if added.back is not None:
                    self._items.append(Item("session.reverted", {}, time, added.back))
                data["mirrored"] = {"channel": _MIRRORED, "kept": added.kept, "marks": added.marks}
            self._items.append(Item(CHECKPOINT, data, time))
            if added is not None:
                places = enumerate(added.marks, len(self._items) + 1)
                known[added.kept :] = [(mark, place) for place, mark in places]
                self._items += [Item.message(message, time) for message in added.messages]
            self._items += usage
            self._items += _grouped(ns, name, writes.get((ns, name), []), time)
        for ns, name in writes.keys() - self._versions.keys():
            count = len(writes[ns, name])
            self._report("writes", name, f"writes for a checkpoint that was not imported: {count}")
        return self._items

    def _checkpoint(
        self, place: Place, parent: Any, kind: Any, blob: Any, about: Any
    ) -> tuple[dict[str, Any], dict[str, Any], str | None]:
        """Return the data of a checkpoint's event, its values and its time."""
        read, write = _FORMATS[kind]
        checkpoint = read(blob)
        held, versions = checkpoint.pop("channel_values"), checkpoint.pop("channel_versions")
        metadata = Files.decode(about) if about else {}
        if not all(isinstance(one, dict) for one in (held, versions, metadata)):
            raise TypeError("not objects")
        known = self._versions.get((place[0], parent or ""), {})
        new = {channel for channel, version in versions.items() if known.get(channel) != version}
        data: dict[str, Any] = {"ns": place[0], "id": place[1]}
        if parent:
            data["parent"] = parent
        if run := text_in(metadata, "run_id"):
            data["run"] = run
        data["versions"] = versions
        data["checkpoint"] = values.pack((kind, write(checkpoint)))
        data["metadata"] = values.pack(("msgpack", msgspec.msgpack.encode(metadata)))
        data["values"] = {
            channel: _packed(kind, write, held[channel]) if channel in held else None
            for channel in sorted(new)
        }
        time = parse_time(checkpoint.get("ts"))
        self._versions[place] = versions
        return data, held, time

    def _usage(self, natives: list[Any], time: str | None) -> list[Item]:
        """Return the usage that new messages report, each by its id, as the adapter records it."""
        found = []
        for given in filter(None, map(_model, natives)):
            name, usage = text_in(given, "id"), values.usage_of(given.get)
            if usage is not None and name is not None and name not in self._counted:
                self._counted.add(name)
                found.append(Item("usage.recorded", {**usage, "response_id": name}, time))
        return found

    def _writes(self) -> dict[Place, list[Write]]:
        """Return the writes of the thread by checkpoint, oldest first."""
        found: dict[Place, list[Write]] = {}
        if not self._connection.has("writes", _WRITES):
            return found
        path = "task_path" if "task_path" in self._connection.tables["writes"] else "''"
        query = (
            f"SELECT checkpoint_ns, checkpoint_id, task_id, {path}, idx, channel, type, value "  # noqa: S608 - one of two
            "FROM writes WHERE thread_id = ? ORDER BY rowid"
        )
        for ns, name, *write in self._connection.rows("writes", query, self._thread_id):
            task, _, index, channel, kind, value = write
            texts = all(isinstance(one, str) for one in (task, channel, kind))
            if texts and isinstance(index, int) and isinstance(value, bytes | type(None)):
                found.setdefault((ns, name), []).append(tuple(write))
            else:
                self._report("writes", name, f"a write of task {task!r:.60} cannot be read")
        return found

    def _report(self, table: str, checkpoint: str, what: str) -> None:
        where = f"{self._connection.name}:{table}:{self._thread_id}:{checkpoint}"
        self._connection.files.report(where, what)


def _packed(kind: str, write: Any, value: Any) -> dict[str, Any]:
    if isinstance(value, list) and value:
        return {"list": [values.pack((kind, write(item))) for item in value]}
    return values.pack((kind, write(value)))


def _grouped(ns: str, name: str, writes: list[Write], time: str | None) -> Iterator[Item]:
    """Yield one item for consecutive writes of a task."""
    for (task, path), rows in groupby(writes, key=lambda row: (row[0], row[1])):
        packed = [
            [index, channel, values.pack((kind, value or b""))]
            for _, _, index, channel, kind, value in rows
        ]
        data = {"ns": ns, "checkpoint": name, "task": task, "path": path, "writes": packed}
        yield Item(WRITES, data, time)


def _natives(value: Any, written: list[Write]) -> list[Any]:
    """Return LangGraph's messages in a value of the channel, or in the writes to it."""
    if value is not None:
        return _listed(value)
    mine = [row for row in written if row[3] == _MIRRORED]
    rows = sorted(mine, key=lambda row: (row[1], row[0], row[2]))
    return [one for row in rows for one in _listed(_decoded(row[4], row[5]))]


def _decoded(kind: object, content: bytes | None) -> Any:
    try:
        return (msgspec.json if kind == "json" else msgspec.msgpack).decode(content or b"")
    except (msgspec.MsgspecError, ValueError):
        return None


def _listed(value: Any) -> list[Any]:
    if isinstance(value, msgspec.msgpack.Ext) and value.code == _SNAPSHOT:
        value = _decoded("msgpack", bytes(value.data))
    return value if isinstance(value, list) else [value]


def _message(native: Any) -> dict[str, Any] | None:
    given = _model(native)
    return values.plain_message(native) if given is None else values.message_of(given.get)


def _model(native: Any) -> dict[str, Any] | None:
    """Return the members of a LangChain message; None if it is not one."""
    given: Any = None
    if isinstance(native, msgspec.msgpack.Ext) and native.code in _MODELS:
        model = list_of(_decoded("msgpack", bytes(native.data)))
        if len(model) > _MEMBERS and str(model[0]).startswith("langchain_core.messages"):
            given = model[_MEMBERS]
    elif member(native, "lc") and isinstance(member(native, "id"), list):
        given = native.get("kwargs")
    return given if isinstance(given, dict) else None
