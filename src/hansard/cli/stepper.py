"""Step through a session with keys: forward, back, to a seq, to a text, to either end.

The screen shows one event, and above it the first lines of earlier events. Each event is read when it is
shown, so a long session takes no more memory than a short one.
"""

import os
import re
import select
import sys
import termios
import tty
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

import hansard
from hansard.cli.render import MESSAGES, EventPrinter, line_of
from hansard.cli.screen import Screen, cell, shorten

_HELP: Final = "n next · p back · ↑↓ scroll · / search · g G ends · 12 Enter go to · q quit"

#: The bytes that keys send, and how many events each moves; a move ends at the first or the last event.
_FAR: Final = 10**12
_KEYS: Final = {
    **dict.fromkeys(("n", "\x1b[C", "\x1bOC", "\r", "\n"), 1),
    **dict.fromkeys(("p", "\x1b[D", "\x1bOD", "\x7f", "\x08"), -1),
    **dict.fromkeys(("g", "\x1b[H", "\x1b[1~"), -_FAR),
    **dict.fromkeys(("G", "\x1b[F", "\x1b[4~"), _FAR),
}
#: Keys that scroll a long event by a line or by a page; at its ends they move to the next event.
_LINES: Final = {
    **dict.fromkeys(("j", "\x1b[B", "\x1bOB"), 1),
    **dict.fromkeys(("k", "\x1b[A", "\x1bOA"), -1),
}
_PAGES: Final = {
    **dict.fromkeys((" ", "\x1b[6~"), 1),
    **dict.fromkeys(("b", "\x1b[5~"), -1),
}
_LEAVE: Final = frozenset({"q", "\x1b", "\x04"})
_ENTER: Final = frozenset({"\r", "\n"})
_BACKSPACE: Final = frozenset({"\x7f", "\x08"})

#: Yielded by `_keys` if the terminal was resized.
_RESIZED: Final = "resized"

#: Seconds to wait for the rest of a key: arrow keys send several bytes, Escape sends one.
_TOGETHER: Final = 0.05

#: Seconds between two checks of the terminal's size.
_CHECK_SIZE: Final = 0.2


@dataclass
class Stepper:
    """Shows events one by one, controlled by keys.

    Args:
        screen: a terminal.
        session: the session.
        seqs: the events.
        mark: returns what is special about the message at a seq.
        full: do not truncate.
    """

    _screen: Screen
    _session: "hansard.Session"
    _seqs: list[int]
    _mark: Callable[[int], str]
    _full: bool
    _place: int = 0
    #: The line of the event at the top, the last line that can be there, and the lines of a page.
    _top: int = 0
    _bottom: int = 0
    _page: int = 1
    #: What is being typed: a number or, after `/`, a text; the last text searched; a note until a key.
    _typed: str = ""
    _wanted: str = ""
    _note: str = ""

    def run(self) -> None:
        """Draw the screen and act on each key, until one quits."""
        if not self._seqs:
            self._screen.line("no such events")
            return
        before = termios.tcgetattr(sys.stdin)
        # Each key comes without Enter and without echo. Ctrl-C still interrupts.
        tty.setcbreak(sys.stdin)
        try:
            with self._screen.console.screen(hide_cursor=True):
                self._draw()
                for key in _keys(self._screen):
                    if key in _LEAVE and not self._typed.startswith("/"):
                        return
                    if key != _RESIZED:
                        self._press(key)
                    self._draw()
        finally:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)

    def _press(self, key: str) -> None:
        self._note = ""
        searching = self._typed.startswith("/")
        if key == "\x1b":
            self._typed = ""
        elif self._typed and key in _BACKSPACE:
            self._typed = self._typed[:-1]
        elif self._typed and key in _ENTER:
            self._go_to(self._typed)
            self._typed = ""
        elif (searching and key.isprintable()) or key.isdecimal() or key == "/":
            self._typed += key
        else:
            self._typed = ""
            self._move(key)

    def _event(self, place: int) -> "hansard.Event":
        seq = self._seqs[place]
        return next(islice(self._session.events(after=seq - 1), 1))

    def _move(self, key: str) -> None:
        lines = _LINES.get(key, 0) or _PAGES.get(key, 0) * self._page
        if lines and 0 <= self._top + (1 if lines > 0 else -1) <= self._bottom:
            self._top = min(max(self._top + lines, 0), self._bottom)
            return
        step = _KEYS.get(key, 0) or (lines > 0) - (lines < 0)
        self._show(self._place + step)

    def _show(self, place: int) -> None:
        place = min(max(place, 0), len(self._seqs) - 1)
        self._top = self._top if place == self._place else 0
        self._place = place

    def _go_to(self, typed: str) -> None:
        """Go to a seq, or the last one before it; or to the next event with a text."""
        if not typed.startswith("/"):
            self._show(bisect_right(self._seqs, int(typed)) - 1)
            return
        self._wanted = typed[1:].casefold() or self._wanted
        count = len(self._seqs)
        for distance in range(1, count + 1 if self._wanted else 1):
            place = (self._place + distance) % count
            if self._wanted in line_of(self._event(place), None).casefold():
                self._show(place)
                return
        self._note = f"not found: {self._wanted}" if self._wanted else "nothing to search for"

    def _draw(self) -> None:
        console, width = self._screen.console, self._screen.console.width
        printer = EventPrinter(self._screen, full=self._full)
        printer.mark = self._mark
        height = max(console.height - 3, 1)
        # The earlier events get at most a third of the screen.
        rows = min(self._place, height // 3) if height > 3 else 0  # noqa: PLR2004
        before = [self._event(place) for place in range(self._place - rows, self._place)]
        for event in before:
            printer.learn(event)
        with console.capture() as captured:
            printer.event(self._event(self._place), alone=True)
        body = captured.get().removesuffix("\n").split("\n")
        self._page = height - rows
        self._bottom = max(len(body) - self._page, 0)
        self._top = min(self._top, self._bottom)
        shown = body[self._top : self._top + self._page]
        place = f"{self._place + 1} of {len(self._seqs)}"
        head = f"{cell(self._session.id)} — event {self._seqs[self._place]}, {place}"
        if self._bottom:
            head += f", lines {self._top + 1} to {self._top + len(shown)} of {len(body)}"
        foot = self._note or _HELP
        if self._typed:
            foot = f"{'' if self._typed[0] == '/' else 'go to '}{self._typed}▏ (Enter)"
        console.file.write("\x1b[H")
        self._print(head, "reverse", width, "\n")
        for event in before:
            mark = self._mark(event.seq) if event.kind in MESSAGES else ""
            text = f"{event.seq:>4}  {f'({mark}) ' * bool(mark)}{line_of(event, width)}"
            self._print(text, "dim", width, "\n")
        lines = shown + [""] * (self._page - len(shown))
        console.file.write("".join(f"\x1b[2K{line}\n" for line in lines))
        console.file.write("\x1b[J")
        self._print(foot, "dim", width - 1, "")
        console.file.flush()

    def _print(self, text: str, style: str, width: int, end: str) -> None:
        console = self._screen.console
        console.file.write("\x1b[2K")
        console.print(
            self._screen.text((shorten(text, width), style)), end=end, overflow="crop", no_wrap=True
        )


def _keys(screen: Screen) -> Iterator[str]:
    """Yield what each key sends, and `_RESIZED` if the terminal has another size."""
    descriptor = sys.stdin.fileno()
    size = screen.console.size
    while True:
        if not select.select([descriptor], [], [], _CHECK_SIZE)[0]:
            if size != screen.console.size:
                size = screen.console.size
                yield _RESIZED
            continue
        data = os.read(descriptor, 512) or b"\x04"
        while (
            data.endswith((b"\x1b", b"\x1b[", b"\x1bO"))
            and (select.select([descriptor], [], [], _TOGETHER)[0])
        ):
            data += os.read(descriptor, 512)
        # Fast typing sends several keys at once.
        yield from re.findall(r"\x1b[\[O][0-9]*[~A-Z]|.", data.decode(errors="replace"), re.DOTALL)
