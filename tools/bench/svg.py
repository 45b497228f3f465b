"""Draw plots as SVG: lines on logarithmic axes, and bars.

Plain text, so that a diff is readable. hansard is drawn last, with a thick line.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

Series = Mapping[str, Sequence[tuple[float, float]]]

_WIDTH: Final = 860
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 260, 44, 46
_COLOURS: Final = (
    "#4e79a7", "#f28e2b", "#76b7b2", "#59a14f", "#edc948", "#b07aa1", "#ff9da7", "#9c755f",
    "#8c8c8c", "#86bcb6", "#d37295", "#a0cbe8", "#b6992d", "#499894", "#79706e",
)  # fmt: skip
_OURS: Final = "#c0182a"


def lines(title: str, series: Series, *, x: str, y: str) -> str:
    """Return lines through points on logarithmic axes; names of our lines begin with `hansard`."""
    height = 440
    points = [point for line in series.values() for point in line]
    if not points:
        return _frame(title, 120, [_text(_LEFT, 80, "nothing was measured")])
    x0, x1 = _span([point[0] for point in points])
    y0, y1 = _span([point[1] for point in points])

    def place(point: tuple[float, float]) -> tuple[float, float]:
        across = (math.log10(point[0]) - x0) / (x1 - x0)
        up = (math.log10(point[1]) - y0) / (y1 - y0)
        return (
            _LEFT + across * (_WIDTH - _LEFT - _RIGHT),
            height - _BOTTOM - up * (height - _TOP - _BOTTOM),
        )

    drawn = []
    for power in range(x0, x1 + 1):
        at, low = place((10.0**power, 10.0**y0))
        drawn.append(_line(at, low, at, _TOP))
        drawn.append(_text(at, height - _BOTTOM + 18, _short(10.0**power), "middle"))
    for power in range(y0, y1 + 1):
        left, at = place((10.0**x0, 10.0**power))
        drawn.append(_line(left, at, _WIDTH - _RIGHT, at))
        drawn.append(_text(_LEFT - 6, at + 4, _short(10.0**power), "end"))
    drawn.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, height - 8, x, "middle"))
    drawn.append(_text(8, _TOP - 10, y))
    for number, (name, line) in enumerate(_ours_last(series)):
        colour, thick = _look(name, number)
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in map(place, line))
        drawn.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{thick}"/>'
        )
        drawn += [
            f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{thick + 1}" fill="{colour}"/>'
            for a, b in map(place, line)
        ]
        at = _TOP + 10 + 18 * number
        drawn.append(
            f'<rect x="{_WIDTH - _RIGHT + 14}" y="{at - 8}" width="14" height="6" fill="{colour}"/>'
        )
        drawn.append(_text(_WIDTH - _RIGHT + 34, at, name))
    return _frame(title, height, drawn)


def bars(title: str, rows: Sequence[tuple[str, float, str]], *, logarithmic: bool = True) -> str:
    """Return bars: name, value, and a label at the end; sorted, the shortest first."""
    rows = sorted(rows, key=lambda row: row[1])
    height = _TOP + 24 * len(rows) + 20
    if not rows:
        return _frame(title, 120, [_text(_LEFT, 80, "nothing was measured")])
    low, high = _span([row[1] for row in rows])
    begin, room = 270, _WIDTH - 270 - 110
    drawn = []
    for number, (name, value, written) in enumerate(rows):
        share = (math.log10(value) - low) / (high - low) if logarithmic else value / rows[-1][1]
        at = _TOP + 24 * number
        colour = _OURS if name.startswith("hansard") else "#9fb3c8"
        length = max(2.0, share * room)
        drawn.append(
            f'<rect x="{begin}" y="{at}" width="{length:.1f}" height="17" fill="{colour}"/>'
        )
        drawn.append(_text(begin - 8, at + 13, name, "end"))
        drawn.append(_text(begin + length + 6, at + 13, written))
    return _frame(title + (" (logarithmic)" if logarithmic else ""), height, drawn)


def _span(values: Sequence[float]) -> tuple[int, int]:
    """Return the powers of ten around some values."""
    low = math.floor(math.log10(min(values)))
    return low, max(low + 1, math.ceil(math.log10(max(values))))


def _ours_last(series: Series) -> list[tuple[str, Sequence[tuple[float, float]]]]:
    return sorted(series.items(), key=lambda item: item[0].startswith("hansard"))


def _look(name: str, number: int) -> tuple[str, int]:
    if name.startswith("hansard"):
        return (_OURS, 3) if "sync" not in name else ("#e8743b", 3)
    return _COLOURS[number % len(_COLOURS)], 1


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#ddd"/>'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _frame(title: str, height: int, drawn: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'font-family="sans-serif" font-size="12" fill="#222">\n'
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>\n'
        f'<text x="{_WIDTH / 2}" y="20" text-anchor="middle" font-size="15">{escape(title)}</text>\n'
    )
    return head + "\n".join(drawn) + "\n</svg>\n"
