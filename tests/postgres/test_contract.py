"""A store in PostgreSQL keeps every promise of the contract, in the oldest and the newest version."""

from collections.abc import Callable

import pytest

from hansard.backend.contract import Backend
from hansard.backend.postgres import address
from hansard.backend.postgres.backend import PostgresBackend
from hansard.testing.contract import CHECKS, Check
from tests.contract.test_backends import named
from tests.postgres.server import VERSIONS, Server

TABLES = ("sessions", "events", "checkpoints", "contents", "cursors", "positions")


@pytest.fixture(scope="session")
def databases(servers: Callable[[int], Server]) -> Callable[[int], str]:
    """Give out a database by the server's version; it is emptied for each check, which costs little."""
    made: dict[int, str] = {}

    def database(version: int) -> str:
        if version not in made:
            made[version] = servers(version).database()
        return made[version]

    return database


def again(backend: Backend) -> Backend:
    """Open a store once more, as another process would."""
    assert isinstance(backend, PostgresBackend)
    return PostgresBackend(backend.connections.address)


@pytest.mark.parametrize("check", CHECKS, ids=named)
@pytest.mark.parametrize("version", VERSIONS)
def test_postgres_keeps_the_contract(
    check: Check, version: int, databases: Callable[[int], str]
) -> None:
    """A server keeps every promise, also between handles, with no check left out (N-18, N-63)."""
    url = databases(version)

    def empty() -> Backend:
        backend = PostgresBackend(address.read(url))
        with backend.connections.using() as connection:
            for table in TABLES:
                query = f"DELETE FROM hansard.{table}"  # noqa: S608 - a name from above
                connection.execute(query.encode())
        return backend

    check(empty, again)
