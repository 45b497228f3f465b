"""Import Pydantic AI conversations: messages as JSON, and the stores of its harness, in files or SQLite.

A message becomes the one that `adapters.pydantic_ai` would have stored, where that looks for it:

    a JSON file with a list of messages     a session with the name of the file, for `SessionPersistence`
    a database of conversations             a session each, likewise
    a directory of runs, `<run>/run.json`   `steps/run/<run>` each and `steps/runs`, for `HansardStepStore`
    a database of runs                      likewise

The session of a run holds its steps, its snapshots, whose messages are stored once each, and the effects of
its tools, by time. The harness stores long texts and pictures separately; they are put back into the
messages.
"""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from hansard.importers import database
from hansard.importers.foreign_json import (
    Unreadable,
    member,
    object_of,
    parse_time,
    text_in,
    text_of,
    time_in,
    without,
)
from hansard.importers.source import Files, ForeignSession, Item, SourceEntry
from hansard.message.pydantic_items import EFFECT, FORMAT, RUN, SNAPSHOT, STEP, message_of

_KINDS: Final = frozenset({"request", "response"})
_CONVERSATIONS: Final = frozenset({"id", "revision", "metadata", "messages", "updated_at"})

#: Members of a summary that are stored elsewhere, follow from the messages, or describe a process.
_READ: Final = (
    *("archived_at", "id", "message_count", "owner_pid", "revision", "schema_version", "title"),
    *("total_tokens", "updated_at", "workspace"),
)

#: The file that describes a run.
_RECORD: Final = "run.json"

#: Prefix of the adapter's sessions.
_PREFIX: Final = "steps/"

#: The required columns of each table; later versions added others.
_TABLES: Final = {
    "runs": frozenset({"run_id", "started_at"}),
    "events": frozenset({"run_id", "kind", "step_index", "timestamp"}),
    "snapshots": frozenset({"seq", "run_id", "step_index", "timestamp", "messages"}),
    "tool_effects": frozenset({"run_id", "tool_call_id", "tool_name", "status", "started_at"}),
}

Record = dict[str, Any]
#: Returns the separately stored bytes of a SHA-256, if there are any.
Blobs = Callable[[str], bytes | None]


def find(files: Files) -> Iterator[SourceEntry]:
    """Yield directories of runs, databases, and files of messages."""
    paths = [files.root]
    if files.is_directory:
        # A directory with runs is one store, and everything in it belongs to that.
        runs = [path.parent for path in files.walk(_RECORD) if path.name == _RECORD]
        for directory in sorted({run.parent for run in runs}):
            yield files.entry(_directory, directory)
        inside = {*runs, *(run.parent / "media" for run in runs)}
        found = files.walk(".json", *database.ENDINGS)
        paths = [path for path in found if inside.isdisjoint(path.parents)]
    for path in paths:
        yield files.entry(_list if path.suffix == ".json" else _database, path)


# -- messages -----------------------------------------------------------------------------------


def _list(files: Files, path: Path) -> Iterator[ForeignSession]:
    where = files.name(path)
    items = _conversation(files, where, files.json(path), lambda _: None)
    if items:
        yield ForeignSession(files.stem(path), items, where)


def _conversation(files: Files, where: str, messages: Any, blobs: Blobs) -> list[Item]:
    """Return the items of a list of messages."""
    if not isinstance(messages, list):
        raise Unreadable("not a list of Pydantic AI messages")
    items = []
    for place, native in enumerate(messages):
        with files.item(f"{where}[{place}]"):
            if text_in(native, "kind") not in _KINDS:
                raise Unreadable("not a Pydantic AI message: it has no kind")
            complete = _complete(files, f"{where}[{place}]", native, blobs)
            times = (time_in(one, "timestamp") for one in (complete, *complete["parts"]))
            items.append(Item.message(message_of(complete), next(filter(None, times), None)))
    return items


def _complete(files: Files, where: str, native: Any, blobs: Blobs) -> Record:
    """Return a message with its media, as far as they are there."""
    if not isinstance(member(native, "parts"), list):
        raise Unreadable("not a Pydantic AI message: it has no parts")
    complete: Record = native
    with files.item(where):
        complete = _restored(native, blobs)
    return complete  # noqa: RET504 - unless `item` has reported an error


# -- databases ----------------------------------------------------------------------------------


def _database(files: Files, path: Path) -> Iterator[ForeignSession]:
    with database.opened(files, path) as connection:
        conversations = connection.has("conversations", _CONVERSATIONS)
        steps = all(connection.has(name, columns) for name, columns in _TABLES.items())
        if not conversations and not steps:
            raise Unreadable("no tables of Pydantic AI's harness")
        if conversations:
            yield from _conversations(connection)
        if steps:
            yield from _stored_runs(connection)


def _blob(connection: database.Database, digest: str) -> bytes | None:
    if not connection.has("media", frozenset({"sha256", "bytes"})):
        return None
    row = connection.execute("SELECT bytes FROM media WHERE sha256 = ?", (digest,)).fetchone()
    return row[0] if row is not None and isinstance(row[0], bytes) else None


def _conversations(connection: database.Database) -> Iterator[ForeignSession]:
    """Read a `SqliteConversationStore`."""
    query = "SELECT id, metadata, messages, updated_at FROM conversations ORDER BY id"
    for name, about, messages, updated in connection.rows("conversations", query):
        where = f"{connection.name}:conversations:{name}"
        items: list[Item] = []
        with connection.files.item(where):
            summary = Files.decode(about) if isinstance(about, str) else None
            blobs = partial(_blob, connection)
            items = _conversation(connection.files, where, Files.decode(messages), blobs)
        if items:
            items = [one if one.time else one._replace(time=parse_time(updated)) for one in items]
            # The harness gives a fallback title until a user sets one.
            titled = member(summary, "title_source") != "fallback"
            metadata = {
                "title": text_in(summary, "title") if titled else None,
                "workspace": text_in(summary, "workspace"),
                FORMAT: without(summary, *_READ) if isinstance(summary, dict) else {},
            }
            archived = member(summary, "archived_at") is not None
            session_id = connection.prefix + str(name)
            yield ForeignSession(session_id, items, where, metadata, archived=archived)


# -- runs ---------------------------------------------------------------------------------------


class Step(msgspec.Struct):
    """A step of a run, an effect of a tool, or a snapshot with its messages."""

    kind: str
    data: Record
    where: str
    time: str
    messages: list[Any] = []


def _steps(files: Files, records: Iterable[tuple[str, Any, str]]) -> list[Step]:
    """Return steps, given the kind and place of each; report what is not a step."""
    found = []
    for kind, record, where in records:
        with files.item(where):
            data = _stated(object_of(record, "a step"))
            names = ("ended_at", "started_at") if kind == EFFECT else ("timestamp",)
            time = time_in(data, *names)
            if time is None or not text_in(data, "run_id"):
                raise Unreadable("not a step: it has no run or no time")
            messages = record.get("messages") if kind == SNAPSHOT else []
            if not isinstance(messages, list):
                raise Unreadable("not a snapshot: it has no list of messages")
            found.append(Step(kind, data, where, time, messages))
    return found


def _stated(record: Record) -> Record:
    """Return what a record states of itself; the adapter knows what the rest means."""
    return {name: one for name, one in record.items() if one is not None and name != "messages"}


def _runs(
    files: Files, runs: list[tuple[Record, list[Step]]], blobs: Blobs, prefix: str, where: str
) -> Iterator[ForeignSession]:
    """Yield a session with the list of runs, and one for each run."""
    runs.sort(key=lambda run: time_in(run[0], "started_at") or "")
    listed = [Item(RUN, _stated(run), time_in(run, "started_at")) for run, _ in runs]
    if listed:
        yield ForeignSession(f"{prefix}{_PREFIX}runs", listed, where)
    for run, steps in runs:
        # Steps of one time stay in their order.
        items = _items(files, sorted(steps, key=lambda step: step.time), blobs)
        if items:
            about = {"agent": "agent_name", "conversation": "conversation_id"}
            metadata = {name: text_in(run, member) for name, member in about.items()}
            name = f"{prefix}{_PREFIX}run/{run['run_id']}"
            yield ForeignSession(name, items, where, metadata, time_in(run, "started_at"))


def _items(files: Files, steps: list[Step], blobs: Blobs) -> list[Item]:
    items: list[Item] = []
    #: The number of items up to each message.
    places: dict[str, int] = {}
    for step in steps:
        if step.kind != SNAPSHOT:
            items.append(Item(step.kind, step.data, step.time))
            continue
        held = []
        for number, native in enumerate(step.messages):
            where = f"{step.where}[{number}]"
            with files.item(where):
                complete = _complete(files, where, native, blobs)
                text = json.dumps(complete, sort_keys=True)
                if text not in places:
                    items.append(Item.message(message_of(complete), step.time))
                    places[text] = len(items)
                held.append(places[text])
        data = {"snapshot": step.data, "keep": None}
        items.append(Item(SNAPSHOT, data, step.time, tuple(held)))
    return items


def _directory(files: Files, directory: Path) -> Iterator[ForeignSession]:
    """Read a `FileStepStore`."""
    runs = []
    for child in files.children(directory):
        record_path = child / _RECORD
        if not child.is_dir() or not files.exists(record_path):
            continue
        with files.item(record_path):
            record = files.json_object(record_path, "a record of a run")
            if not text_in(record, "run_id"):
                raise Unreadable("not a record of a run")
            runs.append((record, _steps(files, _steps_of_run(files, child))))

    def blob(digest: str) -> bytes | None:
        path = directory / "media" / f"{digest}.bin"
        return files.read(path) if files.exists(path) else None

    prefix = "" if directory == files.root else f"{directory.relative_to(files.root)}/"
    yield from _runs(files, runs, blob, prefix, files.name(directory))


def _steps_of_run(files: Files, child: Path) -> Iterator[tuple[str, Any, str]]:
    for name, kind in (("events.jsonl", STEP), ("tool_effects.jsonl", EFFECT)):
        path = child / name
        for number, record in files.lines(path) if files.exists(path) else ():
            yield kind, record, files.name(path, number)
    snapshots = child / "snapshots"
    found = files.children(snapshots) if files.exists(snapshots) else []
    for path in sorted((one for one in found if one.stem.isdigit()), key=lambda one: int(one.stem)):
        with files.item(path):
            yield SNAPSHOT, files.json(path), files.name(path)


def _stored_runs(connection: database.Database) -> Iterator[ForeignSession]:
    """Read a `SqliteStepStore`."""
    steps: dict[str, list[Step]] = {}
    for step in _steps(connection.files, _stored_steps(connection)):
        steps.setdefault(step.data["run_id"], []).append(step)
    runs = []
    for record, where in _records(connection, "runs", "started_at, rowid"):
        if text_of(record["run_id"]):
            runs.append((record, steps.get(record["run_id"], [])))
        else:
            connection.files.report(where, "not a record of a run")
    for run_id in steps.keys() - {record["run_id"] for record, _ in runs}:
        where = f"{connection.name}:runs:{run_id}"
        connection.files.report(where, "steps of a run that is not registered: skipped")
    blobs = partial(_blob, connection)
    yield from _runs(connection.files, runs, blobs, connection.prefix, connection.name)


def _stored_steps(connection: database.Database) -> Iterator[tuple[str, Any, str]]:
    for record, where in _records(connection, "events", "rowid"):
        yield STEP, record, where
    for record, where in _records(connection, "tool_effects", "rowid"):
        if record["status"] != "started":
            # The end of a call has overwritten its start.
            begun = {"status": "started", "ended_at": None, "effect_summary": None}
            yield EFFECT, {**record, **begun}, where
        yield EFFECT, record, where
    for record, where in _records(connection, "snapshots", "seq"):
        with connection.files.item(where):
            if isinstance(record["messages"], dict):
                record["messages"] = _shared_messages(connection, record, where)
            yield SNAPSHOT, record, where


def _records(connection: database.Database, table: str, order: str) -> Iterator[tuple[Record, str]]:
    """Yield the rows of a table, with their JSON decoded, and where each is."""
    own = sorted(connection.tables[table])
    columns = ", ".join(map(database.quoted, own))
    query = f"SELECT rowid, {columns} FROM {table} ORDER BY {order}"  # noqa: S608 - quoted
    for number, *row in list(connection.rows(table, query)):
        where = f"{connection.name}:{table}:{number}"
        record: Record = dict(zip(own, row, strict=True))
        with connection.files.item(where):
            for name in {"metadata", "messages"} & set(own):
                value = record[name]
                record[name] = Files.decode(value) if isinstance(value, str | bytes) else value
            yield record, where


def _shared_messages(connection: database.Database, record: Record, where: str) -> list[Any] | None:
    """Return the messages of a snapshot that are stored separately, because snapshots share them."""
    if "snapshot_message_refs" not in connection.tables:
        return None
    query = (
        "SELECT message FROM snapshot_message_refs JOIN snapshot_messages USING (sha256) "
        "WHERE snapshot_seq = ? ORDER BY position"
    )
    found = []
    rows = connection.rows("snapshot_message_refs", query, record["seq"])
    for place, (text,) in enumerate(rows):
        with connection.files.item(f"{where}[{place}]"):
            found.append(Files.decode(text))
    wanted = record["messages"].get("stored_messages")
    if len(found) != wanted:
        what = f"{len(found)} of the {wanted} messages of a snapshot were found"
        connection.files.report(where, what)
    return found


# -- media --------------------------------------------------------------------------------------

#: A marker replaces a long text or a picture, which is stored by its SHA-256. A part of a message that
#: looks like a marker is wrapped, as a literal.
_MARK: Final = "__harness_external_media__"
_TEXT: Final = "__harness_external_text__"
_URI: Final = "__harness_external_uri__"
_ESCAPED: Final = "__harness_external_escaped_keys__"
_MARKER_FORMAT: Final = "__harness_external_marker_format__"
_URLSAFE: Final = "__harness_external_urlsafe__"
_LITERAL: Final = "__harness_external_literal__"
#: The known values of `_MARKER_FORMAT` and of `_URLSAFE`.
_ESCAPED_FORMAT: Final = "escaped-keys-v1"
_LITERAL_FORMAT: Final = "literal-v1"
_URLSAFE_STAMP: Final = "base64-urlsafe-v1"

_ADDRESS: Final = re.compile(r"media\+sha256://([0-9a-f]{64})")


def _media(blobs: Blobs, uri: object) -> bytes:
    """Return the bytes of an address; raise `Unreadable` if they are missing or damaged."""
    found = _ADDRESS.fullmatch(uri) if isinstance(uri, str) else None
    if found is None:
        raise Unreadable(f"unknown address of media: {uri!r:.80}")
    content = blobs(found[1])
    if content is not None and hashlib.sha256(content).hexdigest() == found[1]:
        return content
    why = "missing" if content is None else "damaged"
    raise Unreadable(f"media {found[1]} are {why}: the marker was imported instead")


def _restored(node: Any, blobs: Blobs) -> Any:
    """Return a part of a message with its media."""
    if isinstance(node, list):
        return [_restored(inner, blobs) for inner in node]
    if not isinstance(node, dict):
        return node
    if node.keys() == {_LITERAL, _MARKER_FORMAT} and node[_MARKER_FORMAT] == _LITERAL_FORMAT:
        node = node[_LITERAL]
    elif node.get(_MARK) is True:
        return _put_back(node, blobs)
    return {name: _restored(inner, blobs) for name, inner in node.items()}


def _put_back(node: Record, blobs: Blobs) -> Record:
    uri = node.get(_URI, node.get("uri"))
    taken = {_MARK, _TEXT, _URI} | ({"uri"} if node.get("uri") == uri else set())
    urlsafe = node.get(_URLSAFE) == _URLSAFE_STAMP
    if urlsafe:
        taken.add(_URLSAFE)
    kept = {name: inner for name, inner in node.items() if name not in taken}
    if isinstance(node.get(_ESCAPED), dict) and node.get(_MARKER_FORMAT) == _ESCAPED_FORMAT:
        # The message's own members that are named like a marker's.
        del kept[_ESCAPED], kept[_MARKER_FORMAT]
        kept |= node[_ESCAPED]
    content = _media(blobs, uri)
    rest = {name: _restored(inner, blobs) for name, inner in kept.items()}
    if node.get(_TEXT) is True:
        rest["content"] = content.decode(errors="surrogatepass")
    else:
        rest["data"] = base64.b64encode(content, altchars=b"-_" if urlsafe else None).decode()
    return rest
