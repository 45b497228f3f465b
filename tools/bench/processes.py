"""Measure the cost of a new process: an append, a read, and the command.

A hook, a worker of a job queue and the command are new processes each time. What they use of the processor is
compared, not the time that they take: a busy machine doubles the second, and hardly changes the first. Each
figure is the least of several rounds, in which all programs take turns. hansard's programs run as if only its
dependencies were installed.
"""

import os
import sqlite3
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

import hansard
from tools.bench.result import Result, claim_of
from tools.bench.workload import messages

ROUNDS: Final = 15
LONG: Final = 20_000
SESSIONS: Final = 100

_NOTHING: Final = ("-c", "pass")

#: As if only hansard and its dependencies were installed: msgspec imports this and `inspect` if it can.
_ALONE: Final = "import sys; sys.modules['typing_extensions'] = None\n"
#: As the installed script does.
_COMMAND: Final = f"{_ALONE}from hansard.cli.__main__ import main; sys.exit(main())"

_APPEND: Final = f"""{_ALONE}
import hansard
hansard.open(sys.argv[1]).session("s").add_message({{"role": "user", "content": "hello"}})
"""
_READ: Final = f"""{_ALONE}
import hansard
assert len(hansard.open(sys.argv[1]).session("long").messages(last=50)) == 50
"""
_APPEND_SQLITE: Final = """
import json, sqlite3, sys
database = sqlite3.connect(sys.argv[1])
database.execute("pragma synchronous = full")
database.execute(
    "insert into message (session, body) values ('s', ?)",
    [json.dumps({"role": "user", "content": "hello"})],
)
database.commit()
"""
_READ_SQLITE: Final = """
import json, sqlite3, sys
database = sqlite3.connect(sys.argv[1])
query = "select body from message where session = 'long' order by seq desc limit 50"
assert len([json.loads(body) for (body,) in database.execute(query)]) == 50
"""


def new_process_append(directory: Path) -> Result:
    """A new process that appends one message, and one with `sqlite3`; less Python's own start."""
    ours, theirs = prepare(directory)
    return _over_sqlite(new_process_append, (_APPEND, ours), (_APPEND_SQLITE, theirs))


def new_process_read(directory: Path) -> Result:
    """A new process that reads the last 50 of 20,000, and one with `sqlite3`; less Python's own start."""
    ours, theirs = prepare(directory)
    return _over_sqlite(new_process_read, (_READ, ours), (_READ_SQLITE, theirs))


def append_over_sqlite(ours: str, theirs: str, rounds: int) -> float:
    """Return the processor time of a new process that appends one message, over that of `sqlite3`."""
    nothing, one, other = least(
        [_NOTHING, ("-c", _APPEND, ours), ("-c", _APPEND_SQLITE, theirs)], rounds
    )
    return (one - nothing) / (other - nothing)


def command_version(directory: Path) -> Result:
    """`hansard --version`, and `python -c pass`."""
    del directory
    return _over_nothing(command_version, ["--version"], 3.0)


def command_ls(directory: Path) -> Result:
    """`hansard ls` of 100 sessions, and `python -c pass`."""
    return _over_nothing(command_ls, ["-s", _sessions(directory), "ls"], 8.0)


def command_show(directory: Path) -> Result:
    """`hansard show` of a session of 10 messages, and `python -c pass`."""
    return _over_nothing(command_show, ["-s", _sessions(directory), "show", "s1"], 8.0)


def prepare(directory: Path) -> tuple[str, str]:
    """Write the same messages into a store and into SQLite, and return the paths."""
    said = messages(1_000)
    store, database = directory / "processes", directory / "processes.db"
    with hansard.open(store, durability="os", auto_compact=False) as made:
        for _ in range(0, LONG, len(said)):
            made.session("long").add_messages(said)
    rows = [("long", msgspec.json.encode(message).decode()) for message in said]
    connection = sqlite3.connect(database)
    connection.execute("pragma journal_mode = wal")
    connection.execute("create table message (seq integer primary key, session text, body text)")
    connection.execute("create index by_session on message (session, seq)")
    for _ in range(0, LONG, len(said)):
        connection.executemany("insert into message (session, body) values (?, ?)", rows)
    connection.commit()
    connection.close()
    return str(store), str(database)


def least(programs: Sequence[Sequence[str]], rounds: int) -> list[float]:
    """Return the least processor time of each program of Python, in milliseconds."""
    for program in programs:
        _spent(program)  # compiles the modules
    turns = [[_spent(program) for program in programs] for _ in range(rounds)]
    return [min(column) for column in zip(*turns, strict=True)]


def _spent(arguments: Sequence[str]) -> float:
    # With compiled files, as in installed packages, even if they are turned off.
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    child = os.posix_spawn(
        sys.executable, [sys.executable, *arguments], environment, file_actions=quiet
    )
    _, status, used = os.wait4(child, 0)
    if status:
        raise RuntimeError(f"{' '.join(arguments)} failed")
    return (used.ru_utime + used.ru_stime) * 1000


def _over_sqlite(
    measurement: Callable[[Path], Result], ours: tuple[str, str], theirs: tuple[str, str]
) -> Result:
    programs = [_NOTHING, ("-c", *ours), ("-c", *theirs), ("-c", f"{_ALONE}import msgspec")]
    nothing, one, other, decoder = (time for time in least(programs, ROUNDS))
    note = (
        f"`import msgspec` alone is {(decoder - nothing) / (other - nothing):.2f} times what "
        f"`sqlite3` uses; `python -c pass` uses {nothing:.1f} ms"
    )
    return Result(
        measurement.__name__,
        claim_of(measurement),
        f"{one - nothing:.1f} ms",
        f"{other - nothing:.1f} ms",
        (one - nothing) / (other - nothing),
        2.0,
        note=note,
    )


def _over_nothing(
    measurement: Callable[[Path], Result], arguments: Sequence[str], target: float
) -> Result:
    ours, nothing = least([("-c", _COMMAND, *arguments), _NOTHING], ROUNDS)
    return Result(
        measurement.__name__,
        claim_of(measurement),
        f"{ours:.1f} ms",
        f"{nothing:.1f} ms",
        ours / nothing,
        target,
    )


def _sessions(directory: Path) -> str:
    with hansard.open(directory / "store", durability="os") as store:
        for place in range(SESSIONS):
            store.session(f"s{place}").add_messages(messages(10))
        store.sessions()
    return str(directory / "store")


ALL: list[Callable[[Path], Result]] = [
    new_process_append,
    new_process_read,
    command_version,
    command_ls,
    command_show,
]
