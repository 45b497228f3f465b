"""Waiting for appends of other processes: a notification is only a hint."""

import subprocess
import sys
import threading
from functools import partial
from typing import Any

import psycopg
import pytest

import hansard
from tests.postgres.helpers import wait_for
from tests.postgres.server import PATIENCE


def listeners(connection: "psycopg.Connection[Any]") -> list[Any]:
    """Wait until a connection listens; return the process ids of all that do."""
    ask = (
        b"SELECT pid FROM pg_stat_activity "
        b"WHERE datname = current_database() AND query LIKE 'LISTEN%%'"
    )
    wait_for(lambda: bool(connection.execute(ask).fetchall()))
    return connection.execute(ask).fetchall()


_WRITER = """
import sys, hansard
with hansard.open(sys.argv[1]) as store:
    session = store.session("s")
    for line in sys.stdin:
        session.add_message({"role": "user", "content": line.strip()})
        print(session.seq, flush=True)
"""


def test_what_another_process_appends_is_followed(url: str) -> None:
    """A consumer gets the events of another process in order, each once."""
    with hansard.open(url) as store:
        store.session("s").add_message({"role": "user", "content": "first"})
        events = store.session("s").events(after=1, follow=True)
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert writer.stdin is not None
            for number in range(20):
                writer.stdin.write(f"{number}\n")
                writer.stdin.flush()
                event = next(events)
                assert (event.seq, event.message) == (
                    number + 2,
                    {"role": "user", "content": str(number)},
                )
        finally:
            writer.communicate(timeout=PATIENCE)
        assert writer.returncode == 0


def test_one_connection_listens_for_all_waiting_threads(url: str) -> None:
    """An event wakes all of them; notifications of other programs wake none."""
    with hansard.open(url) as store:
        session = store.session("s")
        session.add_message({"role": "user", "content": "first"})
        log = store._backend.log("s")
        found: list[bool] = []
        threads = [
            threading.Thread(target=lambda: found.append(log.wait(1, PATIENCE))) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        with psycopg.connect(url, autocommit=True) as connection:
            assert len(listeners(connection)) == 1
            connection.execute("SELECT pg_notify('hansard_nobody', ''), pg_notify('x', '')")
        assert found == []
        session.add_message({"role": "user", "content": "second"})
        for thread in threads:
            thread.join(PATIENCE)
        assert found == [True] * 3


@pytest.mark.parametrize("cut", [False, True])
def test_a_wait_ends_without_a_notification(url: str, cut: bool) -> None:
    """Also if the listening connection is cut: a waiting thread checks the row every second."""
    with hansard.open(url) as store:
        session = store.session("s")
        session.add_message({"role": "user", "content": "first"})
        log = store._backend.log("s")
        found: list[bool] = []
        # Longer than the test: at its end a wait checks in any case.
        wait = partial(log.wait, 1, 20 * PATIENCE)
        thread = threading.Thread(target=lambda: found.append(wait()), daemon=True)
        thread.start()
        with psycopg.connect(url, autocommit=True) as connection:
            (listener,) = listeners(connection)
            if cut:
                connection.execute("SELECT pg_terminate_backend(%s)", listener)
            connection.execute(
                "WITH s AS (UPDATE hansard.sessions SET last_seq = last_seq + 1 WHERE id = 's' RETURNING *) "
                "INSERT INTO hansard.events (session, seq, control, stamp, kind, data) "
                "SELECT session, last_seq, false, updated, 'x.silent', '{}' FROM s"
            )
        thread.join(PATIENCE)
        assert found == [True]
        assert [event.kind for event in session.events(after=1)] == ["x.silent"]


def test_a_wait_ends_with_its_store(url: str) -> None:
    """`close` ends a wait with `Closed`, and closes all connections."""
    store = hansard.open(url)
    store.session("s").add_message({"role": "user", "content": "first"})
    log = store._backend.log("s")
    errors: list[Exception] = []

    def wait() -> None:
        try:
            log.wait(1, PATIENCE)
        except hansard.Closed as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    others = (
        b"SELECT count(*) FROM pg_stat_activity "
        b"WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        listeners(connection)
        store.close()
        thread.join(PATIENCE)
        assert len(errors) == 1
        wait_for(lambda: connection.execute(others).fetchone() == (0,))
