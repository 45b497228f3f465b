"""A connection that goes from one statement to the next, and what it keeps meanwhile.

Above: `connections`.  Below: `direct`, psycopg.
"""

from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.rows import TupleRow

from hansard.backend.postgres.direct import Prepared

Connection = psycopg.Connection[TupleRow]


class Pooled(psycopg.Connection[TupleRow]):
    """A connection of the pool's, which gets them from its store."""

    #: The cursor that it was last used with.
    kept: "psycopg.Cursor[TupleRow] | None" = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.prepared = Prepared(self)
        #: When it goes back to the pool, which may want to replace it.
        self.until = 0.0

    @classmethod
    def connect(cls, *_: Any, make: Callable[[], Any], **__: Any) -> Any:  # type: ignore[override]
        """Return what the store has at hand, or makes."""
        return make()


def cursor_of(connection: Connection, *, binary: bool) -> "psycopg.Cursor[TupleRow]":
    """Return a cursor; the same one each time for what is small."""
    if binary or not isinstance(connection, Pooled):
        return connection.cursor()
    if connection.kept is None:
        connection.kept = connection.cursor()
    return connection.kept
