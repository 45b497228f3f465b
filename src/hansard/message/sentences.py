"""Say in one sentence what an event did, for people: in transcripts, and on a terminal.

A sentence may contain any character of the data: the caller makes it safe to show.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final

from hansard.message.values import compact

#: Maximum characters of a value, and of the text of a stream part.
_VALUE: Final = 60
_PART: Final = 160
#: More digits than any cost has, before or after the decimal point.
_DIGITS: Final = 60

#: What the kinds of events begin with that hold the state of a run of LangGraph or Strands.
BOOKKEEPING: Final = (
    "x.langgraph.",
    "x.strands.agent",
    "x.strands.multi_agent",
    "x.strands.session",
)

_Data = Mapping[str, Any]


def sentence(kind: str, data: _Data) -> str:
    """Return what an event other than a message did; empty if its kind or its data have no sentence."""
    with suppress(KeyError, TypeError, ValueError, ArithmeticError, AttributeError):
        return _SENTENCES[kind](data)
    return ""


def many(number: int, thing: str, things: str = "") -> str:
    """Return `1 event`, `2 events`."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def money(cost: Decimal) -> str:
    """Return a cost with 4 significant digits or 4 decimal places, whichever is more."""
    if abs(cost.adjusted()) > _DIGITS:
        return str(cost)  # in a log of another program
    text = f"{cost:,.{max(4, 3 - cost.adjusted()) if cost else 0}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def shortened(value: object, length: int = _VALUE) -> str:
    """Return a value as text of bounded length."""
    text = value if isinstance(value, str) else compact(value)
    return text if len(text) <= length else text[: length - 1] + "…"


def count_seqs(ranges: Iterable[tuple[int, int]]) -> int:
    """Return the number of seqs in ranges."""
    return sum(last - first + 1 for first, last in ranges)


def not_shown(count: int) -> str:
    """Return how many events of `BOOKKEEPING` are left out."""
    return f"{many(count, 'event')} of a framework's bookkeeping not shown"


def tokens_of(usage: _Data, *names: str, show: Callable[[int], str] = "{:,}".format) -> str:
    """Return the numbers of some kinds of tokens that are not 0, in parentheses."""
    counts = ((name, usage.get(f"{name}_tokens")) for name in names)
    text = ", ".join(f"{show(count)} {name.replace('_', '-')}" for name, count in counts if count)
    return f" ({text})" if text else ""


def tokens(usage: _Data) -> str:
    """Return the tokens and the cost of model calls."""
    given, made = usage.get("input_tokens", 0), usage.get("output_tokens", 0)
    cost = Decimal(str(usage.get("cost") or 0))
    price = f", cost {money(cost)}" if cost else ""
    source, thought = tokens_of(usage, "cached", "cache_write"), tokens_of(usage, "reasoning")
    return f"{many(given, 'token')} in{source}, {made:,} out{thought}{price}"


def point(parent: str, seq: int, label: str | None) -> str:
    """Return where a session was forked."""
    return f"{parent} at {seq}" + (f" ({label})" if label else "")


def _metadata(data: _Data) -> str:
    return ", ".join(
        f"{key} removed" if value is None else f"{key} = {shortened(value)}"
        for key, value in data.get("metadata", {}).items()
    )


def _reasoned(what: str, data: _Data) -> str:
    """Return what was done, for which fork if it names one, and why if that is known."""
    whose = f" for the fork {data['fork']}" if data.get("fork") else ""
    return what + whose + (f": {data['reason']}" if data.get("reason") else "")


def _part(data: _Data) -> str:
    calls = ((call.get("name", ""), call.get("arguments", "")) for call in data.get("calls", ()))
    text = " ".join([data.get("text", ""), *("".join(call) for call in calls)]).strip()
    if text:
        return f"stream part: {shortened(text, _PART)}"
    over = "the streamed message was discarded"
    return over if data.get("over") else "stream part, left out by an export"


_SENTENCES: Final[Mapping[str, Callable[[_Data], str]]] = {
    "event.lost": lambda _: "a damaged event was lost",
    "message.part": _part,
    "message.redacted": lambda data: _reasoned(f"redacted message {data['seq']}", data),
    "metadata.set": lambda data: f"metadata: {_metadata(data)}",
    "session.archived": lambda data: (
        "archived" if data.get("archived", True) else "no longer archived"
    ),
    "session.cleared": lambda _: "cleared: the model view starts here",
    "session.closed": lambda data: "closed" if data.get("closed", True) else "reopened",
    "session.created": lambda data: ": ".join(filter(None, ("created", _metadata(data)))),
    "session.forked": lambda data: (
        f"forked from {point(data['parent'], data['seq'], data.get('label'))}"
    ),
    "session.held": lambda data: _reasoned("held", data),
    "session.released": lambda data: _reasoned("released", data),
    "session.repaired": lambda data: (
        f"repaired: {many(count_seqs(data.get('lost', ())), 'event')} lost"
    ),
    "session.reverted": lambda data: f"reverted to seq {data['seq']}",
    "session.snapshotted": lambda data: f"snapshot “{data['label']}” of seq {data['seq']}",
    "usage.recorded": lambda data: f"usage: {data['model']}, {tokens(data)}",
}
