"""`hansard add`: append messages, events or metadata."""

import sys
from typing import Any

import click

import hansard
from hansard.cli import arguments
from hansard.cli.command import LAST_USED, LATEST, Call, define, remember, session_of
from hansard.cli.render import event_json
from hansard.cli.screen import many


@define(
    "add",
    'add support/42 "Where is my refund?"',
    'add support/42 --role assistant "Let me look."',
    "add support/42 - < answer.md  # text from stdin",
    "add support/42 --jsonl < messages.jsonl  # messages, one JSON object per line, all or none",
    "add support/42 --title Refund --meta user=u7",
    """add support/42 --kind x.todo '{"task": "call back"}'  # an application event""",
)
@arguments.session_argument
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
    type=arguments.METADATA,
    help="Set metadata; VALUE is JSON or text; repeatable",
)
@click.option("--key", help="Idempotency key; a repeated key appends nothing")
@arguments.count_option("--expected-seq", help="Fail unless the last seq is N")
@click.option("--new", is_flag=True, help="Fail if the session exists")
def command(
    call: Call,
    session_id: str,
    text: str | None,
    role: str,
    kind: str | None,
    title: str | None,
    meta: tuple[tuple[str, Any], ...],
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
    changes = dict(meta) | ({} if title is None else {"title": title})
    data = _data(text, role, kind, jsonl=jsonl)
    if not data and not changes:
        raise click.UsageError("nothing to add; pass a text, --jsonl, --title or --meta")
    if not data and (key is not None or expected_seq is not None):
        raise click.UsageError("--key and --expected-seq are for a text, --jsonl or --kind")

    def append(session: "hansard.Session", expected_seq: int | None) -> list[hansard.Event]:
        added: list[hansard.Event] = []
        if kind is not None:
            added.append(session.append(kind, data[0], key=key, expected_seq=expected_seq))
        elif data:
            added += session.add_messages(data, key=key, expected_seq=expected_seq)
        changed = session.patch_metadata(changes) if changes else None
        return added if changed is None else [*added, changed]

    named = session_id in {LATEST, LAST_USED} and not new
    # All is checked first: what is refused leaves no message, and no store.
    append(hansard.open("memory:").session("checked" if named else session_id), None)
    with call.writing(create=not named) as store:
        if named:
            session_id = session_of(store, session_id).id
        session = store.create(session_id) if new else store.session(session_id)
        added = append(session, expected_seq)
        remember(store, session_id)
    call.screen.document({"session": session_id, "events": [event_json(e) for e in added]})
    if not added:
        call.screen.line(f"{session_id}: unchanged; nothing was appended")
        return
    first, last = added[0].seq, added[-1].seq
    place = f"seq {first}" if first == last else f"seq {first} to {last}"
    call.screen.line(f"{session_id}: {many(len(added), 'event')}, {place}")


def _data(text: str | None, role: str, kind: str | None, *, jsonl: bool) -> list[dict[str, Any]]:
    """Return the messages, or the data of an application event."""
    if jsonl:
        # Split on line feeds only: other separators are data.
        lines = enumerate(sys.stdin.buffer.read().split(b"\n"), 1)
        return [_object(line, f"line {number} of stdin") for number, line in lines if line.strip()]
    if text is None:
        return []
    text = sys.stdin.read() if text == "-" else text
    return [_object(text, "the text") if kind else {"role": role, "content": text}]


def _object(text: str | bytes, where: str) -> dict[str, Any]:
    value = arguments.parse_json(text, where)
    if not isinstance(value, dict):
        raise click.UsageError(f"{where} must be a JSON object, got {type(value).__name__}")
    return value
