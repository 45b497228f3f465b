"""Write a session out, so that it can be read elsewhere: by a program, or by people."""

from collections.abc import Iterator
from typing import Final, Literal, get_args

import msgspec

from hansard.backend.contract import Log
from hansard.event.envelope import Event
from hansard.event.kinds import SESSION_FORKED
from hansard.state.lineage import Lineage
from hansard.state.views import View
from hansard.transfer import share
from hansard.transfer.export_file import Writer, origins

Format = Literal["jsonl", "markdown", "html"]
FORMATS: Final[tuple[str, ...]] = get_args(Format)

#: What the first event of a fork is called that is no fork any more, since all it inherits is with it.
_WAS_FORKED: Final = "x.forked"


def export(
    log: Log,
    session_id: str,
    *,
    format: Format,
    redacted: bool,
    view: View,
    events: bool,
    parts: bool,
    own_only: bool,
) -> Iterator[bytes]:
    """Yield a session in a format, piece by piece; see `Session.export`."""
    if format not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}, not {format!r}")
    upto = share.last_seq(log, session_id)
    if format == "jsonl":
        return _jsonl(log, session_id, upto, redacted=redacted, parts=parts, own_only=own_only)
    from hansard.transfer import html, markdown
    from hansard.transfer.transcript import Transcript

    transcript = Transcript(log, session_id, upto, redact=redacted, view=view, events=events)
    render = html.render if format == "html" else markdown.render
    return render(transcript)


def _jsonl(
    log: Log, session_id: str, upto: int, *, redacted: bool, parts: bool, own_only: bool
) -> Iterator[bytes]:
    after = log.first_event.seq - 1 if own_only and isinstance(log, Lineage) else 0
    writer = Writer()
    yield writer.header(
        share.header(
            session_id,
            redact=redacted,
            by=f"hansard {_version()}",
            after=after,
            upto=upto,
            parts=parts,
            lineage=[msgspec.to_builtins(origin) for origin in origins(log)],
        )
    )
    redactions = 0
    given = share.given_away(log, upto, redact=redacted, after=after, parts=parts, alone=True)
    for event, more, count in given:
        redactions += count
        yield writer.event(alone(event) if not own_only else event, more)
    yield writer.end(redactions)


def alone(event: Event) -> Event:
    """Return an event so that it does not make a fork of a session that has all it inherited."""
    # Only the first one would: one was forked where nothing had been said yet.
    if event.seq == 1 and event.kind == SESSION_FORKED:
        return msgspec.structs.replace(event, kind=_WAS_FORKED)
    return event


def _version() -> str:
    """Return the version of hansard, as far as it is known."""
    from importlib import metadata

    try:
        return metadata.version("hansard")
    except metadata.PackageNotFoundError:
        return "(not installed)"
