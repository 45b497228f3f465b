"""What lies between two points of a session: messages that came or went, and what else changed.

Above: `commands`.  Below: `telling`, the public API.
"""

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, Final

import msgspec

from hansard.cli.messages import read
from hansard.cli.screen import Screen, many
from hansard.cli.telling import short

if TYPE_CHECKING:
    from hansard import Session, State

#: Longer stretches are taken as replaced whole: to align them would take the square of their length.
_ALIGNED: Final = 2_000


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
    old, new = session.state(at=before), session.state(at=after)
    removed, added, kept = _messages(session.messages(at=before), session.messages(at=after))
    return Difference(
        session=session.id,
        before=before,
        after=after,
        added=added,
        removed=removed,
        kept=kept,
        metadata=changes(old.metadata, new.metadata),
        snapshots=changes(old.snapshots, new.snapshots),
        usage=changes(_usage(old), _usage(new)),
    )


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Change]:
    """Return what is not the same in two mappings, by key."""
    found = {}
    for key in (*old, *(key for key in new if key not in old)):
        before, after = old.get(key, msgspec.UNSET), new.get(key, msgspec.UNSET)
        if before != after or type(before) is not type(after):
            found[key] = Change(before, after)
    return found


def show(screen: Screen, difference: Difference) -> None:
    """Tell a difference to a person."""
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
            screen.line((f"{sign} {brief(message)}", style), indent=2)
    for name, changed in (
        ("metadata", difference.metadata),
        ("snapshots", difference.snapshots),
        ("usage", difference.usage),
    ):
        if changed:
            screen.line(f"{name}:")
        for key, change in changed.items():
            if change.before is not msgspec.UNSET:
                screen.line((f"- {key} = {short(change.before)}", "red"), indent=2)
            if change.after is not msgspec.UNSET:
                screen.line((f"+ {key} = {short(change.after)}", "green"), indent=2)


def brief(message: Mapping[str, Any], length: int = 100) -> str:
    """Return a message in one line."""
    spoken = read(message)
    said = [
        f"→ {piece.name}({piece.text})" if piece.what == "call" else piece.text
        for piece in spoken.pieces
    ]
    return f"{spoken.role}: {short(' '.join(said), length)}"


def _usage(state: "State") -> dict[str, Any]:
    return {model: msgspec.structs.asdict(usage) for model, usage in state.usage.items()}


def _messages(
    old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], int]:
    """Return which messages went, which came, and how many stayed."""
    encode = msgspec.json.Encoder(order="deterministic").encode
    before, after = [encode(message) for message in old], [encode(message) for message in new]
    # Two points of one session nearly always share their beginning.
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    one, other = range(start, len(before) - end), range(start, len(after) - end)
    removed, added = list(one), list(other)
    if len(one) <= _ALIGNED and len(other) <= _ALIGNED:
        matcher = SequenceMatcher(
            None, [before[i] for i in one], [after[i] for i in other], autojunk=False
        )
        for match in matcher.get_matching_blocks():
            same = range(start + match.a, start + match.a + match.size)
            removed = [place for place in removed if place not in same]
            same = range(start + match.b, start + match.b + match.size)
            added = [place for place in added if place not in same]
    kept = len(old) - len(removed)
    return [old[place] for place in removed], [new[place] for place in added], kept
