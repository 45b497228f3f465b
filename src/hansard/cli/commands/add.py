"""`hansard add`: append a message, several from a file, or an event of your own."""

import json
import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from hansard.cli import stores
from hansard.cli.command import Call, define
from hansard.cli.screen import many
from hansard.cli.telling import event_json

if TYPE_CHECKING:
    from hansard import Event, Session


@define(
    "add",
    examples=[
        'add support/42 "Where is my refund?"',
        'add support/42 --role assistant "Let me look."',
        "add support/42 - < answer.md  # the text from stdin",
        "add support/42 --jsonl < messages.jsonl  # messages, one JSON object per line, all or none",
        "add support/42 --title Refund --meta user=u7",
        """add support/42 --kind x.todo '{"task": "call back"}'  # an event of your own""",
    ],
)
@click.argument("session_id", metavar="ID", type=stores.SESSION)
@click.argument("text", required=False)
@click.option("--role", default="user", show_default=True, help="Who says it.")
@click.option(
    "--jsonl", is_flag=True, help="Read messages from stdin, one JSON object per line; all or none."
)
@click.option("--kind", metavar="x.KIND", help="Append an event of your own; the text is its JSON.")
@click.option("--title", help="Give the session a title.")
@click.option(
    "--meta",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set metadata; the value is JSON, or else text. May be given again.",
)
@click.option("--key", help="The idempotency key: a second call with it adds nothing.")
@click.option(
    "--expected-seq",
    type=click.IntRange(min=0),
    metavar="SEQ",
    help="Append only if this is the session's last seq.",
)
@click.option("--new", is_flag=True, help="The session must not exist yet.")
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
    """Append a message, several from a file, or an event of your own.

    The session is made if it does not exist, and so is the store. `-` as the text reads it from stdin.

    With --json: one document, with the events that were appended.
    """
    if jsonl and text is not None:
        raise click.UsageError("--jsonl reads stdin; give no text with it")
    if kind is not None and (jsonl or text is None):
        raise click.UsageError("--kind takes its data as the text, and not together with --jsonl")
    changes = dict(_setting(words) for words in meta)
    said: list[dict[str, Any]] = []
    if jsonl:
        said = _lines()
    elif text is not None:
        text = sys.stdin.read() if text == "-" else text
        said = [_object(text, "the text")] if kind else [{"role": role, "content": text}]
    if not said and not changes and title is None:
        raise click.UsageError("nothing to add: give a text, --jsonl, --title or --meta")
    with stores.writing(call, create=True) as store:
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
        call.screen.line(f"{session_id}: it says so already; nothing was appended")
        return
    first, last = added[0].seq, added[-1].seq
    place = f"seq {first}" if first == last else f"seq {first} to {last}"
    call.screen.line(f"{session_id}: {many(len(added), 'event')}, {place}")


def _lines() -> list[dict[str, Any]]:
    """Read messages from stdin; an error names the line."""
    # Split on line feeds only: other separators are data.
    lines = sys.stdin.buffer.read().decode().split("\n")
    return [_object(line, f"line {n} of stdin") for n, line in enumerate(lines, 1) if line.strip()]


def _object(text: str, where: str) -> dict[str, Any]:
    value = _decoded(text, where)
    if not isinstance(value, dict):
        raise click.UsageError(f"{where} must be a JSON object, not {type(value).__name__}")
    return value


def _setting(words: str) -> tuple[str, Any]:
    key, sign, value = words.partition("=")
    if not sign or not key:
        raise click.UsageError(f"--meta {words}: say KEY=VALUE")
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
