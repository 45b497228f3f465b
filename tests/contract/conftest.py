"""Run each test of the contract on every backend: files, memory, PostgreSQL 16 and 18."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, cast

import pytest

from hansard.backend.contract import Backend
from hansard.backend.local.backend import LocalBackend
from hansard.backend.memory import MemoryBackend
from hansard.backend.postgres.backend import PostgresBackend
from hansard.backend.postgres.url import parse_url
from tests.contract.backends import SHARED, Context
from tests.postgres.conftest import servers
from tests.postgres.server import Server

__all__ = ["servers"]

TABLES = ("sessions", "events", "checkpoints")


@pytest.fixture(scope="session")
def databases(servers: Callable[[int], Server]) -> Callable[[int], str]:
    """Return one database per version of the server; each test empties it, which is quick."""
    made: dict[int, str] = {}

    def database(version: int) -> str:
        if version not in made:
            made[version] = servers(version).database()
        return made[version]

    return database


@pytest.fixture(params=["memory", *SHARED])
def context(
    request: pytest.FixtureRequest, tmp_path: Path, databases: Callable[[int], str]
) -> Iterator[Context]:
    """Give a test an empty backend of each kind."""
    kind, _, detail = str(request.param).partition("-")
    if kind == "memory":
        found = Context(MemoryBackend)
    elif kind == "files":
        found = files(tmp_path, cast("Literal['os', 'sync']", detail))
    else:
        found = server(databases(int(detail)))
    try:
        yield found
    finally:
        found.close()


def files(directory: Path, durability: Literal["os", "sync"]) -> Context:
    """Return a context over a new directory."""
    return Context(
        lambda: LocalBackend(str(directory / "store"), durability=durability),
        lambda old: LocalBackend(old.where, durability=durability),
    )


def server(url: str) -> Context:
    """Return a context over a database whose tables are emptied first."""

    def empty() -> Backend:
        backend = PostgresBackend(parse_url(url))
        with backend.connections.using() as connection:
            for table in TABLES:
                query = f"DELETE FROM hansard.{table}"  # noqa: S608 - a name from above
                connection.execute(query.encode())
        return backend

    return Context(empty, lambda _: PostgresBackend(parse_url(url)))
