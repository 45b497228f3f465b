"""A real terminal for the command to run in: a pty, and pyte to see what is on its screen."""

import fcntl
import os
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyte

from tests.cli.running import ENTRY, PATIENCE, environment


class Terminal:
    """The command in a terminal, or another program.

    Attributes:
        raw: every byte that it has sent to the terminal so far.
    """

    def __init__(
        self,
        *words: str | Path,
        store: Path | str | None = None,
        columns: int = 80,
        rows: int = 24,
        program: Sequence[str] = ENTRY,
        cwd: Path | None = None,
        **variables: str,
    ) -> None:
        self.raw = b""
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._master, slave = os.openpty()
        self._set_size(columns, rows)
        self._process = subprocess.Popen(
            [*program, *map(str, words)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment(store, **variables),
            cwd=cwd,
            start_new_session=True,
            # So that Ctrl-C and a new size reach it as signals, as they do from a real terminal.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - no threads here
        )
        os.close(slave)

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    @property
    def lines(self) -> list[str]:
        """The lines on the screen, without the spaces at their ends."""
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        """What is on the screen."""
        return "\n".join(self.lines).rstrip("\n")

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal another size; its process gets SIGWINCH."""
        self._screen.resize(rows, columns)
        self._set_size(columns, rows)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_for(self, wanted: str | Callable[[str], bool]) -> str:
        """Wait until a text, or the result of a function, is on the screen; return the screen."""
        deadline = time.monotonic() + PATIENCE
        while not (wanted in self.text if isinstance(wanted, str) else wanted(self.text)):
            if not self._take(deadline):
                raise AssertionError(f"{wanted!r} never came; on the screen:\n{self.text}")
        return self.text

    def wait(self) -> int:
        """Wait for the end; return the exit code."""
        deadline = time.monotonic() + PATIENCE
        while self._take(deadline):
            pass
        return self._process.wait(PATIENCE)

    def _take(self, deadline: float) -> bool:
        """Take in more output; False if there will be none, or if it is too late."""
        ready, _, _ = select.select([self._master], [], [], max(deadline - time.monotonic(), 0.0))
        if not ready:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other end is closed
            return False
        self.raw += data
        self._stream.feed(data)
        return bool(data)

    def close(self) -> None:
        """End it, in any state."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(PATIENCE)
        os.close(self._master)
