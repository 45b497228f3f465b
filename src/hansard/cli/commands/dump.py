"""`hansard dump`: print raw log records."""

from hansard.cli import arguments
from hansard.cli.command import FAILED, Call, define, full_option, session_of


@define(
    "dump",
    "dump support/42",
    "dump support/42 --json | jq -r 'select(.file == \"log.jsonl\") | .text'",
)
@arguments.session_argument
@full_option
def command(call: Call, session_id: str, *, full: bool) -> int | None:
    """Print raw log records.

    Prints every line of the session's own files with its offset, damaged lines included. In a sealed segment,
    offsets are those of the decompressed lines. Redacted data are shown until compaction erases them.

    With --json: one record per line. Exit 1 if a record is damaged.
    """
    bad = False
    with call.reading() as store:
        session = session_of(store, session_id)
        for record in session.dump():
            bad = bad or bool(record.problem)
            text = record.raw.decode(errors="backslashreplace").removesuffix("\n")
            if call.screen.json:
                shown = record._asdict()
                del shown["raw"]
                call.screen.record({**shown, "text": text})
                continue
            place = f"{record.file} {record.offset:>8} +{record.length:<6} "
            space = call.screen.width - len(place) - 2
            if call.screen.terminal and not full and len(text) > space > 0:
                text = text[:space] + " …"
            problem = f"  ← {record.problem}" if record.problem else ""
            call.screen.line((place, "dim"), text, (problem, "red"))
    return FAILED if bad else None
