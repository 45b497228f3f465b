"""The columns of a listing, fitted to the terminal.

In a pipe, each column has its full value: bytes as a number, times as RFC 3339, `-` for nothing. On a
terminal, times are relative, and texts are shortened and columns omitted until a line fits. No line is
wrapped.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import hansard
from hansard import clock
from hansard.cli import arguments
from hansard.cli.screen import Piece, Screen, cell, columns_of, money, shorten
from hansard.message.parse import size

#: Between two columns.
_GAP: Final = "  "


class Column(NamedTuple):
    """A column of a listing."""

    #: The full value, for a pipe.
    full: Callable[["hansard.SessionInfo"], object]
    #: The value for a terminal, at a time; by default the full one.
    short: Callable[["hansard.SessionInfo", datetime], str] | None = None
    style: str = ""
    number: bool = False
    #: The width to which it may be shortened; 0: not at all.
    least: int = 0
    #: The highest rank is omitted first.
    rank: int = 2


def _amount(value: Callable[["hansard.SessionInfo"], int], rank: int = 2) -> Column:
    return Column(value, lambda info, _: f"{value(info):,}", number=True, rank=rank)


def marks(info: "hansard.SessionInfo") -> str:
    """Return a session's marks: damaged, held, archived, closed."""
    return ", ".join(
        name for name in ("damaged", "held", "archived", "closed") if getattr(info, name)
    )


COLUMNS: Final[Mapping[str, Column]] = {
    "id": Column(lambda info: info.id, style="bold", rank=0),
    "title": Column(lambda info: info.title or "", least=16, rank=2),
    "messages": _amount(lambda info: info.message_count, rank=4),
    "created": Column(
        lambda info: info.created_stamp, lambda info, at: arguments.ago(info.created, at), "dim"
    ),
    "updated": Column(
        lambda info: info.updated_stamp,
        lambda info, at: arguments.ago(info.updated, at),
        "dim",
        rank=3,
    ),
    "size": Column(lambda info: info.bytes, lambda info, _: size(info.bytes), number=True, rank=5),
    "tokens": _amount(lambda info: info.input_tokens + info.output_tokens),
    "cost": Column(lambda info: info.cost, lambda info, _: money(info.cost), number=True),
    "parent": Column(lambda info: info.parent or "", style="cyan", least=10, rank=7),
    "at": Column(
        lambda info: info.forked_at if info.parent else "", style="cyan", number=True, rank=6
    ),
    "is": Column(marks, style="yellow", least=8, rank=1),
}

#: Default columns.
USUAL: Final = ("id", "title", "messages", "updated", "size", "parent", "is")
IN_TREES: Final = ("id", "title", "at", "messages", "updated", "size", "is")


class Row(NamedTuple):
    """A line of a listing."""

    info: "hansard.SessionInfo"
    #: The lines of a tree before the id.
    drawn: str = ""
    #: A further mark.
    mark: str = ""
    #: Whether the call names it.
    named: bool = False
    #: In a tree, its distance from the root.
    depth: int = 0


def show(screen: Screen, rows: Sequence[Row], names: Sequence[str]) -> None:
    """Print a listing with the named columns."""
    if not rows:
        if screen.terminal:
            screen.line(("no sessions", "dim"))
        return
    if not screen.terminal:
        full = [[_full(row, name) or "-" for name in names] for row in rows]
        screen.table(names, full, numbers=" ".join(n for n in names if COLUMNS[n].number))
        return
    at = clock.now()
    cells = [{name: _short(row, name, at) for name in names} for row in rows]
    # Omit empty columns.
    widths = {
        name: max(len(name), *(columns_of(row[name]) for row in cells), 1)
        for name in names
        if name not in {"is", "title", "parent", "at"} or any(row[name] for row in cells)
    }
    # A few ids that are longer than the others are shortened before titles are.
    ids = sorted(columns_of(row["id"]) for row in cells)
    excess = sum(widths.values()) + len(_GAP) * (len(widths) - 1) - screen.width
    usual = max(ids[int(0.9 * (len(ids) - 1))], 16, 3 * screen.width // 10)
    widths["id"] = min(widths["id"], max(usual, widths["id"] - max(excess, 0)))
    least = {name: min(width, COLUMNS[name].least or width) for name, width in widths.items()}
    # Long ids must not take the complete width.
    least["id"] = min(widths["id"], max(16, 3 * screen.width // 5))
    fitted = fit(widths, least, screen.width)

    def line(values: Mapping[str, str], row: Row | None = None) -> None:
        pieces: list[Piece] = []
        for name, width in fitted.items():
            text = shorten(values[name], width, middle=name == "id")
            padding = " " * (width - columns_of(text))
            drawn = len(row.drawn) if row and name == "id" else 0
            value: list[Piece] = [(text[:drawn], "dim"), (text[drawn:], _style(row, name))]
            pieces += [padding, *value] if COLUMNS[name].number else [*value, padding]
            pieces.append(_GAP)
        screen.cropped(*pieces[:-1])

    line({name: name for name in names})
    for row, values in zip(rows, cells, strict=True):
        line(values, row)


def _style(row: Row | None, name: str) -> str:
    """Return the style of a cell; without a row, of a heading."""
    if row is None:
        return "bold underline"
    if row.info.damaged and name in {"id", "is"}:
        return "bold red"
    return "bold yellow" if row.named and name == "id" else COLUMNS[name].style


def _full(row: Row, name: str) -> str:
    if name == "id":
        return row.drawn + row.info.id
    if row.info.damaged and COLUMNS[name].short is not None:
        return ""  # unknown, not 0
    text = str(COLUMNS[name].full(row.info))
    return ", ".join(filter(None, (text, row.mark))) if name == "is" else text


def _short(row: Row, name: str, at: datetime) -> str:
    short = COLUMNS[name].short
    if short is None:
        return cell(_full(row, name))
    return "" if row.info.damaged else short(row.info, at)


def fit(widths: Mapping[str, int], least: Mapping[str, int], space: int) -> dict[str, int]:
    """Return the columns to show, each with its width, so that they fit."""

    def rank(name: str) -> int:
        return COLUMNS[name].rank

    kept = dict(widths)
    while True:
        excess = sum(kept.values()) + len(_GAP) * (len(kept) - 1) - space
        if excess <= sum(kept[name] - least[name] for name in kept) or len(kept) == 1:
            break
        del kept[max(kept, key=rank)]
    for name in sorted(kept, key=rank, reverse=True):
        taken = min(max(excess, 0), kept[name] - least[name])
        kept[name] -= taken
        excess -= taken
    if len(kept) == 1:
        kept = {name: min(width, max(space, 1)) for name, width in kept.items()}
    return kept
