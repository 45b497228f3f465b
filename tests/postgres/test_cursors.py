"""Cursors in PostgreSQL: a consumer that dies, or loses its connection, neither loses nor keeps its place."""

import subprocess
import sys

import psycopg
import pytest

import hansard
from hansard.backend.contract import Backend
from tests.postgres.server import PATIENCE

_HOLDER = """
import sys, hansard
store = hansard.open(sys.argv[1])
cursor = store._backend.cursor("c")
cursor.move({"s": 7})
print("held", flush=True)
sys.stdin.read()
"""


def backend_of(store: hansard.Store) -> Backend:
    """Return where a store lives."""
    return store._backend


def cut(url: str) -> int:
    """End every connection to a database but this one; return how many there were."""
    with psycopg.connect(url, autocommit=True) as connection:
        return len(
            connection.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            ).fetchall()
        )


def test_a_consumer_that_is_killed_holds_up_nobody(url: str) -> None:
    """N-23: kill -9 of a consumer frees its cursor, which the next one has where it was left."""
    hansard.open(url).close()
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with hansard.open(url) as store:
            with pytest.raises(hansard.LockTimeout, match=f"hansard {holder.pid}"):
                backend_of(store).cursor("c")
            holder.kill()
            with backend_of(store).cursor("c", timeout=PATIENCE) as cursor:
                assert cursor.positions() == {"s": 7}
    finally:
        holder.kill()
        holder.communicate(timeout=PATIENCE)


def test_a_cursor_survives_its_connection(url: str) -> None:
    """A connection that is cut takes no position with it: the next move takes the lock again, and counts."""
    with hansard.open(url) as store, hansard.open(url) as other:
        with backend_of(store).cursor("c") as cursor:
            cursor.move({"s": 1})
            assert cut(url) > 0
            cursor.move({"s": 2, "t": 1})
            with pytest.raises(hansard.LockTimeout):
                backend_of(other).cursor("c")
        with backend_of(other).cursor("c") as cursor:
            assert cursor.positions() == {"s": 2, "t": 1}


def test_a_cursor_that_another_took_over_moves_no_more(url: str) -> None:
    """Who lost his connection, and in the meantime his place, is told so, and moves nothing."""
    with hansard.open(url) as store, hansard.open(url) as other:
        cursor = backend_of(store).cursor("c")
        cursor.move({"s": 1})
        cut(url)
        with backend_of(other).cursor("c", timeout=PATIENCE) as theirs:
            theirs.move({"s": 5})
            with pytest.raises(hansard.LockTimeout):
                cursor.move({"s": 2})
        with pytest.raises(hansard.LockTimeout, match="taken over"):
            cursor.move({"s": 2})
        with backend_of(other).cursor("c") as theirs:
            assert theirs.positions() == {"s": 5}


def test_a_store_that_is_closed_frees_its_cursors_at_once(url: str) -> None:
    """After `close` another store has the cursor without waiting, twenty times out of twenty."""
    with hansard.open(url) as other:
        backend_of(other).cursor("warm").close()
        for number in range(20):
            store = hansard.open(url)
            cursor = backend_of(store).cursor("c")
            assert cursor.get("s") == number
            cursor.move({"s": number + 1})
            store.close()
            with backend_of(other).cursor("c") as theirs:
                assert theirs.get("s") == number + 1
