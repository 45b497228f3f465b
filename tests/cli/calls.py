"""A call of each command that does what the command is for, on the store of `samples.agent`."""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import hansard
from hansard.cli.app import COMMANDS
from tests.cli import samples


class Example(NamedTuple):
    """A call: its arguments after the name of the command."""

    words: tuple[str, ...]
    #: It names a session that must be there: the place of it among the words.
    id_at: int | None = 0
    #: It changes the store.
    writes: bool = False
    #: It makes a store that is not there.
    makes: bool = False
    #: With --json it prints one value per line.
    lines: bool = False
    #: What it exits with where nothing is wrong.
    code: int = 0


#: EXPORTED is a file next to the store, TARGET a path that is free.
EXAMPLES: dict[str, Example] = {
    "ls": Example((), id_at=None, lines=True),
    "tree": Example(("agent/1",), lines=True),
    "search": Example(("refund",), id_at=None, lines=True),
    "stats": Example((), id_at=None),
    "replay": Example(("agent/1",), lines=True),
    "show": Example(("agent/1",)),
    "tail": Example(("agent/1",), lines=True),
    "diff": Example(("agent/1", "agent/1-b"), code=1),
    "dump": Example(("agent/1",), lines=True),
    "add": Example(("agent/1", "hello"), id_at=None, writes=True, makes=True),
    "fork": Example(("agent/1", "agent/1-c"), writes=True),
    "snapshot": Example(("agent/1", "here"), writes=True),
    "revert": Example(("agent/1", "3"), writes=True),
    "redact": Example(("agent/1", "3", "--yes"), writes=True),
    "hold": Example(("agent/1", "--reason", "case 7"), writes=True),
    "rm": Example(("agent/1-b",), writes=True),
    "restore": Example(("deleted",), writes=True),
    "prune": Example(("--older-than", "0.001s"), id_at=None, writes=True),
    "compact": Example(("agent/1",), writes=True),
    "verify": Example(("agent/1",)),
    "repair": Example(("agent/1", "--yes"), writes=True),
    "doctor": Example((), id_at=None),
    "export": Example(("agent/1",), lines=True),
    "import": Example(("EXPORTED",), id_at=None, writes=True, makes=True),
    "copy": Example(("STORE", "TARGET"), id_at=None),
    "serve": Example((), id_at=None),
    "mcp": Example(("--all",), id_at=None),
    "demo": Example(("TARGET",), id_at=None, makes=True),
}


def fill(path: Path) -> Path:
    """Create the store that the calls use, and the other files they need; return the store."""
    store = path / "store"
    samples.agent(store)
    with hansard.open(store, durability="os") as opened:
        opened.session("deleted").add_message({"role": "user", "content": "bye"})
        opened.delete("deleted")
    with hansard.open(path / "other", durability="os") as opened:
        opened.session("new").add_message({"role": "user", "content": "new"})
        (path / "exported").write_bytes(b"".join(opened.session("new").export()))
    return store


def words(name: str, path: Path, store: Path | None = None) -> list[str]:
    """Return the words of a command's call, with the store named where it belongs."""
    place = str(store or path / "store")
    paths = {"EXPORTED": path / "exported", "TARGET": path / "target", "STORE": place}
    own = [str(paths.get(word, word)) for word in EXAMPLES[name].words]
    # These two name their stores themselves.
    return [name, *own] if name in {"copy", "demo"} else ["-s", place, name, *own]


def each(tmp_path: Path, *without: str) -> list[tuple[str, Path]]:
    """Return the commands, each with the directory of its store; a writing command has a separate one.

    `serve` runs until an interrupt: `tests/viewer` calls it.
    """
    first = tmp_path / "first"
    fill(first)
    found = []
    for name in COMMANDS:
        if name in {*without, "serve"}:
            continue
        if EXAMPLES[name].writes:
            shutil.copytree(first, tmp_path / name)
        found.append((name, tmp_path / name if EXAMPLES[name].writes else first))
    return found


def directories(requested: list[tuple[str, Path]]) -> set[Path]:
    """Return the directories of some commands, once each."""
    return {path for _, path in requested}


def call(name: str, path: Path, *more: str, **how: Any) -> dict[str, Any]:
    """Return a command's call, as `batch` takes it."""
    return {"words": [*words(name, path), *more], **how}
