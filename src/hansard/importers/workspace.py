"""Read workspace session files: `<hash of the workspace>_<time>.json`, a conversation each.

Above: `bringing`.  Below: `source`.
Many agents for the terminal keep their sessions so. There is no one document that says what is in them; read
are a list of chat messages, or an object with such a list as `messages` or `history`, and beside it whatever
else: a workspace under one of its usual names, a title, times. The file's name is the session's id.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from hansard.importers.source import (
    Files,
    Foreign,
    Found,
    Item,
    Unreadable,
    moment,
    named,
    said,
    text_of,
)

#: Under this name, what else the file says.
_ABOUT: Final = "workspace_file"

_NAME: Final = re.compile(
    r"(?P<hash>[0-9a-fA-F]{4,64})_(?P<time>\d{8}[-_T]?\d{6}\d*|\d{4}-\d\d-\d\d[-_T][\d.:_-]+Z?|\d{9,19})"
    r"\.json"
)

#: Of a time to the second: 20260131120000.
_DIGITS: Final = 14

#: Under these names, the first that is there counts.
_MESSAGES: Final = ("messages", "history")
_WORKSPACE: Final = ("workspace", "workspace_path", "workspace_root", "project_path", "cwd")
_TITLE: Final = ("title", "name")
_CREATED: Final = ("created_at", "createdAt", "created", "started_at", "start_time")
_TIME: Final = ("timestamp", "created_at", "createdAt", "time")


def find(files: Files) -> Iterator[Found]:
    """Find the files whose names are those of workspace sessions; or the one file that was given."""
    for path in files.walk(".json"):
        if path == files.root or _NAME.fullmatch(path.name):
            yield Found(files.name(path), partial(_read, files, path))


def _read(files: Files, path: Path) -> Iterator[Foreign]:
    data = files.json(path)
    about: dict[str, Any] = {}
    messages: Any = data
    if isinstance(data, dict):
        name = next((one for one in _MESSAGES if isinstance(data.get(one), list)), None)
        messages = None if name is None else data[name]
        about = {key: value for key, value in data.items() if key != name and value is not None}
    if not isinstance(messages, list):
        raise Unreadable(f"no session: a JSON {named(data)} without messages")
    where = files.name(path)
    items: list[Item] = []
    for number, message in enumerate(messages):
        if isinstance(message, dict) and text_of(message.get("role")):
            time = next(filter(None, (moment(message.get(one)) for one in _TIME)), None)
            items.append(said(message, time))
        else:
            files.report(where, f"message {number}: a {named(message)} without a role")
    if not items:
        raise Unreadable("no session: there is no message in it")
    found = _NAME.fullmatch(path.name)
    metadata: dict[str, Any] = {
        "title": _first(about, _TITLE),
        "workspace": _first(about, _WORKSPACE),
        _ABOUT: {**about, **({} if found is None else {"hash": found["hash"]})},
    }
    created = next(filter(None, (moment(about.get(one)) for one in _CREATED)), None)
    if created is None and found is not None:
        created = _moment(found["time"])
    yield Foreign(path.stem, items, where, metadata, created)


def _first(about: dict[str, Any], names: tuple[str, ...]) -> str | None:
    return next((about[name] for name in names if text_of(about.get(name))), None)


def _moment(text: str) -> str | None:
    """Return the time that is in a file's name."""
    digits = re.sub(r"\D", "", text)
    if text.isdigit() and len(digits) != _DIGITS:
        return moment(int(digits))
    try:
        when = datetime.strptime(digits[:_DIGITS], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return moment(when.isoformat())
