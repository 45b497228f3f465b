"""What the tests of importers look at: whether a source was left alone, and what was brought of it."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hansard
from hansard import importers


@contextmanager
def untouched(folder: Path) -> Iterator[None]:
    """Assert that all that is below a folder is the same afterwards: names, bytes, modes and times."""
    before = _state(folder)
    assert before
    yield
    assert _state(folder) == before


def _state(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted([folder, *folder.rglob("*")]):
        status = os.lstat(path)
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else None
        found[str(path)] = (content, status.st_mode, status.st_mtime_ns, status.st_ino)
    return found


def bring(kind: str, path: Path, **options: Any) -> tuple[hansard.Store, importers.Report]:
    """Import a source into a new store, and see that it is left alone."""
    store = hansard.open("memory:")
    with untouched(path.parent):
        return store, importers.bring(store, kind, path, **options)


def problems(report: importers.Report) -> list[str]:
    """Return the places of what was reported."""
    return [problem.where for problem in report.skipped]


def write_lines(path: Path, lines: list[Any]) -> Path:
    """Write a JSONL file; a line that is a text is written as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    told = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(f"{line}\n" for line in told))
    return path


def texts(messages: list[dict[str, Any]]) -> list[str]:
    """Return what is said in messages, as texts."""
    from hansard.adapters import common

    return [common.plain(message)["content"] for message in messages]
