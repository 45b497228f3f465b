"""`hansard stats`: show totals, growth and model usage."""

import math
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from operator import itemgetter
from typing import Final, NamedTuple

import click
import msgspec

import hansard
from hansard.cli import arguments
from hansard.cli.command import Call, define
from hansard.cli.screen import (
    Piece,
    Screen,
    cell,
    columns_of,
    many,
    money,
    padded,
    rounded,
    shorten,
)
from hansard.message.parse import size
from hansard.message.sentences import tokens_of

#: Height of the growth plot, in lines.
_HIGH: Final = 5

#: Maximum width of plots.
_WIDEST: Final = 100

#: Maximum width of a bar.
_BAR: Final = 30

#: Left margin.
_MARGIN: Final = "  "

#: Bars from an eighth to full: horizontal, vertical.
_ACROSS: Final = "▏▎▍▌▋▊▉█"
_UPWARD: Final = "▁▂▃▄▅▆▇█"

#: Columns of a model.
_USAGE: Final = (
    "calls",
    "input_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "cost",
)

#: Days per column of a plot, and their names.
_SPANS = ((1, "day"), (7, "week"), (28, "4 weeks"), (364, "52 weeks"))


@define(
    "stats",
    "stats",
    "stats --prefix support/ --top 10",
    "stats --json | jq '.models[].cost'",
    "stats --json | jq '.days | to_entries[-7:]'  # the last week",
    paged=True,
)
@arguments.prefix_option
@arguments.count_option("--top", default=5, help="Number of sessions and models")
@click.option("--model", type=arguments.MODEL, help="Usage of this model only")
def command(call: Call, prefix: str, top: int, model: str | None) -> None:
    """Show totals, growth and model usage.

    Every event counts once, in the session where it was appended. Days are UTC days. A terminal shows plots,
    a pipe their numbers.

    With --json: one document.
    """
    with call.finding() as store:
        with call.screen.progress("reading sessions", "sessions", least=200) as progress:
            stats = store.stats(prefix=prefix, progress=progress)
        if model is not None:
            used = {name: usage for name, usage in stats.models.items() if name == model}
            stats = msgspec.structs.replace(stats, models=used)
        largest = store.sessions(prefix=prefix, order="-bytes", limit=top).items if top else []
    call.screen.document(
        {
            **msgspec.structs.asdict(stats),
            "compression": stats.compression,
            "largest": [{"id": info.id, "bytes": info.bytes} for info in largest],
        }
    )
    _totals(call.screen, stats)
    if call.screen.terminal:
        _plots(call.screen, stats, largest, top)
    else:
        _tables(call.screen, stats, largest)
    call.screen.damaged(stats.damaged, ", and not counted")


def _totals(screen: Screen, stats: "hansard.StoreStats") -> None:
    counts = (
        many(stats.forks, "fork") if stats.forks else "",
        f"{stats.archived:,} archived" if stats.archived else "",
        f"{stats.damaged:,} damaged" if stats.damaged else "",
    )
    kinds = ", ".join(filter(None, counts))
    added = f" ({kinds})" if kinds else ""
    screen.line((many(stats.sessions, "session"), "bold"), added)
    screen.line(f"{many(stats.messages, 'message')} in {many(stats.events, 'event')}")
    stored = f"{size(stats.bytes)} on disk"
    if stats.raw_bytes > stats.bytes:
        stored += f", {size(stats.raw_bytes)} uncompressed (ratio {stats.compression:.1f})"
    screen.line(stored)


def _tables(
    screen: Screen, stats: "hansard.StoreStats", largest: "Sequence[hansard.SessionInfo]"
) -> None:
    def table(names: Sequence[str], rows: list[Sequence[object]]) -> None:
        if rows:
            screen.line()
            screen.table(names, rows, numbers=" ".join(names[1:]))

    table(
        ["day", "sessions", "events", "messages"],
        [(day, d.sessions, d.events, d.messages) for day, d in stats.days.items()],
    )
    table(["session", "bytes"], [(info.id, info.bytes) for info in largest])
    table(
        ["model", *(name.replace("_", "-") for name in _USAGE)],
        [
            (model, *(getattr(used, name) for name in _USAGE))
            for model, used in stats.models.items()
        ],
    )
    table(["workspace", "sessions"], list(stats.workspaces.items()))


def _plots(
    screen: Screen, stats: "hansard.StoreStats", largest: "Sequence[hansard.SessionInfo]", top: int
) -> None:
    _grown(screen, {day: added.messages for day, added in stats.days.items()})
    sizes = [(info.id, info.bytes, size(info.bytes)) for info in largest if info.bytes]
    _bars(screen, "Largest sessions", sizes, "cyan")
    models = []
    for model, used in stats.models.items():
        tokens = used.input_tokens + used.output_tokens
        fields = msgspec.structs.asdict(used)
        kinds = tokens_of(fields, "cached", "cache_write", "reasoning", show=rounded)
        text = f"{rounded(tokens)}{kinds} in {many(used.calls, 'call')}"
        cost = f", cost {money(used.cost)}" if used.cost else ""
        models.append((model, tokens, text + cost))
    models.sort(key=itemgetter(1), reverse=True)
    _bars(screen, "Tokens by model", models[:top], "magenta")
    if len(models) > top:
        screen.line((f"{_MARGIN}and {many(len(models) - top, 'model')} more; --top", "dim"))
    paths = [(path, number, f"{number:,}") for path, number in stats.workspaces.items()]
    paths.sort(key=itemgetter(1), reverse=True)
    _bars(screen, "Sessions by workspace", paths[:top], "blue")


def _grown(screen: Screen, days: dict[str, int]) -> None:
    scale = max(len(rounded(sum(days.values()))), 1)
    space = min(screen.width, _WIDEST) - len(_MARGIN) - scale - 1
    grown = growth(days, max(space // 2, 1))
    if grown is None or not any(grown.values):
        return
    # Wide columns where they fit: seven thin lines are hard to read.
    wide = max(1, min(6, space // len(grown.values) - 1))
    gap = 1 if wide > 1 else 0
    screen.line()
    screen.cropped((f"Messages per {grown.span}", "bold"))
    for place, line in enumerate(columns(grown.values, _HIGH)):
        label = rounded(max(grown.values)) if place == 0 else ""
        drawn = (" " * gap).join(character * wide for character in line)
        screen.cropped((f"{_MARGIN}{label:>{scale}} ", "dim"), (drawn, "green"))
    length = len(grown.values) * (wide + gap) - gap
    begin, end = grown.first.isoformat(), grown.last.isoformat()
    under = "─" * length
    screen.cropped((f"{_MARGIN}{'0':>{scale}} {under}", "dim"))
    dates = f"{begin}{end:>{max(length - len(begin), len(end) + 1)}}"
    if begin == end or len(dates) > space:
        dates = begin
    screen.cropped((f"{_MARGIN}{'':>{scale}} {dates}", "dim"))


def _bars(screen: Screen, title: str, rows: Sequence[tuple[str, int, str]], style: str) -> None:
    """Print a bar per row: name, bar, value."""
    if not rows:
        return
    space = min(screen.width, _WIDEST) - len(_MARGIN)
    names = [cell(name) for name, _, _ in rows]
    text_width = max(columns_of(text) for _, _, text in rows)
    # Name and value come first; the bar takes the rest, or is omitted.
    name_width = min(max(map(columns_of, names)), max(space - text_width - 8, space // 3))
    bar_width = min(_BAR, space - name_width - text_width - 2)
    screen.line()
    screen.cropped((title, "bold"))
    most = max(value for _, value, _ in rows)
    for name, (_, value, text) in zip(names, rows, strict=True):
        shown = padded(shorten(name, name_width, middle=True), name_width)
        pieces: list[Piece] = [_MARGIN, shown, " "]
        if bar_width > 1:
            drawn = bar(value, most, bar_width)
            pieces += [(padded(drawn, bar_width), style), " "]
        screen.cropped(*pieces, text)


def bar(value: float, most: float, length: int, parts: str = _ACROSS) -> str:
    """Return a bar, as long as `length` for `most`. A value above 0 is visible."""
    if value <= 0:
        return ""
    full, rest = divmod(max(round(value / most * length * len(parts)), 1), len(parts))
    return parts[-1] * full + (parts[rest - 1] if rest else "")


def columns(values: Sequence[float], height: int) -> list[str]:
    """Return the lines of a column plot, from the top. A value above 0 is visible."""
    bars = [bar(value, max(values), height, _UPWARD).ljust(height) for value in values]
    return ["".join(row).rstrip() for row in zip(*bars, strict=True)][::-1]


class Growth(NamedTuple):
    """Sums per span of days."""

    #: The span of a column: "day", "week" …
    span: str
    first: date
    last: date
    values: list[int]


def growth(days: Mapping[str, int], width: int) -> Growth | None:
    """Add up days so that all columns fit; None if there are no days. Missing days count as 0."""
    known = {date.fromisoformat(day): value for day, value in days.items()}
    if not known:
        return None
    first, last = min(known), max(known)
    length = (last - first).days + 1
    long = math.ceil(length / max(width, 1))
    span, name = next((known for known in _SPANS if known[0] >= long), (long, f"{long} days"))
    values = [0] * math.ceil(length / span)
    for day, value in known.items():
        values[(day - first).days // span] += value
    end = min(first + timedelta(days=len(values) * span - 1), last)
    return Growth(name, first, end, values)
