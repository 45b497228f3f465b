"""Import workspace session files: `<hash of the workspace>_<time>.json`, a conversation each.

Many agents for the terminal store their sessions like this, without a specification. A file has a list of
chat messages, or an object with such a list as `messages` or `history`. Workspace, title and times are found
under their usual names. The file's name is the session's id.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from hansard.importers.foreign_json import Unreadable, json_type, parse_time, text_in, time_in
from hansard.importers.source import Files, ForeignSession, Item, SourceEntry

_NAME: Final = re.compile(
    r"(?P<hash>[0-9a-fA-F]{4,64})_(?P<time>\d{8}[-_T]?\d{6}\d*|\d{4}-\d\d-\d\d[-_T][\d.:_-]+Z?|\d{9,19})"
    r"\.json"
)

#: Digits of a time to the second: 20260131120000.
_DIGITS: Final = 14

#: The usual names; the first that is present counts.
_WORKSPACE: Final = ("workspace", "workspace_path", "workspace_root", "project_path", "cwd")
_CREATED: Final = ("created_at", "createdAt", "created", "started_at", "start_time")
_TIME: Final = ("timestamp", "created_at", "createdAt", "time")


def find(files: Files) -> Iterator[SourceEntry]:
    """Yield the files that are named like workspace sessions, or the given file."""
    for path in files.walk(".json"):
        if path == files.root or _NAME.fullmatch(path.name):
            yield files.entry(_read, path)


def _read(files: Files, path: Path) -> Iterator[ForeignSession]:
    messages = data = files.json(path)
    about: dict[str, Any] = {}
    if isinstance(data, dict):
        name = "messages" if isinstance(data.get("messages"), list) else "history"
        messages = data.get(name)
        about = {key: value for key, value in data.items() if key != name and value is not None}
    if not isinstance(messages, list):
        raise Unreadable(f"not a session: a JSON {json_type(data)} without messages")
    where = files.name(path)
    items: list[Item] = []
    for number, message in enumerate(messages):
        if text_in(message, "role"):
            items.append(Item.message(message, time_in(message, *_TIME)))
        else:
            files.report(where, f"message {number}: a {json_type(message)} without a role")
    if not items:
        raise Unreadable("not a session: it has no messages")
    found = _NAME.fullmatch(path.name)
    metadata: dict[str, Any] = {
        "title": text_in(about, "title", "name"),
        "workspace": text_in(about, *_WORKSPACE),
        "workspace_file": about | ({} if found is None else {"hash": found["hash"]}),
    }
    created = time_in(about, *_CREATED) or (_time_in_name(found["time"]) if found else None)
    yield ForeignSession(path.stem, items, where, metadata, created)


def _time_in_name(text: str) -> str | None:
    digits = re.sub(r"\D", "", text)
    if text.isdigit() and len(digits) != _DIGITS:
        return parse_time(int(digits))
    try:
        when = datetime.strptime(digits[:_DIGITS], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return parse_time(when.isoformat())
