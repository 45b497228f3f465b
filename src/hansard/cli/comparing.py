"""What lies between two points of a session: messages that came or went, and what else changed.

Above: `commands`.  Below: `telling`, the public API.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from hansard.cli.screen import Screen, many
from hansard.cli.telling import short
from hansard.cli.visible import cell
from hansard.message.parse import parse

if TYPE_CHECKING:
    from hansard import Session


class Change(msgspec.Struct, frozen=True):
    """A value that is not what it was; `absent` where it was not there, or no longer is."""

    before: Any = msgspec.UNSET
    after: Any = msgspec.UNSET


class Difference(msgspec.Struct, frozen=True):
    """What changed from one point of a session to another.

    Attributes:
        session: the session's id.
        before, after: the seqs of the two points.
        added, removed: messages that the model view has at the second point only, or at the first.
        kept: how many it has at both.
        metadata, snapshots, usage: what changed of them, by key, label or model.
    """

    session: str
    before: int
    after: int
    added: list[dict[str, Any]]
    removed: list[dict[str, Any]]
    kept: int
    metadata: dict[str, Change]
    snapshots: dict[str, Change]
    usage: dict[str, Change]


def compare(session: "Session", before: int, after: int) -> Difference:
    """Compare what a session was at two seqs."""
    found = session.compare(session, at=before, other_at=after)
    return Difference(
        session=session.id,
        before=before,
        after=after,
        added=[said.message for said in found.only_b],
        removed=[said.message for said in found.only_a],
        kept=found.same,
        metadata=_changes(found.metadata),
        snapshots=_changes(found.snapshots),
        usage=_changes(found.usage),
    )


def _changes(found: "Mapping[str, Any]") -> dict[str, Change]:
    return {key: Change(change.a, change.b) for key, change in found.items()}


def show(screen: Screen, difference: Difference, *, full: bool) -> None:
    """Tell a difference to a person. `full`: shorten nothing."""
    screen.line(
        (f"{difference.session}: from {difference.before} to {difference.after}", "bold"),
    )
    kept = many(difference.kept, "message")
    came, went = len(difference.added), len(difference.removed)
    screen.line(f"model view: {kept} the same, {came:,} added, {went:,} removed")
    for sign, style, messages in (
        ("-", "red", difference.removed),
        ("+", "green", difference.added),
    ):
        for message in messages:
            text = brief(message, None if full else 100)
            screen.line((f"{sign} {text}", style), indent=2)
    length = None if full else 60
    for name, changed in (
        ("metadata", difference.metadata),
        ("snapshots", difference.snapshots),
        ("usage", difference.usage),
    ):
        if changed:
            screen.line(f"{name}:")
        for key, change in changed.items():
            if change.before is not msgspec.UNSET:
                screen.line((f"- {key} = {short(change.before, length)}", "red"), indent=2)
            if change.after is not msgspec.UNSET:
                screen.line((f"+ {key} = {short(change.after, length)}", "green"), indent=2)


def brief(message: Mapping[str, Any], length: int | None = 100) -> str:
    """Return a message in one line, with `↵` for a line break, of bounded length."""
    parsed = parse(message)
    said = [
        f"→ {part.name}({part.text})" if part.kind == "call" else part.text
        for part in parsed.shown(full=length is None)
    ]
    return f"{cell(parsed.speaker)}: {short(' '.join(said), length)}"
