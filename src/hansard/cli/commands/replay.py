"""`hansard replay`: play back a session's events."""

import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final

import click
import msgspec

import hansard
from hansard.cli import arguments
from hansard.cli.command import Call, define, full_option, markdown_option, session_of
from hansard.cli.commands.diff import show_comparison
from hansard.cli.render import EventPrinter, show_state

#: Longest pause with --speed, in seconds.
_LONGEST_PAUSE: Final = 10.0


@define(
    "replay",
    "replay support/42",
    "replay support/42 --speed 10  # ten times as fast",
    "replay support/42 --at 12  # the state at event 12",
    "replay support/42 --at 'before tools'  # or at a snapshot or a time",
    "replay support/42 --diff 5 20  # what changed in between",
    "replay support/42 --step  # step with keys",
    "replay support/42 --kind 'message.*' --json | jq .data",
)
@arguments.session_argument
@click.option("--at", type=arguments.PLACE, help="Show the state and the model view at a point")
@click.option(
    "--diff", nargs=2, type=arguments.PLACE, metavar="A B", help="Show changes between two points"
)
@click.option("--from", "start", type=arguments.PLACE, help="First point")
@click.option("--to", "end", type=arguments.PLACE, help="Last point")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="KIND",
    help="Only events of this kind, such as message.added or 'session.*'; repeatable",
)
@click.option(
    "--speed",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Keep original timing, N times faster",
)
@click.option("--step", is_flag=True, help="Step forward and back with keys, on a terminal")
@full_option
@markdown_option
def command(
    call: Call,
    session_id: str,
    at: arguments.Place | None,
    diff: tuple[arguments.Place, arguments.Place] | None,
    start: arguments.Place | None,
    end: arguments.Place | None,
    kinds: tuple[str, ...],
    speed: float | None,
    *,
    step: bool,
    full: bool,
    markdown: bool,
) -> None:
    """Play back a session's events.

    Shows every character of a message; on a terminal, texts of more than 8,000 characters are truncated, and
    the output says so. A fork is played with the events it inherits. A point is a seq, a time such as
    2026-11-16T09:30, or a snapshot name. With --speed, no pause is longer than 10 s.

    With --json: one event per line, as stored; with --at or --diff, one document. --diff A B is like
    `hansard diff ID@A ID@B`.
    """
    ranged = start is not None or end is not None or bool(kinds)
    _check(call, ranged=ranged, at=at, diff=diff, step=step)
    printer = EventPrinter(call.screen, full=full, markdown=markdown)
    with call.reading() as store:
        session = session_of(store, session_id)
        if at is not None:
            _state(call, session, at, printer)
            return
        if diff is not None:
            before, later = (arguments.seq_at(session, point) for point in diff)
            show_comparison(
                call.screen, session.compare(session, at=before, other_at=later), full=full
            )
            return
        after = 0 if start is None else arguments.last_before(session, start)
        upto = None if end is None else arguments.seq_at(session, end)
        chosen = _chosen(session.events(after=after), upto, kinds)
        if step:
            from hansard.cli.stepper import step_through

            seqs = [event.seq for event in chosen]
            step_through(call.screen, session, seqs, full=full, markdown=markdown)
            return
        if not call.screen.json:
            printer.unfinished = session.state().streams
        last: hansard.Event | None = None
        for event in chosen:
            if speed is not None and last is not None:
                pause = (event.time - last.time).total_seconds() / speed
                if pause > 0:
                    call.screen.flush()
                    time.sleep(min(pause, _LONGEST_PAUSE))
            last = event
            printer.output(event)
            if call.screen.terminal or speed is not None:
                call.screen.flush()
        printer.end()


def _check(call: Call, *, ranged: bool, **modes: object) -> None:
    """Raise for options that exclude each other."""
    chosen = [
        f"--{name}"
        for name, given in modes.items()
        if given is not None and given is not False  # 0 is a point
    ]
    if len(chosen) > 1:
        raise click.UsageError(f"{chosen[0]} and {chosen[1]} exclude each other")
    if ranged and chosen and chosen[0] in {"--at", "--diff"}:
        raise click.UsageError(f"{chosen[0]} excludes --from, --to and --kind")
    if "--step" in chosen and not call.screen.interactive:
        raise click.UsageError("--step needs a terminal, and excludes --json")


def _chosen(
    played: "Iterator[hansard.Event]", upto: int | None, kinds: tuple[str, ...]
) -> "Iterator[hansard.Event]":
    """Yield the requested events."""
    if upto == 0:
        return
    for event in played:
        if upto is not None and event.seq > upto:
            return
        if not kinds or any(fnmatchcase(event.kind, kind) for kind in kinds):
            yield event
        if event.seq == upto:
            return


def _state(
    call: Call, session: "hansard.Session", at: arguments.Place, printer: EventPrinter
) -> None:
    seq = arguments.seq_at(session, at)
    state = session.state(at=seq)
    stored = msgspec.Raw(session.messages_json(at=seq))
    call.screen.document({"session": session.id, "at": seq, "state": state, "messages": stored})
    show_state(call.screen, session.id, state)
    call.screen.line()
    call.screen.line((f"model view at seq {seq}:", "italic"))
    for message in session.messages(at=seq):
        printer.message(message)
