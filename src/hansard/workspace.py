"""Identify a workspace: the directory that a session belongs to, even after it was moved or renamed.

The metadata of a session contain the path, `workspace`, and in a git repository also `workspace_id`. The id
is random and stored in a small file inside the git directory. So it moves with the repository, and no clone
or commit copies it. If both sides have an id, the ids are compared, otherwise the paths. The file is written
when a session gets its workspace, never by a lookup.

A copy of a directory, including its git directory, contains the same file. The file also contains the path
for which it was written: if the original still exists there, the copy is a separate workspace.
docs/format.md, F-68 and F-69, specifies this.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from hansard.event import kinds
from hansard.event.event import Event
from hansard.event.kinds import METADATA_SET, SESSION_CREATED
from hansard.log import disk, names

#: A directory argument.
Folder = str | os.PathLike[str]

#: The metadata keys of a session's workspace.
PATH: Final = "workspace"
ID: Final = "workspace_id"

#: The file inside a git directory.
MARKER: Final = "hansard-workspace"

_LIMIT: Final = 64 * 1024
_ID_BYTES: Final = 16


class Workspace(NamedTuple):
    """A directory. `id` is None outside of a git repository, and before the first session there."""

    path: str
    id: str | None = None

    @property
    def key(self) -> str:
        """The value that all sessions of one workspace share."""
        return self.path if self.id is None else self.id

    def metadata(self) -> dict[str, Any]:
        """Return the metadata of a session in this workspace; a null id removes an earlier one."""
        return {PATH: self.path, ID: self.id}


class _WorkspaceMarker(msgspec.Struct):
    """The file's content: a random id, and the path of the repository when it was written."""

    workspace: str
    path: str


def find(folder: Folder, *, mark: bool = False) -> Workspace:
    """Return the workspace of a directory; with `mark`, give its git repository an id if it has none.

    Otherwise nothing is written. If the git directory cannot be written, the path alone identifies the
    workspace.
    """
    path = _resolve(folder)
    top, git = path, _git_directory(path)
    while git is None and top != os.path.dirname(top):
        top = os.path.dirname(top)
        git = _git_directory(top)
    if git is None:
        return Workspace(_text(path))
    marker = _read(git)
    if mark:
        known = os.urandom(_ID_BYTES).hex() if marker is None else _id(marker, top)
        wanted = _WorkspaceMarker(known, _text(top))
        if marker != wanted:
            _write(git, wanted, replace=marker is not None)
            # Another process may have been faster, or it cannot be written.
            marker = _read(git)
    if marker is None:
        return Workspace(_text(path))
    inside = os.path.relpath(path, top)
    found = _id(marker, top)
    return Workspace(_text(path), found if inside == "." else f"{found}/{_text(inside)}")


def _resolve(folder: Folder) -> str:
    text = os.fsdecode(folder)
    if not text or "\0" in text:
        raise ValueError(f"workspace must be the path of a directory, got {folder!r:.100}")
    return disk.real(os.path.expanduser(text))


def _text(path: str) -> str:
    """Return a path as a JSON string; bytes that are not UTF-8 are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _git_directory(top: str) -> str | None:
    """Return the git directory of a directory; nothing is written to any other directory."""
    git = os.path.join(top, ".git")
    try:
        # Every git directory has this file. In a worktree or a submodule, `.git` is a file.
        return git if disk.present(disk.open_root(git), "HEAD") else None
    except OSError:
        return None


def _read(git: str) -> _WorkspaceMarker | None:
    """Return the content of the file; None if it is missing or not written by hansard."""
    try:
        content = disk.read_all(disk.open_root(git), MARKER, _LIMIT)
        marker = msgspec.json.decode(content, type=_WorkspaceMarker)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return marker if marker.workspace else None


def _id(marker: _WorkspaceMarker, top: str) -> str:
    """Return a repository's id: the one in the file, unless this is a copy of an existing repository."""
    here = _text(top)
    original = None if marker.path == here else _git_directory(marker.path)
    if original is None or _read(original) != marker:
        return marker.workspace
    import hashlib

    # Not random: every process must compute the same id, before and after it is written.
    return hashlib.sha256(f"{marker.workspace}\0{here}".encode()).hexdigest()[: 2 * _ID_BYTES]


def _write(git: str, marker: _WorkspaceMarker, *, replace: bool) -> None:
    """Write the file if that is possible; with `replace`, replace the existing one."""
    temporary = names.temporary(MARKER)
    with suppress(OSError):
        directory = disk.open_root(git)
        if not replace and disk.present(directory, MARKER):
            return  # another process was faster, or the file is not ours
        with disk.temporary_file(directory, temporary) as descriptor:
            disk.write_all(descriptor, msgspec.json.encode(marker) + b"\n")
            # The file under this name is complete, even after a power cut.
            disk.sync(descriptor)
            if replace:
                disk.move(directory, temporary, directory, MARKER)
            else:
                disk.publish(directory, temporary, MARKER)


def of(events: Iterable[Event], before: Workspace | None = None) -> Workspace | None:
    """Return the workspace of a session after some more events; None if it has none.

    An id is valid only with the path that was set together with it: a new path without an id is another
    workspace.
    """
    for event in events:
        if event.kind not in {METADATA_SET, SESSION_CREATED}:
            continue
        read = kinds.read(METADATA_SET, event.raw)
        if read is None:
            continue
        patch = read.metadata
        path, given = patch.get(PATH), patch.get(ID)
        marker = given if isinstance(given, str) and given else None
        if PATH in patch:
            before = Workspace(path, marker) if isinstance(path, str) and path else None
        elif ID in patch and before is not None:
            before = before._replace(id=marker)
    return before


class Match:
    """Decides which sessions belong to one workspace. Resolves each stored path once."""

    def __init__(self, folder: Folder) -> None:
        self._wanted = find(folder)
        self._real = cache(_real)

    @property
    def path(self) -> str:
        """The workspace's directory."""
        return self._wanted.path

    def __call__(self, found: Workspace | None) -> bool:
        """Return whether a session with this workspace belongs to the wanted one."""
        if found is None:
            return False
        wanted = self._wanted
        if found.id is None or wanted.id is None:
            return self._real(found.path) == wanted.path
        return found.id == wanted.id


def _real(path: str) -> str:
    try:
        return _text(_resolve(path))
    except (ValueError, OSError):
        return path  # not a path
