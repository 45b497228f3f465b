"""Opening a store on a server that is away for a moment, and on one that will never do."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

import hansard
from tests.postgres.server import PATIENCE, Server, free_port

#: What a server says that has not finished starting (57P03), as it stands on the wire.
_STARTING = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0"


@pytest.fixture
def mortal() -> Iterator[Server]:
    """Return a server of the test's own, to be stopped."""
    with Server(18) as found:
        yield found


def answer_once(port: int, answer: bytes) -> threading.Event:
    """Be in a server's place for one connection; return what is set when one has come and was answered."""
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
def test_opening_waits_for_a_server_that_is_away(mortal: Server, answer: bytes) -> None:
    """A server that is being started again is tried until it is there, as by every other call."""
    url = mortal.database(patience="60", sslmode="disable", gssencmode="disable")
    with hansard.open(url) as store:
        store.session("s").add_message({"role": "user", "content": "before"})
    mortal.stop()
    answered = answer_once(mortal.port, answer)
    opened: list[hansard.Store] = []
    opening = threading.Thread(target=lambda: opened.append(hansard.open(url)))
    opening.start()
    # So it has tried once, and has not given up.
    assert answered.wait(PATIENCE)
    mortal.start()
    opening.join(2 * PATIENCE)
    assert opened
    with opened[0] as store:
        assert store.session("s").add_message({"role": "user", "content": "after"}).seq == 2


def test_opening_gives_up_when_patience_is_over() -> None:
    """A server that stays away is an error that says so."""
    url = f"postgresql://u@127.0.0.1:{free_port()}/db?patience=0.3"
    with pytest.raises(hansard.BackendUnavailable, match=r"refused.*check that the server runs"):
        hansard.open(url)


def test_what_waiting_does_not_mend_is_said_at_once(server: Server, url: str) -> None:
    """No such database and no such role are told without a second try: this would wait for an hour."""
    missing = f"{server.url('nowhere')}?patience=3600"
    with pytest.raises(hansard.BackendUnavailable, match="does not exist"):
        hansard.open(missing)
    with pytest.raises(hansard.BackendUnavailable, match="does not exist"):
        hansard.open(f"{url.replace('hansard@', 'nobody_known@')}?patience=3600")
