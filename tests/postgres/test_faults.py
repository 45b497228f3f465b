"""Killed servers, cut connections, busy locks: nothing acknowledged is lost, and nothing is stored twice."""

import contextlib
import random
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psycopg
import pytest

import hansard
from hansard.backend.postgres.server_errors import ConnectionLost
from tests.crashlab import histories
from tests.postgres.helpers import message, wait_for, wait_for_waiters
from tests.postgres.proxy import Proxy
from tests.postgres.server import PATIENCE, Server, sql


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Server, Server]]:
    """Return a primary that waits for its standby, and the standby."""
    with Server(18) as primary:
        standby = primary.standby()
        try:
            primary.set(synchronous_standby_names="standby", synchronous_commit="on")
            ask = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
            wait_for(lambda: primary.execute(ask) == [(1,)])
            yield primary, standby
        finally:
            standby.remove()


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "killed"), [(8, False), (3, True)])
def test_a_history_of_many_processes_adds_up(
    mortal: Server, seed: int, processes: int, *, killed: bool
) -> None:
    """N-16, N-18, N-22, N-26, N-28, N-56: nothing acknowledged is lost or doubled, without gaps.

    Also if a worker and the server are killed with -9: the server is started again, and no caller gets an
    error.
    """
    url = mortal.database(patience="60", connections="3")
    hansard.open(url).close()
    run = partial(
        histories.run, url, processes=processes, threads=2, operations=14, kills=killed, seed=seed
    )
    found: list[histories.History] = []
    running = threading.Thread(target=lambda: found.append(run()))
    running.start()
    if killed:
        ask = "SELECT coalesce(sum(last_seq), 0) > 15 FROM hansard.sessions"
        plain = url.partition("?")[0]
        wait_for(lambda: sql(plain, ask) == [(True,)] or not running.is_alive())
        mortal.kill()
        mortal.start()
    running.join(4 * PATIENCE)
    assert found, "the workers did not end"
    violations = histories.check(found[0])
    assert not violations, "\n".join(map(str, violations))
    assert sum(len(end.events) for end in found[0].sessions.values()) > 15


@pytest.mark.parametrize("direction", ["question", "answer"])
def test_a_connection_cut_at_any_byte_stores_each_append_once(
    proxy: Proxy, url: str, direction: str, rng: random.Random
) -> None:
    """N-56: cut after any number of bytes of requests or answers, each append is stored once.

    With and without the caller's key, an expected seq, and several events.
    """
    expected: list[hansard.Event] = []
    with hansard.open(proxy.through(url)) as store:
        session = store.session("s")
        for number in range(30):
            proxy.cut_after(rng.randrange(400) if number % 5 else 0, direction)
            said = [message(f"{number} {place}") for place in range(rng.randrange(1, 4))]
            key = rng.choice([None, f"k{number}"])
            at = rng.choice([None, len(expected)])
            events = session.add_messages(said, key=key, expected_seq=at)
            assert [event.message for event in events] == said
            assert events[0].key == key
            expected += events
        proxy.cut_after(1 << 40, direction)
        assert proxy.cuts >= 5
    with hansard.open(url) as store:
        assert list(store.session("s").events()) == expected


@pytest.mark.slow
def test_a_standby_reads_and_refuses_to_write(pair: tuple[Server, Server]) -> None:
    """N-62: a store on a standby is read, listed and searched; an append raises `ReadOnly`."""
    primary, standby = pair
    url = primary.database()
    with hansard.open(url) as store:
        store.session("s").add_message(message("hello"))
    place = url.replace(str(primary.port), str(standby.port))
    ask = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
    ((at,),) = primary.execute("SELECT pg_current_wal_lsn()::text")
    wait_for(lambda: standby.execute(ask.replace("%s", f"'{at}'")) == [(True,)])
    for read_only in (False, True):
        with hansard.open(place, read_only=read_only) as store:
            assert store.session("s").messages() == [message("hello")]
            assert [info.id for info in store.sessions().items] == ["s"]
            assert [hit.session for hit in store.search("hello")] == ["s"]
            with pytest.raises(hansard.ReadOnly):
                store.session("s").add_message(message("no"))
            assert len(store.session("s").messages()) == 1


@pytest.mark.slow
def test_failover_to_a_synchronous_standby_loses_nothing(pair: tuple[Server, Server]) -> None:
    """N-56: writers continue on the promoted standby, and every append is stored once."""
    primary, standby = pair
    database = primary.database().rpartition("/")[2]
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
    url = (
        f"postgresql://hansard@{hosts}/{database}?target_session_attrs=read-write"
        f"&patience=60&connect_timeout=2"
    )
    told: list[tuple[str, int, str]] = []
    errors: list[BaseException] = []
    stop = threading.Event()
    with hansard.open(url) as store:

        def write(name: int) -> None:
            session = store.session(f"s{name % 2}")
            try:
                for number in range(1_000_000):
                    if stop.is_set():
                        return
                    text = f"{name} {number}"
                    told.append((session.id, session.add_message(message(text)).seq, text))
            except BaseException as error:  # noqa: BLE001 - shown below
                errors.append(error)

        threads = [threading.Thread(target=write, args=(name,)) for name in range(6)]
        for thread in threads:
            thread.start()
        try:
            wait_for(lambda: len(told) > 60 or bool(errors))
            primary.kill()
            before = len(told)
            standby.set(synchronous_standby_names="")
            standby.promote()
            wait_for(lambda: len(told) > before + 60 or bool(errors))
        finally:
            stop.set()
            for thread in threads:
                thread.join(PATIENCE)
            if before:
                primary.start()
        assert errors == []
        found = {
            (id, event.seq, (event.message or {})["content"])
            for id in ("s0", "s1")
            for event in store.session(id).events()
        }
        assert (len(found), found) == (len(told), set(told))
        assert sum(store.session(id).seq for id in ("s0", "s1")) == len(told)


def test_an_exhausted_pool_is_an_error(url: str, server: Server) -> None:
    """N-25: with every connection in use, a call waits for `patience` seconds, and raises."""
    with hansard.open(f"{url}?connections=1&patience=0.4") as store:
        store.session("s").add_message(message("first"))
        with psycopg.connect(url) as holder:
            holder.execute("SELECT 1 FROM hansard.sessions FOR UPDATE")
            done: list[hansard.Event] = []
            waiting = threading.Thread(
                target=lambda: done.append(store.session("s").add_message(message("second")))
            )
            waiting.start()
            wait_for_waiters(server, 1)
            with pytest.raises(hansard.BackendUnavailable, match="all 1 connections") as caught:
                store.session("other").add_message(message("no"))
            assert "connections=" in str(caught.value)
        waiting.join(PATIENCE)
        assert [event.seq for event in done] == [2]
        assert not store.exists("other")


@pytest.mark.parametrize(
    ("option", "lock_timeout", "error"),
    [
        ("", 0.2, hansard.LockTimeout),
        ("?options=-c%20statement_timeout%3D3s", 10.0, hansard.BackendUnavailable),
    ],
)
def test_an_append_that_timed_out_has_no_effect(
    url: str, option: str, lock_timeout: float, error: type[hansard.HansardError]
) -> None:
    """N-24: the append raises, is not stored, and can be repeated."""
    with hansard.open(url + option, lock_timeout=lock_timeout) as store:
        session = store.session("s")
        session.add_message(message("first"))
        with psycopg.connect(url) as holder:
            holder.execute("SELECT 1 FROM hansard.sessions FOR UPDATE")
            with pytest.raises(error, match="timeout"):
                session.add_message(message("second"), key="k")
            # Readers wait for no lock.
            assert session.seq == 1
        assert session.add_message(message("second"), key="k").seq == 2
        assert len(session.messages()) == 2


def test_errors_about_credentials_do_not_show_them(mortal: Server) -> None:
    """N-65: neither a wrong password nor one that was changed later is in the error."""
    url = mortal.database()
    hansard.open(url).close()
    mortal.execute("CREATE ROLE locked LOGIN PASSWORD 'right-secret'")
    sql(url, "GRANT USAGE ON SCHEMA hansard TO locked")
    sql(url, "GRANT ALL ON ALL TABLES IN SCHEMA hansard TO locked")
    rules = mortal.data / "pg_hba.conf"
    rules.write_text(f"host all locked 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
    mortal.execute("SELECT pg_reload_conf()")

    def place(password: str) -> str:
        return url.replace("hansard@", f"locked:{password}@") + "?patience=0.3"

    def is_asked() -> bool:
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(place("wrong").partition("?")[0]).close()
            return False
        return True

    wait_for(is_asked)
    with pytest.raises(
        hansard.BackendUnavailable, match="password authentication failed"
    ) as caught:
        hansard.open(place("wrong-secret"))
    assert "secret" not in str(caught.value)
    with hansard.open(place("right-secret")) as store:
        store.session("s").add_message(message("hello"))
        mortal.execute("ALTER ROLE locked PASSWORD 'other'")
        mortal.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'locked'"
        )
        with pytest.raises(hansard.BackendUnavailable, match="password authentication") as caught:
            store.session("s").add_message(message("no"))
        assert "secret" not in str(caught.value)
        mortal.execute("ALTER ROLE locked PASSWORD 'right-secret'")
        assert store.session("s").add_message(message("again")).seq == 2


@pytest.mark.parametrize("change", ["delete", "restore", "purge"])
def test_a_lost_answer_is_not_an_error(url: str, proxy: Proxy, change: str) -> None:
    """N-56: a deletion, restoration or purge whose answer is lost is retried, and succeeds."""
    with hansard.open(proxy.through(url)) as store:
        store.session("s").add_message(message("x"))
        if change != "delete":
            store._backend.delete("s")
        proxy.lose_answer()
        getattr(store._backend, change)("s")
        assert proxy.lost.is_set()
        found = (list(store._backend.ids()), list(store._backend.ids(trash=True)))
        expected = {"delete": ([], ["s"]), "restore": (["s"], []), "purge": ([], [])}
        assert found == expected[change]


def test_a_deletion_that_finds_a_session_deleted_says_so_although_it_is_restored(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-28: restored before the deletion looks again, the session was in the trash all the same."""
    with hansard.open(url) as other, hansard.open(url) as store:
        store.session("s").add_message(message("x"))
        rows = store._backend.rows  # type: ignore[attr-defined] # PostgreSQL's
        look = rows.session

        def restored(session: str) -> object:
            other._backend.restore("s")
            return look(session)

        monkeypatch.setattr(rows, "session", restored)
        other._backend.delete("s")
        with pytest.raises(hansard.SessionDeleted):
            store._backend.delete("s")
        assert list(other._backend.ids()) == ["s"]


def test_a_compaction_whose_answer_is_lost_counts_its_bytes_once(
    url: str, store: hansard.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are rewritten again after a lost commit, and the session is as large as its rows."""
    session = store.session("s")
    session.add_messages([message("x" * 1000), message("y")])
    session.redact(1)
    connections = store._backend.connections  # type: ignore[attr-defined] # PostgreSQL's
    transaction = connections.transaction
    lost: list[bool] = []

    @contextlib.contextmanager
    def losing() -> Iterator[object]:
        with transaction() as connection:
            yield connection
        if not lost:
            lost.append(True)
            raise ConnectionLost(hansard.BackendUnavailable("the answer to the commit"))

    monkeypatch.setattr(connections, "transaction", losing)
    session.compact()
    assert lost
    stored = sql(url, "SELECT sum(octet_length(data))::bigint FROM hansard.events")
    assert sql(url, "SELECT bytes FROM hansard.sessions") == stored
    assert store.sessions().items[0].bytes == stored[0][0]


def test_a_key_of_another_append_is_refused_after_a_lost_answer(proxy: Proxy, url: str) -> None:
    """N-56: an append that is asked again does not get the events of another append with its key."""
    with hansard.open(proxy.through(url)) as store:
        session = store.session("s")
        session.add_messages([message("a"), message("b")], key="k")
        proxy.lose_answer()
        with pytest.raises(hansard.InvalidEvent, match="was used for 2 events"):
            session.add_message(message("c"), key="k")
        assert proxy.lost.is_set()
        assert session.seq == 2


@pytest.mark.parametrize("to_server", [True, False])
def test_an_interrupted_copy_continues(
    proxy: Proxy,
    url: str,
    store: hansard.Store,
    tmp_path: Path,
    rng: random.Random,
    to_server: bool,
) -> None:
    """N-84: a copy in either direction, cut again and again, ends with equal events."""
    with hansard.open(tmp_path / "files", durability="os") as files:
        source, target = (files, store) if to_server else (store, files)
        for number in range(4):
            session = source.session(f"s{number}")
            session.add_messages([message("x" * 400) for _ in range(40)], key="k")
            session.fork(f"s{number}-b", at=20).add_message(message("fork"))
        failures = 0
        for _ in range(8):
            proxy.cut_after(rng.randrange(20_000, 90_000), rng.choice(["question", "answer"]))
            try:
                with hansard.open(f"{proxy.through(url)}?patience=0") as cut:
                    pair = (files, cut) if to_server else (cut, files)
                    failures += bool(pair[0].copy_to(pair[1]).failed)
            except hansard.HansardError:
                failures += 1
        proxy.cut_after(1 << 40, "answer")
        assert failures
        assert source.copy_to(target).failed == {}
        for info in source.sessions().items:
            here, there = (list(one.session(info.id).events()) for one in (source, target))
            assert here == there
            assert target.session(info.id).parent == source.session(info.id).parent
        assert target.verify().ok
