"""Redacted, scrubbed, dropped and purged data are erased from the tables and their files."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import hansard
from hansard.backend.postgres.backend import PostgresBackend
from hansard.backend.postgres.connection import AdvisoryLock
from tests.postgres.helpers import message, wait_for
from tests.postgres.server import PATIENCE, VERSIONS, Server, sql
from tools.crash.erasure import leaks

SECRET = "the-secret-of-the-house"  # noqa: S105 - a message


def test_a_second_compactor_waits_for_the_first(url: str) -> None:
    """As on files: a compaction waits for another up to `lock_timeout`, and then raises `LockTimeout`."""
    ask = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND query LIKE 'SELECT pg_try_advisory_lock%'"
    )
    with (
        hansard.open(url, lock_timeout=PATIENCE) as store,
        hansard.open(url, lock_timeout=0) as hasty,
    ):
        session = store.session("s")
        session.add_message(message(SECRET))
        session.redact(1)
        backend = store._backend
        assert isinstance(backend, PostgresBackend)
        first = AdvisoryLock(backend.connections, "compact", backend.writer("s").session)
        assert first.acquire(0)
        with pytest.raises(hansard.LockTimeout, match="compacted by another"):
            hasty.session("s").compact()
        with ThreadPoolExecutor() as pool:
            second = pool.submit(session.compact)
            wait_for(lambda: sql(url, ask) == [(2,)])
            assert not second.done()
            first.close()
            assert second.result(PATIENCE).blanked == 1


def test_verify_reports_a_row_that_holds_a_key_twice(url: str, store: hansard.Store) -> None:
    """F-13: another program wrote a duplicate key into a row: `verify` names it, and scrub removes it."""
    session = store.session("s")
    session.add_messages([message("first"), message("second")])
    twice = f'{{"message":{{"content":"{SECRET}","content":"x"}}}}'
    sql(url, "UPDATE hansard.events SET data = %s WHERE seq = 2", twice)
    (finding,) = session.verify().damage
    assert "event 2: duplicate key 'content'" in finding.reason
    assert len(session.scrub().events) == 1
    session.compact()
    assert session.verify().ok
    # The bytes of old rows stay in the files until these are rewritten.
    assert {found.rpartition(": ")[2] for found in leaks(url, SECRET)} <= {"file"}


@pytest.mark.parametrize("version", VERSIONS)
def test_compact_with_vacuum_leaves_no_byte(version: int, servers: Callable[[int], Server]) -> None:
    """After redaction, scrub, drop, purge and `compact(vacuum=True)`, no table or file has a byte."""
    url = servers(version).database()
    names = ("said", "title", "label", "purged", "streamed", "scrubbed", "dropped")
    words = {name: f"{name}qzxwvutsrq" for name in names}
    with hansard.open(url) as store:
        session = store.session("a")
        session.add_messages([message(words["dropped"]), message(words["said"]), message("kept")])
        session.add_message(message(f"a long text with {words['scrubbed']} " + "x" * 5000))
        session.set_title(words["title"])
        store.sessions()
        session.set_title("another")
        session.set_metadata(user=words["label"])
        with store.session("b").stream(gather=0, role="assistant") as stream:
            stream.write(words["streamed"])
            store.search("kept")
        store.session("b").set_title(words["purged"])
        assert [hit.seq for hit in store.search("kept")] == [3]
        assert all(leaks(url, word) for word in words.values())
        sql(url, "ANALYZE")  # the server samples columns
        session.redact(2)
        for name in ("title", "label", "scrubbed"):
            session.scrub(words[name])
        session.drop_history(2)
        store.delete("b")
        store.purge("b")
        assert not store.compact().vacuumed
        left = [found for word in words.values() for found in leaks(url, word)]
        assert {found.rpartition(": ")[2] for found in left} == {"file"}
        assert store.compact(vacuum=True).vacuumed
        assert [found for word in words.values() for found in leaks(url, word)] == []
        assert [hit.seq for hit in store.search("kept")] == [3]
        assert store.verify().ok


def test_vacuum_fails_if_old_rows_must_stay(server: Server) -> None:
    """While an older transaction can read erased rows, `compact(vacuum=True)` raises."""
    url = server.database()
    with hansard.open(f"{url}?patience=0.2") as store, psycopg.connect(url) as older:
        session = store.session("s")
        session.add_message(message(SECRET))
        older.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        older.execute("SELECT 1")
        session.redact(1)
        with pytest.raises(hansard.BackendUnavailable, match="table events: an older transaction"):
            store.compact(vacuum=True)
        older.rollback()
        assert store.compact(vacuum=True).vacuumed
        assert leaks(url, SECRET) == []


def test_vacuum_fails_for_a_role_that_is_not_the_owner(server: Server) -> None:
    """The server skips tables of other roles with a warning: `compact(vacuum=True)` raises."""
    url = server.database()
    hansard.open(url).close()
    sql(url, "CREATE ROLE visitor LOGIN")
    sql(url, "GRANT USAGE ON SCHEMA hansard TO visitor")
    sql(url, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA hansard TO visitor")
    with (
        hansard.open(url.replace("//hansard@", "//visitor@") + "?patience=0.2") as store,
        pytest.raises(hansard.BackendUnavailable, match="permission denied"),
    ):
        store.compact(vacuum=True)


def test_parts_of_a_redacted_message_are_erased(url: str, store: hansard.Store) -> None:
    """The parts of a redacted message are erased; those of another one stay, and show it unfinished."""
    for name in ("plain", "redacted"):
        with store.session(name).stream(gather=0, role="assistant") as stream:
            stream.write("one piece and ")
            stream.write("another piece")
    store.session("redacted").redact(3)
    before = store.session("plain").messages(at=1)
    assert [one["content"] for one in before] == ["one piece and "]
    report = store.compact()
    assert (report.sessions, report.blanked) == (1, 3)
    assert store.session("plain").messages(at=1) == before
    assert store.session("redacted").messages() == []
    rows = sql(
        url,
        "SELECT s.id, count(*) FROM hansard.events AS e JOIN hansard.sessions AS s USING (session) "
        "WHERE e.data LIKE '%piece%' GROUP BY s.id",
    )
    assert rows == [("plain", 3)]
    assert store.verify().ok


def test_rows_that_another_program_deleted_are_damage(url: str, store: hansard.Store) -> None:
    """N-31, N-34: reading raises, verify names the event, and the listing flags the session."""
    session = store.session("s")
    session.add_messages([message(str(number)) for number in range(5)])
    sql(url, "DELETE FROM hansard.events WHERE seq = 3")
    for call in (session.messages, lambda: list(session.events())):
        with pytest.raises(hansard.Damaged, match="missing"):
            call()
    (finding,) = session.verify().findings
    assert finding.reason == "event 3 is missing"
    (info,) = store.sessions().items
    assert info.damaged


def test_a_later_checkpoint_does_not_count_after_a_restore(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-40: a saved state counts only if the event at its seq is still the same."""
    monkeypatch.setattr("hansard.backend.postgres.compact._CHECKPOINT", 0)
    with hansard.open(url) as store:
        session = store.session("s")
        session.add_message(message("one"))
        session.set_title("forgotten")
        session.compact()
        assert store._backend.log("s").reader().checkpoint() is not None
        saved = session.state()
    sql(url, "DELETE FROM hansard.events WHERE seq > 1")
    sql(url, "UPDATE hansard.sessions SET last_seq = 1")
    with hansard.open(url) as store:
        session = store.session("s")
        session.set_title("second")
        session.add_message(message("two"))
        assert session.seq > saved.seq
        assert session.state().title == session.title == "second"
        assert store._backend.log("s").reader().checkpoint() is None
