"""An index that a database server keeps: the tables of `database`, on the server that has the sessions.

Above: `finder`.  Below: `backend.contract.Tables`, `server_words`.
What `catalogue`, `listing`, `stats` and `search` ask is said once, as SQLite takes it, in a few shapes; here
it is put into the words of PostgreSQL. So both kinds of index are filled and asked by the same code, and
give the same answers. There is nothing to open, to replace or to examine: the server sees to its tables.
"""

import contextlib
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

import msgspec

from hansard.backend.contract import Tables
from hansard.errors import LockTimeout, ReadOnly
from hansard.index.database import Database, Unusable
from hansard.index.server_words import ServerWords
from hansard.index.words import Words

#: The tables, in an order in which they can be emptied.
TABLES: Final = (
    "entry", "session", "label", "tally", "unread", "talk", "doc", "found", "partial", "hidden",
    "meta",
)  # fmt: skip

#: Of the tables in which a row takes another's place: what they have in common, and what is then set.
_REPLACED: Final = {
    "entry": ("md5(id)", ("info", "crc")),
    "tally": ("n", ("seq", "bytes", "saved", "data")),
}

_TABLE: Final = re.compile(rf"\b(FROM|JOIN|INTO|UPDATE) ({'|'.join(TABLES)})\b")

#: So many texts, and so many characters with their words, are written together.
_TOGETHER: Final = 200
_MOST: Final = 1 << 20
#: How `documents` adds a row of `doc`, and what asks for rows that may not be written yet.
_DOC: Final = "INSERT INTO doc VALUES (?,?,?,?,?,?)"
_OF_TEXTS: Final = re.compile(r"\b(doc|found)\b")
_DOCS: Final = """
INSERT INTO {schema}.index_doc (d, t, seq, alone, time, role)
SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::boolean[], %s::varchar[], %s::varchar[])"""
_FOUND: Final = """
INSERT INTO {schema}.index_found (d, body, words)
SELECT n.d, n.body, n.words::tsvector
FROM unnest(%s::bigint[], %s::varchar[], %s::varchar[]) AS n (d, body, words)"""

#: No text of PostgreSQL's has a NUL in it. What stands for it is as good to sort and to find by.
_NUL: Final = ("\0", "\x01")

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode


@lru_cache(maxsize=1024)
def translate(text: str) -> str:
    """Return a statement for SQLite as PostgreSQL takes it."""
    end = ""
    if text.startswith("INSERT OR IGNORE"):
        end = " ON CONFLICT DO NOTHING"
    elif text.startswith("INSERT OR REPLACE INTO "):
        common, columns = _REPLACED[text.split()[4]]
        sets = ", ".join(f"{column} = excluded.{column}" for column in columns)
        end = f" ON CONFLICT ({common}) DO UPDATE SET {sets}"
    text = re.sub(r"^INSERT OR \w+", "INSERT", text)
    text = _TABLE.sub(r"\1 {schema}.index_\2", text)
    text = text.replace("instr(", "strpos(").replace(" IS ?", " IS NOT DISTINCT FROM ?")
    # Less than none is no limit; and of a long id, how it begins is in an index.
    text = text.replace("LIMIT ?", "LIMIT nullif(?::bigint, -1)")
    text = re.sub(r"ORDER BY s\.id( DESC)?", r"ORDER BY left(s.id, 255)\1, s.id\1", text)
    return text.replace("?", "%s") + end


def fitting(value: object) -> object:
    """Return a value as PostgreSQL can keep it."""
    return value.replace(*_NUL) if isinstance(value, str) and "\0" in value else value


class ServerDatabase(Database):
    """The index that a server keeps. For one thread at a time: who uses it sees to that."""

    __slots__ = ("_docs", "_last", "_room", "_tables", "_texts")

    served = True

    def __init__(self, tables: Tables) -> None:
        self.place = None
        self._tables = tables
        #: The last number of a session, while this one changes the tables; 0 if it is not known.
        self._last = 0
        self._forget_waiting()

    def _forget_waiting(self) -> None:
        #: Rows of `doc` and of `found` that are yet to be written, and how many characters more may be.
        self._docs: list[tuple[Any, ...]] = []
        self._texts: list[tuple[int, str, str]] = []
        self._room = _MOST

    @property
    def words(self) -> Words:
        return ServerWords(self, self._tables)

    def is_own(self) -> bool:
        return False

    def check(self) -> None:
        pass

    def in_place(self) -> bool:
        return True

    def replace(self) -> None:
        """Begin anew with empty tables."""
        with self.changing():
            for table in TABLES:
                self.do(f"DELETE FROM {table}")  # noqa: S608 - our own names
        self.truncate()

    def is_changing(self) -> bool:
        return self._tables.changing()

    def close(self) -> None:
        self._tables.close()

    def abandon(self) -> None:
        pass  # the connection knows whose it is

    def all(self, statement: str, *values: Any) -> list[Any]:
        self._before(statement)
        return self._tables.run(translate(statement), [fitting(value) for value in values])

    def one(self, statement: str, *values: Any) -> Any:
        rows = self.all(statement, *values)
        return rows[0] if rows else None

    def do(self, statement: str, *values: Any) -> int:
        if statement.startswith("INSERT OR REPLACE INTO partial "):
            # A stream's name may be too long to be unique.
            self.do("DELETE FROM partial WHERE t = ? AND stream = ?", *values[:2])
            return self.do(statement.replace("OR REPLACE ", ""), *values)
        if statement == _DOC and self.is_changing():
            self._docs.append(values)
            return 0
        self._before(statement)
        given = [fitting(value) for value in values]
        n = 0
        if statement.startswith("INSERT INTO session ("):
            # With its number, so that nobody waits to be told it.
            n = self._number()
            statement = statement.replace("(", "(n, ", 1).replace("VALUES (", "VALUES (?, ")
            given.insert(0, n)
        self._tables.run(translate(statement), given, rows=False)
        return n

    def _number(self) -> int:
        """Return the next number of a session, as SQLite would: nobody else adds one meanwhile."""
        if not self._last:
            (self._last,) = self.one("SELECT coalesce(max(n), 0) FROM session")
        self._last += 1
        return self._last

    # -- texts ----------------------------------------------------------------------------------

    def add_text(self, d: int, text: str, vector: str) -> None:
        """Add a text, of which the row of `doc` comes before; it is written with others."""
        self._texts.append((d, text, vector))
        self._room -= len(text) + len(vector)
        if self._room <= 0 or len(self._docs) >= _TOGETHER or not self.is_changing():
            self.write_waiting()

    def write_waiting(self) -> None:
        """Write the texts that wait: many in one statement, which takes half of the time of one for each."""
        docs, found = self._docs, self._texts
        self._forget_waiting()
        if docs:
            d, t, seq, alone, time, role = zip(*docs, strict=True)
            values = [
                list(d),
                list(t),
                list(seq),
                list(alone),
                list(time),
                list(map(fitting, role)),
            ]
            self._tables.run(_DOCS, values, rows=False)
        if found:
            numbers, bodies, vectors = zip(*found, strict=True)
            values = [list(numbers), list(map(fitting, bodies)), list(vectors)]
            self._tables.run(_FOUND, values, rows=False)

    def _before(self, statement: str) -> None:
        if self._docs and _OF_TEXTS.search(statement):
            self.write_waiting()

    def do_all(self, statement: str, rows: Any) -> None:
        self._before(statement)
        text = translate(statement)
        self._tables.run_all(text, [[fitting(value) for value in row] for row in rows])

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        if self._tables.read_only:
            raise Unusable("the store was opened read-only")
        self._last = 0
        try:
            with self._tables.change():
                yield
                self.write_waiting()
        except (ReadOnly, LockTimeout) as error:
            # A standby, a role that may only read, or another who has been at it for a minute.
            raise Unusable(str(error)) from error
        finally:
            self._forget_waiting()

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        with self._tables.look():
            yield

    def truncate(self) -> bool:
        """Write the tables again, without what was removed from them; False if this role may not."""
        return self._tables.rewrite(*(f"index_{table}" for table in TABLES))

    def get(self, key: str, default: Any = None) -> Any:
        row = self.one("SELECT value FROM meta WHERE key = ?", key)
        return default if row is None else decode(row[0])

    def put(self, key: str, value: Any) -> None:
        self._tables.run(
            "INSERT INTO {schema}.index_meta VALUES (%s, %s) "
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            [key, encode(value).decode()],
            rows=False,
        )
