"""Messages, statements, and conditions to wait for."""

import subprocess
import sys
import time
from collections.abc import Callable

import hansard
from tests.postgres.server import PATIENCE, Server


def message(content: object) -> dict[str, object]:
    """Return a message of a user."""
    return {"role": "user", "content": content}


def contents(store: hansard.Store, id: str = "s") -> list[object]:
    """Return the contents of a session's messages."""
    return [found["content"] for found in store.session(id).messages()]


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; fail if it never does."""
    deadline = time.monotonic() + 2 * PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)


def wait_for_waiters(server: Server, count: int) -> None:
    """Wait until exactly `count` statements of the server wait for a lock."""
    ask = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    wait_for(lambda: server.execute(ask) == [(count,)])


def program(code: str, url: str) -> "subprocess.Popen[str]":
    """Start a Python program with a store's URL, and pipes to and from it."""
    command = [sys.executable, "-c", code, url]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
