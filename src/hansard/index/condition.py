"""Report the state of an index, without bringing it up to date.

Above: `store`.  Below: `database`, `backend.contract`, sqlite3.
The file is opened read-only, so that nothing changes, and SQLite creates no file next to it.
"""

import sqlite3
from contextlib import closing
from typing import Final
from urllib.parse import quote

from msgspec.structs import replace

from hansard.backend.condition import IndexFile
from hansard.backend.contract import Backend, Tables
from hansard.index.database import APPLICATION, VERSION, Connection, has_our_tables

#: Seconds to wait for a process that holds the file.
_PATIENCE: Final = 1.0


def look(backend: Backend, found: IndexFile) -> IndexFile:
    """Add what the index says: its version, and of how many sessions it does not know the latest."""
    tables = backend.whole.tables()
    if tables is not None:
        return _look_at(tables)
    if not found.there:
        return found
    stamps = backend.stamps()
    try:
        with closing(_open(found)) as connection:
            return replace(found, **_look(connection, stamps))
    except (sqlite3.Error, UnicodeError, TypeError, ValueError) as error:
        return replace(found, reason=str(error))


def _look_at(tables: Tables) -> IndexFile:
    """Return the state of an index in a server's tables."""
    try:
        ((sessions, behind, texts),) = tables.trying(lambda: tables.run(_ASK_SERVER))
    finally:
        tables.close()
    if not sessions:
        return IndexFile()
    return IndexFile(there=True, version=VERSION, sessions=sessions, behind=behind, texts=texts)


_ASK_SERVER: Final = """
SELECT (SELECT count(*) FROM {schema}.index_session),
       (SELECT count(*) FROM (SELECT id FROM {schema}.index_pending
                              UNION SELECT id FROM {schema}.sessions WHERE marked AND id <> '') AS b),
       EXISTS (SELECT FROM {schema}.index_talk)"""


def _open(found: IndexFile) -> sqlite3.Connection:
    # SQLite reads what is not yet in the file itself only if its two files next to it are there, and would
    # create them. Without them no process has the database open, and it is complete.
    how = "mode=ro" if found.shared else "mode=ro&immutable=1"
    place = f"file:{quote(found.path)}?{how}"
    return sqlite3.connect(
        place, uri=True, timeout=_PATIENCE, isolation_level=None, factory=Connection
    )


def _look(connection: sqlite3.Connection, stamps: dict[str, str]) -> dict[str, object]:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION:
        return {"reason": "hansard did not create it; the next listing rebuilds it"}
    if version > VERSION:
        reason = "a newer hansard created it; this one does not use it"
    elif version != VERSION:
        reason = "an older hansard created it; the next listing rebuilds it"
    elif not has_our_tables(connection):
        reason = "it does not have the tables of an index; the next listing rebuilds it"
    else:
        known = dict(connection.execute("SELECT id, stamp FROM session"))
        behind = len({id for id, _ in known.items() ^ stamps.items()})
        texts = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'found'").fetchone()
        found = {"sessions": len(known), "behind": behind, "texts": texts is not None}
        return {"version": version, **found}
    return {"version": version, "reason": reason}
