"""Servers for tests: one of each version per process."""

from collections.abc import Callable, Iterator

import pytest

import hansard
from tests.postgres.proxy import Proxy
from tests.postgres.server import VERSIONS, Server


@pytest.fixture(scope="session")
def servers() -> Iterator[Callable[[int], Server]]:
    """Return servers by version; each is started when a test first needs it."""
    started: dict[int, Server] = {}

    def server(version: int) -> Server:
        if version not in started:
            started[version] = Server(version)
            started[version].start()
        return started[version]

    yield server
    for found in started.values():
        found.remove()


@pytest.fixture
def server(servers: Callable[[int], Server]) -> Server:
    """Return a server of the newest version, which no test stops."""
    return servers(VERSIONS[-1])


@pytest.fixture(scope="module")
def mortal() -> Iterator[Server]:
    """Return a server that tests may stop or kill, and must start again."""
    with Server(18) as found:
        yield found


@pytest.fixture
def url(server: Server) -> str:
    """Return the URL of an empty database."""
    return server.database()


@pytest.fixture
def store(url: str) -> Iterator[hansard.Store]:
    """Return a store in an empty database."""
    with hansard.open(url) as found:
        yield found


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """Return a proxy to the server, which can cut connections."""
    with Proxy(server.port) as found:
        yield found
