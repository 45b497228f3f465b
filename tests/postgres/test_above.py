"""Layers above the backend work on PostgreSQL as on files."""

import os
import threading
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis.stateful import run_state_machine_as_test

import hansard
from hansard.backend.postgres.stage import PostgresStage
from tests.postgres.server import Server
from tests.properties.test_machine import InFiles
from tests.unit.test_sizes import append, batches, check, small, travel

__all__ = ["small"]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(4))
def test_what_was_acknowledged_survives_every_size(
    server: Server, tmp_path: Path, seed: int
) -> None:
    """F-27: PostgreSQL stores batches of every size, and copies them to files and to another database."""
    with (
        hansard.open(server.database()) as store,
        hansard.open(tmp_path / "s", durability="os", auto_compact=False) as files,
        hansard.open(server.database()) as other,
    ):
        said = append(store, batches(seed))
        check(store, said)
        travel(store, (files, other))


def test_a_parent_is_not_purged_while_a_fork_of_it_is_stored(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-67: a deletion waits until the transaction of a fork has ended, and the purge then finds the fork."""
    send = PostgresStage._send
    url = server.database()
    refused = []

    def purge() -> None:
        with hansard.open(url) as other:
            other.delete("s")
            with pytest.raises(hansard.InUse):
                other.purge("s")
            refused.append("purge")

    def send_and_purge(*args: Any) -> None:
        thread.start()
        thread.join(0.2)  # without the lock it would end: then the test fails, and never otherwise
        send(*args)

    thread = threading.Thread(target=purge)
    monkeypatch.setattr(PostgresStage, "_send", send_and_purge)
    with hansard.open(url) as store:
        store.session("s").add_message({"n": 1})
        child = store.session("s").fork("c")
        thread.join(60.0)
        assert refused == ["purge"]
        assert child.messages() == [{"n": 1}]


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_forks_streams_and_views_in_postgresql_are_those_of_lists(server: Server) -> None:
    """N-18, N-21, N-42, N-48 to N-51, N-54, N-55, N-57: random calls through two stores, some reopened."""

    class InPostgres(InFiles):
        def __init__(self) -> None:
            super().__init__()
            self.url = server.database()

        def open(self) -> hansard.Store:
            return hansard.open(self.url, durability="os")

        def look(self) -> hansard.Store:
            return hansard.open(self.url, read_only=True)

        def tear(self, garbage: bytes, kept: int | None) -> None:
            """Do nothing: PostgreSQL stores no log files."""

    examples = int(os.environ.get("HANSARD_TEST_EXAMPLES", "3"))
    settings = hypothesis.settings(
        max_examples=examples,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    run_state_machine_as_test(InPostgres, settings=settings)
