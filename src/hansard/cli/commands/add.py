"""`hansard add`: append messages, events or metadata."""

import json
import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from hansard.cli import arguments
from hansard.cli.command import Call, define
from hansard.cli.render import event_json
from hansard.cli.screen import many

if TYPE_CHECKING:
    from hansard import Event, Session


@define(
    "add",
    examples=[
        'add support/42 "Where is my refund?"',
        'add support/42 --role assistant "Let me look."',
        "add support/42 - < answer.md  # text from stdin",
        "add support/42 --jsonl < messages.jsonl  # messages, one JSON object per line, all or none",
        "add support/42 --title Refund --meta user=u7",
        """add support/42 --kind x.todo '{"task": "call back"}'  # an application event""",
    ],
)
@click.argument("session_id", metavar="ID", type=arguments.SESSION)
@click.argument("text", required=False)
@click.option("--role", default="user", show_default=True, help="Role of the message")
@click.option(
    "--jsonl", is_flag=True, help="Read messages from stdin, one JSON object per line; all or none"
)
@click.option("--kind", metavar="x.KIND", help="Append an application event; TEXT is its JSON data")
@click.option("--title", help="Set the title")
@click.option(
    "--meta",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set metadata; VALUE is JSON or text; repeatable",
)
@click.option("--key", help="Idempotency key; a repeated key appends nothing")
@click.option(
    "--expected-seq",
    type=click.IntRange(min=0),
    metavar="SEQ",
    help="Fail unless the last seq is SEQ",
)
@click.option("--new", is_flag=True, help="Fail if the session exists")
def command(
    call: Call,
    session_id: str,
    text: str | None,
    role: str,
    kind: str | None,
    title: str | None,
    meta: tuple[str, ...],
    key: str | None,
    expected_seq: int | None,
    *,
    jsonl: bool,
    new: bool,
) -> None:
    """Append messages, events or metadata.

    Creates the session, and the store, if they do not exist. Pass `-` as the text to read it from stdin.

    With --json: one document with the appended events.
    """
    if jsonl and text is not None:
        raise click.UsageError("--jsonl reads stdin; omit the text")
    if kind is not None and (jsonl or text is None):
        raise click.UsageError("--kind needs its data as the text, and excludes --jsonl")
    changes = dict(_setting(words) for words in meta)
    said: list[dict[str, Any]] = []
    if jsonl:
        said = _lines()
    elif text is not None:
        text = sys.stdin.read() if text == "-" else text
        said = [_object(text, "the text")] if kind else [{"role": role, "content": text}]
    if not said and not changes and title is None:
        raise click.UsageError("nothing to add; pass a text, --jsonl, --title or --meta")
    with call.writing(create=True) as store:
        session = store.create(session_id) if new else store.session(session_id)
        added = _append(session, said, kind=kind, key=key, expected_seq=expected_seq)
        if title is not None:
            added.append(session.set_title(title))
        if changes:
            added.append(session.patch_metadata(changes))
    _tell(call, session_id, [event for event in added if event is not None])


def _append(
    session: "Session",
    said: list[dict[str, Any]],
    *,
    kind: str | None,
    key: str | None,
    expected_seq: int | None,
) -> "list[Event | None]":
    if not said:
        return []
    if kind is not None:
        return [session.append(kind, said[0], key=key, expected_seq=expected_seq)]
    return list(session.add_messages(said, key=key, expected_seq=expected_seq))


def _tell(call: Call, session_id: str, added: "list[Event]") -> None:
    shown = [msgspec.Raw(event_json(event)) for event in added]
    call.screen.document({"session": session_id, "events": shown})
    if not added:
        call.screen.line(f"{session_id}: unchanged; nothing was appended")
        return
    first, last = added[0].seq, added[-1].seq
    place = f"seq {first}" if first == last else f"seq {first} to {last}"
    call.screen.line(f"{session_id}: {many(len(added), 'event')}, {place}")


def _lines() -> list[dict[str, Any]]:
    """Read messages from stdin. An error names the line."""
    # Split on line feeds only: other separators are data.
    lines = sys.stdin.buffer.read().decode().split("\n")
    return [_object(line, f"line {n} of stdin") for n, line in enumerate(lines, 1) if line.strip()]


def _object(text: str, where: str) -> dict[str, Any]:
    value = _decoded(text, where)
    if not isinstance(value, dict):
        raise click.UsageError(f"{where} must be a JSON object, got {type(value).__name__}")
    return value


def _setting(words: str) -> tuple[str, Any]:
    key, sign, value = words.partition("=")
    if not sign or not key:
        raise click.UsageError(f"--meta must be KEY=VALUE, got {words!r}")
    try:
        json.loads(value)
    except ValueError:
        return key, value
    return key, _decoded(value, f"--meta {key}")


def _decoded(text: str, where: str) -> Any:
    from hansard.importers.source import Files, Unreadable

    try:
        return Files.decode(text)
    except Unreadable as error:
        raise click.UsageError(f"{where}: {error}") from error
