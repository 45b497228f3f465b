"""Look at the file of an index without bringing it up to date: for whoever asks how a store is.

Above: `store`.  Below: `database`, `backend.contract`, sqlite3.
The file is opened to be read only, so that a look leaves no trace, be it only a file of SQLite's beside it.
"""

import sqlite3
from contextlib import closing
from typing import Final
from urllib.parse import quote

from hansard.backend.condition import Condition, IndexFile
from hansard.backend.contract import Backend, Tables
from hansard.index.database import APPLICATION, VERSION, Connection, has_our_tables

#: Who holds the file for longer is asked another time.
_PATIENCE: Final = 1.0


def look(backend: Backend, condition: Condition) -> IndexFile:
    """Say what there is of an index, and of how many sessions it does not know the latest."""
    tables = backend.whole.tables()
    if tables is not None:
        return _look_at(tables)
    if not condition.index_path:
        return IndexFile()
    there = IndexFile(there=True, bytes=condition.index_bytes)
    stamps = backend.stamps()
    try:
        with closing(_open(condition)) as connection:
            return _look(connection, there, stamps)
    except (sqlite3.Error, UnicodeError, TypeError, ValueError) as error:
        return _with(there, reason=str(error))


def _look_at(tables: Tables) -> IndexFile:
    """Say the same of an index that a server keeps."""
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


def _open(condition: Condition) -> sqlite3.Connection:
    # What others have written and not yet brought into the file itself can be read only if the two files
    # beside it are there; SQLite would make them. Without them nobody has it open, and it is whole.
    how = "mode=ro" if condition.index_shared else "mode=ro&immutable=1"
    place = f"file:{quote(condition.index_path)}?{how}"
    return sqlite3.connect(
        place, uri=True, timeout=_PATIENCE, isolation_level=None, factory=Connection
    )


def _look(connection: sqlite3.Connection, there: IndexFile, stamps: dict[str, str]) -> IndexFile:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION:
        return _with(there, reason="not an index of hansard's; the next listing makes it anew")
    if version > VERSION:
        return _with(
            there, version=version, reason="a newer hansard made it; this one does without"
        )
    if version != VERSION:
        return _with(there, version=version, reason="an older hansard made it; it is made anew")
    if not has_our_tables(connection):
        return _with(there, version=version, reason="not the tables of an index; it is made anew")
    known = dict(connection.execute("SELECT id, stamp FROM session"))
    texts = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'found'").fetchone()
    return _with(
        there,
        version=version,
        sessions=len(known),
        behind=len({*known} ^ {*stamps})
        + sum(stamp != stamps[found] for found, stamp in known.items() if found in stamps),
        texts=texts is not None,
    )


def _with(there: IndexFile, **found: object) -> IndexFile:
    import msgspec

    return msgspec.structs.replace(there, **found)
