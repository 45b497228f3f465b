"""What an importer hands over, and how it reads files that others wrote.

Above: `bringing`, and one module for each foreign format.  Below: nothing of hansard.

An importer is a module with one function:

    def find(files: Files) -> Iterator[Found]:

which looks at what is below a path (`files.root`, a folder or a file), and yields a `Found` for each thing
that is to be read: cheaply, so that a progress bar knows how many there are. `Found.read` then yields the
`Foreign` sessions in it: usually one. What is a session in two places is yielded in one of them.

**Whatever cannot be read is reported and never passed over in silence**: `files.report(where, what)`, where
`where` is what `files.name(path)` returns, with `:line` behind it if there is one. A file that is plainly
something else (a lock, a picture) is no session and no problem. `read` may raise `Unreadable` for a session
of which nothing can be had. Items are read `with files.item(where):`, which reports what is wrong with one
and goes on with the next.

A session's `items` are its events in the order in which they happened: `said(message)` for a message, or any
kind of hansard's own: `("usage.recorded", {...})`, `("summary.added", {...}, at=n)`, `("x.claude-code.hook",
{...})`. Items that stand for a place in the session say it as the number of items before it (`at`), and
`bringing` makes a seq of it. **All items are given, the inherited ones of a fork too**: `fork=Fork(parent,
n)` says that the first `n` are the parent's, and if the parent's are really equal, they are stored once.

An importer must be a function of its source: the same files give the same items, and a source that has
grown gives the same items and more behind them. So no time of now, no random id, and nothing that changes
while the conversation goes on (a count, a state) among the items: that is `metadata`.

Importers import no framework, and write nothing.
"""

import json
import math
import os
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from hansard.event import codec

#: A file that is read whole must not be larger. A record of a log is at most 64 MiB.
LARGEST: Final = 1024 * 1024 * 1024
#: A line of a transcript must not be longer.
LONGEST: Final = 72 * 1024 * 1024
#: A source may be read so many times over, and a small one a little more: a fork is compared with its parent,
#: and one parent may have many. More than that is a source made to keep its reader busy.
AGAIN: Final = 64
SMALL: Final = 256 * 1024 * 1024
#: Folders are not looked into that are further down.
_DEEPEST: Final = 100
#: More problems of one source are not listed.
_PROBLEMS: Final = 10_000

#: Seconds until 5138, and milliseconds since 1973: a number above it is of milliseconds.
_MILLISECONDS: Final = 1e11
_MICROSECONDS: Final = 1e14
_NANOSECONDS: Final = 1e17

#: Which member of an event's data says the place that `Item.at` means.
PLACES: Final = {
    "message.redacted": "seq",
    "session.reverted": "seq",
    "session.snapshotted": "seq",
    "summary.added": "upto",
    "x.pydantic-ai.snapshot": "messages",
}

#: Events of importers' own in which stands what was said, or what a graph holds: kept word for word.
VERBATIM: Final = frozenset(
    {"x.claude.entry", "x.codex.line", "x.langgraph.checkpoint", "x.langgraph.writes"}
)


Made = TypeVar("Made")


class Unreadable(Exception):
    """Nothing can be had of a session, or of a file; the text says why, and is empty if that is reported."""


#: What code raises that takes data for something else than they are, in whatever way.
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


def explained(error: BaseException) -> str:
    """Return why something malformed cannot be read, for a report."""
    if isinstance(error, RecursionError):
        return "nested too deep"
    if isinstance(error, MemoryError):
        return "it takes more memory than there is"
    return f"it is not as its program writes it ({type(error).__name__}: {error!s:.200})"


class Item(NamedTuple):
    """What happened: an event on its way in.

    Attributes:
        kind: `message.added`, `x.…` or another kind of hansard's.
        data: a JSON object.
        time: when it happened, as `moment` returns it; None if nobody knows: then that of the item before.
        at: for a kind of `PLACES`: after how many items of this session the place is that it means; or
            several of these, for several places.
    """

    kind: str
    data: dict[str, Any]
    time: str | None = None
    at: int | tuple[int, ...] | None = None


def said(message: dict[str, Any], time: str | None = None) -> Item:
    """Return the item of a message."""
    return Item("message.added", {"message": message}, time)


class Fork(NamedTuple):
    """Where a session began: in another one of the same source, after so many of its items."""

    parent: str
    items: int


class Foreign(msgspec.Struct):
    """A session as an importer found it.

    Attributes:
        id: its id: what its own program calls it, made unique within the source (`agent/…`).
        items: what happened in it, all of it.
        where: the file, as `Files.name` returns it: for the report.
        metadata: what is known about it; `title` and `workspace` mean here what they mean in hansard.
            Credentials are taken out by `bringing`.
        created: when it began, as `moment` returns it; that of the first item if nobody knows.
        fork: what it was forked from.
        archived: whether it was put out of the way.
        closing: what holds at the end, as the source is now, and may be otherwise when it has grown: a
            summary that its program writes anew each time, labels, the state of its tasks. Written behind the
            items, and again behind those that come later; not compared.
    """

    id: str
    items: list[Item]
    where: str
    metadata: dict[str, Any] = {}
    created: str | None = None
    fork: Fork | None = None
    archived: bool = False
    closing: list[Item] = []


class Found(NamedTuple):
    """Something to read: where it is, and how."""

    where: str
    read: Callable[[], Iterable[Foreign]]


class Skipped(msgspec.Struct, frozen=True):
    """Something that was not imported: where it stands, and why.

    Attributes:
        where: the file below the path that was given, with `:line` if there is one.
        what: what is the matter, and what to do about it.
    """

    where: str
    what: str


class Files:
    """The files of a source. Reads them, follows no link, leaves its root never, and writes nothing.

    Attributes:
        root: the path that was given: a folder, or one file.
        problems: what was reported so far.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(os.path.abspath(root))  # not `resolve`, which would follow links
        self.problems: list[Skipped] = []
        self._noted: set[Skipped] = set()
        self._muted = False
        #: The files that were read, and how much may be read of them again.
        self._known: set[Path] = set()
        self._budget = SMALL
        #: The file that `once` was last asked for, and what was made of it.
        self._last: tuple[Path, Any] | None = None
        try:
            mode = os.lstat(self.root).st_mode
        except OSError as error:
            raise Unreadable(f"{self.root}: {error.strerror}") from None
        if stat.S_ISLNK(mode):
            raise Unreadable(
                f"{self.root}: a symbolic link; give the path that it leads to: {os.readlink(self.root)}"
            )
        self.is_folder = stat.S_ISDIR(mode)

    # -- telling --------------------------------------------------------------------------------

    def name(self, path: Path, line: int | None = None) -> str:
        """Return what a report calls a file, and perhaps a line of it."""
        shown = path.name if path == self.root else os.path.relpath(path, self.root)
        return shown if line is None else f"{shown}:{line}"

    def report(self, where: str | Path, what: str) -> None:
        """Say that something is not imported, and why."""
        self._note(Skipped(self.name(where) if isinstance(where, Path) else where, what))

    def _note(self, problem: Skipped) -> None:
        # What is read twice, such as a fork that waits for its parent, is reported once.
        if self._muted or problem in self._noted or len(self._noted) > _PROBLEMS:
            return
        self._noted.add(problem)
        if len(self._noted) > _PROBLEMS:
            problem = Skipped(self.name(self.root), f"more than {_PROBLEMS:,} problems: not listed")
        self.problems.append(problem)

    @contextmanager
    def item(self, where: str | Path) -> Iterator[None]:
        """Report whatever is wrong with an item, and let its reader go on with the next."""
        try:
            yield
        except Unreadable as error:
            if str(error):
                self.report(where, str(error))
        except MALFORMED as error:
            self.report(where, f"cannot be read: {explained(error)}")

    def once(self, path: Path, read: Callable[[], Made]) -> Made:
        """Return what `read` makes of a file that others refer to; its problems are reported elsewhere.

        It is kept until another file is asked for: many forks in a row have one parent.
        """
        if self._last is None or self._last[0] != path:
            muted, self._muted, self._last = self._muted, True, None
            try:
                self._last = (path, read())
            finally:
                self._muted = muted
        found: Made = self._last[1]
        return found

    # -- finding --------------------------------------------------------------------------------

    def walk(self, *endings: str) -> Iterator[Path]:
        """Yield the regular files below the root whose names end so, sorted; links are reported."""
        if not self.is_folder:
            if self.root.name.endswith(endings):
                yield self.root
            return
        for path, is_folder in self.everything():
            if not is_folder and path.name.endswith(endings):
                yield path

    def everything(self) -> Iterator[tuple[Path, bool]]:
        """Yield the root and what is below it, sorted, and whether each is a folder."""
        waiting = [(self.root, 0)]
        while waiting:
            path, depth = waiting.pop()
            is_folder = path.is_dir()
            if is_folder and depth > _DEEPEST:
                self.report(path, f"more than {_DEEPEST} folders deep: not read")
                continue
            yield path, is_folder
            if is_folder:
                waiting += [(child, depth + 1) for child in reversed(self.children(path))]

    def children(self, folder: Path) -> list[Path]:
        """Return the folders and regular files in a folder, sorted; links in it are reported."""
        if not self._is_inside(folder):
            return []
        try:
            with os.scandir(folder) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self.report(folder, f"cannot be listed: {error.strerror}")
            return []
        kept = []
        for entry in found:
            path = Path(entry.path)
            if entry.is_symlink():
                self._report_link(path)
            elif entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False):
                kept.append(path)
        return kept

    def below(self, folder: Path, given: str) -> Path | None:
        """Return the path that a foreign file names; None, and a report, if it leads out of the root.

        Many write absolute paths, of another machine or of where the folder was before it was copied: who
        knows where the file should be looks there first.
        """
        path = Path(os.path.normpath(folder / given))
        base = self.root if self.is_folder else self.root.parent
        if "\0" in given or not path.is_relative_to(base):
            self.report(
                folder, f"names {given!r:.200}, which is outside of what is imported: not read"
            )
            return None
        return path

    def exists(self, path: Path) -> bool:
        """Say whether there is a file or folder, itself and no link; a link is reported."""
        try:
            mode = os.lstat(path).st_mode
        except (OSError, ValueError):
            return False
        if stat.S_ISLNK(mode):
            self._report_link(path)
            return False
        return True

    def _report_link(self, path: Path) -> None:
        self.report(path, "a symbolic link, which an import does not follow")

    def _is_inside(self, path: Path) -> bool:
        """Say whether a path is below the root, with no link on the way; reports why not."""
        if path == self.root:
            return True
        base = self.root if self.is_folder else self.root.parent
        if not path.is_relative_to(base):
            self.report(path, "outside of what is imported: not read")
            return False
        at = base
        for part in path.relative_to(base).parts:
            at /= part
            try:
                linked = stat.S_ISLNK(os.lstat(at).st_mode)
            except OSError as error:
                self.report(path, f"cannot be read: {error.strerror}")
                return False
            if linked:
                self._report_link(at)
                return False
        return True

    # -- reading --------------------------------------------------------------------------------

    def read(self, path: Path, *, upto: int | None = None) -> bytes | None:
        """Return what is in a file, or its first bytes; None, and a report, if it cannot be read."""
        if not self._is_inside(path):
            return None
        try:
            # Between the look and the opening, a link may have taken the file's place; and opening a pipe
            # would wait for its other end.
            flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
            with os.fdopen(os.open(path, flags | getattr(os, "O_BINARY", 0)), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    self.report(path, "no regular file")
                    return None
                # Not `LARGEST`: that much memory would be taken at once.
                content = file.read(min(status.st_size, LARGEST) + 1 if upto is None else upto)
        except OSError as error:
            self.report(path, f"cannot be read: {error.strerror}")
            return None
        if len(content) > LARGEST:
            self.report(path, f"larger than {LARGEST:,} bytes: not read")
            return None
        if path not in self._known:
            self._known.add(path)
            self._budget += AGAIN * len(content)
        elif self._budget < len(content):
            self.report(path, "too many other files refer to it: not read again")
            return None
        else:
            self._budget -= len(content)
        return content

    def json(self, path: Path) -> Any:
        """Return what a JSON file says, or raise `Unreadable`. A null is a value like another."""
        content = self.read(path)
        if content is None:
            raise Unreadable("")  # which is reported already, with the reason
        return decoded(content)

    def lines(self, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield number and object of each line of a JSONL file; lines that are no objects are reported."""
        content = self.read(path)
        if content is None:
            return
        yield from self.objects(path, content)

    def objects(self, path: Path, content: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
        """Do as `lines` does with what was read from a file, or came out of a compressed one."""
        for number, line in enumerate(content.split(b"\n"), start=1):
            if not line.strip():
                continue
            try:
                value = _object(line)
            except Unreadable as error:
                self.report(self.name(path, number), str(error))
                continue
            yield number, value

    def modified(self, path: Path) -> str:
        """Return when a file was last written to, as `moment` does: a time for what has none."""
        return moment(os.lstat(path).st_mtime) or "1970-01-01T00:00:00.000000Z"


# -- values -------------------------------------------------------------------------------------


def decoded(content: bytes | str) -> Any:
    """Return what JSON says, or raise `Unreadable`."""
    try:
        return json.loads(content, object_pairs_hook=codec.unique, parse_constant=_refuse_constant)
    except RecursionError:
        raise Unreadable("JSON that is nested too deep") from None
    except UnicodeDecodeError as error:
        raise Unreadable(f"no UTF-8 text: byte {error.start}") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise Unreadable(f"no JSON: {error.msg}: {where}") from None
    except ValueError as error:
        raise Unreadable(f"no JSON: {error}") from None


def _object(line: bytes) -> dict[str, Any]:
    if len(line) > LONGEST:
        raise Unreadable(f"a line of more than {LONGEST:,} bytes")
    value = decoded(line)
    if not isinstance(value, dict):
        raise Unreadable(f"a JSON {named(value)} where an object should be")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number that JSON can hold")


def moment(value: object) -> str | None:
    """Return a time as hansard writes it, of ISO 8601 text or of a number of seconds, ms, µs or ns.

    None for what is no time. Text without a time zone is taken as UTC.
    """
    try:
        if isinstance(value, str):
            text = value.strip()
            if text.replace(".", "", 1).isdigit():
                return moment(float(text))
            when = datetime.fromisoformat(text)
            when = when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            if not math.isfinite(value) or value <= 0:
                return None
            for more, divisor in ((_NANOSECONDS, 1e9), (_MICROSECONDS, 1e6), (_MILLISECONDS, 1e3)):
                if value >= more:
                    value /= divisor
                    break
            when = datetime.fromtimestamp(value, UTC)
        else:
            return None
    except (ValueError, OverflowError, OSError):
        return None
    # Not by `strftime`, which writes the year 24 with two digits on some systems.
    return f"{when.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def text_of(value: object) -> str | None:
    """Return a text that is not empty; None for whatever else."""
    return value if isinstance(value, str) and value else None


def named(value: object) -> str:
    """Return what a JSON value is, for a report."""
    return {dict: "object", list: "array", str: "text", bool: "boolean"}.get(
        type(value), "null" if value is None else "number"
    )
