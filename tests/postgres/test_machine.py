"""Any calls, forks, reverts, redactions and streams among them, add up to what plain lists say."""

import os

import hypothesis
import pytest
from hypothesis.stateful import run_state_machine_as_test

import hansard
from hansard import Store
from tests.postgres.server import Server
from tests.properties.test_machine import InFiles


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_forks_streams_and_views_in_postgresql_are_those_of_lists(server: Server) -> None:
    """N-18, N-21, N-42, N-48 to N-51, N-54, N-55, N-57: any calls, through two stores, some opened anew."""

    class InPostgres(InFiles):
        def __init__(self) -> None:
            super().__init__()
            self.url = server.database()

        def open(self) -> Store:
            return hansard.open(self.url, durability="os")

        def look(self) -> Store:
            return hansard.open(self.url, read_only=True)

    examples = int(os.environ.get("HANSARD_TEST_EXAMPLES", "3"))
    settings = hypothesis.settings(
        max_examples=examples,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    run_state_machine_as_test(InPostgres, settings=settings)
