"""A store with one hostile file, and all calls on it.

An attacker who can write to a store's directory, or have it cloned, can put anything there: a pipe, a
device, a link, a file of another store, a crafted database. Nothing outside the store may change, nothing
may hang or exhaust memory, and every answer is right or refused with a HansardError.
"""

import atexit
import contextlib
import functools
import io
import json
import os
import re
import resource
import shutil
import signal
import socket
import sqlite3
import stat
import struct
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import hansard
from hansard.cli.app import run as run_command
from tools.crash.specimen import opened, small

#: Limits of the process that makes the calls: seconds and bytes of memory.
SECONDS: Final = 50
MEMORY: Final = 3 * 2**30

#: Maximum bytes that a case may write; a store of this size needs far less.
DISK: Final = 64 * 2**20

_HUGE: Final = 2**40

#: The session that shares no file with others except those of the store.
APART: Final = "apart"

SESSIONS: Final = ("s", "child", "t", APART)

#: The message that is appended.
NEW: Final = {"n": "new"}

#: A session in the trash.
DELETED: Final = "deleted"

#: A session that is deleted and purged.
SPARE: Final = "spare"


def make(path: Path, salt: str) -> None:
    """Create a store with a file of each kind. `salt`: a text in its messages."""
    with small(), opened(path) as store:
        for name in (DELETED, SPARE):
            store.session(name).add_message({"role": "user", "content": salt})
        session = store.session("s")
        session.set_metadata(title=f"title {salt}")
        session.add_messages(
            [{"role": "user", "content": f"{salt} {n}"} for n in range(4)], key="k"
        )
        session.add_message({"role": "user", "content": f"{salt} " * 1_000})
        store.compact()
        session.add_messages([{"role": "user", "content": f"{salt} more {n}"} for n in range(3)])
        session.compact()
        session.add_message({"role": "user", "content": f"{salt} last"})
        session.fork("child", at=4).add_message({"role": "user", "content": f"{salt} child"})
        for name in ("t", APART):
            store.session(name).add_messages([{"role": "user", "content": f"{salt} {name}"}] * 3)
        store.search(salt)
        with store.follow(cursor="c") as follower:
            for _ in range(3):
                follower.take(10)
        store.delete(DELETED)


@functools.cache
def stores() -> tuple[Path, Path]:
    """Return the store of this process that is copied for each case, and a second store."""
    place = Path(tempfile.mkdtemp(prefix="hansard-hostile-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    make(place / "store", "refund")
    make(place / "other", "foreign")
    return place / "store", place / "other"


def files() -> list[str]:
    """Return a path of each kind of file and directory in the store; also what SQLite would add."""
    found: dict[str, str] = {}
    path = stores()[0]
    for each in sorted(path.rglob("*")):
        name = str(each.relative_to(path))
        if re.match(r"sessions/(?!s\b|child/log)|trash/[^/]*/(?!log)|index-", name):
            continue  # as in the session `s`; or the index, whose name differs in a copy
        found.setdefault(re.sub(r"[0-9a-f]{2,}", "0", name), name)
    return [*found.values(), *(f"index.db{end}" for end in ("", "-wal", "-shm", "-journal"))]


def _place(store: Path, name: str) -> Path:
    """Return the path of a file; `index.db` is the database that this copy of the store has created."""
    if not name.startswith("index.db"):
        return store / name
    with hansard.open(store) as opened_again:
        opened_again.search("refund")
    (found,) = store.glob("index-*.db")
    return found.with_name(found.name + name.removeprefix("index.db"))


def affected(name: str) -> set[str]:
    """Return the sessions that may be refused or missing when a file is replaced."""
    part, _, rest = name.partition("/")
    session = rest.partition("/")[0]
    match part:
        case "sessions" if session:
            return {"s": {"s", "child"}}.get(session, {session})
        case "internal" | "marks" | "trash":
            return set()
    return set() if part.startswith("index") else {*SESSIONS}


# -- replacements ---------------------------------------------------------


def _device(minor: int) -> Callable[[Path, Path], None]:
    return lambda path, _: os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, minor))


def _socket(path: Path, _: Path) -> None:
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)


def _huge(path: Path, _: Path) -> None:
    path.touch()
    os.truncate(path, _HUGE)


def _full_directory(path: Path, outside: Path) -> None:
    path.mkdir()
    shutil.copy(outside / "victim", path / "file")
    (path / "link").symlink_to(outside)


def _database(path: Path, _: Path) -> None:
    """Write a database whose tables are infinite views, and whose triggers raise errors."""
    with contextlib.closing(sqlite3.connect(path)) as made:
        names = ("sessions", "meta", "watch", "texts", "words", "documents", "state", "events")
        endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
        for name in names:
            made.execute(f"CREATE VIEW {name} AS {endless}")
        made.execute("CREATE TABLE t(x)")
        made.execute(f"CREATE TRIGGER r AFTER INSERT ON t BEGIN INSERT INTO t {endless}; END")
        made.execute("PRAGMA user_version = 1")
        made.commit()


def journal(victim: Path) -> bytes:
    """Return a rollback journal that names another file as its super-journal."""
    name = str(victim).encode()
    head = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + struct.pack(">IIIII", 0, 0, 1, 512, 1024)
    tail = struct.pack(">I", 1) + name + struct.pack(">II", len(name), sum(name))
    return head.ljust(512, b"\0") + tail + b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"


def _wal(path: Path, _: Path) -> None:
    """Write the head of a write-ahead log, and a frame that claims a database of eight terabytes."""
    head = struct.pack(">IIIIII", 0x377F0682, 3007000, 4096, 0, 1, 2)
    path.write_bytes(
        head + struct.pack(">II", 1, 2) + struct.pack(">II", 1, 2**31 - 1) + bytes(528)
    )


def _bomb(path: Path, _: Path) -> None:
    import zstandard

    frame = zstandard.ZstdCompressor().compress(bytes(64 * 2**20))
    path.write_bytes(frame * 1_000)


#: Replacements of a file: called with its path, when the file was removed, and the directory outside.
GUISES: Final[dict[str, Callable[[Path, Path], object]]] = {
    "a pipe": lambda path, _: os.mkfifo(path),
    "a socket": _socket,
    "a device without end": _device(5),
    "a full device": _device(7),
    "a device that swallows": _device(3),
    "a link to a file": lambda path, outside: path.symlink_to(outside / "victim"),
    "a link to nothing": lambda path, outside: path.symlink_to(outside / "missing"),
    "a link to a directory": lambda path, outside: path.symlink_to(outside / "folder"),
    "a link to a device": lambda path, _: path.symlink_to("/dev/zero"),
    "an empty directory": lambda path, _: path.mkdir(),
    "a full directory": _full_directory,
    "an empty file": lambda path, _: path.touch(),
    "noise": lambda path, _: path.write_bytes(bytes(range(256)) * 64),
    "deep JSON": lambda path, _: path.write_bytes(b"[" * 500_000 + b"\n"),
    "zeros without end": _huge,
    "a bomb": _bomb,
    "a crafted database": _database,
    "a crafted journal": lambda path, outside: path.write_bytes(journal(outside / "victim")),
    "a crafted write-ahead log": _wal,
}

#: Replacements created from the file's content, or from the same file of another store.
OTHERS: Final = "another store's"
LONGER: Final = "itself, and zeros without end"


def disguise(store: Path, name: str, guise: str, outside: Path) -> None:
    """Replace a file."""
    path = _place(store, name)
    if guise == LONGER:
        if path.is_file():
            os.truncate(path, _HUGE)
        return
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if guise != OTHERS:
        GUISES[guise](path, outside)
        return
    source = _place(stores()[1], name)
    if source.is_dir():
        shutil.copytree(source, path)
    elif source.is_file():
        shutil.copy(source, path)


def make_outside(directory: Path) -> None:
    """Create what must not change: a file, a directory with files, and a missing path."""
    (directory / "folder").mkdir(parents=True)
    for name in ("victim", "folder/victim", "folder/log.jsonl"):
        (directory / name).write_text("do not touch\n")


def contents(directory: Path) -> dict[str, tuple[str, bytes]]:
    """Return the type and content of every file below a directory."""
    return {
        str(path.relative_to(directory)): (
            stat.filemode(path.lstat().st_mode),
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(directory.rglob("*"))
    }


# -- calls ------------------------------------------------------------------------------


Question = Callable[[hansard.Store], object]


def _about(name: str, call: Callable[[hansard.Session], object]) -> Question:
    return lambda store: call(store.session(name))


def _said(session: hansard.Session) -> object:
    return [session.messages(), session.messages(last=1), session.metadata, session.seq]


def questions() -> Iterator[tuple[str, Question]]:
    """Yield reading calls of a store, by name. A name that ends in a session concerns only that session."""
    yield "ids", lambda store: [info.id for info in store.sessions().items]
    yield "damaged", lambda store: [i.id for i in store.sessions(damaged=True).items]
    yield "titles", lambda store: {i.id: i.title for i in store.sessions().items if not i.damaged}
    yield "hits", lambda store: sorted({hit.session for hit in store.search("refund OR foreign")})
    yield "stats", lambda store: store.stats().messages
    yield "count", lambda store: store.count()
    yield "latest", lambda store: getattr(store.latest(skip_damaged=True), "id", None)
    yield "trash", lambda store: store.trash()
    yield "cursors", lambda store: store.cursors()
    yield "audit", lambda store: [event.kind for event in store.audit()]
    for name in SESSIONS:
        yield f"said {name}", _about(name, _said)
        yield f"state {name}", _about(name, lambda session: session.state().message_count)
        yield f"events {name}", _about(name, lambda session: [e.seq for e in session.events()])
        yield f"forks {name}", _about(name, lambda session: session.children())
    # These report what they find. They only need to end, with an answer or a refusal.
    yield "(verify)", lambda store: store.verify()
    yield "(health)", lambda store: store.health()
    yield "(examine)", lambda store: store.diagnose()
    yield "(export)", _about("s", lambda session: [*session.export()])
    yield "(dump)", _about("s", lambda session: [*session.dump()])


def _follow(store: hansard.Store) -> None:
    with store.follow(cursor="c", on_damage=lambda *_: None) as follower:
        follower.take(0.05)


def changes(path: str) -> Iterator[tuple[str, Question]]:
    """Yield writing calls of a store, by name. Acknowledged events are read again with another handle."""
    yield "(follow)", _follow
    for name in ("s", APART):
        yield f"add {name}", _about(name, lambda session: session.add_message(NEW).seq)
        yield f"kept {name}", functools.partial(_again, path=path, name=name)
    yield "(fork)", _about(APART, lambda session: session.fork("new").add_message({}))
    yield "(compact)", lambda store: store.compact()
    yield "(redact)", _about("s", lambda session: session.redact(3))
    yield "(prune)", lambda store: store.prune(older_than=1, dry_run=True)
    yield "(copy)", _copy
    yield "(restore)", lambda store: store.restore(DELETED)
    yield "(delete)", lambda store: store.delete(SPARE)
    yield "(purge)", lambda store: store.purge(SPARE)


def _again(_: hansard.Store, path: str, name: str) -> object:
    with hansard.open(path, read_only=True) as store:
        return store.session(name).messages(last=1)


def _copy(store: hansard.Store) -> None:
    with hansard.open("memory:") as target:
        store.copy_to(target, ["s", APART])


#: Calls of the command. The last ones change the store.
COMMANDS: Final = (
    "ls",
    "ls --tree",
    "show s",
    "tree s",
    "search refund",
    "stats",
    "replay s",
    "tail child",
    "dump s",
    "diff s child",
    "verify",
    "doctor",
    "add s hello",
    "compact --all",
    "repair --all --yes",
)


def ask(store: str, progress: str) -> dict[str, Any]:
    """Make all calls in a process with limits; return the answers. For a nursery."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * DISK, 2 * DISK))
    found: dict[str, Any] = {}

    def answer(label: str, question: Callable[[], object]) -> None:
        Path(progress).write_text(label)
        try:
            said = question()
            found[label] = ["is", None if label.endswith(")") else json.loads(json.dumps(said))]
        except hansard.HansardError as error:
            found[label] = ["refused", f"{type(error).__name__}: {error}"]
        except BaseException:  # noqa: BLE001 - any other error is a finding
            found[label] = ["raised", traceback.format_exc(limit=-4)]

    ways: list[tuple[str, dict[str, Any], Iterator[tuple[str, Any]]]] = [
        ("read-only", {"read_only": True}, questions()),
        ("open", {}, questions()),
        ("change", {"lock_timeout": 1.0}, changes(store)),
    ]
    for way, options, asked in ways:
        handles: list[hansard.Store] = []
        how = {**options, "create": False, "durability": "os", "auto_compact": False}
        answer(f"{way}: (open)", functools.partial(_open, handles, store, how))
        for handle in handles:
            for label, question in asked:
                answer(f"{way}: {label}", functools.partial(question, handle))
            answer(f"{way}: (close)", handle.close)
    for words in COMMANDS:
        answer(f"command: {words}", functools.partial(_command, store, words))
    return found


def _open(handles: list[hansard.Store], store: str, how: dict[str, Any]) -> None:
    handles.append(hansard.open(store, **how))


def _command(store: str, words: str) -> list[object]:
    said = io.BytesIO()
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(said, "utf-8")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_command(["-s", store, *words.split()])
    errors = said.getvalue().decode()
    unexpected = "should not happen" in errors or "Traceback" in errors
    return [code, errors if unexpected or code not in {0, 1, 2} else ""]
