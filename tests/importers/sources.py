"""Helpers of the importers' tests: write foreign files, import them, and check that they stay unchanged."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hansard
from hansard import importers
from hansard.message import origin
from tests.unit.disk_probe import tree

FIXTURES = Path(__file__).parent / "fixtures"

#: Not a real key, and no scanner takes it for one.
KEY = "sk-proj-" + "A1b2C3d4E5f6G7h8" * 3


@contextmanager
def untouched(directory: Path) -> Iterator[None]:
    """Assert that everything below a directory is unchanged afterwards."""
    before = tree(directory)
    yield
    assert tree(directory) == before


def import_new(kind: str, path: Path, **options: Any) -> tuple[hansard.Store, importers.Report]:
    """Import a source into a new store, and check that the source is unchanged."""
    store = hansard.open("memory:")
    with untouched(path.parent):
        return store, importers.import_sessions(store, kind, path, **options)


def outcomes(report: importers.Report) -> dict[str, tuple[str, int]]:
    """Return the outcome of each session, and how many of its items were new."""
    return {one.session: (one.outcome, one.new) for one in report.sessions}


def problems(report: importers.Report) -> list[str]:
    """Return the places in the report."""
    return [problem.where for problem in report.skipped]


def write(path: Path, value: object) -> Path:
    """Write a JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def write_lines(path: Path, *values: object) -> Path:
    """Write a JSONL file; a string is written as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [value if isinstance(value, str) else json.dumps(value) for value in values]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def chat(*texts: str) -> list[dict[str, Any]]:
    """Return messages of a user and an assistant, alternating."""
    return [
        {"role": ("user", "assistant")[number % 2], "content": text}
        for number, text in enumerate(texts)
    ]


def session_file(root: Path, name: str, *texts: str, **more: Any) -> Path:
    """Write a workspace session file."""
    return write(root / f"{name}.json", {"messages": chat(*texts), **more})


def texts(store: hansard.Store, session_id: str, view: Any = "history") -> list[str]:
    """Return the texts of a session's messages."""
    messages = store.session(session_id).messages(view=view)
    return [origin.chat(message)[-1]["content"] for message in messages]


def entry(id: str, parent: str | None, **more: Any) -> dict[str, Any]:
    """Return a line of an OpenClaw transcript."""
    time = "2026-01-02T03:04:05.678Z"
    return {"type": "message", "id": id, "parentId": parent, "timestamp": time, **more}


def said(id: str, parent: str | None, text: str, role: str = "user") -> dict[str, Any]:
    """Return a line of an OpenClaw transcript with a message."""
    return entry(id, parent, message={"role": role, "content": [{"type": "text", "text": text}]})


def header(id: str, **more: Any) -> dict[str, Any]:
    """Return the first line of an OpenClaw transcript."""
    first = {"type": "session", "version": 3, "id": id, "timestamp": "2026-01-02T03:04:05.000Z"}
    return {**first, "cwd": "/home/claw", **more}
