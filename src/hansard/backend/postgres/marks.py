"""Tell the index which sessions have changed since its last refresh.

An append, a deletion or a compaction marks the session's row, which it writes anyway. A refresh clears all
marks and records their sessions in the table `index_pending`, in one statement: later changes set new marks.
The records are deleted when the refresh is committed, so a refresh that dies loses nothing.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final
from uuid import UUID

from hansard.backend.contract import Changed, Watch
from hansard.backend.postgres.connection import Connection
from hansard.backend.postgres.errors import ConnectionLost
from hansard.errors import HansardError, LockTimeout

if TYPE_CHECKING:
    from hansard.backend.postgres.backend import PostgresBackend

#: Stored with the index by a refresh; a rebuilt index does not have it.
_KNOWN: Final = "marks"

#: Milliseconds that a refresh waits for a writer; after that, the mark stays.
_PATIENCE: Final = 1000

_QUIET: Final = """
SELECT NOT EXISTS (SELECT FROM {schema}.sessions WHERE marked AND NOT internal)
   AND NOT EXISTS (SELECT FROM {schema}.index_pending)"""

_TAKE: Final = """
WITH m AS (UPDATE {schema}.sessions SET marked = false WHERE marked AND NOT internal RETURNING id),
     p AS (SELECT gen_random_uuid() AS pass)
INSERT INTO {schema}.index_pending (pass, id) SELECT p.pass, m.id FROM m, p"""

_PENDING: Final = "SELECT pass, id FROM {schema}.index_pending"
_MARKED: Final = "SELECT id FROM {schema}.sessions WHERE marked AND NOT internal"
_DONE: Final = "DELETE FROM {schema}.index_pending WHERE pass = ANY(%(passes)s)"


class Marks(Watch):
    """Reports marked sessions."""

    __slots__ = ("_backend", "_passes")

    def __init__(self, backend: "PostgresBackend") -> None:
        self._backend = backend
        #: The refreshes whose records this one reads.
        self._passes: list[UUID] = []

    def quiet(self, known: str) -> bool:
        return known == _KNOWN and bool(self._run(_QUIET)[0][0])

    def begin(self, known: str) -> Changed:
        left: set[str] = set()
        try:
            self._backend.connections.retry(self._take)
        except LockTimeout:
            # A writer holds a session. Read what is committed, and leave its mark.
            left = {str(row[0]) for row in self._run(_MARKED)}
        rows = self._run(_PENDING)
        self._passes = list({row[0] for row in rows})  # type: ignore[misc]
        ids = frozenset({*left, *(str(row[1]) for row in rows)})
        return Changed(ids, every=known != _KNOWN)

    def _take(self) -> None:
        with self._backend.connections.using() as connection, connection.transaction():
            self._take_by(connection)

    def _take_by(self, connection: Connection) -> None:
        query = "SELECT set_config('lock_timeout', %s, true)"
        connection.execute(query, (f"{_PATIENCE}ms",))
        connection.execute(self._backend.connections.query(_TAKE))

    def ids(self) -> Iterable[str]:
        return self._ids()

    def _ids(self) -> Iterator[str]:
        yield from self._backend.ids()

    def done(self) -> str:
        return _KNOWN

    def consumed(self) -> None:
        passes, self._passes = self._passes, []
        if passes:
            try:
                self._run(_DONE, {"passes": passes})
            except (HansardError, ConnectionLost):
                return  # these sessions are read again

    def _run(self, text: str, params: dict[str, object] | None = None) -> list[tuple[object, ...]]:
        return self._backend.connections.run(text, params)
