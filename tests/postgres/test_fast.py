"""Fast paths keep their promises: appends through libpq, the pool, prefetching, changed stamps."""

import random
import signal
from pathlib import Path

import psycopg

import hansard
from hansard.backend.postgres.backend import PostgresBackend
from hansard.backend.postgres.connection import Connection, Connections
from hansard.index import catalog
from hansard.state.fork_graph import ForkGraph
from tests.postgres.helpers import contents, message, program, wait_for_waiters
from tests.postgres.proxy import Proxy
from tests.postgres.server import PATIENCE, Server
from tests.unit.index.random_store import RandomStore

_APPEND = """
import sys, hansard
store = hansard.open(sys.argv[1])
session = store.session("s")
for content in ("new", "first"):  # the second append prepares the statement for existing sessions
    session.add_message({"role": "user", "content": content})
print("ready", flush=True)
sys.stdin.readline()
try:
    session.add_message({"role": "user", "content": "second"})
except KeyboardInterrupt:
    print("interrupted", flush=True)
session.add_message({"role": "user", "content": "third"})
print([found["content"] for found in session.messages()], flush=True)
"""


def connections_of(store: hansard.Store) -> Connections:
    """Return the connections of a store."""
    assert isinstance(store._backend, PostgresBackend)
    return store._backend.connections


def test_an_interrupt_cancels_an_append_on_the_server(url: str, server: Server) -> None:
    """Ctrl-C cancels an append that waits for a lock, also on the server: it is not stored later."""
    script = program(_APPEND, url)
    assert script.stdout is not None
    assert script.stdin is not None
    with script:
        assert script.stdout.readline() == "ready\n"
        with psycopg.connect(url) as holder:
            holder.execute("LOCK TABLE hansard.sessions IN EXCLUSIVE MODE")
            script.stdin.write("\n")
            script.stdin.flush()
            wait_for_waiters(server, 1)
            script.send_signal(signal.SIGINT)
            told = script.stdout.readline()
            assert told == "interrupted\n"
            wait_for_waiters(server, 1)  # the third, and no longer the second
        assert script.stdout.readline() == "['new', 'first', 'third']\n"
        assert script.wait(PATIENCE) == 0


def test_a_deallocated_statement_is_prepared_again(url: str) -> None:
    """Statements that the server deallocated are prepared again, and each append is stored once."""
    with hansard.open(f"{url}?connections=1") as store:
        session = store.session("s")
        for number in range(3):
            session.add_message(message(number))
            with connections_of(store).using() as connection:
                connection.execute("DEALLOCATE ALL")
        assert contents(store) == [0, 1, 2]


def test_a_connection_given_back_while_the_store_closes_is_closed(url: str) -> None:
    """No connection stays open if another thread closes the store just before it is kept."""
    store = hansard.open(url)
    pool = connections_of(store)

    class Idle(list[Connection]):
        def append(self, one: Connection) -> None:
            pool.close()
            super().append(one)

    connection = pool._lend(None)
    pool._idle = Idle(pool._idle)
    pool._give_back(connection)
    assert connection.closed
    store.close()


def test_prefetched_sessions_are_equal_to_others(
    store: hansard.Store, rng: random.Random, tmp_path: Path
) -> None:
    """Each session is described equally, whether it was read alone or prefetched, in any order."""
    RandomStore(store, rng, [tmp_path]).do(120)
    store.session("long").add_messages([message(number) for number in range(1100)])
    backend = store._backend
    ids = sorted(backend.ids())
    ahead = backend.prefetch(ids)
    for session_id in [*ids, *reversed(ids)]:
        alone = catalog.describe(backend, session_id, ForkGraph(backend))
        assert alone is not None
        assert catalog.describe(ahead, session_id, ForkGraph(ahead)) == alone
        read = [each for chunk in ahead.log(session_id).reader().read() for each in chunk.events()]
        assert read[-1].seq == alone.info.seq
    first, then = (
        [[e for c in b.log(i).reader().read(upto=5, back=True) for e in c.events()] for i in ids]
        for b in (backend, backend.prefetch(ids))
    )
    assert first == then


def test_a_first_listing_takes_few_round_trips(url: str, proxy: Proxy) -> None:
    """Many small sessions are described in less than two round trips each."""
    with hansard.open(url, durability="os") as store:
        for number in range(60):
            store.session(f"s{number}").add_messages([message(number)] * 3)
    with hansard.open(proxy.through(url)) as store:
        before = proxy.round_trips
        assert store.count() == 60
        assert proxy.round_trips - before < 2 * 60


def test_changed_stamps_are_equal_to_all_stamps(url: str) -> None:
    """`stamps`, which reads only what changed, returns what a new store reads.

    After appends, also one that began before the last call and was committed after it, deletions,
    restorations, purges and imports.
    """
    with hansard.open(url, durability="os") as store:
        backend = store._backend

        def check() -> dict[str, int]:
            found = backend.stamps()
            assert backend.stamps(found).items() <= found.items()
            with hansard.open(url, read_only=True) as other:
                assert other._backend.stamps() == found
            return {name: int(stamp.split()[-1]) for name, stamp in found.items()}

        assert check() == {}
        for number in range(5):
            store.session(f"s{number}").add_message(message("x"))
        assert check() == {f"s{number}": 1 for number in range(5)}
        with psycopg.connect(url) as slow:
            slow.execute("UPDATE hansard.sessions SET last_seq = last_seq + 1 WHERE id = 's0'")
            slow.execute("UPDATE hansard.sessions SET last_seq = last_seq - 1 WHERE id = 's0'")
            slow.execute(
                "INSERT INTO hansard.sessions (session, id, before, last_seq, bytes, created, updated) "
                "VALUES (gen_random_uuid(), 'slow', 0, 7, 0, '', '')"
            )
            store.session("s1").add_message(message("y"))
            assert check()["s1"] == 2
            slow.commit()
        assert check()["slow"] == 7
        store.delete("s2")
        assert "s2" not in check()
        store.restore("s2")
        assert check()["s2"] == 1
        store.delete("s2")
        backend.purge("s2")
        store.session("s2").add_messages([message(1), message(2)])
        assert check()["s2"] == 2
