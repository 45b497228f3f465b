"""Which failed connections to PostgreSQL may succeed when they are tried again."""

import psycopg
import pytest

from hansard.backend.postgres.server_errors import is_unreachable

FAILED = 'connection failed: connection to server at "127.0.0.1", port 5432 failed: '


@pytest.mark.parametrize(
    ("reasons", "passing"),
    [
        (["Connection refused"], True),
        (["FATAL:  the database system is starting up"], True),
        (["server sent an error response during SSL exchange"], True),
        (['FATAL:  password authentication failed for user "u"'], False),
        (["Connection refused", 'FATAL:  database "d" does not exist'], False),
    ],
)
def test_only_an_unreachable_server_is_tried_again(reasons: list[str], passing: bool) -> None:
    """At the first connection, a mistake in the URL is reported immediately; libpq names each host."""
    error = psycopg.OperationalError("\n".join(FAILED + reason for reason in reasons))
    assert is_unreachable(error) is passing
