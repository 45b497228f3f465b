"""Waiting for what others append: a notification is a hint, and looking is the truth."""

import subprocess
import sys
import threading
import time
from functools import partial

import psycopg
import pytest

import hansard
from tests.postgres.server import PATIENCE

LISTENERS = (
    b"SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%%'"
)

_WRITER = """
import sys, hansard
with hansard.open(sys.argv[1]) as store:
    session = store.session("s")
    for line in sys.stdin:
        session.add_message({"role": "user", "content": line.strip()})
        print(session.seq, flush=True)
"""


def test_what_another_process_appends_is_followed(url: str) -> None:
    """Events of another process come to whoever follows the session, in order, each once."""
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


def test_one_listens_for_all_who_wait(url: str) -> None:
    """However many wait, one connection of the process listens; an event wakes all, others' words nobody."""
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
        deadline = time.monotonic() + PATIENCE
        with psycopg.connect(url, autocommit=True) as connection:
            while not (rows := connection.execute(LISTENERS).fetchall()):
                assert time.monotonic() < deadline, "nobody listens"
            assert len(rows) == 1
            connection.execute("SELECT pg_notify('hansard_nobody', ''), pg_notify('x', '')")
        assert found == []
        session.add_message({"role": "user", "content": "second"})
        for thread in threads:
            thread.join(PATIENCE)
        assert found == [True] * 3


@pytest.mark.parametrize("cut", [False, True])
def test_without_hints_looking_is_enough(url: str, cut: bool) -> None:
    """If a row comes that nobody tells of, or the listening connection is cut, a wait ends all the same."""
    with hansard.open(url) as store:
        session = store.session("s")
        session.add_message({"role": "user", "content": "first"})
        log = store._backend.log("s")
        found: list[bool] = []
        # For longer than this test waits for it: at its end a wait looks once more in any case.
        wait = partial(log.wait, 1, 20 * PATIENCE)
        thread = threading.Thread(target=lambda: found.append(wait()), daemon=True)
        thread.start()
        deadline = time.monotonic() + PATIENCE
        with psycopg.connect(url, autocommit=True) as connection:
            while not (rows := connection.execute(LISTENERS).fetchall()):
                assert time.monotonic() < deadline, "nobody listens"
            if cut:
                connection.execute("SELECT pg_terminate_backend(%s)", rows[0])
            connection.execute(
                "WITH s AS (UPDATE hansard.sessions SET last_seq = last_seq + 1 WHERE id = 's' RETURNING *) "
                "INSERT INTO hansard.events (session, seq, control, stamp, kind, data) "
                "SELECT session, last_seq, false, updated, 'x.silent', '{}' FROM s"
            )
        thread.join(PATIENCE)
        assert found == [True]
        assert [event.kind for event in session.events(after=1)] == ["x.silent"]


def test_a_wait_ends_with_its_store(url: str) -> None:
    """`close` ends a wait with `Closed`, and leaves no connection behind."""
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
    deadline = time.monotonic() + PATIENCE
    others = (
        b"SELECT count(*) FROM pg_stat_activity "
        b"WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        while not connection.execute(LISTENERS).fetchall():
            assert time.monotonic() < deadline, "nobody listens"
        store.close()
        thread.join(PATIENCE)
        assert len(errors) == 1
        while connection.execute(others).fetchone() != (0,):
            assert time.monotonic() < deadline, "a connection was left behind"
