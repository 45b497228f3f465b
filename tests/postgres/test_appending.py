"""Appends over a network: one round trip each, none lost, none stored twice."""

import os
import threading
from functools import partial

import psycopg
import pytest

import hansard
from hansard.backend.postgres.notify import Notifier
from tests.contract.backends import together
from tests.postgres.helpers import contents, message, wait_for_waiters
from tests.postgres.proxy import Proxy
from tests.postgres.server import PATIENCE, Server, sql


def test_an_append_is_one_round_trip(
    url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One event, a batch, a key and an expected seq cost one round trip each, once they are prepared."""
    # Notifications have their own connection and time.
    monkeypatch.setattr(Notifier, "tell", lambda *_: None)
    # With one connection, since statements are prepared on each.
    with hansard.open(f"{proxy.through(url)}?connections=1") as store:
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


def test_a_statement_that_still_runs_is_not_stored_twice(
    url: str, proxy: Proxy, server: Server
) -> None:
    """N-56: if the server still executes the first try when the second arrives, one of them is stored.

    A transaction locks the session's row. The append waits for it on the server. Its connection is cut, which
    the server does not notice, and it tries again. Then the row is unlocked.
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
            wait_for_waiters(server, 1)
            proxy.cut(server=False)
            wait_for_waiters(server, 2)
        thread.join(PATIENCE)
        assert not thread.is_alive()
        wait_for_waiters(server, 0)
        assert contents(direct) == ["first", "once"]
        assert list(direct.session("s").events())[1:] == events


def test_threads_share_statements(url: str, store: hansard.Store) -> None:
    """N-16: 16 threads × 25 appends to one session take fewer transactions; each is stored once."""

    def write(name: int) -> list[int]:
        session = store.session("s")
        return [session.add_message(message([name, turn])).seq for turn in range(25)]

    given = together([partial(write, name) for name in range(16)])
    assert sorted(seq for seqs in given for seq in seqs) == list(range(1, 401))
    found = dict(enumerate(contents(store), 1))
    for name, seqs in enumerate(given):
        assert [found[seq] for seq in seqs] == [[name, turn] for turn in range(25)]
    ((events, statements),) = sql(
        url, "SELECT count(*), count(DISTINCT xmin::text) FROM hansard.events"
    )
    assert events == 400
    assert statements < 300


def test_parent_and_child_use_one_store(store: hansard.Store) -> None:
    """After a fork both append, read and list through one store; the child closes only its own."""
    session = store.session("s")
    session.add_message(message("before"))
    assert store.count() == 1
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            for turn in range(10):
                session.add_message(message(["child", turn]))
            code = 0 if len(session.messages()) >= 11 and store.count() == 1 else 2
            store.close()
        finally:
            os._exit(code)
    for turn in range(10):
        session.add_message(message(["parent", turn]))
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    session.add_message(message("after"))
    found = contents(store)
    assert len(found) == 22
    pairs = [one for one in found if isinstance(one, list)]
    for who in ("child", "parent"):
        assert [found[1] for found in pairs if found[0] == who] == list(range(10))


def test_sizes_of_concurrent_appends_are_all_counted(store: hansard.Store) -> None:
    """What another session's thread adds to a counter while an append is counted is not lost."""
    counters = store._backend.counters

    class Pending:
        @property
        def size(self) -> int:
            """Return 5, after another thread has counted 2 bytes."""
            counters.bytes += 2
            return 5

    store._backend.writer("s")._count([Pending()], 1)  # type: ignore[attr-defined] # PostgreSQL's
    assert counters.metrics().bytes == 7


def test_a_refused_redaction_counts_as_an_error(store: hansard.Store) -> None:
    """An append that a check refuses is counted, like one that a condition refuses."""
    session = store.session("s")
    session.add_message(message("x"))
    session.hold("keep")
    with pytest.raises(hansard.Held):
        session.redact(1)
    assert store.metrics().errors == 1
