"""`hansard diff`: compare two sessions or points."""

from collections.abc import Mapping
from typing import Final

import click
import msgspec

import hansard
from hansard.cli import arguments
from hansard.cli.command import FAILED, LAST_USED, LATEST, Call, define, session_of
from hansard.cli.render import EventPrinter, brief, short
from hansard.cli.screen import Screen, cell, many
from hansard.message.parse import as_text

#: Maximum characters of a value that is compared.
_ANSWER: Final = 100

_CALLS: Final = {
    "arguments": "different arguments",
    "result": "same arguments, different result",
    "only a": "only in -",
    "only b": "only in +",
}


@define(
    "diff",
    "diff support/42 support/42-b  # a session and its fork",
    "diff support/42@12 support/42  # what came after event 12",
    "diff 'support/42@before tools' support/42-b@20  # a snapshot, a seq; or a time",
    "diff run/1 run/2 --json | jq '.calls[]'  # tool calls that differ",
    paged=True,
)
@click.argument("one", metavar="A", type=arguments.SESSION_POINT)
@click.argument("other", metavar="B", type=arguments.SESSION_POINT)
@arguments.full_option
def command(call: Call, one: str, other: str, *, full: bool) -> int | None:
    """Compare two sessions or points.

    Compares the model views, their tool calls, metadata, usage and snapshots. For forks, it names the last
    common event. Write a point of a session as ID@SEQ, ID@NAME or ID@TIME.

    With --json: one document. Exit 0 if they are equal, 1 if they differ.
    """
    with call.reading() as store:
        first, at = _point(store, one)
        second, other_at = _point(store, other)
        found = first.compare(second, at=at, other_at=other_at)
    show_comparison(call.screen, found, full=full)
    return None if found.equal else FAILED


def _point(store: "hansard.Store", text: str) -> "tuple[hansard.Session, int | None]":
    """Return the session of an argument, and the seq; None for its end."""
    if store.exists(text):
        return session_of(store, text), None
    # Ids and snapshot names may contain `@`: the longest existing id counts.
    head, mark, _ = text.rpartition("@")
    while mark:
        if head and (head in {LATEST, LAST_USED} or store.exists(head)):
            session = session_of(store, head)
            return session, arguments.seq_at(session, arguments.parse_place(text[len(head) + 1 :]))
        head, mark, _ = head.rpartition("@")
    # A beginning of an id, or one that does not exist: a point follows the last `@`.
    head, _, place = text.rpartition("@")
    session = session_of(store, head or text)
    return session, arguments.seq_at(session, arguments.parse_place(place)) if head else None


def show_comparison(screen: Screen, found: "hansard.Comparison", *, full: bool) -> None:
    """Print a comparison, or with --json output it."""
    document = {"equal": found.equal, **msgspec.structs.asdict(found)}
    for name in ("only_a", "only_b"):
        document[name] = [said._asdict() for said in getattr(found, name)]
    screen.document(document)
    screen.line((f"- {cell(found.a.session)}@{found.a.seq}", "bold red"))
    screen.line((f"+ {cell(found.b.session)}@{found.b.seq}", "bold green"))
    if found.base is None:
        screen.line("not related by forks")
    else:
        screen.line(f"common up to seq {found.base.seq} of {cell(found.base.session)}")
    if found.equal:
        screen.line((f"equal: {many(found.same, 'message')}, and the same state", "bold"))
        return
    only_a, only_b = len(found.only_a), len(found.only_b)
    screen.line(f"messages: {found.same:,} in both, {only_a:,} only in -, {only_b:,} only in +")
    if found.divergence is not None:
        at_a, at_b = (
            "at the end" if seq is None else f"at seq {seq}"
            for seq in (found.divergence.a, found.divergence.b)
        )
        where = at_a if at_a == at_b else f"{at_a} of -, {at_b} of +"
        screen.line(f"they differ after {many(found.divergence.after, 'message')}: {where}")
    printer = EventPrinter(screen, full=True)
    for sign, style, messages in (("-", "red", found.only_a), ("+", "green", found.only_b)):
        with screen.margin(f"  {sign} ", style):
            for one in messages:
                if full:
                    screen.line((str(one.seq), style))
                    printer.message(one.message)
                else:
                    screen.line((f"{one.seq:>4}  {brief(one.message)}", style), hang=6)
    if found.calls:
        screen.line("tool calls:")
    for difference in found.calls:
        _show_call(screen, difference, full=full)
    _show_changes(screen, found, full=full)


def _show_changes(screen: Screen, found: "hansard.Comparison", *, full: bool) -> None:
    for name in ("metadata", "usage", "snapshots"):
        changes: Mapping[str, hansard.Change] = getattr(found, name)
        if changes:
            screen.line(f"{name}:")
        for key, change in changes.items():
            for sign, style, value in (("-", "red", change.a), ("+", "green", change.b)):
                if value is not msgspec.UNSET:
                    shown = short(value, None if full else _ANSWER)
                    with screen.margin(f"  {sign} ", style):
                        screen.line((f"{key} = {shown}", style), hang=2)


def _show_call(screen: Screen, difference: "hansard.CallDifference", *, full: bool) -> None:
    either = difference.a or difference.b
    assert either is not None  # a difference has at least one side
    screen.line((either.name, "yellow"), f": {_CALLS[difference.what]}", indent=2)
    for sign, style, call in (("-", "red", difference.a), ("+", "green", difference.b)):
        if call is None:
            continue
        given = as_text(call.arguments)
        result = "no result" if call.result is None else call.result
        if not full:
            given, result = short(given, _ANSWER), short(result, _ANSWER)
        with screen.margin(f"    {sign} ", style):
            screen.line((f"{call.seq:>4}  {call.name}({given}) ← {result}", style), hang=6)
