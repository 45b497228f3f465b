"""What lines are made of: characters that the terminal has, and texts that fit their place.

Above: `columns`, `lineages`, `plots`, `commands`.  Below: `screen`; Rich, on a terminal only.
Where the output is no UTF-8, there is ASCII for everything that is drawn.
"""

import sys
from typing import TYPE_CHECKING, NamedTuple

from hansard.cli.screen import Piece, Screen, columns_of

if TYPE_CHECKING:
    from rich.text import Text


class Pens(NamedTuple):
    """What to draw with."""

    #: Between a session and its forks: to one of several, to the last, past others, past nothing.
    branch: str
    last: str
    past: str
    nothing: str
    #: From an eighth of a place to all of it: from the left, and from below.
    across: str
    upward: str
    #: What is left out.
    dots: str
    #: The line under a plot.
    ground: str


BLOCKS = Pens("├─ ", "└─ ", "│  ", "   ", "▏▎▍▌▋▊▉█", "▁▂▃▄▅▆▇█", "…", "─")
ASCII = Pens("|- ", "`- ", "|  ", "   ", "#", "#", "~", "-")


def pens() -> Pens:
    """Return what the output can show."""
    return BLOCKS if (sys.stdout.encoding or "").lower().replace("-", "") == "utf8" else ASCII


def shorten(text: str, width: int, dots: str, *, middle: bool = False) -> str:
    """Return a text that takes at most so many columns. `middle`: its end says as much as its beginning."""
    if columns_of(text) <= width:
        return text
    room = width - len(dots)
    if room < 1:
        return dots[:width]
    tail = room // 2 if middle else 0
    return _head(text, room - tail) + dots + _head(text[::-1], tail)[::-1]


def _head(text: str, width: int) -> str:
    taken = 0
    for place, character in enumerate(text):
        taken += columns_of(character)
        if taken > width:
            return text[:place]
    return text


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Return a text that takes so many columns, if it does not take more. `right`: it stands at the right."""
    room = " " * max(width - columns_of(text), 0)
    return room + text if right else text + room


def whole(screen: Screen, *pieces: Piece) -> None:
    """Print a line that the terminal wraps, and nobody here: so it can be copied from there in one piece."""
    if not screen.terminal:
        screen.line(*pieces)
        return
    screen.console.print(screen.text(*pieces), soft_wrap=True)


def unbroken(screen: Screen, *pieces: Piece) -> None:
    """Print a line that is never wrapped: on a terminal, what does not fit is cut off."""
    if not screen.terminal:
        screen.line(*pieces)
        return
    line: Text = screen.text(*pieces)
    line.rstrip()
    screen.console.print(line, no_wrap=True, overflow="crop", crop=True)
