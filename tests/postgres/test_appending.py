"""Appending over a network: one round trip, nothing twice, nothing lost."""

import os
import threading
import time
from collections.abc import Callable
from functools import partial

import psycopg
import pytest

import hansard
from hansard.backend.postgres.append import Writer
from hansard.backend.postgres.backend import PostgresBackend
from tests.contract.backends import together
from tests.postgres.proxy import Proxy
from tests.postgres.server import PATIENCE, Server


def message(text: object) -> dict[str, object]:
    """Return a message."""
    return {"role": "user", "content": text}


def said(store: hansard.Store, id: str = "s") -> list[object]:
    """Return what the messages say."""
    return [found["content"] for found in store.session(id).messages()]


def count(url: str, what: str = "*") -> int:
    """Return how many of something the events have."""
    with psycopg.connect(url) as connection:
        query = f"SELECT count({what}) FROM hansard.events"  # noqa: S608 - words of this file
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return int(row[0])


def quiet(store: hansard.Store) -> Writer:
    """Keep others from being told of what is appended to `s`: that has connections, and a time, of its own.

    For as long as what is returned is kept.
    """
    backend = store._backend
    assert isinstance(backend, PostgresBackend)
    writer = backend.writer("s")
    writer._tell = lambda _session: None
    return writer


def test_an_append_is_one_round_trip(url: str, proxy: Proxy) -> None:
    """One event, a batch, a key and an expected seq cost one round trip each, once they are prepared."""
    # With one connection, since statements are prepared on each.
    with hansard.open(f"{proxy.through(url)}?connections=1") as store:
        writer = quiet(store)
        session = store.session("s")

        def turn(number: int) -> None:
            session.add_message(message(number))
            session.add_messages([message(number), message(number)])
            session.add_message(message(number), key=f"k{number}")
            session.add_message(message(number), expected_seq=5 * number + 4)

        for number in range(2):
            turn(number)
        before = proxy.round_trips
        for number in range(2, 7):
            turn(number)
        assert proxy.round_trips - before == 4 * 5
        assert session.seq == 35
        assert writer.session_id == "s"


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("lost", ["answer", "question"])
def test_what_is_lost_on_its_way_counts_once(
    url: str, proxy: Proxy, lost: str, key: str | None
) -> None:
    """N-56: an append whose answer, or whose question, is cut off is tried again, and is there once.

    Also without a key of the caller's, as a batch, and with the seq that was expected before.
    """
    with hansard.open(proxy.through(url)) as store:
        session = store.session("s")
        writer = quiet(store)
        session.add_message(message("first"))
        getattr(proxy, f"lose_{lost}")()
        events = session.add_messages([message("a"), message("b")], key=key, expected_seq=1)
        assert proxy.lost.is_set()
        assert writer.session_id == "s"
        assert [event.seq for event in events] == [2, 3]
        assert list(session.events())[1:] == events
        assert [event.key for event in events] == [key, None]
        assert said(store) == ["first", "a", "b"]


def test_a_statement_that_is_still_running_does_not_count_twice(
    url: str, proxy: Proxy, server: Server
) -> None:
    """N-56: if the server is still at the first try when the second comes, one of the two counts.

    Somebody holds the session's row. The append waits for it on the server; then its client is cut off,
    without the server's knowing, and tries again; then the row is let go.
    """
    with hansard.open(proxy.through(url)) as store, hansard.open(url) as direct:
        store.session("s").add_message(message("first"))
        with psycopg.connect(url) as holder:
            holder.execute("SELECT 1 FROM hansard.sessions FOR UPDATE")
            events: list[hansard.Event] = []
            thread = threading.Thread(
                target=lambda: events.append(store.session("s").add_message(message("once")))
            )
            thread.start()
            _wait_for_waiters(server, 1)
            proxy.leave_the_server_alone()
            _wait_for_waiters(server, 2)
        thread.join(PATIENCE)
        assert not thread.is_alive()
        _wait_for_waiters(server, 0)
        assert said(direct) == ["first", "once"]
        assert list(direct.session("s").events())[1:] == events


def _wait_for_waiters(server: Server, wanted: int) -> None:
    """Wait until so many statements of the server wait for a lock."""
    deadline = time.monotonic() + PATIENCE
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    while server.execute(query) != [(wanted,)]:
        assert time.monotonic() < deadline, f"there are never {wanted} that wait"
        time.sleep(0.01)


def test_threads_share_statements(url: str) -> None:
    """N-16: 16 threads × 25 appends to one session take fewer transactions than that; each counts once."""
    with hansard.open(url) as store:

        def write(name: int) -> list[int]:
            session = store.session("s")
            return [session.add_message(message([name, turn])).seq for turn in range(25)]

        given = together([partial(write, name) for name in range(16)])
        assert sorted(seq for seqs in given for seq in seqs) == list(range(1, 401))
        found = dict(enumerate(said(store), 1))
        for name, seqs in enumerate(given):
            assert [found[seq] for seq in seqs] == [[name, turn] for turn in range(25)]
    assert count(url) == 400
    assert count(url, "DISTINCT xmin::text") < 300


def test_conditions_hold_where_statements_are_shared(url: str) -> None:
    """Of 8 threads that expect one seq one wins; 8 with one key get one event; amid others' appends."""
    with hansard.open(url) as store:
        session = store.session("s")
        session.add_message(message("first"))

        def expect(name: int) -> bool:
            try:
                store.session("t").add_message(message(name), expected_seq=0)
            except hansard.SeqConflict:
                return False
            return True

        def keyed(name: int) -> int:
            return store.session("s").add_message(message(name), key="k").seq

        def plain(name: int) -> int:
            return store.session("s").add_message(message(name)).seq

        jobs: list[Callable[[], int]] = [
            *[partial(expect, name) for name in range(8)],
            *[partial(keyed, name) for name in range(8)],
            *[partial(plain, name) for name in range(8)],
        ]
        done = together(jobs)
        assert sum(map(bool, done[:8])) == 1
        assert len(set(done[8:16])) == 1
        assert len(set(done[8:])) == 9
        assert store.session("s").seq == 10


def test_a_child_has_connections_of_its_own(url: str) -> None:
    """After a fork parent and child append through the same store, and neither disturbs the other."""
    with hansard.open(url) as store:
        session = store.session("s")
        session.add_message(message("before"))
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                for turn in range(10):
                    session.add_message(message(["child", turn]))
                code = 0 if session.seq >= 11 else 2
            finally:
                os._exit(code)
        for turn in range(10):
            session.add_message(message(["parent", turn]))
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        found = said(store)
        assert len(found) == 21
        pairs = [one for one in found if isinstance(one, list)]
        for who in ("child", "parent"):
            assert [found[1] for found in pairs if found[0] == who] == list(range(10))


def test_ids_and_keys_of_any_length_are_kept_apart(url: str) -> None:
    """N-7: ids and keys of 1,024 characters of four bytes, which no index would take, are what they are."""
    one, two = "\U0001f600" * 1024, "\U0001f600" * 1023 + "\U0001f601"
    with hansard.open(url) as store:
        for id in (one, two):
            for key in (one, two):
                session = store.session(id)
                first = session.add_message(message(key), key=key)
                assert session.add_message(message("again"), key=key) == first
        assert {info.id for info in store.sessions().items} == {one, two}
        assert said(store, one) == said(store, two) == [one, two]
