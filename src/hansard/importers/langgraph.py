"""Threads of LangGraph: the SQLite files of its `SqliteSaver` and `AsyncSqliteSaver`.

Above: `bringing`.  Below: `source`, `database`, `langgraph_mirror` (the conversation in it),
`adapters.langgraph_events` and `adapters.langgraph_values` (how a thread is stored).
A thread becomes the session in which `adapters.langgraph.HansardSaver` would have kept it, so the graph goes
on with it. Values are taken over as LangGraph serialized them, and decoded only as far as they are looked
into. Of a checkpoint that cannot be decoded, such as one that is encrypted, the bytes are kept in an event
`x.langgraph.opaque`, and it is reported: the saver does not see it.
"""

import base64
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import msgspec

from hansard.adapters import langgraph_values as values
from hansard.adapters.langgraph_events import CHECKPOINT, FORMAT, MARK, WRITES
from hansard.adapters.langgraph_threads import Threads
from hansard.importers import database
from hansard.importers.langgraph_mirror import MIRRORED, Mirror
from hansard.importers.source import (
    Files,
    Foreign,
    Found,
    Item,
    Unreadable,
    decoded,
    moment,
    text_of,
)

OPAQUE: Final = "x.langgraph.opaque"

_ENDINGS: Final = (".db", ".sqlite", ".sqlite3")
_CHECKPOINTS: Final = frozenset(
    {"thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "type", "checkpoint"}
)
_WRITES: Final = frozenset(
    {"thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", "channel"}
)

#: What a serializer of LangGraph's makes bytes of, and how to read and to write that.
_FORMATS: Final[dict[str, Any]] = {
    "msgpack": (msgspec.msgpack.decode, msgspec.msgpack.encode),
    "json": (decoded, msgspec.json.encode),
}

#: A namespace, and the id of a checkpoint in it.
Place = tuple[str, str]


def find(files: Files) -> Iterator[Found]:
    """Yield the databases below the root; a root that is a file may have any name."""
    for path in list(files.walk(*_ENDINGS)) if files.is_folder else [files.root]:
        yield Found(files.name(path), lambda path=path: _read(files, path))  # type: ignore[misc]


def _read(files: Files, path: Path) -> Iterator[Foreign]:
    with database.opened(files, path) as connection:
        tables = database.columns(connection)
        if not tables.get("checkpoints", set()) >= _CHECKPOINTS:
            raise Unreadable("no table of checkpoints as LangGraph has it")
        where = files.name(path)
        query = "SELECT DISTINCT thread_id FROM checkpoints ORDER BY thread_id"
        threads = [row[0] for row in database.rows(files, where, connection, query)]
        names = Threads("unopened", "")  # for the names that it gives
        for thread_id in threads:
            if not isinstance(thread_id, str):
                files.report(
                    f"{where}:checkpoints", f"the id of a thread is no text: {thread_id!r:.80}"
                )
                continue
            items: list[Item] = []
            with files.item(f"{where}:checkpoints:{thread_id!s:.80}"):
                items = _Thread(files, where, connection, tables, thread_id).items()
            name = names.session_id(thread_id)
            if files.is_folder:
                name = f"{path.relative_to(files.root).with_suffix('')}/{name}"
            metadata: dict[str, Any] = {MARK: FORMAT}
            if name.startswith("~~"):
                metadata["langgraph_thread"] = thread_id.encode(errors="surrogatepass").hex()
            if items:
                created = next((item.time for item in items if item.time), None)
                yield Foreign(name, items, where, metadata=metadata, created=created)


class _Thread:
    """One thread of a database."""

    def __init__(
        self,
        files: Files,
        where: str,
        connection: database.Database,
        tables: dict[str, set[str]],
        thread_id: str,
    ) -> None:
        self._files = files
        self._where = where
        self._connection = connection
        self._tables = tables
        self._thread_id = thread_id
        self._versions: dict[Place, dict[str, Any]] = {}
        self._items: list[Item] = []

    def items(self) -> list[Item]:
        """Return what the thread comes to: checkpoints as they were made, and behind each its writes."""
        query = (
            "SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata "
            "FROM checkpoints WHERE thread_id = ? ORDER BY checkpoint_id, checkpoint_ns"
        )
        writes = self._writes()
        mirror = Mirror()
        for ns, name, parent, kind, blob, about in self._rows("checkpoints", query):
            where = f"{self._where}:checkpoints:{self._thread_id}:{name}"
            data = self._put(where, (ns, name), parent, kind, blob, about)
            if data is None:
                continue
            time = moment(data.pop("time"))
            held = data.pop("held")
            said = None
            if not ns and MIRRORED in data["values"]:
                said = mirror.said(held.get(MIRRORED), writes.get((ns, parent or ""), []))
            if said is not None:
                if said.back is not None:
                    self._items.append(Item("session.reverted", {}, time, at=said.back))
                data["mirrored"] = {"channel": MIRRORED, "kept": said.kept, "marks": said.marks}
            self._items.append(Item(CHECKPOINT, data, time))
            if said is not None:
                mirror.placed(said, len(self._items))
                self._items += [Item("message.added", {"message": m}, time) for m in said.messages]
            self._items += _grouped(ns, name, writes.get((ns, name), []), time)
        self._strays(writes)
        return self._items

    def _put(
        self, where: str, place: Place, parent: Any, kind: Any, blob: Any, about: Any
    ) -> dict[str, Any] | None:
        """Return the data of a checkpoint's event, and beside them its time and values."""
        try:
            read, write = _FORMATS[kind]
            checkpoint = read(blob)
            held, versions = checkpoint.pop("channel_values"), checkpoint.pop("channel_versions")
            told = decoded(about) if about else {}
            if not all(isinstance(one, dict) for one in (held, versions, told)):
                raise TypeError("no objects where they should be")  # noqa: TRY301 - like what is not even that
        except Exception as error:  # noqa: BLE001 - whatever is wrong with bytes that others wrote
            self._opaque(where, place, kind, blob, error)
            return None
        known = self._versions.get((place[0], parent or ""), {})
        self._versions[place] = versions
        new = {channel for channel, version in versions.items() if known.get(channel) != version}
        data: dict[str, Any] = {"ns": place[0], "id": place[1]}
        if parent:
            data["parent"] = parent
        if text_of(told.get("run_id")):
            data["run"] = told["run_id"]
        data["versions"] = versions
        data["checkpoint"] = values.pack((kind, write(checkpoint)))
        data["metadata"] = values.pack(("msgpack", msgspec.msgpack.encode(told)))
        data["values"] = {
            channel: _packed(kind, write, held[channel]) if channel in held else None
            for channel in sorted(new)
        }
        return {**data, "held": held, "time": checkpoint.get("ts")}

    def _opaque(self, where: str, place: Place, kind: Any, blob: Any, error: Exception) -> None:
        # Not `bytes`, which makes as many zeros of a number.
        kept = blob if isinstance(blob, bytes) else str(blob).encode(errors="surrogatepass")
        data = {"ns": place[0], "id": place[1], "type": str(kind)}
        data["base64"] = base64.b64encode(kept).decode()
        self._items.append(Item(OPAQUE, data))
        why = f"no serializer {kind!r} is known" if kind not in _FORMATS else f"{error}"
        self._files.report(
            where,
            f"the checkpoint cannot be decoded, and is kept as bytes that no graph sees: {why:.200}",
        )

    # -- writes ---------------------------------------------------------------------------------

    def _writes(self) -> dict[Place, list[tuple[Any, ...]]]:
        """Return the writes of the thread by checkpoint, in the order in which they were made."""
        found: dict[Place, list[tuple[Any, ...]]] = {}
        if not self._tables.get("writes", set()) >= _WRITES:
            return found
        path = "task_path" if "task_path" in self._tables["writes"] else "''"
        query = (
            f"SELECT checkpoint_ns, checkpoint_id, task_id, {path}, idx, channel, type, value "  # noqa: S608 - one of two
            "FROM writes WHERE thread_id = ? ORDER BY rowid"
        )
        for ns, name, *write in self._rows("writes", query):
            task, _, index, channel, kind, value = write
            if not (
                isinstance(task, str)
                and isinstance(channel, str)
                and isinstance(kind, str)
                and isinstance(index, int)
                and isinstance(value, bytes | type(None))
            ):
                where = f"{self._where}:writes:{self._thread_id}:{name}"
                self._files.report(
                    where, f"a write of the task {task!r:.60} cannot be read: skipped"
                )
                continue
            found.setdefault((ns, name), []).append(tuple(write))
        return found

    def _strays(self, writes: dict[Place, list[tuple[Any, ...]]]) -> None:
        """Report writes whose checkpoint is not there: nobody can apply them."""
        for ns, name in writes.keys() - self._versions.keys():
            where = f"{self._where}:writes:{self._thread_id}:{name}"
            count = len(writes[ns, name])
            self._files.report(
                where, f"{count} writes for a checkpoint that was not imported: skipped"
            )

    def _rows(self, table: str, query: str) -> Iterator[tuple[Any, ...]]:
        where = f"{self._where}:{table}"
        return database.rows(self._files, where, self._connection, query, self._thread_id)


def _packed(kind: str, write: Any, value: Any) -> dict[str, Any]:
    """Return a channel's value as it is stored: the items of a list one by one."""
    if isinstance(value, list) and value:
        return {"list": [values.pack((kind, write(item))) for item in value]}
    return values.pack((kind, write(value)))


def _grouped(ns: str, name: str, writes: list[tuple[Any, ...]], time: str | None) -> Iterator[Item]:
    """Yield one item for what a task wrote in a row."""
    for (task, path), rows in groupby(writes, key=lambda row: (row[0], row[1])):
        told = [
            [index, channel, values.pack((kind, value or b""))]
            for _, _, index, channel, kind, value in rows
        ]
        data = {"ns": ns, "checkpoint": name, "task": task, "path": path, "writes": told}
        yield Item(WRITES, data, time)
