"""Show what a session adds up to: at its end, or at an earlier point.

Above: `commands`.  Below: `screen`, the public API.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hansard.cli.screen import Screen, many
from hansard.cli.telling import short

if TYPE_CHECKING:
    from hansard import State


def show(
    screen: Screen, session_id: str, state: "State", *, more: Sequence[tuple[str, str]] = ()
) -> None:
    """Tell what a state says, one line for each thing. `more`: what else is to be told, by name."""
    title = f" “{state.title}”" if state.title else ""
    screen.line((session_id, "bold"), title)
    lines = [
        ("events", f"{state.seq:,}"),
        ("messages", f"{state.message_count:,} added"),
        ("created", moment(state.created)),
        ("updated", moment(state.updated)),
    ]
    if state.parent is not None:
        lines.append(("forked from", f"{state.parent} at {state.forked_at}"))
    lines += [
        (f"metadata {key}", short(value)) for key, value in state.metadata.items() if key != "title"
    ]
    lines += [(f"snapshot {label}", str(seq)) for label, seq in state.snapshots.items()]
    for model, usage in state.usage.items():
        cost = f", cost {usage.cost:g}" if usage.cost else ""
        said = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out{cost}"
        lines.append((f"usage {model}", f"{many(usage.calls, 'call')}, {said}"))
    if state.streams:
        lines.append(("unfinished", many(len(state.streams), "message")))
    marks = [name for name in ("archived", "closed") if getattr(state, name)]
    if marks:
        lines.append(("is", ", ".join(marks)))
    lines += more
    width = max(len(name) for name, _ in lines)
    for name, said in lines:
        screen.beside([(f"  {name:<{width}}  ", "dim")], [said])


def moment(stamp: str) -> str:
    """Return a time as it was on this machine's clock."""
    if not stamp:
        return "never"
    from datetime import datetime

    return datetime.fromisoformat(stamp).astimezone().strftime("%Y-%m-%d %H:%M:%S")
