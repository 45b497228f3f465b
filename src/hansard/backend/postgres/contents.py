"""Keep large content once for all sessions, in a table, and remove what nobody refers to.

Above: `append`, `reads`, `staging`, `backend`.  Below: `connections`, `statements`, `event.large`.
Content comes with the append that refers to it, in the same statement: it is there if that is. A collector
locks nobody out. It notes how often each content was kept, looks through the sessions, and removes what
none of them refers to and nobody has kept once more since: whoever did waits for the collector at the
content's row, or the other way round, and then sees what the other has done.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from psycopg.types.numeric import Int8

from hansard.backend.contract import Content, Log
from hansard.backend.postgres import statements
from hansard.backend.postgres.connections import Connections
from hansard.errors import Damaged
from hansard.event.large import Gaps, Reference

#: Is given every session, and returns the hashes of what they refer to.
Refers = Callable[[Iterator[Log]], set[str]]

_FETCH = "SELECT body FROM {schema}.contents WHERE sha256 = %(sha256)s::varchar"
_LIST = "SELECT sha256, bytes, touched FROM {schema}.contents ORDER BY sha256"
_REMOVE = """
DELETE FROM {schema}.contents AS c
USING unnest(%(names)b::varchar[], %(touched)b::bigint[]) AS n (sha256, touched)
WHERE c.sha256 = n.sha256 AND c.touched = n.touched
RETURNING c.sha256"""


class Contents:
    """The large content of a store."""

    __slots__ = ("_connections", "_schema", "_where")

    def __init__(self, connections: Connections, schema: str) -> None:
        self._connections = connections
        self._schema = schema
        self._where = connections.address.where

    def gaps_of(self, references: bytes) -> Gaps:
        """Return the gaps of an event, from its column of references."""
        try:
            decoded = msgspec.json.decode(references)
        except msgspec.DecodeError:
            decoded = None  # which no references are
        return Gaps(decoded, self.fetch, self._where)

    def fetch(self, reference: Reference) -> str:
        """Return the text that a reference stands for, or raise `Damaged`."""
        query = statements.statement(self._schema, _FETCH)
        rows = self._connections.run(query, {"sha256": reference.sha256}, binary=True)
        if not rows:
            raise Damaged(self._where, 0, f"large content {reference.sha256} is missing")
        body: bytes = rows[0][0]
        if len(body) != reference.bytes:
            raise Damaged(self._where, 0, f"large content {reference.sha256} has another length")
        return body.decode()

    def listing(self) -> list[Content]:
        """Return what is kept."""
        return [Content(sha256, size) for sha256, size, _ in self._kept()]

    def collect(
        self, refers: Refers, logs: Callable[[], list[Log]], *, dry_run: bool
    ) -> list[Content]:
        """Remove what nothing refers to."""
        kept = self._kept()
        # After what is kept was listed: whoever referred to something before that is seen.
        referred = refers(iter(logs()))
        doomed = [found for found in kept if found[0] not in referred]
        if dry_run or not doomed:
            return [Content(sha256, size) for sha256, size, _ in doomed]
        query = statements.statement(self._schema, _REMOVE)
        params = {
            "names": [sha256 for sha256, _, _ in doomed],
            "touched": [Int8(touched) for _, _, touched in doomed],
        }
        removed = {sha256 for (sha256,) in self._connections.run(query, params)}
        return [Content(sha256, size) for sha256, size, _ in doomed if sha256 in removed]

    def _kept(self) -> list[tuple[Any, ...]]:
        return self._connections.run(statements.statement(self._schema, _LIST))
