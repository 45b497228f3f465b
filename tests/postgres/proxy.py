"""A way to a server on which a test can lose what it wants to be lost.

    with Proxy(server.port) as proxy:
        store = hansard.open(proxy.through(url))
        proxy.lose_answer()

It copies bytes in both directions and counts how often the direction turns: that is how many round trips
there were.
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

    def end(self, *, client: bool = True, server: bool = True) -> None:
        """End one side or both, now."""
        for side, ends in ((self.client, client), (self.server, server)):
            if ends:
                with suppress(OSError):
                    side.shutdown(socket.SHUT_RDWR)
                side.close()


class Proxy:
    """Listens at a port of its own, and hands on to the server's."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._pairs: list[_Pair] = []
        self._mutex = threading.Lock()
        self._armed = ""
        #: Set when something was lost.
        self.lost = threading.Event()
        #: How often somebody asked after the server had answered.
        self.round_trips = 0

    def __enter__(self) -> Self:
        """Listen."""
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """End everything."""
        self._listener.close()
        self.cut()

    def through(self, url: str) -> str:
        """Return a URL that leads through here."""
        return re.sub(r":\d+/", f":{self.port}/", url, count=1)

    def lose_answer(self) -> None:
        """Cut a connection when the server answers next: what was asked is done, and nobody hears of it."""
        self.lost.clear()
        self._armed = "answer"

    def lose_question(self) -> None:
        """Cut a connection when the client asks next: the server never hears of it."""
        self.lost.clear()
        self._armed = "question"

    def cut(self) -> None:
        """Cut all connections."""
        with self._mutex:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            pair.end()

    def leave_the_server_alone(self) -> None:
        """Cut the clients off; the server's sides stay open, so that it goes on with what it was told."""
        with self._mutex:
            pairs = list(self._pairs)
        for pair in pairs:
            pair.end(server=False)

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
                if self._loses("question"):
                    pair.end()
                    return
                if not pair.asked:
                    pair.asked = True
                    self.round_trips += 1
                pair.server.sendall(data)

    def _answer(self, pair: _Pair) -> None:
        with suppress(OSError):
            while data := pair.server.recv(65536):
                if self._loses("answer"):
                    pair.end()
                    return
                pair.asked = False
                pair.client.sendall(data)
        pair.end()

    def _loses(self, what: str) -> bool:
        with self._mutex:
            if self._armed != what:
                return False
            self._armed = ""
        self.lost.set()
        return True
