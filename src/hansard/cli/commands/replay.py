"""`hansard replay`, `hansard show` and `hansard tail`: print a session's events, state and messages."""

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

import click
import msgspec

import hansard
from hansard.cli import arguments
from hansard.cli.command import Call, define, session_of
from hansard.cli.render import EventPrinter, show_state
from hansard.cli.screen import many
from hansard.message.parse import size
from hansard.message.sentences import BOOKKEEPING, not_shown

#: Events that take messages out of the model view.
_MARKING: Final = frozenset({"session.reverted", "session.cleared", "summary.added"})

#: Longest pause with --speed, in seconds.
_LONGEST_PAUSE: Final = 10.0


@define(
    "replay",
    "replay support/42",
    "replay support/42 --speed 10  # ten times as fast",
    "replay support/42 --at 12  # the state at event 12",
    "replay support/42 --at 'before tools'  # or at a snapshot or a time",
    "replay support/42 --step  # step with keys",
    "replay support/42 --kind 'message.*' --json | jq .data",
    paged=True,
)
@arguments.session_argument
@click.option("--at", type=arguments.PLACE, help="Show the state and the model view at a point")
@click.option("--from", "start", type=arguments.PLACE, help="First point")
@click.option("--to", "end", type=arguments.PLACE, help="Last point")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=arguments.KIND,
    help="Only events of this kind, such as message.added or 'session.*'; repeatable",
)
@click.option(
    "--speed",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Keep original timing, N times faster",
)
@click.option("--all", "everything", is_flag=True, help="Also the bookkeeping of frameworks")
@click.option("--step", is_flag=True, help="Step forward and back with keys, on a terminal")
@arguments.full_option
def replay(
    call: Call,
    session_id: str,
    at: arguments.Place | None,
    start: arguments.Place | None,
    end: arguments.Place | None,
    kinds: tuple[str, ...],
    speed: float | None,
    *,
    everything: bool,
    step: bool,
    full: bool,
) -> None:
    """Play back a session's events.

    Shows every character of a message; on a terminal, texts of more than 8,000 characters are truncated, and
    the output says so. Images and other binary data are named with type and size; --full prints them.
    Messages that the model view omits are marked as reverted or superseded.

    A fork is played with the events it inherits. A point is a seq, a time such as 2026-11-16T09:30, or a
    snapshot name. With --speed, no pause is longer than 10 s.

    With --json: one event per line, as stored; with --at, one document. `hansard diff ID@A ID@B` shows what
    changed between two points.
    """
    if at is not None and (step or start is not None or end is not None or kinds):
        raise click.UsageError("--at excludes --from, --to, --kind and --step")
    if step and not call.screen.interactive:
        raise click.UsageError("--step needs a terminal, and excludes --json")
    printer = EventPrinter(call.screen, full=full)
    with call.reading() as store:
        session = session_of(store, session_id)
        if at is not None:
            _state(call, session, at, printer)
            return
        if isinstance(start, datetime):
            after = arguments.seq_at(session, start - timedelta(microseconds=1))
        else:
            after = 0 if start is None else max(arguments.seq_at(session, start) - 1, 0)
        upto = None if end is None else arguments.seq_at(session, end)
        omitted: Counter[str] = Counter()
        chosen = _chosen(session.events(after=after), upto, kinds)
        if not (call.screen.json or everything or kinds):
            chosen = _without_bookkeeping(chosen, omitted)
        if not call.screen.json:
            printer.unfinished = session.state().streams
            printer.mark = marks(session)
        if step:
            from hansard.cli.stepper import Stepper

            seqs = [event.seq for event in chosen]
            Stepper(call.screen, session, seqs, printer.mark, full).run()
            return
        _play(call, chosen, printer, speed)
    if omitted:
        call.screen.hint(f"{not_shown(omitted.total())}; pass --all")


def _play(
    call: Call, events: "Iterator[hansard.Event]", printer: EventPrinter, speed: float | None
) -> None:
    last: hansard.Event | None = None
    for event in events:
        if speed is not None and last is not None:
            pause = (event.time - last.time).total_seconds() / speed
            time.sleep(min(max(pause, 0), _LONGEST_PAUSE))
        last = event
        printer.output(event)
        if call.screen.terminal or speed is not None:
            call.screen.flush()
    printer.end()


def _without_bookkeeping(
    events: "Iterator[hansard.Event]", omitted: "Counter[str]"
) -> "Iterator[hansard.Event]":
    """Yield events without those that only a framework reads: the messages are in others."""
    for event in events:
        marked = event.kind == "metadata.set" and event.data.get("metadata") == {"langgraph": 1}
        if marked or event.kind.startswith(BOOKKEEPING):
            omitted[event.kind] += 1
        else:
            yield event


def marks(session: "hansard.Session") -> Callable[[int], str]:
    """Return what tells of each message whether it was reverted, or replaced by a summary or a clear."""
    #: What reverts leave: first seqs, excluded, and last ones; the last range first.
    live: list[tuple[int, int]] = []
    end, bound = session.seq, 0
    for event in reversed([event for event in session.events() if event.kind in _MARKING]):
        if event.seq > end:
            continue  # reverted
        if event.kind == "session.reverted":
            live.append((event.seq, end))
            end = min(_number(event, "seq"), event.seq - 1)
        else:
            summary = event.kind == "summary.added"
            bound = max(bound, _number(event, "upto") if summary else event.seq)
    live = [(0, end), *reversed(live)]

    def mark(seq: int) -> str:
        place = bisect_left(live, (seq, 0)) - 1
        if place < 0 or seq > live[place][1]:
            return "reverted"
        return "superseded" if seq <= bound else ""

    return mark


def _number(event: "hansard.Event", name: str) -> int:
    value = event.data.get(name)
    return value if isinstance(value, int) else 0


def _chosen(
    played: "Iterator[hansard.Event]", upto: int | None, kinds: tuple[str, ...]
) -> "Iterator[hansard.Event]":
    """Yield the requested events."""
    for event in played:
        if upto is not None and event.seq > upto:
            return
        if not kinds or any(fnmatchcase(event.kind, kind) for kind in kinds):
            yield event


def _state(
    call: Call, session: "hansard.Session", at: arguments.Place, printer: EventPrinter
) -> None:
    seq = arguments.seq_at(session, at)
    state = session.state(at=seq)
    stored = msgspec.Raw(session.messages_json(at=seq))
    call.screen.document({"session": session.id, "at": seq, "state": state, "messages": stored})
    show_state(call.screen, session.id, state)
    _messages(call, f"model view at seq {seq}:", session.messages(at=seq), printer)


def _messages(
    call: Call, title: str, messages: list[dict[str, Any]], printer: EventPrinter
) -> None:
    call.screen.line()
    call.screen.line((title, "italic"))
    for message in messages:
        printer.message(message)


@define(
    "show",
    "show support/42",
    "show support/42 --last 5  # the last messages that a model sees",
    "show support/42 --view history  # with reverted and summarized messages",
    "show support/42 --json | jq '.messages[-1]'",
    paged=True,
)
@arguments.session_argument
@arguments.count_option("-n", "--last", help="Only the last N messages")
@click.option(
    "--view",
    type=click.Choice(["model", "history"]),
    default="model",
    show_default=True,
    help="What a model sees, or all messages",
)
@click.option("--at", type=arguments.PLACE, help="At a seq, time or snapshot")
@arguments.full_option
def show(
    call: Call,
    session_id: str,
    last: int | None,
    view: Literal["model", "history"],
    at: arguments.Place | None,
    *,
    full: bool,
) -> None:
    """Show a session's state and messages.

    With --json: one document with the state and the messages.
    """
    with call.finding() as store:
        session = session_of(store, session_id)
        seq = None if at is None else arguments.seq_at(session, at)
        state = session.state(at=seq)
        stored = msgspec.json.decode(
            session.messages_json(at=seq, view=view), type=list[msgspec.Raw]
        )
        shown = stored if last is None else stored[max(len(stored) - last, 0) :]
        children = session.children()
        info = next(
            (i for i in store.sessions(prefix=session.id, limit=1) if i.id == session.id), None
        )
    session_id = session.id
    document = {"session": session_id, "children": children, "state": state, "messages": shown}
    call.screen.document({**document, "bytes": info.bytes if info else 0})
    more = [("size", size(info.bytes))] if info is not None else []
    if children:
        more.append(("forks", ", ".join(children)))
    show_state(call.screen, session_id, state, more=more)
    of = f"{len(shown):,} of " if len(shown) < len(stored) else ""
    title = f"{view} view: {of}{many(len(stored), 'message')}"
    messages = [msgspec.json.decode(raw) for raw in shown]
    _messages(call, title, messages, EventPrinter(call.screen, full=full))


@define(
    "tail",
    "tail support/42",
    "tail -f support/42  # and new events, until Ctrl-C",
    "tail  # the last events of all sessions; with -f also new ones",
    "tail -n 100 support/42 --json | jq -c .kind",
    paged=True,
)
@click.argument("session_id", metavar="[ID]", required=False, type=arguments.SESSION)
@arguments.count_option("-n", "--lines", default=10, help="Number of past events")
@click.option("-f", "--follow", is_flag=True, help="Wait for more events until Ctrl-C")
@arguments.prefix_option
@arguments.full_option
def tail(
    call: Call,
    session_id: str | None,
    lines: int,
    prefix: str,
    *,
    follow: bool,
    full: bool,
) -> None:
    """Show the latest events; -f to follow.

    Without an id, those of all sessions, by time. With --json: one event per line, with its session.
    """
    printer = EventPrinter(call.screen, full=full)
    if session_id is None:
        _tail_of_all(call, printer, lines, prefix, follow=follow)
        return
    with call.reading() as store:
        session = session_of(store, session_id)
        events = session.events(after=max(session.seq - lines, 0), follow=follow)
        if not follow:
            shown = list(events)
            if any(event.kind == "message.part" for event in shown):
                printer.unfinished = session.state().streams
            events = iter(shown)
        for event in events:
            printer.output(event, session.id)
            if follow or call.screen.terminal:
                call.screen.flush()
        printer.end()


def _tail_of_all(
    call: Call, printer: EventPrinter, lines: int, prefix: str, *, follow: bool
) -> None:
    """Print the last events of all sessions, in the order of time; with `follow`, then the new ones."""
    with call.finding() as store, ExitStack() as stack:
        # From before the past is read: no event is missed in between.
        new = stack.enter_context(store.follow(prefix=prefix, from_now=True)) if follow else ()
        recent = store.sessions(prefix=prefix, order="-updated", limit=lines).items if lines else []
        found: list[tuple[str, hansard.Event]] = []
        for info in recent:
            session = store.session(info.id)
            try:
                # Those that a fork inherits are its parent's.
                after = max(session.seq - lines, info.forked_at or 0)
                found += [(info.id, event) for event in session.events(after=after)]
            except hansard.Damaged as error:
                call.screen.note(f"{info.id} is damaged: {error}")
        found.sort(key=lambda one: (one[1].stamp, one[0], one[1].seq))
        shown: dict[str, int] = {}
        for name, event in found[max(len(found) - lines, 0) :]:
            printer.output(event, name, named=True)
            shown[name] = event.seq
        for followed in new:
            if followed.event.seq > shown.get(followed.session, 0):
                printer.output(followed.event, followed.session, named=True)
            call.screen.flush()
        printer.end()
