"""What the importers' tests share: foreign files, written to the formats' documents, and looking at trees."""

import json
import os
from pathlib import Path
from typing import Any

import hansard

FIXTURES = Path(__file__).parent / "fixtures"

#: Whose form no scanner takes for a real one.
KEY = "sk-proj-" + "A1b2C3d4E5f6G7h8" * 3


def contents(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return all that is below a path: mode, time of change and bytes of each file, links as links."""
    found = {}
    for path in [root, *sorted(root.rglob("*"))]:
        status = os.lstat(path)
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path.relative_to(root))] = (status.st_mode, status.st_mtime_ns, content)
    return found


def write(path: Path, value: object) -> Path:
    """Write JSON to a file, and make the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def lines(path: Path, *values: object) -> Path:
    """Write lines of JSON to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def chat(*texts: str) -> list[dict[str, Any]]:
    """Return messages: by turns, of a user and of an assistant."""
    return [
        {"role": ("user", "assistant")[number % 2], "content": text}
        for number, text in enumerate(texts)
    ]


def session_file(folder: Path, name: str, *texts: str, **more: Any) -> Path:
    """Write a workspace session file."""
    return write(folder / f"{name}.json", {"messages": chat(*texts), **more})


def texts(store: hansard.Store, session_id: str, view: Any = "history") -> list[str]:
    """Return what was said in a session."""
    return [message["content"] for message in store.session(session_id).messages(view=view)]


def entry(id: str, parent: str | None, **more: Any) -> dict[str, Any]:
    """Return a line of an OpenClaw transcript."""
    return {
        "type": "message",
        "id": id,
        "parentId": parent,
        "timestamp": "2026-01-02T03:04:05.678Z",
        **more,
    }


def spoken(id: str, parent: str | None, text: str, role: str = "user") -> dict[str, Any]:
    """Return a line of an OpenClaw transcript that says something."""
    return entry(id, parent, message={"role": role, "content": [{"type": "text", "text": text}]})


def header(id: str, **more: Any) -> dict[str, Any]:
    """Return the first line of an OpenClaw transcript."""
    return {
        "type": "session",
        "version": 3,
        "id": id,
        "timestamp": "2026-01-02T03:04:05.000Z",
        "cwd": "/home/claw",
        **more,
    }
