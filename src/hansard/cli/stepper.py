"""Step through a session with keys: forward, back, to a seq, to either end.

The screen shows one event. Each is read when it is shown, so that a long session takes no more memory.
"""

import os
import re
import select
import sys
import termios
import tty
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final

import hansard
from hansard.cli.render import EventPrinter
from hansard.cli.screen import Screen, cell, many, shorten

_HELP: Final = "n next · p back · g first · G last · 12 Enter go to 12 · q quit"

#: What keys send, and what they do: a number moves so far, and is limited by the first and the last event.
_FAR: Final = 10**12
_KEYS: Final = {
    **dict.fromkeys(("n", " ", "j", "\x1b[C", "\x1bOC", "\x1b[B", "\x1bOB", "\r", "\n"), 1),
    **dict.fromkeys(("p", "b", "k", "\x1b[D", "\x1bOD", "\x1b[A", "\x1bOA", "\x7f", "\x08"), -1),
    **dict.fromkeys(("g", "\x1b[H", "\x1b[1~"), -_FAR),
    **dict.fromkeys(("G", "\x1b[F", "\x1b[4~"), _FAR),
    "\x1b[6~": 10,
    "\x1b[5~": -10,
}
_LEAVE: Final = frozenset({"q", "\x1b", "\x04"})
_ENTER: Final = frozenset({"\r", "\n"})
_BACKSPACE: Final = frozenset({"\x7f", "\x08"})

#: Yielded by `_keys` if the terminal was resized.
_RESIZED: Final = "resized"

#: Seconds to wait for the rest of a key: arrow keys send several bytes, Escape sends one.
_TOGETHER: Final = 0.05

#: Seconds between two looks at the size of the terminal.
_CHECK_SIZE: Final = 0.2


def step_through(
    screen: Screen, session: "hansard.Session", seqs: list[int], *, full: bool, markdown: bool
) -> None:
    """Show events one by one, controlled by keys."""
    if not seqs:
        screen.line("no such events")
        return
    place = 0
    typed = ""
    with _cbreak(), screen.console.screen(hide_cursor=True):
        keys = _keys(screen)
        while True:
            printer = EventPrinter(screen, full=full, markdown=markdown)
            _draw(screen, session, seqs, place, typed, printer)
            key = next(keys)
            if key in _LEAVE:
                return
            if key.isdecimal():
                typed += key
            elif typed and key in _BACKSPACE:
                typed = typed[:-1]
            elif typed and key in _ENTER:
                # To that seq, or the last one before it.
                place = max(bisect_right(seqs, int(typed)) - 1, 0)
                typed = ""
            elif key != _RESIZED:
                place = min(max(place + _KEYS.get(key, 0), 0), len(seqs) - 1)
                typed = ""


def _draw(
    screen: Screen,
    session: "hansard.Session",
    seqs: list[int],
    place: int,
    typed: str,
    printer: EventPrinter,
) -> None:
    console = screen.console
    # Cut off what does not fit: the first and last line must stay in place.
    with console.capture() as captured:
        for event in islice(session.events(after=seqs[place] - 1), 1):
            printer.event(event, alone=True)
    body = captured.get().removesuffix("\n").split("\n")
    height = max(console.height - 3, 1)
    head = f"{cell(session.id)} — event {seqs[place]}, {place + 1} of {len(seqs)}"
    foot = f"go to {typed}▏ (Enter)" if typed else _HELP
    if len(body) > height:
        more = f"… {many(len(body) - height + 1, 'line')} more: hansard replay --from {seqs[place]}"
        lines = [*body[: height - 1], shorten(more, console.width)]
    else:
        lines = body + [""] * (height - len(body))
    console.file.write("\x1b[H")
    console.print(screen.text((shorten(head, console.width), "reverse")), end="\n", overflow="crop")
    console.file.write("".join(f"\x1b[2K{line}\n" for line in lines))
    console.file.write("\x1b[J")
    console.print(screen.text((shorten(foot, console.width - 1), "dim")), end="", overflow="crop")
    console.file.flush()


@contextmanager
def _cbreak() -> Iterator[None]:
    """Deliver each key without Enter and without echo. Ctrl-C still interrupts."""
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


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
