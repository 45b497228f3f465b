"""A way to a server that is cut after so many bytes, in either direction.

    with Cutting(server.port) as way:
        store = hansard.open(way.through(url))
        way.cut_after(100, "answer")

Whatever came before the cut has arrived; nothing behind it does, and both sides see the end.
"""

import re
import socket
import threading
from contextlib import suppress
from typing import Self


class Cutting:
    """Listens at a port of its own, and hands on to the server's."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._mutex = threading.Lock()
        self._ends: list[socket.socket] = []
        self._direction = ""
        self._left = 0
        #: How often something was cut.
        self.cuts = 0

    def __enter__(self) -> Self:
        """Listen."""
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """End everything."""
        self._listener.close()
        for end in self._ends:
            _end(end)

    def through(self, url: str) -> str:
        """Return a URL that leads through here."""
        return re.sub(r":\d+/", f":{self.port}/", url, count=1)

    def cut_after(self, count: int, direction: str) -> None:
        """Let so many bytes more pass in a direction, "question" or "answer", and then none."""
        with self._mutex:
            self._direction, self._left = direction, count

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            with self._mutex:
                self._ends += [client, server]
            for source, sink, direction in (
                (client, server, "question"),
                (server, client, "answer"),
            ):
                threading.Thread(
                    target=self._carry, args=(source, sink, direction), daemon=True
                ).start()

    def _carry(self, source: socket.socket, sink: socket.socket, direction: str) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                passing = self._passing(data, direction)
                sink.sendall(data[:passing])
                if passing < len(data):
                    break
        _end(source)
        _end(sink)

    def _passing(self, data: bytes, direction: str) -> int:
        """Return how many of some bytes may pass."""
        with self._mutex:
            if self._direction != direction:
                return len(data)
            passing = min(len(data), self._left)
            self._left -= passing
            if passing < len(data):
                self._direction = ""
                self.cuts += 1
            return passing


def _end(side: socket.socket) -> None:
    with suppress(OSError):
        side.shutdown(socket.SHUT_RDWR)
    side.close()
