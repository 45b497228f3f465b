"""The file of an index: a SQLite database that may be deleted at any time.

Above: `catalogue`, `listing`, `search`, `stats`.  Below: `backend.contract`, sqlite3.
Three homes. A store that can be written has a file, which all its processes share (`backend.place`). A store
that can only be read, or whose file cannot be used, has a database of this process's own: SQLite keeps it in
memory, and in a temporary file without a name. A store in memory has one in memory.

Nothing in it is believed over the logs. A file that is damaged, of another version or of another store is
replaced by an empty one, and filled again.
"""

import contextlib
import sqlite3
import struct
import threading
import time
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, Self
from weakref import WeakSet
from zlib import crc32

from hansard.backend.contract import Place
from hansard.errors import HansardError
from hansard.index.words import TEXTS, Words

#: Grows when the tables, or what is written into them, change: an index of another version is made anew.
VERSION: Final = 1

#: Says that a database is an index of ours ("hans" in ASCII).
APPLICATION: Final = 0x68616E73

#: How long to wait for another process that is bringing the index up to date: a first time may take long.
_PATIENCE: Final = 60.0

#: An index of so many sessions is examined when it is opened: some milliseconds.
_EXAMINED: Final = 1_000

#: What SQLite may keep in memory, in KiB, whatever the size of the index.
_CACHE: Final = 16 * 1024

#: What statements may use, whatever is in the file: no other database, no trigger.
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

#: Under this key stands whether something was taken out since the file was last rid of what is left of it.
RESIDUE: Final = "residue"

_SCHEMA: Final = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID",
    # What a listing shows of each session, as JSON, in a table of its own: to list 10,000 takes a third of
    # the time that it takes where they stand among other columns.
    "CREATE TABLE entry (id TEXT PRIMARY KEY, info TEXT NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID",
    # One row per session, for filters and orders. `state` is what its events add up to, to go on from there.
    """CREATE TABLE session (
        n INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        stamp TEXT NOT NULL,
        seq INTEGER NOT NULL DEFAULT 0,
        created TEXT NOT NULL DEFAULT '',
        updated TEXT NOT NULL DEFAULT '',
        title TEXT NOT NULL DEFAULT '',
        folded TEXT NOT NULL DEFAULT '',
        messages INTEGER NOT NULL DEFAULT 0,
        bytes INTEGER NOT NULL DEFAULT 0,
        tokens INTEGER NOT NULL DEFAULT 0,
        cost REAL NOT NULL DEFAULT 0,
        parent TEXT,
        parent_created TEXT NOT NULL DEFAULT '',
        archived INTEGER NOT NULL DEFAULT 0,
        damaged INTEGER NOT NULL DEFAULT 0,
        workspace TEXT,
        workspace_id TEXT,
        unsettled INTEGER NOT NULL DEFAULT 0,
        state BLOB
    )""",
    "CREATE INDEX session_created ON session (created, id)",
    "CREATE INDEX session_updated ON session (updated, id)",
    "CREATE INDEX session_parent ON session (parent) WHERE parent IS NOT NULL",
    "CREATE INDEX session_again ON session (stamp) WHERE stamp = ''",
    # The metadata, one row for each of their members: the value as JSON.
    "CREATE TABLE label (n INTEGER, key TEXT, value TEXT, PRIMARY KEY (key, value, n)) WITHOUT ROWID",
    "CREATE INDEX label_session ON label (n)",
    # What `stats` has counted of a session, as JSON, and where the session stood then.
    """CREATE TABLE tally (
        n INTEGER PRIMARY KEY, seq INTEGER NOT NULL, bytes INTEGER NOT NULL, saved INTEGER NOT NULL,
        data TEXT NOT NULL
    )""",
    # Sessions that have changed since their texts were read: all of them, until somebody has searched.
    "CREATE TABLE unread (id TEXT PRIMARY KEY) WITHOUT ROWID",
    # The logs of which texts can be found: those of all sessions, and of deleted ones (`living` is 0) from
    # which others were forked. `first` is the seq before a log's own events, `seq` how far it was read (-1:
    # it is being taken out), `checked` the seq up to which its redactions were known when it was read,
    # `bound` the seq before which it hides what it inherits.
    """CREATE TABLE talk (
        t INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        created TEXT NOT NULL DEFAULT '',
        living INTEGER NOT NULL DEFAULT 0,
        first INTEGER NOT NULL DEFAULT 0,
        parent TEXT,
        at INTEGER NOT NULL DEFAULT 0,
        seq INTEGER NOT NULL DEFAULT 0,
        stamp TEXT NOT NULL DEFAULT '',
        checked INTEGER NOT NULL DEFAULT 0,
        bound INTEGER NOT NULL DEFAULT 0,
        title TEXT NOT NULL DEFAULT ''
    )""",
    "CREATE INDEX talk_parent ON talk (parent) WHERE parent IS NOT NULL",
    "CREATE INDEX talk_deleted ON talk (t) WHERE NOT living",
    # What can be found: messages, summaries, and at seq 0 the title. `alone`: forks do not inherit it. One at
    # or before the log's `first` is what a fork shows in the place of what it inherits. The text is in
    # `found`, a table of FTS5's, made when somebody searches (`indexing`).
    """CREATE TABLE doc (
        d INTEGER PRIMARY KEY, t INTEGER NOT NULL, seq INTEGER NOT NULL, alone INTEGER NOT NULL,
        time TEXT NOT NULL, role TEXT NOT NULL
    )""",
    "CREATE INDEX doc_place ON doc (t, seq)",
    # Messages that are being streamed: what was said of them so far.
    """CREATE TABLE partial (
        t INTEGER, stream TEXT, seq INTEGER, time TEXT, message BLOB, content TEXT, PRIMARY KEY (t, stream)
    ) WITHOUT ROWID""",
    # What a fork does not show of what it inherits.
    "CREATE TABLE hidden (t INTEGER, seq INTEGER, PRIMARY KEY (t, seq)) WITHOUT ROWID",
)


class Connection(sqlite3.Connection):
    """A connection that no thread is using at the moment in which the process is forked.

    SQLite has separate locks for the whole process: a child in which a thread that is not there holds one
    would wait for it at its next call.
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
    """Each call that reaches SQLite is made with the connection's gate."""

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

    No longer than `timeout`: a call may be waiting for another process.
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
    """Let all threads go on, after a fork."""
    global _opening  # noqa: PLW0603 - one for the process
    if in_child and _opening not in _held:
        _opening = threading.RLock()
    while _held:
        _held.pop().release()


class Unusable(Exception):
    """The file of an index cannot be used; whoever wanted it does without."""


class Database:
    """An open index. For one thread at a time: who uses it sees to that.

    Attributes:
        place: where its file is; None if the database is this process's own.
    """

    __slots__ = ("_connection", "_identity", "_memory", "place")

    #: Whether a server keeps it, together with the sessions: nothing changes these without its knowing.
    served = False

    def __init__(self, place: Place | None, *, memory: bool = False) -> None:
        self.place = place
        self._memory = memory
        self._identity: str | None = None
        self._connection = self._open()

    # -- opening --------------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        if self.place is None:
            return self._own()
        for attempt in range(2):
            connection = None
            try:
                path = self.place.prepare(_EMPTY)
                connection = self._connect(path)
                # SQLite has found the file by its path. If that led elsewhere meanwhile, it is seen now,
                # before anything is written.
                connection.execute("PRAGMA schema_version").fetchone()
                self._check_same(path)
                # Enough in WAL mode: after a power cut it is whole.
                connection.execute("PRAGMA synchronous = NORMAL")
                _prepare(connection)
                _examine(connection)
                self._identity = self.place.identity()
            # Others than the first, if SQLite does not notice, or cannot even say what is wrong with it.
            except (sqlite3.DatabaseError, UnicodeError, TypeError, AttributeError) as error:
                _close(connection)
                if attempt or is_refused(error):
                    raise Unusable(f"{self.place.path}: {error}") from error
                # A file that is none of ours, or damaged: it holds nothing that the logs do not.
                self._discard()
            except (OSError, HansardError, Unusable) as error:
                _close(connection)
                raise Unusable(f"{self.place.path}: {error}") from error
            else:
                return connection
        raise AssertionError  # the second attempt returns or raises

    def _check_same(self, path: str) -> None:
        assert self.place is not None  # there is a path
        if self.place.prepare(_EMPTY) != path:
            raise Unusable("another process has replaced it")

    def _own(self) -> sqlite3.Connection:
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
            # What is deleted here was taken out of a log, or deleted with it.
            connection.execute("PRAGMA secure_delete = ON")
            # Whatever the file defines runs nothing but what is harmless, and no part of it is mapped.
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
        assert self.place is not None  # only a file can be damaged
        try:
            self.place.discard()
        except (OSError, HansardError) as error:
            raise Unusable(f"{self.place.path}: {error}") from error

    @property
    def words(self) -> Words:
        """The texts."""
        return Words(self)

    def is_own(self) -> bool:
        """Say whether it is this process's own, so that nobody else has to do with it."""
        return self.place is None

    def check(self) -> None:
        """See to it that the file is the one that others find: somebody may have deleted it."""
        if not self.in_place():
            _close(self._connection)
            self._connection = self._open()

    def in_place(self) -> bool:
        """Say whether the file is the one that others find."""
        try:
            return self.place is None or self.place.identity() == self._identity
        except OSError:
            return False  # whether it can be used shows when it is opened anew

    def replace(self) -> None:
        """Begin anew with an empty file: this one is damaged."""
        _close(self._connection)
        if self.place is not None and self.in_place():
            self._discard()
        self._connection = self._open()

    def is_changing(self) -> bool:
        """Say whether it is in the middle of something."""
        return self._connection.in_transaction

    def close(self) -> None:
        """Close the connection."""
        _close(self._connection)

    def abandon(self) -> None:
        """Leave the connection as it is: it is that of the process from which this one was forked."""
        # To close it, and be it by the garbage collector, would undo what the parent is doing.
        _ABANDONED.append(self._connection)

    # -- using ----------------------------------------------------------------------------------

    def all(self, statement: str, *values: Any) -> list[Any]:
        """Return all rows of an answer."""
        return self._connection.execute(statement, values).fetchall()

    def one(self, statement: str, *values: Any) -> Any:
        """Return the first row of an answer; None if there is none."""
        return self._connection.execute(statement, values).fetchone()

    def do(self, statement: str, *values: Any) -> int:
        """Change something; return the number of a row that was added."""
        return self._connection.execute(statement, values).lastrowid or 0

    def do_all(self, statement: str, rows: Any) -> None:
        """Change something for each of many rows."""
        self._connection.executemany(statement, rows)

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Change several things, or none; the only one who does, of all processes."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            _roll_back(self._connection)
            raise

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Ask several things of one moment, whatever others change meanwhile."""
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            _roll_back(self._connection)

    def truncate(self) -> bool:
        """Write everything into the file itself, and leave nothing beside it; False if it cannot be."""
        row = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not row[0]

    def get(self, key: str, default: Any = None) -> Any:
        """Return something that is kept about the index itself."""
        row = self.one("SELECT value FROM meta WHERE key = ?", key)
        return default if row is None else row[0]

    def put(self, key: str, value: Any) -> None:
        """Keep something about the index itself."""
        self.do("INSERT OR REPLACE INTO meta VALUES (?, ?)", key, value)


#: Connections of a parent process, which must not be closed in its child.
_ABANDONED: Final[list[sqlite3.Connection]] = []


def _prepare(connection: sqlite3.Connection) -> None:
    """Make the tables, unless they are there."""
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
    """Raise if bytes of a small index have changed by themselves: SQLite keeps no checksums of them.

    A large one would take too long, each time that it is opened.
    """
    if connection.execute("SELECT count(*) FROM entry").fetchone()[0] > _EXAMINED:
        return
    for table in ("session", "entry"):
        found = connection.execute(f"PRAGMA integrity_check({table})").fetchone()[0]
        if found != "ok":
            raise sqlite3.DatabaseError(f"damaged: {found}")
    ids = {row[0] for row in connection.execute("SELECT id FROM session")}
    for session_id, info, crc in connection.execute("SELECT id, info, crc FROM entry"):
        if session_id not in ids or crc32(info.encode()) != crc:
            raise sqlite3.DatabaseError(f"damaged: what is said of {session_id!r}")
        ids.discard(session_id)
    if ids:
        raise sqlite3.DatabaseError("damaged: of some sessions nothing is said")


#: What SQLite says when the system, or another process, is in the way: another file would be no better.
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
    """Say whether an error is about what may be done now, and not about what is in the file."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _REFUSALS


def _check_empty(connection: sqlite3.Connection) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if application == APPLICATION and version > VERSION:
        # Who writes it would make it anew each time that we had replaced it, and so would we.
        raise Unusable(f"an index of version {version}, which this program does not know")
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise sqlite3.DatabaseError(f"not an index of version {VERSION}")


def _is_ours(connection: sqlite3.Connection) -> bool:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    return (application, version) == (APPLICATION, VERSION) and has_our_tables(connection)


def has_our_tables(connection: sqlite3.Connection) -> bool:
    """Say whether a database has the tables of an index, and nothing else.

    A view in the place of a table, or a trigger beside one, would be a program of somebody else's, which a
    question would run: for ever, if that is what it was written for.
    """
    least, most = _tables()
    return least <= set(connection.execute(_ASK_TABLES)) <= most


_ASK_TABLES: Final = "SELECT type, name, tbl_name, sql FROM sqlite_master"


@cache
def _tables() -> tuple[frozenset[Any], frozenset[Any]]:
    """Return what SQLite says of the tables of an index, without that of the texts and with it."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        for statement in _SCHEMA:
            connection.execute(statement)
        least = frozenset(connection.execute(_ASK_TABLES))
        with contextlib.suppress(sqlite3.OperationalError):  # a SQLite that has no FTS5
            connection.execute(TEXTS)
        return least, frozenset(connection.execute(_ASK_TABLES))


def _close(connection: sqlite3.Connection | None) -> None:
    if connection is not None:
        with contextlib.suppress(sqlite3.Error):
            connection.close()


def _roll_back(connection: sqlite3.Connection) -> None:
    with contextlib.suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")
