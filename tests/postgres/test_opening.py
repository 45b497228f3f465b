"""Opening a store in PostgreSQL: schemas, versions, privileges, and servers that cannot be reached."""

import contextlib
import logging
import socket
import subprocess
import sys
import threading
import traceback
from functools import partial

import pytest

import hansard
from hansard.backend.postgres.schema import VERSION
from tests.contract.backends import together
from tests.postgres.helpers import contents, message
from tests.postgres.server import PATIENCE, Server, free_port, sql

SECRET = "hunter2hunter2"  # noqa: S105 - not a real one

#: The message of a server that is starting (57P03), in the protocol's form.
_STARTING = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0"


def test_schemas_are_separate_stores(url: str) -> None:
    """Stores in several schemas of one database are separate, by argument and by URL."""
    with hansard.open(url) as one, hansard.open(url, schema="two") as two:
        one.session("s").add_message(message("one"))
        two.session("s").add_message(message("two"))
        assert (contents(one), contents(two)) == (["one"], ["two"])
        with hansard.open(f"{url}?schema=two", create=False) as again:
            assert contents(again) == ["two"]
            assert again.session("s").append("x.n", {}).seq == 2
        one.delete("s")
        assert [info.id for info in two.sessions().items] == ["s"]


def test_a_missing_store_is_created_only_on_request(url: str) -> None:
    """`create=False` and `read_only=True` raise `StoreNotFound`, and do not change the database."""
    for options in ({"create": False}, {"read_only": True}):
        with pytest.raises(hansard.StoreNotFound, match="no store there"):
            hansard.open(url, **options)  # type: ignore[arg-type]
    assert sql(url, "SELECT 1 FROM pg_namespace WHERE nspname = 'hansard'") == []


def test_concurrent_opens_create_one_store(url: str) -> None:
    """6 threads open a new store, and its tables are created once."""

    def work(place: int) -> None:
        with hansard.open(url) as store:
            store.session(f"s{place}").add_message(message("here"))

    together([partial(work, place) for place in range(6)])
    with hansard.open(url) as store:
        assert store.count() == 6
    assert sql(url, "SELECT version FROM hansard.migrations") == [(VERSION,)]


def test_a_role_with_few_rights_is_enough(url: str) -> None:
    """A role that may only read and write rows can use a store; one that may only read can read it."""
    with hansard.open(url) as store:
        store.session("s").add_message(message("owner's"))
    for role, rights in (("writer", "SELECT, INSERT, UPDATE, DELETE"), ("reader", "SELECT")):
        name = f"{role}_{url.rpartition('/')[2]}"
        sql(url, f"CREATE ROLE {name} LOGIN")
        sql(url, f"GRANT USAGE ON SCHEMA hansard TO {name}")
        sql(url, f"GRANT {rights} ON ALL TABLES IN SCHEMA hansard TO {name}")
        with hansard.open(url.replace("hansard@", f"{name}@")) as store:
            assert contents(store) == ["owner's"]
            if role == "reader":
                with pytest.raises(hansard.ReadOnly, match="lacks a privilege"):
                    store.session("s").add_message(message("no"))
                continue
            store.session("t").add_message(message("a"))
            store.session("t").redact(1, reason="test")
            assert store.session("t").compact().blanked == 1
            store.delete("t")
            store.purge("t")


def test_a_read_only_store_writes_nothing(url: str) -> None:
    """N-62: opened read-only, a store reads, and every call that would write raises `ReadOnly`."""
    with hansard.open(url) as store:
        store.session("s").add_message(message("a"))
        store.session("deleted").add_message({"role": "user", "content": "x"})
        store.delete("deleted")
    with hansard.open(url, read_only=True) as store:
        assert contents(store) == ["a"]
        assert store.health().writable is False
        assert store.trash() == ["deleted"]
        session = store.session("s")
        for call in (
            lambda: store.session("s").add_message(message("no")),
            lambda: store.delete("s"),
            lambda: store.restore("deleted"),
            lambda: store.purge("deleted"),
            session.compact,
            lambda: store.drop_cursor("c"),
        ):
            with pytest.raises(hansard.ReadOnly):
                call()
        assert contents(store) == ["a"]


def test_no_error_shows_the_password(
    url: str, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """N-65: neither errors, nor tracebacks, nor logs contain it: server away, database or role missing."""
    caplog.set_level(logging.DEBUG)
    database = url.rpartition("/")[2]
    here = f"127.0.0.1:{server.port}"
    # Waiting does not help where a role or a database is missing: an hour of patience is not used.
    unavailable = hansard.BackendUnavailable
    for wrong, error, match in (
        (f"u:{SECRET}@127.0.0.1:{free_port()}/db?patience=0.3", unavailable, "refused.*check"),
        (f"hansard:{SECRET}@{here}/nowhere?patience=3600", unavailable, "does not exist"),
        (f"unknown:{SECRET}@{here}/{database}?patience=3600", unavailable, "does not exist"),
        (f"u:{SECRET}@h:port/{database}?no=yes", ValueError, "not a number"),
    ):
        with pytest.raises(error, match=match) as caught:
            hansard.open(f"postgresql://{wrong}")
        told = "".join(traceback.format_exception(caught.value))
        assert SECRET not in told
        assert "postgresql://" in str(caught.value)
    with hansard.open(url.replace("hansard@", f"hansard:{SECRET}@")) as store:
        store.session("s").add_message(message("a"))
        for thing in (store, store.session("s"), store.health(), store._backend):
            assert SECRET not in repr(thing)
    assert SECRET not in caplog.text


def output_of(script: str) -> str:
    """Return what a new Python process prints."""
    command = [sys.executable, "-c", script]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, check=True
    ).stdout


def test_psycopg_is_imported_only_for_postgresql() -> None:
    """`import hansard` and other stores do not import it; where it is missing, the error names the extra."""
    loaded = output_of(
        "import sys, hansard, hansard.aio\n"
        "hansard.open('memory:').session('s').add_message({})\n"
        "print([name for name in sys.modules if name.startswith('psycopg')])\n"
    )
    assert loaded.strip() == "[]"
    told = output_of(
        "import sys; sys.modules['psycopg'] = None\n"
        "import hansard\n"
        "try: hansard.open('postgresql://h/db')\n"
        "except hansard.BackendUnavailable as error: print(error)\n"
    )
    assert "pip install '/path/to/hansard[postgres]'" in told


def answer_once(port: int, answer: bytes) -> threading.Event:
    """Answer one connection in place of a server; return an event that is set afterwards."""
    answered = threading.Event()
    listener = socket.create_server(("127.0.0.1", port))
    listener.settimeout(PATIENCE)

    def serve() -> None:
        with listener, contextlib.suppress(OSError):
            caller, _ = listener.accept()
            with caller:
                caller.settimeout(PATIENCE)
                caller.recv(4096)
                if answer:
                    caller.sendall(b"E" + (len(answer) + 4).to_bytes(4, "big") + answer)
        answered.set()

    threading.Thread(target=serve, daemon=True).start()
    return answered


@pytest.mark.parametrize("answer", [b"", _STARTING], ids=["silence", "starting"])
def test_opening_waits_for_a_server(mortal: Server, answer: bytes) -> None:
    """`open` tries again until a server that restarts accepts connections."""
    url = mortal.database(patience="60", sslmode="disable", gssencmode="disable")
    with hansard.open(url) as store:
        store.session("s").add_message({"role": "user", "content": "before"})
    mortal.stop()
    answered = answer_once(mortal.port, answer)
    opened: list[hansard.Store] = []
    opening = threading.Thread(target=lambda: opened.append(hansard.open(url)))
    opening.start()
    # It has tried once, and continues.
    assert answered.wait(PATIENCE)
    mortal.start()
    opening.join(2 * PATIENCE)
    assert opened
    with opened[0] as store:
        assert store.session("s").add_message({"role": "user", "content": "after"}).seq == 2
