"""Step through a session with keys: forward, back, to a seq, to either end.

The screen shows one event. Each is read when it is shown, so that a long session takes no more memory.
"""

import os
import select
import signal
import sys
import termios
import tty
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Final, Self

from hansard.cli.render import EventPrinter
from hansard.cli.screen import Screen, cell, many

if TYPE_CHECKING:
    from hansard import Event, Session

_NEXT: Final = frozenset({"n", " ", "j", "right", "down", "enter"})
_BACK: Final = frozenset({"p", "b", "k", "left", "up", "backspace"})
_LEAVE: Final = frozenset({"q", "escape", "end of input"})

_HELP: Final = "n next · p back · g first · G last · 12 Enter go to 12 · q quit"

#: Returned by `read` if the terminal was resized.
_RESIZED: Final = "resized"

_KEYS: Final = {
    b"\x1b[C": "right",
    b"\x1bOC": "right",
    b"\x1b[D": "left",
    b"\x1bOD": "left",
    b"\x1b[A": "up",
    b"\x1bOA": "up",
    b"\x1b[B": "down",
    b"\x1bOB": "down",
    b"\x1b[H": "home",
    b"\x1b[1~": "home",
    b"\x1b[F": "end",
    b"\x1b[4~": "end",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b"\x1b": "escape",
    b"\r": "enter",
    b"\n": "enter",
    b"\x7f": "backspace",
    b"\x08": "backspace",
    b"\x04": "end of input",
    b"": "end of input",
}

#: Seconds to wait for the rest of a key: arrow keys send several bytes, Escape sends one.
_TOGETHER: Final = 0.05


def step_through(
    screen: Screen, session: "Session", seqs: list[int], *, full: bool, markdown: bool
) -> None:
    """Show events one by one, controlled by keys."""
    if not seqs:
        screen.line("no such events")
        return
    place = 0
    typed = ""
    with _Keys() as keys, screen.console.screen(hide_cursor=True):
        while True:
            printer = EventPrinter(screen, full=full, markdown=markdown)
            _draw(screen, session, seqs, place, typed, printer)
            key = keys.read()
            if key in _LEAVE:
                return
            if key == _RESIZED:
                continue
            if key.isdecimal():
                typed += key
                continue
            if typed:
                if key == "enter":
                    place = _nearest(seqs, int(typed))
                typed = typed[:-1] if key == "backspace" else ""
                if key in {"enter", "backspace"}:
                    continue
            place = _moved(place, key, len(seqs))


def _moved(place: int, key: str, count: int) -> int:
    """Return the index after a key."""
    if key in _NEXT:
        place += 1
    elif key in _BACK:
        place -= 1
    elif key in {"g", "home"}:
        place = 0
    elif key in {"G", "end"}:
        place = count - 1
    elif key == "page down":
        place += 10
    elif key == "page up":
        place -= 10
    return min(max(place, 0), count - 1)


def _nearest(seqs: list[int], wanted: int) -> int:
    """Return the index of a seq, or of the last one before it."""
    from bisect import bisect_right

    return max(bisect_right(seqs, wanted) - 1, 0)


def _draw(
    screen: Screen,
    session: "Session",
    seqs: list[int],
    place: int,
    typed: str,
    printer: EventPrinter,
) -> None:
    console = screen.console
    # Cut off what does not fit: the first and last line must stay in place.
    with console.capture() as captured:
        event = _event(session, seqs[place])
        if event is not None:
            printer.event(event, alone=True)
    body = captured.get().removesuffix("\n").split("\n")
    room = max(console.height - 3, 1)
    head = f"{session.id} — event {seqs[place]}, {place + 1} of {len(seqs)}"
    foot = f"go to {typed}▏ (Enter)" if typed else _HELP
    if len(body) > room:
        more = f"… {many(len(body) - room + 1, 'line')} more: hansard replay --from {seqs[place]}"
        lines = [*body[: room - 1], _fit(more, console.width)]
    else:
        lines = body + [""] * (room - len(body))
    console.file.write("\x1b[H")
    console.print(screen.text((_fit(head, console.width), "reverse")), end="\n", overflow="crop")
    console.file.write("".join(f"\x1b[2K{line}\n" for line in lines))
    console.file.write("\x1b[J")
    console.print(screen.text((_fit(foot, console.width - 1), "dim")), end="", overflow="crop")
    console.file.flush()


def _fit(text: str, width: int) -> str:
    text = cell(text)
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def _event(session: "Session", seq: int) -> "Event | None":
    return next(session.events(after=seq - 1), None)


class _Keys:
    """Reads keys from the terminal while the block runs. Ctrl-C interrupts."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._before: list[object] = []
        self._woken, self._wakes = -1, -1
        self._handler: object = None
        self._waiting: list[bytes] = []

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._input)
        self._woken, self._wakes = os.pipe()
        os.set_blocking(self._wakes, False)
        self._handler = signal.signal(signal.SIGWINCH, self._resized)
        tty.setcbreak(self._input)
        return self

    def __exit__(self, *_: object) -> None:
        termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)  # type: ignore[arg-type]
        signal.signal(signal.SIGWINCH, self._handler)  # type: ignore[arg-type]
        os.close(self._woken)
        os.close(self._wakes)

    def _resized(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        with suppress(BlockingIOError):  # a full pipe: already noted
            os.write(self._wakes, b"!")

    def read(self) -> str:
        """Wait for a key and return its name: the character, or a name such as `right`."""
        while not self._waiting:
            ready, _, _ = select.select([self._input, self._woken], [], [])
            if self._woken in ready:
                os.read(self._woken, 512)
                return _RESIZED
            self._waiting = _split(self._bytes())
        raw = self._waiting.pop(0)
        return _KEYS.get(raw) or raw.decode(errors="replace")

    def _bytes(self) -> bytes:
        data = os.read(self._input, 512)
        while data.endswith((b"\x1b", b"\x1b[", b"\x1bO")):
            more, _, _ = select.select([self._input], [], [], _TOGETHER)
            if not more:
                break
            data += os.read(self._input, 512)
        return data or b"\x04"


def _split(data: bytes) -> list[bytes]:
    """Split bytes into keys: fast typing sends several at once."""
    found = []
    while data:
        size = 1
        if data[:1] == b"\x1b" and len(data) > 1:
            size = next(
                (len(known) for known in _KEYS if len(known) > 1 and data.startswith(known)), 1
            )
        elif data[0] >= 0xC0:  # noqa: PLR2004 - the first byte of a character that has several
            size = 2 + (data[0] >= 0xE0) + (data[0] >= 0xF0)  # noqa: PLR2004 - likewise
        found.append(data[:size])
        data = data[size:]
    return found
