"""The step stores of Pydantic AI's harness: a `FileStepStore`, or a `SqliteStepStore`.

Above: `pydantic_ai`.  Below: `source`, `database`, `pydantic_media`, `adapters.pydantic_items`.
A run becomes the session in which `adapters.pydantic_ai.HansardStepStore` would have kept it: its steps, its
snapshots, each of whose messages is stored once, and what its tools have done, in the order of their times.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from hansard.adapters.pydantic_items import message_of
from hansard.importers import database
from hansard.importers.pydantic_media import Media, restored
from hansard.importers.source import (
    Files,
    Foreign,
    Item,
    Unreadable,
    decoded,
    moment,
    said,
    text_of,
)

#: The file that says what is known of a run.
RECORD: Final = "run.json"

#: The kinds of events, and the prefix of the sessions, that the adapter has.
_RUN: Final = "x.pydantic-ai.run"
_STEP: Final = "x.pydantic-ai.step"
_SNAPSHOT: Final = "x.pydantic-ai.snapshot"
_EFFECT: Final = "x.pydantic-ai.effect"
_PREFIX: Final = "steps/"

#: What each of them says, whatever else its store says of it.
_RUN_MEMBERS: Final = (
    "run_id",
    "conversation_id",
    "parent_run_id",
    "agent_name",
    "metadata",
    "started_at",
    "registration_id",
)
_STEP_MEMBERS: Final = (
    "run_id",
    "kind",
    "step_index",
    "timestamp",
    "conversation_id",
    "parent_run_id",
    "agent_name",
    "tool_call_id",
    "tool_name",
    "error",
    "metadata",
    "idempotency_key",
)
_SNAPSHOT_MEMBERS: Final = (
    "run_id",
    "step_index",
    "conversation_id",
    "parent_run_id",
    "agent_name",
    "timestamp",
    "state",
    "idempotency_key",
)
_EFFECT_MEMBERS: Final = (
    "tool_call_id",
    "tool_name",
    "run_id",
    "status",
    "started_at",
    "ended_at",
    "idempotency_key",
    "effect_summary",
)
#: What must be there, by table; the other columns came later.
_NEEDED: Final = {
    "runs": {"run_id", "started_at"},
    "events": {"run_id", "kind", "step_index", "timestamp"},
    "snapshots": {"seq", "run_id", "step_index", "timestamp", "messages"},
    "tool_effects": {"run_id", "tool_call_id", "tool_name", "status", "started_at"},
}

Record = dict[str, Any]


class Step(msgspec.Struct):
    """Something that a run did: a step, an effect of a tool, or a snapshot with its messages."""

    kind: str
    data: Record
    where: str
    time: str
    messages: list[Any] = []


def are_in(tables: dict[str, set[str]]) -> bool:
    """Say whether a database is a step store."""
    return all(tables.get(name, set()) >= columns for name, columns in _NEEDED.items())


# -- sessions -----------------------------------------------------------------------------------


def _sessions(
    files: Files,
    runs: list[tuple[Record, list[Step]]],
    media: Media,
    before: str,
    where: str,
) -> Iterator[Foreign]:
    """Yield a session for each run, and one that has the list of them."""
    runs.sort(key=lambda run: moment(run[0].get("started_at")) or "")
    listed = [
        Item(_RUN, _only(record, _RUN_MEMBERS), moment(record.get("started_at")))
        for record, _ in runs
    ]
    if listed:
        yield Foreign(f"{before}{_PREFIX}runs", listed, where)
    for record, steps in runs:
        # Those of one time in the order in which the run did them.
        items = _items(files, sorted(steps, key=lambda step: step.time), media)
        if not items:
            continue
        about = {"agent": record.get("agent_name"), "conversation": record.get("conversation_id")}
        yield Foreign(
            f"{before}{_PREFIX}run/{record['run_id']}",
            items,
            where,
            metadata={name: text for name, value in about.items() if (text := text_of(value))},
            created=moment(record.get("started_at")),
        )


def _items(files: Files, steps: list[Step], media: Media) -> list[Item]:
    items: list[Item] = []
    # Which messages are there, and after how many items each stands, itself among them.
    places: dict[str, int] = {}
    for step in steps:
        if step.kind != _SNAPSHOT:
            items.append(Item(step.kind, step.data, step.time))
            continue
        held = []
        for number, native in enumerate(step.messages):
            where = f"{step.where}[{number}]"
            with files.item(where):
                if not isinstance(native, dict) or not isinstance(native.get("parts"), list):
                    raise Unreadable("no message of Pydantic AI: it has no parts")
                whole = native
                with files.item(where):
                    whole = restored(native, media)
                text = json.dumps(whole, sort_keys=True)
                if text not in places:
                    items.append(said(message_of(whole), step.time))
                    places[text] = len(items)
                held.append(places[text])
        data = {"snapshot": step.data, "keep": None}
        items.append(Item(_SNAPSHOT, data, step.time, at=tuple(held)))
    return items


def _only(record: Record, members: Iterable[str]) -> Record:
    found = {name: record.get(name) for name in members}
    if "metadata" in found:
        found["metadata"] = found["metadata"] or {}
    if "state" in found:
        found["state"] = found["state"] or "complete"
    return found


def _step(kind: str, record: Any, members: tuple[str, ...], where: str) -> Step:
    """Return what one record says; raise `Unreadable` if it is none."""
    data = _only(record, members) if isinstance(record, dict) else {}
    names = ("ended_at", "started_at") if kind == _EFFECT else ("timestamp",)
    time = next((found for name in names if (found := moment(data.get(name)))), None)
    if time is None or not text_of(data.get("run_id")):
        raise Unreadable("no record of a step: it has no run or no time")
    messages = record.get("messages") if kind == _SNAPSHOT else []
    if not isinstance(messages, list):
        raise Unreadable("no snapshot: it has no list of messages")
    return Step(kind, data, where, time, messages)


# -- files --------------------------------------------------------------------------------------


def of_folder(files: Files, folder: Path, before: str) -> Iterator[Foreign]:
    """Read a `FileStepStore`."""
    runs = []
    for child in files.children(folder):
        if not child.is_dir() or not files.exists(child / RECORD):
            continue
        with files.item(child / RECORD):
            record = files.json(child / RECORD)
            if not isinstance(record, dict) or not text_of(record.get("run_id")):
                raise Unreadable("no record of a run")
            runs.append((record, list(_of_run(files, child))))
    media = Media(files, folder / "media")
    yield from _sessions(files, runs, media, before, files.name(folder))


def _of_run(files: Files, child: Path) -> Iterator[Step]:
    logs = (
        ("events.jsonl", _STEP, _STEP_MEMBERS),
        ("tool_effects.jsonl", _EFFECT, _EFFECT_MEMBERS),
    )
    for name, kind, members in logs:
        path = child / name
        for number, record in files.lines(path) if files.exists(path) else ():
            where = files.name(path, number)
            with files.item(where):
                yield _step(kind, record, members, where)
    snapshots = child / "snapshots"
    found = files.children(snapshots) if files.exists(snapshots) else []
    for path in sorted((one for one in found if one.stem.isdigit()), key=lambda one: int(one.stem)):
        with files.item(path):
            yield _step(_SNAPSHOT, files.json(path), _SNAPSHOT_MEMBERS, files.name(path))


# -- databases ----------------------------------------------------------------------------------


def of_database(
    files: Files,
    path: Path,
    connection: database.Database,
    tables: dict[str, set[str]],
    media: Media,
    before: str,
) -> Iterator[Foreign]:
    """Read a `SqliteStepStore`."""
    reading = _Tables(files, path, connection, tables)
    steps: dict[str, list[Step]] = {}
    for step in reading.steps():
        steps.setdefault(step.data["run_id"], []).append(step)
    runs = [(record, steps.get(record["run_id"], [])) for record in reading.runs()]
    for run_id in steps.keys() - {record["run_id"] for record, _ in runs}:
        files.report(
            f"{files.name(path)}:runs:{run_id}", "steps of a run that is not registered: skipped"
        )
    yield from _sessions(files, runs, media, before, files.name(path))


class _Tables:
    """The tables of a step store."""

    def __init__(
        self,
        files: Files,
        path: Path,
        connection: database.Database,
        tables: dict[str, set[str]],
    ) -> None:
        self._files = files
        self._name = files.name(path)
        self._connection = connection
        self._tables = tables

    def runs(self) -> Iterator[Record]:
        for record, where in self._records("runs", _RUN_MEMBERS, "started_at, rowid"):
            if text_of(record["run_id"]):
                yield record
            else:
                self._files.report(where, "no record of a run")

    def steps(self) -> Iterator[Step]:
        for record, where in self._records("events", _STEP_MEMBERS, "rowid"):
            yield from self._step(_STEP, record, _STEP_MEMBERS, where)
        for record, where in self._records("tool_effects", _EFFECT_MEMBERS, "rowid"):
            if record["status"] != "started":
                # That a call began was overwritten when it ended; it was so nevertheless.
                begun = {**record, "status": "started", "ended_at": None, "effect_summary": None}
                yield from self._step(_EFFECT, begun, _EFFECT_MEMBERS, where)
            yield from self._step(_EFFECT, record, _EFFECT_MEMBERS, where)
        members = (*_SNAPSHOT_MEMBERS, "seq", "messages")
        for record, where in self._records("snapshots", members, "seq"):
            if isinstance(record["messages"], dict):
                record["messages"] = self._referred(where, record["seq"], record["messages"])
            yield from self._step(_SNAPSHOT, record, _SNAPSHOT_MEMBERS, where)

    def _step(
        self, kind: str, record: Record, members: tuple[str, ...], where: str
    ) -> Iterator[Step]:
        with self._files.item(where):
            yield _step(kind, record, members, where)

    def _records(
        self, table: str, members: tuple[str, ...], order: str
    ) -> Iterator[tuple[Record, str]]:
        """Yield the rows of a table, and where each stands; what is JSON in them is decoded."""
        own = [name for name in members if name in self._tables[table]]
        query = f"SELECT rowid, {', '.join(own)} FROM {table} ORDER BY {order}"  # noqa: S608 - our own names
        found = database.rows(self._files, f"{self._name}:{table}", self._connection, query)
        for number, *row in list(found):
            where = f"{self._name}:{table}:{number}"
            record: Record = dict.fromkeys(members) | dict(zip(own, row, strict=True))
            with self._files.item(where):
                for name in {"metadata", "messages"} & set(own):
                    told = record[name]
                    record[name] = decoded(told) if isinstance(told, str | bytes) else told
                yield record, where

    def _referred(self, where: str, seq: int, told: Record) -> list[Any] | None:
        """Return the messages of a snapshot that are stored one by one, so that snapshots share them."""
        if "snapshot_message_refs" not in self._tables:
            return None
        query = (
            "SELECT message FROM snapshot_message_refs JOIN snapshot_messages USING (sha256) "
            "WHERE snapshot_seq = ? ORDER BY position"
        )
        found = []
        for place, (text,) in enumerate(
            database.rows(self._files, where, self._connection, query, seq)
        ):
            with self._files.item(f"{where}[{place}]"):
                found.append(decoded(text))
        wanted = told.get("stored_messages")
        if len(found) != wanted:
            self._files.report(
                where, f"{len(found)} of the {wanted} messages of a snapshot are there"
            )
        return found
