"""Store an index in SQLite: a file that may be deleted at any time.

A writable store has a file that all its processes share (`backend.local.index_file`). A store that is
read-only, or whose file cannot be used, has a private database: in memory, and in a temporary file without a
name. A store in memory has one in memory.

The logs decide, never the index. A file that is damaged, of another version or of another store is replaced
by an empty one, and filled again. All statements are valid in SQLite and in PostgreSQL; `?` marks a value.
"""

import contextlib
import sqlite3
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, Self
from weakref import WeakSet
from zlib import crc32

import msgspec

from hansard.backend.contract import IndexFile
from hansard.errors import BackendUnavailable, HansardError
from hansard.message.search_text import CLOSE, OPEN

#: Grows when the tables, or what is written into them, change: an index of another version is rebuilt.
VERSION: Final = 2

#: Marks a database as an index of hansard ("hans" in ASCII).
APPLICATION: Final = 0x68616E73

#: Seconds to wait for another process that refreshes the index: the first time may take long.
_PATIENCE: Final = 60.0

#: An index of up to this many sessions is checked when it is opened: some milliseconds.
_EXAMINED: Final = 1_000

#: SQLite's cache, in KiB.
_CACHE: Final = 16 * 1024

#: Limits for statements, whatever is in the file: no other database, no trigger.
_LIMITS: Final = (
    (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
    (sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 0),
    (sqlite3.SQLITE_LIMIT_LENGTH, 1 << 28),
)

#: Options of a connection, where Python can set them: since 3.12.
_OPTIONS: Final = tuple(
    (getattr(sqlite3, f"SQLITE_DBCONFIG_{name}"), value)
    for name, value in (
        ("DEFENSIVE", True),
        ("ENABLE_TRIGGER", False),
        ("ENABLE_VIEW", False),
        ("ENABLE_LOAD_EXTENSION", False),
    )
    if hasattr(sqlite3, f"SQLITE_DBCONFIG_{name}")
)

#: A database without a table, in WAL mode: SQLite would create it with a rollback journal (F-156). The fields
#: are those of SQLite's file format: the header, then the empty root page of the schema.
_EMPTY: Final = (
    (b"SQLite format 3\0" + struct.pack(">H6B", 4096, 2, 2, 0, 64, 32, 32)).ljust(100, b"\0")
    + struct.pack(">B3HB", 13, 0, 0, 4096, 0)
).ljust(4096, b"\0")

#: The key under which it is noted that something was removed since the index was last erased.
RESIDUE: Final = "residue"

_SCHEMA: Final = (
    "CREATE TABLE index_meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    # A line of a listing, as JSON, in a separate table: to list 10,000 takes a third of the time that it
    # takes with the other columns in between.
    """CREATE TABLE index_entry (
        id TEXT PRIMARY KEY, info TEXT NOT NULL, crc INTEGER NOT NULL
    ) WITHOUT ROWID""",
    # One row per session, for filters and orders. `state` is the state to continue from.
    """CREATE TABLE index_session (
        n INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        stamp TEXT NOT NULL,
        seq INTEGER NOT NULL,
        created TEXT NOT NULL,
        updated TEXT NOT NULL,
        title TEXT NOT NULL,
        folded TEXT NOT NULL,
        messages INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        tokens INTEGER NOT NULL,
        cost REAL NOT NULL,
        parent TEXT,
        parent_created TEXT NOT NULL,
        archived INTEGER NOT NULL,
        damaged INTEGER NOT NULL,
        workspace TEXT,
        workspace_id TEXT NOT NULL,
        unsettled INTEGER NOT NULL,
        state BLOB
    )""",
    "CREATE INDEX index_session_created ON index_session (created, id)",
    "CREATE INDEX index_session_updated ON index_session (updated, id)",
    "CREATE INDEX index_session_parent ON index_session (parent) WHERE parent IS NOT NULL",
    "CREATE INDEX index_session_again ON index_session (stamp) WHERE stamp = ''",
    # The metadata, a row per member, with its value as JSON.
    """CREATE TABLE index_label (
        n INTEGER, key TEXT, value TEXT, PRIMARY KEY (key, value, n)
    ) WITHOUT ROWID""",
    "CREATE INDEX index_label_session ON index_label (n)",
    # What `stats` has counted of a session, as JSON, and the position up to which it has.
    """CREATE TABLE index_tally (
        n INTEGER PRIMARY KEY, seq INTEGER NOT NULL, bytes INTEGER NOT NULL, saved INTEGER NOT NULL,
        data TEXT NOT NULL
    )""",
    # Sessions that have changed since their texts were read.
    "CREATE TABLE index_unread (id TEXT PRIMARY KEY) WITHOUT ROWID",
    # The logs whose texts can be found; `living` is false for sessions in the trash (`text_index.TextLog`).
    """CREATE TABLE index_log (
        log INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        created TEXT NOT NULL,
        living INTEGER NOT NULL,
        first INTEGER NOT NULL,
        parent TEXT,
        at INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        stamp TEXT NOT NULL,
        checked INTEGER NOT NULL,
        title TEXT NOT NULL
    )""",
    "CREATE INDEX index_log_parent ON index_log (parent) WHERE parent IS NOT NULL",
    "CREATE INDEX index_log_deleted ON index_log (log) WHERE NOT living",
    # Messages, summaries, and the title at seq 0. Forks do not inherit the title, nor an unfinished `stream`.
    # A text at or before the log's `first` replaces what a fork inherits. The text itself is in
    # `index_words`, a table of FTS5 that the first search creates.
    """CREATE TABLE index_text (
        text INTEGER PRIMARY KEY, log INTEGER NOT NULL, seq INTEGER NOT NULL, stream TEXT NOT NULL,
        time TEXT NOT NULL, role TEXT NOT NULL
    )""",
    "CREATE INDEX index_text_place ON index_text (log, seq)",
)

#: The table of texts: words of any script, ignoring case and accents (`search_text.split` does the rest).
WORDS: Final = (
    "CREATE VIRTUAL TABLE index_words USING fts5(body, tokenize = 'unicode61 remove_diacritics 2')"
)

#: What FTS5 gathers in memory before it writes a part of its index: with 1 MiB it mostly merges parts.
_GATHERED: Final = 8 << 20

#: Words of the text in a snippet.
SNIPPET: Final = 24

#: The time of a text; of a title, the session's last activity.
SAID: Final = (
    "CASE d.seq WHEN 0 THEN (SELECT s.updated FROM index_session s WHERE s.id = k.id) "
    "ELSE d.time END"
)


class Row(NamedTuple):
    """A text that matches."""

    text: int
    log: int
    seq: int
    time: str
    role: str


# -- connections --------------------------------------------------------------------------------


class Connection(sqlite3.Connection):
    """A connection that no thread is using at the moment in which the process is forked.

    SQLite has locks for the whole process: a child in which a missing thread holds one would wait forever.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self.gate = threading.RLock()
        with _opening:
            super().__init__(*args, **options)
            _connections.add(self)

    def execute(self, *args: Any) -> "_Cursor":
        """Execute a statement, through the gate."""
        return self.cursor(_Cursor).execute(*args)

    def executemany(self, *args: Any) -> "_Cursor":
        """Execute a statement for each of many rows, through the gate."""
        return self.cursor(_Cursor).executemany(*args)

    def close(self) -> None:
        """Close it."""
        with self.gate:
            super().close()


class _Cursor(sqlite3.Cursor):
    """Makes each call that reaches SQLite through the connection's gate."""

    connection: Connection

    def execute(self, *args: Any) -> Self:
        with self.connection.gate:
            return super().execute(*args)

    def executemany(self, *args: Any) -> Self:
        with self.connection.gate:
            return super().executemany(*args)

    def fetchone(self) -> Any:
        with self.connection.gate:
            return super().fetchone()

    def fetchall(self) -> list[Any]:
        with self.connection.gate:
            return super().fetchall()

    def __next__(self) -> Any:
        with self.connection.gate:
            return super().__next__()


_connections: Final["WeakSet[Connection]"] = WeakSet()

#: Held while a connection is opened.
_opening = threading.RLock()

#: What `hold_all` holds.
_held: Final[list[Any]] = []


def hold_all(timeout: float) -> None:
    """Wait until no thread is in a call of SQLite, and keep it so until `release_all`.

    No longer than `timeout` seconds: a call may be waiting for another process.
    """
    deadline = time.monotonic() + timeout
    # The first keeps the number of connections as it is.
    if not _hold(_opening, deadline):
        return
    for connection in list(_connections):
        _hold(connection.gate, deadline)


def _hold(lock: Any, deadline: float) -> bool:
    if lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
        _held.append(lock)
        return True
    return False


def release_all(*, in_child: bool = False) -> None:
    """Let all threads continue, after a fork."""
    global _opening  # noqa: PLW0603 - one for the process
    if in_child and _opening not in _held:
        _opening = threading.RLock()
    while _held:
        _held.pop().release()


# -- the file -----------------------------------------------------------------------------------


class Unusable(Exception):
    """The shared index cannot be used; the caller uses a private one."""


class Storage:
    """The tables of an index. For one thread at a time: the caller ensures that.

    Attributes:
        file: where they are; None if the database is private, or a server's.
        private: they are this process's own.
        full_text: the texts.
    """

    #: Whether a server keeps them together with the sessions, so that nothing else changes these.
    served = False

    full_text: "FullText"

    def __init__(self, file: IndexFile | None, *, memory: bool = False) -> None:
        self.file = file
        self.private = file is None
        self._memory = memory
        self._identity: str | None = None
        self._connection = self._open()
        self.full_text = FullText(self)

    def _open(self) -> sqlite3.Connection:
        if self.file is None:
            return self._open_private()
        for attempt in range(2):
            connection = None
            try:
                path = self.file.prepare(_EMPTY)
                connection = self._connect(path)
                # SQLite has found the file by its path. If the path led elsewhere by then, this shows it
                # before anything is written.
                connection.execute("PRAGMA schema_version").fetchone()
                self._check_same(path)
                # Enough in WAL mode: after a power cut the database is valid.
                connection.execute("PRAGMA synchronous = NORMAL")
                _prepare(connection)
                _examine(connection)
                self._identity = self.file.identity()
            # The others if SQLite does not notice, or cannot even say what is wrong with it.
            except (sqlite3.DatabaseError, UnicodeError, TypeError, AttributeError) as error:
                _close(connection)
                if attempt or is_refused(error):
                    raise Unusable(f"{self.file.path}: {error}") from error
                # Not an index of this version, or damaged: it holds nothing that the logs do not.
                self._discard()
            except (OSError, HansardError, Unusable) as error:
                _close(connection)
                raise Unusable(f"{self.file.path}: {error}") from error
            else:
                return connection
        raise AssertionError  # the second attempt returns or raises

    def _check_same(self, path: str) -> None:
        assert self.file is not None  # there is a path
        if self.file.prepare(_EMPTY) != path:
            raise Unusable("another process has replaced it")

    def _open_private(self) -> sqlite3.Connection:
        connection = self._connect(":memory:" if self._memory else "")
        connection.execute("PRAGMA synchronous = OFF")
        _prepare(connection)
        return connection

    @staticmethod
    def _connect(path: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            path,
            timeout=_PATIENCE,
            isolation_level=None,
            check_same_thread=False,
            factory=Connection,
        )
        try:
            connection.execute(f"PRAGMA cache_size = -{_CACHE}")
            # What is deleted here was redacted in a log, or deleted with it.
            connection.execute("PRAGMA secure_delete = ON")
            # Definitions in the file run nothing but what is harmless, and no part of it is mapped.
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.execute("PRAGMA mmap_size = 0")
            for limit, most in _LIMITS:
                connection.setlimit(limit, most)
            for option, value in _OPTIONS:
                with contextlib.suppress(sqlite3.OperationalError):  # an older SQLite
                    connection.setconfig(option, value)  # type: ignore[attr-defined] # from 3.12 on
        except BaseException:
            _close(connection)
            raise
        return connection

    def _discard(self) -> None:
        assert self.file is not None  # only a file can be damaged
        try:
            self.file.discard()
        except (OSError, HansardError) as error:
            raise Unusable(f"{self.file.path}: {error}") from error

    def check(self) -> None:
        """Open the file again if it is not the one that other processes find: a user may have deleted it."""
        if not self.in_place():
            _close(self._connection)
            self._connection = self._open()

    def in_place(self) -> bool:
        """Return whether the file is the one that other processes find."""
        try:
            return self.file is None or self.file.identity() == self._identity
        except OSError:
            return False  # whether it can be used shows when it is opened again

    def replace(self) -> None:
        """Start again with empty tables."""
        _close(self._connection)
        if self.file is not None and self.in_place():
            self._discard()
        self._connection = self._open()

    def close(self) -> None:
        """Close the connection."""
        _close(self._connection)

    def abandon(self) -> None:
        """Keep the connection as it is: it is that of the process from which this one was forked."""
        # To close it, even by garbage collection, would undo what the parent is doing.
        _ABANDONED.append(self._connection)

    # -- statements -----------------------------------------------------------------------------

    def all(self, statement: str, *values: Any) -> list[Any]:
        """Return all rows of an answer."""
        return self._connection.execute(statement, values).fetchall()

    def one(self, statement: str, *values: Any) -> Any:
        """Return the first row of an answer; None if there is none."""
        return self._connection.execute(statement, values).fetchone()

    def do(self, statement: str, *values: Any) -> None:
        """Change something."""
        self._connection.execute(statement, values)

    def do_all(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Change something for each of many rows."""
        self._connection.executemany(statement, rows)

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Change several things or none; no other process changes anything concurrently."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            _roll_back(self._connection)
            raise

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Ask several things of one moment."""
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            _roll_back(self._connection)

    def is_changing(self) -> bool:
        """Return whether a transaction is open."""
        return self._connection.in_transaction

    def truncate(self) -> bool:
        """Write everything into the file itself, and empty the write-ahead log."""
        row = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not row[0]

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value that is stored about the index itself."""
        row = self.one("SELECT value FROM index_meta WHERE key = ?", key)
        return default if row is None else msgspec.json.decode(row[0])

    def put(self, key: str, value: Any) -> None:
        """Store a value about the index itself."""
        self.do(
            "INSERT INTO index_meta (key, value) VALUES (?, ?) "
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            key,
            msgspec.json.encode(value).decode(),
        )


#: Connections of a parent process, which must not be closed in its child.
_ABANDONED: Final[list[sqlite3.Connection]] = []


def _prepare(connection: sqlite3.Connection) -> None:
    """Create the tables, unless they exist."""
    if _is_ours(connection):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have been faster.
        if not _is_ours(connection):
            _check_empty(connection)
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        _roll_back(connection)
        raise


def _examine(connection: sqlite3.Connection) -> None:
    """Raise if bytes of a small index were altered: SQLite keeps no checksums of them.

    A large one would take too long each time that it is opened.
    """
    if connection.execute("SELECT count(*) FROM index_entry").fetchone()[0] > _EXAMINED:
        return
    for table in ("index_session", "index_entry"):
        found = connection.execute(f"PRAGMA integrity_check({table})").fetchone()[0]
        if found != "ok":
            raise sqlite3.DatabaseError(f"damaged: {found}")
    ids = {row[0] for row in connection.execute("SELECT id FROM index_session")}
    for session_id, info, crc in connection.execute("SELECT id, info, crc FROM index_entry"):
        if session_id not in ids or crc32(info.encode()) != crc:
            raise sqlite3.DatabaseError(f"damaged: the entry of {session_id!r}")
        ids.discard(session_id)
    if ids:
        raise sqlite3.DatabaseError("damaged: some sessions have no entry")


#: Errors of the system, or of another process in the way: another file would not be better.
_REFUSALS: Final = frozenset(
    {
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_NOLFS,
        sqlite3.SQLITE_AUTH,
    }
)


def is_refused(error: Exception) -> bool:
    """Return whether an error is about what may be done now, and not about what is in the file."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _REFUSALS


def _check_empty(connection: sqlite3.Connection) -> None:
    application, version = identify(connection)
    if application == APPLICATION and version > VERSION:
        # The program that writes it would replace ours each time, and we would replace its file.
        raise Unusable(f"an index of version {version}, which this program does not know")
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise sqlite3.DatabaseError(f"not an index of version {VERSION}")


def _is_ours(connection: sqlite3.Connection) -> bool:
    return identify(connection) == (APPLICATION, VERSION) and has_our_tables(connection)


def identify(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the application and the version of a database."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    return application, connection.execute("PRAGMA user_version").fetchone()[0]


def has_our_tables(connection: sqlite3.Connection) -> bool:
    """Return whether a database has the tables of an index, and nothing else.

    A view in place of a table, or a trigger next to one, would be a program that a question would run.
    """
    least, most = _tables()
    return least <= set(connection.execute(_ASK_TABLES)) <= most


_ASK_TABLES: Final = "SELECT type, name, tbl_name, sql FROM sqlite_master"


@cache
def _tables() -> tuple[frozenset[Any], frozenset[Any]]:
    """Return how SQLite describes the tables of an index, without the table of texts and with it."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        for statement in _SCHEMA:
            connection.execute(statement)
        least = frozenset(connection.execute(_ASK_TABLES))
        with contextlib.suppress(sqlite3.OperationalError):  # a SQLite without FTS5
            connection.execute(WORDS)
        return least, frozenset(connection.execute(_ASK_TABLES))


def _close(connection: sqlite3.Connection | None) -> None:
    if connection is not None:
        with contextlib.suppress(sqlite3.Error):
            connection.close()


def _roll_back(connection: sqlite3.Connection) -> None:
    with contextlib.suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")


# -- texts --------------------------------------------------------------------------------------


class FullText:
    """The texts of an index, in a table of FTS5, and which of them match."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def exists(self) -> bool:
        """Return whether there are texts."""
        ask = "SELECT 1 FROM sqlite_master WHERE name = 'index_words'"
        return self._storage.one(ask) is not None

    def prepare(self) -> None:
        """Create the table of texts, unless it exists."""
        if self.exists():
            return
        with self._storage.changing():
            if self.exists():
                return
            try:
                self._storage.do(WORDS)
            except sqlite3.OperationalError as error:
                if "no such module" not in str(error):
                    raise
                raise without_fts5() from error
            self._storage.do(
                "INSERT INTO index_words (index_words, rank) VALUES ('hashsize', ?)", _GATHERED
            )

    def add(self, rows: Sequence[tuple[int, str]]) -> None:
        """Add texts, by their numbers."""
        self._storage.do_all("INSERT INTO index_words (rowid, body) VALUES (?,?)", rows)

    def remove(self, texts: Sequence[int]) -> None:
        """Remove texts."""
        self._storage.do_all("DELETE FROM index_words WHERE rowid = ?", [(one,) for one in texts])

    def drop(self) -> None:
        """Remove all texts."""
        self._storage.do("DROP TABLE index_words")

    def rows(
        self,
        expression: str,
        conditions: str,
        values: Sequence[Any],
        shown: Sequence[tuple[int, int]],
        limit: int,
    ) -> list[Row]:
        """Return the texts that match, the newest first.

        `conditions`: on `k` (`index_log`), `d` (`index_text`), `w` (see `shown`) and `{said}`, with their
        values. `shown`: logs that others show, each up to a seq.
        """
        storage = self._storage
        storage.do("CREATE TEMP TABLE IF NOT EXISTS shown (log INTEGER PRIMARY KEY, upto INTEGER)")
        storage.do("DELETE FROM shown")
        storage.do_all("INSERT INTO shown VALUES (?,?)", shown)
        rows = storage.all(
            f"SELECT d.text, d.log, d.seq, {SAID} AS said, d.role "  # noqa: S608 - values are apart
            "FROM index_words JOIN index_text d ON d.text = index_words.rowid "
            "JOIN index_log k ON k.log = d.log LEFT JOIN shown w ON w.log = d.log "
            f"WHERE index_words MATCH ? AND {conditions.format(said=SAID)} "
            "ORDER BY said DESC, k.id, d.seq LIMIT ?",
            expression,
            *values,
            limit,
        )
        return [Row(*row) for row in rows]

    def matches(self, expression: str, text: int) -> bool:
        """Return whether a text matches."""
        return self._ask("1", expression, text) is not None

    def marked(self, expression: str, text: int) -> str:
        """Return a text with marks around each word that was found."""
        return str(self._ask("highlight(index_words, 0, ?, ?)", expression, text, OPEN, CLOSE))

    def snippet(self, expression: str, text: int) -> str:
        """Return the words around what was found in a text, with marks."""
        what = "snippet(index_words, 0, ?, ?, '…', ?)"
        return str(self._ask(what, expression, text, OPEN, CLOSE, SNIPPET))

    def _ask(self, what: str, expression: str, text: int, *values: Any) -> Any:
        row = self._storage.one(
            f"SELECT {what} FROM index_words WHERE index_words MATCH ? AND rowid = ?",  # noqa: S608 - our own words
            *values,
            expression,
            text,
        )
        return None if row is None else row[0]


def without_fts5() -> BackendUnavailable:
    """Return the error for a Python whose SQLite cannot search."""
    return BackendUnavailable(
        f"SQLite {sqlite3.sqlite_version} was built without FTS5, which searching needs; use a "
        "Python whose SQLite has it"
    )
