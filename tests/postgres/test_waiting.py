"""Waiting for appends of other processes: a notification is only a hint."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import hansard
from tests.postgres.helpers import message, program, wait_for
from tests.postgres.server import PATIENCE, sql


def listeners(url: str) -> list[Any]:
    """Wait until a connection listens; return the process ids of all that do."""
    ask = (
        "SELECT pid FROM pg_stat_activity "
        "WHERE datname = current_database() AND query LIKE 'LISTEN%'"
    )
    wait_for(lambda: bool(sql(url, ask)))
    return sql(url, ask)


_WRITER = """
import sys, hansard
with hansard.open(sys.argv[1]) as store:
    session = store.session("s")
    for line in sys.stdin:
        session.add_message({"role": "user", "content": line.strip()})
        print(session.seq, flush=True)
"""


def test_what_another_process_appends_is_followed(url: str, store: hansard.Store) -> None:
    """A consumer gets the events of another process in order, each once."""
    store.session("s").add_message(message("first"))
    events = store.session("s").events(after=1, follow=True)
    writer = program(_WRITER, url)
    try:
        assert writer.stdin is not None
        for number in range(20):
            writer.stdin.write(f"{number}\n")
            writer.stdin.flush()
            event = next(events)
            assert (event.seq, event.message) == (number + 2, message(str(number)))
    finally:
        writer.communicate(timeout=PATIENCE)
    assert writer.returncode == 0


def test_one_connection_listens_for_all_waiting_threads(url: str, store: hansard.Store) -> None:
    """An event wakes all of them; notifications of other programs wake none."""
    session = store.session("s")
    session.add_message(message("first"))
    log = store._backend.log("s")
    with ThreadPoolExecutor() as pool:
        waits = [pool.submit(log.wait, 1, PATIENCE) for _ in range(3)]
        assert len(listeners(url)) == 1
        sql(url, "SELECT pg_notify('hansard_nobody', ''), pg_notify('x', '')")
        assert not any(wait.done() for wait in waits)
        session.add_message(message("second"))
        assert [wait.result(PATIENCE) for wait in waits] == [True] * 3


@pytest.mark.parametrize("cut", [False, True])
def test_a_wait_ends_without_a_notification(url: str, store: hansard.Store, cut: bool) -> None:
    """Also if the listening connection is cut: a waiting thread checks the row every second."""
    session = store.session("s")
    session.add_message(message("first"))
    log = store._backend.log("s")
    with ThreadPoolExecutor() as pool:
        # Longer than the test: at its end a wait checks in any case.
        wait = pool.submit(log.wait, 1, 20 * PATIENCE)
        ((listener,),) = listeners(url)
        if cut:
            sql(url, "SELECT pg_terminate_backend(%s)", listener)
        sql(
            url,
            "WITH s AS (UPDATE hansard.sessions SET last_seq = last_seq + 1 WHERE id = 's' RETURNING *) "
            "INSERT INTO hansard.events (session, seq, control, stamp, kind, data) "
            "SELECT session, last_seq, false, updated, 'x.silent', '{}' FROM s",
        )
        assert wait.result(PATIENCE)
    assert [event.kind for event in session.events(after=1)] == ["x.silent"]


def test_a_wait_ends_with_its_store(url: str) -> None:
    """`close` ends a wait with `Closed`, and closes all connections."""
    store = hansard.open(url)
    store.session("s").add_message(message("first"))
    log = store._backend.log("s")
    with ThreadPoolExecutor() as pool:
        wait = pool.submit(log.wait, 1, PATIENCE)
        listeners(url)
        store.close()
        with pytest.raises(hansard.Closed):
            wait.result(PATIENCE)
    others = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    wait_for(lambda: sql(url, others) == [(0,)])
