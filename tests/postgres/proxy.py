"""A TCP proxy in front of a server, on which a test cuts connections.

    with Proxy(server.port) as proxy:
        store = hansard.open(proxy.through(url))
        proxy.cut_after(100, "answer")

It copies bytes in both directions and counts how often the direction turns: the number of round trips.
"""

import re
import socket
import threading
from contextlib import suppress
from typing import Self


class _Pair:
    """The two ends of one connection."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.asked = False

    def end(self, *, server: bool = True) -> None:
        """Close both sides, or the client's only."""
        for side in (self.client, self.server) if server else (self.client,):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()


class Proxy:
    """Listens on its own port and forwards to the server's."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._pairs: list[_Pair] = []
        self._mutex = threading.Lock()
        self._direction = ""
        self._left = 0
        #: Set when `cut_after` has cut a connection; how often it has.
        self.lost = threading.Event()
        self.cuts = 0
        #: How often a client sent something after the server had answered.
        self.round_trips = 0

    def __enter__(self) -> Self:
        """Listen."""
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close everything."""
        self._listener.close()
        self.cut()

    def through(self, url: str) -> str:
        """Return a URL that leads through this proxy."""
        return re.sub(r":\d+/", f":{self.port}/", url, count=1)

    def cut_after(self, count: int, direction: str) -> None:
        """Forward `count` more bytes in a direction, "question" or "answer", then cut that connection."""
        with self._mutex:
            self.lost.clear()
            self._direction, self._left = direction, count

    def lose_answer(self) -> None:
        """Cut the next connection on which the server answers: the statement ran, and its answer is lost."""
        self.cut_after(0, "answer")

    def cut(self, *, server: bool = True) -> None:
        """Cut all connections. `server=False`: only the clients', so that the server finishes its work."""
        with self._mutex:
            pairs, self._pairs = self._pairs, []
            if not server:
                self._pairs = list(pairs)
        for pair in pairs:
            pair.end(server=server)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            pair = _Pair(client, server)
            with self._mutex:
                self._pairs.append(pair)
            for work in (self._ask, self._answer):
                threading.Thread(target=work, args=(pair,), daemon=True).start()

    def _ask(self, pair: _Pair) -> None:
        with suppress(OSError):
            while data := pair.client.recv(65536):
                if not pair.asked:
                    pair.asked = True
                    self.round_trips += 1
                if not self._forward(data, pair.server, "question"):
                    pair.end()

    def _answer(self, pair: _Pair) -> None:
        with suppress(OSError):
            while data := pair.server.recv(65536):
                pair.asked = False
                if not self._forward(data, pair.client, "answer"):
                    break
        pair.end()

    def _forward(self, data: bytes, sink: socket.socket, direction: str) -> bool:
        """Send what may pass; return False if the connection is to be cut."""
        with self._mutex:
            passing = len(data)
            if self._direction == direction:
                passing = min(passing, self._left)
                self._left -= passing
            complete = passing == len(data)
            if not complete:
                self._direction = ""
                self.cuts += 1
        sink.sendall(data[:passing])
        if not complete:
            self.lost.set()
        return complete
