"""Read single keys from a terminal, and notice when it changes its size.

Above: `stepping`.  Below: the operating system's terminal.
"""

import os
import select
import signal
import sys
import termios
import tty
from contextlib import suppress
from types import FrameType
from typing import Final, Self

#: What `read` returns if the terminal has another size now.
RESIZED: Final = "resized"

_NAMES: Final = {
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

#: An arrow key sends several bytes at once; Escape is one, with nothing behind it.
_TOGETHER: Final = 0.05


class Keys:
    """The terminal's keys, one by one, while the block runs. Ctrl-C interrupts, as everywhere."""

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
        with suppress(BlockingIOError):  # a full pipe: it is known already
            os.write(self._wakes, b"!")

    def read(self) -> str:
        """Wait for a key and return its name: the character itself, or a word such as `right`."""
        while not self._waiting:
            ready, _, _ = select.select([self._input, self._woken], [], [])
            if self._woken in ready:
                os.read(self._woken, 512)
                return RESIZED
            self._waiting = _split(self._bytes())
        raw = self._waiting.pop(0)
        return _NAMES.get(raw) or raw.decode(errors="replace")

    def _bytes(self) -> bytes:
        data = os.read(self._input, 512)
        while data.endswith((b"\x1b", b"\x1b[", b"\x1bO")):
            more, _, _ = select.select([self._input], [], [], _TOGETHER)
            if not more:
                break
            data += os.read(self._input, 512)
        return data or b"\x04"


def _split(data: bytes) -> list[bytes]:
    """Return the keys among some bytes: who types fast sends several at once."""
    found = []
    while data:
        size = 1
        if data[:1] == b"\x1b" and len(data) > 1:
            size = next(
                (len(known) for known in _NAMES if len(known) > 1 and data.startswith(known)), 1
            )
        elif data[0] >= 0xC0:  # noqa: PLR2004 - the first byte of a character that has several
            size = 2 + (data[0] >= 0xE0) + (data[0] >= 0xF0)  # noqa: PLR2004 - likewise
        found.append(data[:size])
        data = data[size:]
    return found
