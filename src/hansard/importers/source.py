"""The interface of an importer, and safe reading of files that other programs wrote.

An importer is a module with one function:

    def find(files: Files) -> Iterator[SourceEntry]:

It yields an entry for each file or directory to read below `files.root`, without reading it, so that a
progress bar knows the total. `SourceEntry.read` then yields the `ForeignSession`s in it, usually one.

**Report everything that cannot be read**: `files.report(where, what)`, where `where` is `files.name(path)`,
followed by `:line` if there is one. `read` raises `Unreadable` if it finds no session. Read each item `with
files.item(where):`, which reports what is wrong with one item and continues with the next. A file that
plainly is something else (a lock, a picture) is not a problem.

A session's `items` are its events, oldest first: `Item.message(…)`, `Item.usage(…)`, or any `Item` of
a kind that applications or importers may append. An item that refers to a point in the session gives the
number of items before that point (`at`); `session_writer` turns it into a seq. A fork is a session with all
that it inherits; its metadata name the other one as `forked_from`.

The same files give the same items, and a source that has grown gives the same items and more after them. So
items contain no current time, no random id and no value that changes as the conversation continues. Put
those, such as a count or a state, into `metadata` or `closing`.

Importers import no framework and write no file.
"""

import json
import os
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar

import msgspec

from hansard.errors import InvalidEvent
from hansard.event import codec
from hansard.importers.foreign_json import Unreadable, list_of, object_of, text_of

#: Maximum bytes of a file, also after decompression. A record of a log has at most 64 MiB.
LARGEST: Final = 1024 * 1024 * 1024
#: Maximum bytes of a line.
LONGEST: Final = 72 * 1024 * 1024
#: Maximum depth of directories.
_DEEPEST: Final = 100
_LINK: Final = "a symbolic link, which an import does not follow"
#: Maximum problems listed per source.
_PROBLEMS: Final = 10_000

#: The member of an event's data that holds the point `Item.at` refers to.
PLACES: Final = {
    "session.reverted": "seq",
    "session.snapshotted": "seq",
    "summary.added": "upto",
}

#: Kinds of importers' events that hold messages or the values of a graph: stored without redaction.
VERBATIM: Final = frozenset(
    {"x.claude.entry", "x.codex.line", "x.langgraph.checkpoint", "x.langgraph.writes"}
)

R = TypeVar("R")


#: What code raises when data does not have the expected shape.
MALFORMED: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
    sqlite3.Error,
)


def explain(error: BaseException) -> str:
    """Return why malformed data cannot be read or stored, for a report."""
    if isinstance(error, InvalidEvent):
        return str(error)
    if isinstance(error, RecursionError):
        return "nested too deep"
    if isinstance(error, MemoryError):
        return "not enough memory"
    return f"unexpected format ({type(error).__name__}: {error!s:.200})"


class Item(NamedTuple):
    """One event of a foreign session.

    Attributes:
        kind: such as `message.added` or `x.…`.
        data: a JSON object.
        time: as `parse_time` returns it; None if unknown: then that of the item before.
        at: for the kinds of `PLACES`: the number of items before the point that it refers to.
    """

    kind: str
    data: dict[str, Any]
    time: str | None = None
    at: int | None = None

    def moved(self, count: int) -> "Item":
        """Return it for a session that has more items before the point that it refers to."""
        return self if self.at is None else self._replace(at=self.at + count)

    @classmethod
    def message(cls, message: dict[str, Any], time: str | None = None) -> Self:
        """Return the item of a message."""
        return cls("message.added", {"message": message}, time)

    @classmethod
    def usage(
        cls,
        model: object,
        given: int,
        made: int,
        time: str | None,
        cost: object = None,
        **more: Any,
    ) -> Self:
        """Return the item of a model call with `given` input tokens and `made` output tokens."""
        data: dict[str, Any] = {"model": text_of(model) or "unknown"}
        data |= {"input_tokens": given, "output_tokens": made}
        if isinstance(cost, int | float) and not isinstance(cost, bool):
            data["cost"] = format(Decimal(str(cost)), "f")
        data |= {name: value for name, value in more.items() if value}
        return cls("usage.recorded", data, time)


class ForeignSession(msgspec.Struct):
    """A session as an importer found it.

    Attributes:
        id: its id in its own program, made unique within the source (`agent/…`).
        items: all its events.
        where: its file, as `Files.name` returns it, for the report.
        metadata: `title` and `workspace` mean what they mean in hansard; credentials are redacted later.
        created: as `parse_time` returns it; None: the time of the first item.
        archived: whether it is archived.
        closing: events that describe the source as it is now and may differ when it has grown: a summary that
            its program rewrites, snapshot names, the state of tasks. Appended after the new items of each
            import, and never compared.
    """

    id: str
    items: list[Item]
    where: str
    metadata: dict[str, Any] = {}
    created: str | None = None
    archived: bool = False
    closing: list[Item] = []


class SourceEntry(NamedTuple):
    """A file or directory to read."""

    where: str
    read: Callable[[], Iterable[ForeignSession]]


class Skipped(msgspec.Struct, frozen=True):
    """Something that was not imported, or not unchanged.

    Attributes:
        where: the file below the given path, followed by `:line` if there is one.
        what: what is wrong, and what to do about it.
    """

    where: str
    what: str


class Files:
    """The files of a source: read, never written. Links are not followed, so no path leads out of the root.

    Attributes:
        root: the given path: a directory or one file.
        problems: what was reported so far.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(os.path.abspath(root))  # not `resolve`, which would follow links
        self.problems: list[Skipped] = []
        self._noted: set[Skipped] = set()
        try:
            mode = os.lstat(self.root).st_mode
        except OSError as error:
            raise Unreadable(f"{self.root}: {error.strerror}") from None
        if stat.S_ISLNK(mode):
            raise Unreadable(
                f"{self.root}: a symbolic link; pass its target instead: {os.readlink(self.root)}"
            )
        self.is_directory = stat.S_ISDIR(mode)

    def name(self, path: Path, line: int | None = None) -> str:
        """Return the name of a file, or of one of its lines, for a report."""
        shown = path.name if path == self.root else os.path.relpath(path, self.root)
        return shown if line is None else f"{shown}:{line}"

    def stem(self, path: Path) -> str:
        """Return the path of a file below the root, without its suffix: a session's id."""
        name = path.relative_to(self.root) if self.is_directory else Path(path.name)
        return str(name.with_suffix(""))

    def entry(
        self, read: Callable[..., Iterable[ForeignSession]], path: Path, *more: Any
    ) -> SourceEntry:
        """Return the entry that calls `read(files, path, *more)`."""
        return SourceEntry(self.name(path), partial(read, self, path, *more))

    def report(self, where: str | Path, what: str) -> None:
        """Report something that is not imported, and why."""
        problem = Skipped(self.name(where) if isinstance(where, Path) else where, what)
        # A file that others continue is read again; its problems are reported once.
        if problem in self._noted or len(self._noted) > _PROBLEMS:
            return
        self._noted.add(problem)
        if len(self._noted) > _PROBLEMS:
            problem = Skipped(self.name(self.root), f"more than {_PROBLEMS:,} problems: not listed")
        self.problems.append(problem)

    @contextmanager
    def item(self, where: str | Path) -> Iterator[None]:
        """Report what is wrong with an item, so that its reader continues with the next."""
        try:
            yield
        except Unreadable as error:
            if str(error):
                self.report(where, str(error))
        except MALFORMED as error:
            self.report(where, f"cannot be read: {explain(error)}")

    def each(self, where: str, values: object, read: Callable[[Any], R]) -> list[R]:
        """Return what `read` makes of each item of a list, and report items that it cannot read."""
        found = []
        for number, value in enumerate(list_of(values)):
            with self.item(f"{where}[{number}]"):
                found.append(read(value))
        return found

    def walk(self, *endings: str) -> Iterator[Path]:
        """Yield the regular files whose names end in one of `endings`, sorted; report links."""
        for path, is_directory in self.tree():
            if not is_directory and path.name.endswith(endings):
                yield path

    def tree(self) -> Iterator[tuple[Path, bool]]:
        """Yield the root and everything below it, sorted, and whether each is a directory."""
        waiting = [(self.root, 0)]
        while waiting:
            path, depth = waiting.pop()
            is_directory = path.is_dir()
            if is_directory and depth > _DEEPEST:
                self.report(path, f"more than {_DEEPEST} directories deep: not read")
                continue
            yield path, is_directory
            if is_directory:
                waiting += [(child, depth + 1) for child in reversed(self.children(path))]

    def children(self, directory: Path) -> list[Path]:
        """Return the directories and regular files in a directory, sorted; report links."""
        try:
            with os.scandir(directory) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self.report(directory, f"cannot be listed: {error.strerror}")
            return []
        kept = []
        for entry in found:
            path = Path(entry.path)
            if entry.is_symlink():
                self.report(path, _LINK)
            elif entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False):
                kept.append(path)
        return kept

    def exists(self, path: Path) -> bool:
        """Return whether there is a file or directory; report a link, which counts as missing."""
        try:
            mode = os.lstat(path).st_mode
        except (OSError, ValueError):
            return False
        if stat.S_ISLNK(mode):
            self.report(path, _LINK)
            return False
        return True

    def read(self, path: Path, *, upto: int | None = None) -> bytes | None:
        """Return the content of a file, or its first `upto` bytes; report why not, and return None."""
        try:
            # A link may replace the file after the check, and opening a pipe would wait for a writer.
            flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
            with os.fdopen(os.open(path, flags | getattr(os, "O_BINARY", 0)), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    self.report(path, "not a regular file")
                    return None
                # Not `LARGEST`: Python would allocate that much.
                content = file.read(min(status.st_size, LARGEST) + 1 if upto is None else upto)
        except OSError as error:
            self.report(path, f"cannot be read: {error.strerror}")
            return None
        if len(content) > LARGEST:
            self.report(path, f"larger than {LARGEST:,} bytes: not read")
            return None
        return content

    def json(self, path: Path) -> Any:
        """Return the value of a JSON file, or raise `Unreadable`."""
        content = self.read(path)
        if content is None:
            raise Unreadable("")  # `read` has reported why
        return self.decode(content)

    def json_object(self, path: Path, what: str) -> dict[str, Any]:
        """Return a JSON file that must hold an object; `what` it is, for the report."""
        return object_of(self.json(path), what)

    @staticmethod
    def decode(content: bytes | str) -> Any:
        """Return the value of a JSON text, or raise `Unreadable`."""
        try:
            return json.loads(content, object_pairs_hook=codec.unique, parse_constant=_refuse)
        except RecursionError:
            raise Unreadable("JSON that is nested too deep") from None
        except UnicodeDecodeError as error:
            raise Unreadable(f"not UTF-8 text: byte {error.start}") from None
        except json.JSONDecodeError as error:
            where = f"line {error.lineno}, column {error.colno}"
            raise Unreadable(f"not JSON: {error.msg}: {where}") from None
        except ValueError as error:
            raise Unreadable(f"not JSON: {error}") from None

    def lines(
        self, path: Path, content: bytes | None = None
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield number and object of each line of a JSONL file; report other lines.

        `content`: what the file contains, if it was read and decompressed before.
        """
        content = self.read(path) or b"" if content is None else content
        for number, line in enumerate(content.split(b"\n"), start=1):
            if not line.strip():
                continue
            with self.item(self.name(path, number)):
                if len(line) > LONGEST:
                    raise Unreadable(f"a line of more than {LONGEST:,} bytes")
                yield number, object_of(self.decode(line), "an object")


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")
