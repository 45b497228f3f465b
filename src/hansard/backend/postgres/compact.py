"""Erase redacted and dropped data from a session's rows, and save its state.

PostgreSQL compresses large rows itself, so a compaction packs nothing (docs/decisions/0018-postgres.md has
the figures): it rewrites the rows of redacted events. After the commit no reader sees the old rows. Their
bytes stay in the pages of the tables until `vacuum` rewrites these.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from psycopg.types.numeric import Int8

from hansard.backend.contract import CompactionFilter, CompactionResult, Progress
from hansard.backend.postgres.connection import AdvisoryLock, Connections, DedicatedConnection
from hansard.backend.postgres.read import COLUMNS, SessionRow
from hansard.backend.postgres.server_errors import ConnectionLost
from hansard.errors import BackendUnavailable, LockTimeout, SessionNotFound
from hansard.event.event import Event
from hansard.log.store_directory import deleted

if TYPE_CHECKING:
    from hansard.backend.postgres.backend import PostgresBackend

#: Bytes above which the state of a session is saved.
_CHECKPOINT: Final = 256 * 1024

#: Seconds between two tries to rewrite a table that an older transaction can see.
_PAUSE: Final = 0.1

#: Maximum rows per statement.
_ROWS: Final = 500

#: Rows that may have to be rewritten.
_CANDIDATES: Final = """
SELECT {columns} FROM {schema}.events
WHERE session = %(session)s::uuid AND seq > %(after)s AND seq <= %(upto)s
  AND (seq = ANY(%(seqs)b::bigint[]) OR seq < %(bound)s OR %(streams)s AND (
    kind = 'message.part' OR kind = 'message.added' AND position('"stream":' in data) > 0))
ORDER BY seq LIMIT %(rows)s""".replace("{columns}", COLUMNS)

#: Locks the session's row: appends wait. The rows tell what is saved: nothing, if they are rewritten already
#: because the answer to an earlier try was lost.
_SHRINK: Final = """
UPDATE {schema}.sessions SET rewritten = rewritten + 1, marked = true, bytes = bytes - (
    SELECT coalesce(sum(octet_length(e.data) - octet_length(n.data)), 0)
    FROM {schema}.events AS e JOIN unnest(%(seqs)b::bigint[], %(datas)b::text[]) AS n (seq, data)
    ON e.session = %(session)s::uuid AND e.seq = n.seq)
WHERE session = %(session)s::uuid AND life = %(life)s AND deleted_at IS NULL RETURNING life"""

_WRITE: Final = """
UPDATE {schema}.events AS e SET data = n.data
FROM unnest(%(seqs)b::bigint[], %(datas)b::text[]) AS n (seq, data)
WHERE e.session = %(session)s::uuid AND e.seq = n.seq"""

DROP_CHECKPOINT: Final = "DELETE FROM {schema}.checkpoints WHERE session = %(session)s::uuid"

_SAVE: Final = """
INSERT INTO {schema}.checkpoints AS c (session, life, seq, stamp, state)
SELECT session, %(life)s, seq, stamp, %(state)b FROM {schema}.events
WHERE session = %(session)s::uuid AND seq = %(seq)s
ON CONFLICT (session) DO UPDATE
SET life = excluded.life, seq = excluded.seq, stamp = excluded.stamp, state = excluded.state"""

#: Only if the event at its seq is still the same: the events may have been restored from a backup.
LOAD_CHECKPOINT: Final = """
SELECT c.seq, c.state FROM {schema}.checkpoints AS c
JOIN {schema}.events AS e ON e.session = c.session AND e.seq = c.seq AND e.stamp = c.stamp
WHERE c.session = %(session)s::uuid AND c.life = %(life)s"""

_TABLES: Final = """
SELECT quote_ident(relname) FROM pg_catalog.pg_class
WHERE relnamespace = to_regnamespace(%(schema)s) AND relkind = 'r' ORDER BY relname"""


def compact(
    backend: "PostgresBackend",
    row: SessionRow,
    filter: CompactionFilter,
    progress: Progress | None,
    state: Callable[[int], bytes] | None,
    *,
    wait: bool,
) -> CompactionResult:
    """Rewrite the rows of a session that have to be, and save its state."""
    connections = backend.connections
    lock = AdvisoryLock(connections, "compact", row.session)
    timeout = connections.lock_timeout if wait else 0.0
    if not lock.acquire(timeout):
        raise LockTimeout(
            f"{backend.where}: session {row.id!r} is being compacted by another process "
            f"for more than {timeout:g} s; nothing was compacted. Retry later"
        )
    try:
        count, saved = _rewrite(backend, row, filter, progress)
        if state is not None and row.size > _CHECKPOINT:
            seq = row.head.seq
            params = {"life": row.life, "seq": Int8(seq), "state": state(seq)}
            connections.run(_SAVE, {"session": row.session, **params})
    finally:
        lock.close()
    if not count:
        return CompactionResult(0, 0, 0, 0)
    return CompactionResult(row.size, row.size - saved, 1, count)


def _rewrite(
    backend: "PostgresBackend", row: SessionRow, filter: CompactionFilter, progress: Progress | None
) -> tuple[int, int]:
    """Rewrite rows; return their number, and the bytes by which they shrank."""
    count = saved = 0
    after, upto = row.before, row.head.seq
    given = {
        "session": row.session,
        "upto": Int8(upto),
        "rows": Int8(_ROWS),
        "seqs": [Int8(seq) for seq in sorted(filter.replaced)],
        "bound": Int8(filter.before),
        "streams": bool(filter.streams),
    }
    # In several transactions, so that appends wait only briefly. A crash leaves the rest for next time.
    while after < upto:
        params = {**given, "after": Int8(after)}
        rows = backend.connections.run(_CANDIDATES, params, binary=True)
        after = rows[-1][0] if len(rows) == _ROWS else upto
        events = [Event(*found[:5]) for found in rows]
        changes = [(event, filter.mask(event).raw) for event in events]
        changes = [(event, data) for event, data in changes if data != event.raw]
        if changes:
            shrunk = sum(len(event.raw) - len(data) for event, data in changes)
            backend.connections.retry(partial(_write, backend, row, changes))
            count, saved = count + len(changes), saved + shrunk
        if progress is not None:
            progress(after - row.before, upto - row.before)
    return count, saved


def _write(backend: "PostgresBackend", row: SessionRow, changes: list[tuple[Event, bytes]]) -> None:
    connections = backend.connections
    params = {
        "session": row.session,
        "life": row.life,
        "seqs": [Int8(event.seq) for event, _ in changes],
        "datas": [data.decode() for _, data in changes],
    }
    with connections.transaction() as connection:
        if connection.execute(connections.query(_SHRINK), params).fetchone() is not None:
            # The saved state may contain what is erased here. `compact` saves another.
            connection.execute(connections.query(DROP_CHECKPOINT), params)
            connection.execute(connections.query(_WRITE), params)
            return
    found = backend.rows.session(row.session)
    if found is not None and found.life == row.life:
        raise deleted(row.id)
    raise SessionNotFound(f"session {row.id!r} was purged during the compaction")


def vacuum(connections: Connections) -> None:
    """Rewrite all tables of a store, so that none of their files contains a byte of an old row.

    Other processes cannot use a table while it is rewritten. Raise if an old row had to stay.
    """
    deadline = time.monotonic() + connections.url.patience
    tables = [str(table) for (table,) in connections.run(_TABLES, {"schema": connections.schema})]
    dedicated = DedicatedConnection(connections)
    try:
        while tables:
            with dedicated.using() as connection:
                connection.execute("SET statement_timeout = 0")
                reason = connection.rewrite(connections.query(f"{{schema}}.{tables[0]}"))
            if not reason:
                del tables[0]
            elif time.monotonic() > deadline:
                raise BackendUnavailable(
                    f"{connections.url.where}: table {tables[0]}: {reason}; the store is compacted, but "
                    "pages may contain erased data. Compact again later, as the owner of the tables"
                )
            else:
                time.sleep(_PAUSE)
    except ConnectionLost as lost:
        raise lost.error from None
    finally:
        dedicated.close()
