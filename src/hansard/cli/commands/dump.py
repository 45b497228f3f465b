"""`hansard dump`: the physical records of a session, with their offsets."""

import click

from hansard.cli import stores
from hansard.cli.command import Call, define
from hansard.cli.faults import FAILED


@define(
    "dump",
    examples=[
        "dump support/42",
        "dump support/42 --problems  # only what is not a whole record",
        "dump support/42 --json | jq -r 'select(.file == \"log.jsonl\") | .text'",
    ],
)
@click.argument("session_id", metavar="ID", type=stores.SESSION)
@click.option("--problems", is_flag=True, help="Only lines with which something is wrong.")
@click.option("--full", is_flag=True, help="Shorten nothing.")
def command(call: Call, session_id: str, *, problems: bool, full: bool) -> int | None:
    """Print the physical records of a session, with their offsets.

    What is in its own files, line by line, as it stands there: headers, notes, events, and also what is
    damaged. In a sealed segment, offsets are those of the lines after unpacking. What was redacted is
    shown as long as it is there.

    With --json: one record per line. Exit 1 if something is wrong with one.
    """
    bad = False
    with stores.reading(call) as store:
        session = stores.session_of(store, session_id)
        for record in session.dump():
            bad = bad or bool(record.problem)
            if problems and not record.problem:
                continue
            text = record.raw.decode(errors="backslashreplace").removesuffix("\n")
            if call.screen.json:
                shown = record._asdict()
                del shown["raw"]
                call.screen.record({**shown, "text": text})
                continue
            place = f"{record.file} {record.offset:>8} +{record.length:<6} "
            room = call.screen.width - len(place) - 2
            if call.screen.terminal and not full and len(text) > room > 0:
                text = text[:room] + " …"
            problem = f"  ← {record.problem}" if record.problem else ""
            call.screen.line((place, "dim"), text, (problem, "red"))
    return FAILED if bad else None
