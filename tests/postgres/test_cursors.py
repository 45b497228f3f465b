"""Cursors in PostgreSQL: a consumer that dies or loses its connection keeps its position, and frees it."""

import os

import pytest

import hansard
from hansard.follow import Cursor
from tests.faults.workers import wait_for_cursor
from tests.postgres.helpers import program
from tests.postgres.server import PATIENCE, sql

_HOLDER = """
import sys, hansard
from hansard.follow import Cursor
cursor = Cursor(hansard.open(sys.argv[1])._backend, "c")
cursor.move({"s": 7})
print("held", flush=True)
sys.stdin.read()
"""


def open_cursor(store: hansard.Store, name: str = "c") -> Cursor:
    """Open a cursor of a store."""
    return Cursor(store._backend, name)


def test_a_killed_consumer_frees_its_cursor(url: str) -> None:
    """N-23: the next consumer opens the cursor of a killed one, at its last position."""
    hansard.open(url).close()
    holder = program(_HOLDER, url)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with hansard.open(url) as store:
            with pytest.raises(hansard.LockTimeout, match=f"hansard {holder.pid}"):
                open_cursor(store)
            holder.kill()
            assert wait_for_cursor(store._backend, "c").positions == {"s": 7}
    finally:
        holder.kill()
        holder.communicate(timeout=PATIENCE)


def test_a_cursor_survives_its_connection(url: str, store: hansard.Store) -> None:
    """A move succeeds without the lock, until the next consumer opens the cursor: then it is fenced."""
    cursor = open_cursor(store)
    cursor.move({"s": 1})
    ended = sql(
        url,
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    assert ended
    cursor.move({"s": 2, "t": 1})
    with hansard.open(url) as other:
        theirs = wait_for_cursor(other._backend, "c")
        assert theirs.positions == {"s": 2, "t": 1}
        for _ in range(2):
            with pytest.raises(hansard.LockTimeout, match="opened by another consumer"):
                cursor.move({"s": 3})
        theirs.move({"s": 5})
        theirs.close()
        assert open_cursor(other).positions == {"s": 5, "t": 1}


def test_a_forked_child_does_not_use_its_parents_cursor(url: str) -> None:
    """An inherited cursor raises in a child, and neither its close nor its end frees the lock."""
    with hansard.open(url) as store, hansard.open(url) as other:
        cursor = open_cursor(store)
        cursor.move({"s": 1})
        child = os.fork()
        if not child:
            status = 1
            try:
                with pytest.raises(hansard.Closed, match="before a fork"):
                    cursor.move({"s": 9})
                cursor.close()
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        with pytest.raises(hansard.LockTimeout):
            open_cursor(other)
        cursor.move({"s": 2})
        cursor.close()
        assert open_cursor(other).positions == {"s": 2}
