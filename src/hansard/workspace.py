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
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

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

_GIT: Final = ".git"
#: A file in every git directory.
_HEAD: Final = "HEAD"
_POINTER: Final = b"gitdir:"
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


class _Marker(msgspec.Struct):
    """The file's content: a random id, and the path of the repository when it was written."""

    workspace: str
    path: str


class _Repository(NamedTuple):
    """The directory of a git checkout, and its git directory."""

    folder: str
    git: str


# -- directories --------------------------------------------------------------------------------


def find(folder: Folder) -> Workspace:
    """Return the workspace of a directory. Writes nothing."""
    path = _resolve(folder)
    repository = _repository_of(path)
    if repository is None:
        return Workspace(_text(path))
    marker = _read(repository)
    return _workspace(path, repository, None if marker is None else _effective(marker, repository))


def mark(folder: Folder) -> Workspace:
    """Return the workspace of a directory; give its git repository an id if it has none.

    If the git directory cannot be written, the path alone identifies the workspace.
    """
    path = _resolve(folder)
    repository = _repository_of(path)
    if repository is None:
        return Workspace(_text(path))
    marker = _read(repository)
    if marker is None:
        wanted = _Marker(os.urandom(_ID_BYTES).hex(), _text(repository.folder))
    else:
        # A concurrent writer writes the same.
        wanted = _Marker(_effective(marker, repository), _text(repository.folder))
    if marker != wanted and not _write(repository, wanted, replace=marker is not None):
        # Another process was faster, or it cannot be written.
        marker = _read(repository)
        wanted_id = None if marker is None else _effective(marker, repository)
        return _workspace(path, repository, wanted_id)
    return _workspace(path, repository, wanted.workspace)


def completed(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return metadata with the id of the workspace whose path they contain, if it can have one."""
    path = metadata.get(PATH)
    if not isinstance(path, str) or ID in metadata or not os.path.isabs(path):
        return metadata
    try:
        found = mark(path).id
    except (ValueError, OSError):
        return metadata  # not a path
    return metadata if found is None else {**metadata, ID: found}


def _resolve(folder: Folder) -> str:
    text = os.fsdecode(folder)
    if not text or "\0" in text:
        raise ValueError(f"workspace must be the path of a directory, got {folder!r:.100}")
    return disk.real(os.path.expanduser(text))


def _text(path: str) -> str:
    """Return a path as a JSON string; bytes that are not UTF-8 are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _workspace(path: str, repository: _Repository, marker_id: str | None) -> Workspace:
    if marker_id is None:
        return Workspace(_text(path))
    inside = os.path.relpath(path, repository.folder)
    return Workspace(_text(path), marker_id if inside == "." else f"{marker_id}/{_text(inside)}")


# -- git directories ----------------------------------------------------------------------------


def _repository_of(path: str) -> _Repository | None:
    """Return the innermost git repository of a directory."""
    while True:
        git = _git_directory(path)
        if git is not None:
            return _Repository(path, git)
        above = os.path.dirname(path)
        if above == path:
            return None
        path = above


def _git_directory(folder: str) -> str | None:
    """Return the git directory of a directory: `.git`, or the target of a file of this name."""
    git = os.path.join(folder, _GIT)
    if _is_git(git):
        return git
    try:
        directory = disk.open_root(folder)
    except OSError:
        return None
    try:
        text = disk.read_all(directory, _GIT, _LIMIT)
    except OSError:
        return None
    finally:
        disk.close(directory)
    if not text.startswith(_POINTER):
        return None
    # A worktree or a submodule: the path is absolute, or relative to the directory.
    target = os.fsdecode(text.removeprefix(_POINTER).strip(b" \t\r\n"))
    if not target or "\0" in target:
        return None
    git = os.path.normpath(os.path.join(folder, target))
    return git if _is_git(git) else None


def _is_git(path: str) -> bool:
    """Return whether a path is a git directory; nothing is written to any other."""
    try:
        directory = disk.open_root(path)
    except OSError:
        return False
    try:
        return disk.present(directory, _HEAD)
    except OSError:
        return False
    finally:
        disk.close(directory)


def _read(repository: _Repository) -> _Marker | None:
    """Return the content of the file; None if it is missing or not written by hansard."""
    try:
        directory = disk.open_root(repository.git)
        try:
            text = disk.read_all(directory, MARKER, _LIMIT)
        finally:
            disk.close(directory)
        marker = msgspec.json.decode(text, type=_Marker)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return marker if marker.workspace else None


def _effective(marker: _Marker, repository: _Repository) -> str:
    """Return a repository's id: the one in the file, unless this is a copy of an existing repository."""
    here = _text(repository.folder)
    if marker.path == here or not _holds(marker.path, marker):
        return marker.workspace
    import hashlib

    # Not random: every process must compute the same id, before and after it is written.
    return hashlib.sha256(f"{marker.workspace}\0{here}".encode()).hexdigest()[: 2 * _ID_BYTES]


def _holds(path: str, marker: _Marker) -> bool:
    """Return whether the directory for which a file was written exists and has the same file."""
    git = _git_directory(path)
    return git is not None and _read(_Repository(path, git)) == marker


def _write(repository: _Repository, marker: _Marker, *, replace: bool) -> bool:
    """Write the file; with `replace`, replace the existing one. Return whether it was written."""
    temporary = names.temporary(MARKER)
    try:
        directory = disk.open_root(repository.git)
    except OSError:
        return False
    try:
        if not replace and disk.present(directory, MARKER):
            return False  # another process was faster, or the file is not ours
        descriptor = disk.create_file(directory, temporary)
        try:
            disk.write_all(descriptor, msgspec.json.encode(marker) + b"\n")
            # The file under this name is complete, even after a power cut.
            disk.sync(descriptor)
            if replace:
                disk.move(directory, temporary, directory, MARKER)
            else:
                disk.publish(directory, temporary, MARKER)
        except OSError:
            disk.discard(directory, temporary)
            raise
        finally:
            disk.close(descriptor)
    except OSError:
        return False
    finally:
        disk.close(directory)
    return True


# -- sessions -----------------------------------------------------------------------------------


def of(event: Event, before: Workspace | None) -> Workspace | None:
    """Return the workspace of a session after one more event; None if it has none.

    An id is valid only with the path that was set together with it: a new path without an id is another
    workspace.
    """
    patch = patch_of(event)
    path, given = patch.get(PATH), patch.get(ID)
    marker = given if isinstance(given, str) and given else None
    if PATH in patch:
        return Workspace(path, marker) if isinstance(path, str) and path else None
    return before if ID not in patch or before is None else before._replace(id=marker)


def patch_of(event: Event) -> Mapping[str, Any]:
    """Return the metadata changes of an event, as a merge patch; empty for most events."""
    if event.kind not in {METADATA_SET, SESSION_CREATED}:
        return {}
    patch = event.data.get("metadata")
    return patch if isinstance(patch, dict) else {}


class Match:
    """Decides which sessions belong to one workspace. Resolves each stored path once."""

    __slots__ = ("_paths", "_taken", "_wanted")

    def __init__(self, folder: Folder) -> None:
        self._wanted = find(folder)
        self._paths: dict[str, str] = {}
        self._taken: dict[Workspace, bool] = {}

    @property
    def path(self) -> str:
        """The workspace's directory."""
        return self._wanted.path

    def __call__(self, said: Workspace | None) -> bool:
        """Return whether a session with this workspace belongs to the wanted one."""
        if said is None:
            return False
        wanted = self._wanted
        if said.id is None or wanted.id is None:
            return self._real(said.path) == wanted.path
        if said.id != wanted.id:
            return False
        # If the stored path still has the same id, it is the original and the wanted one is a copy.
        return self._real(said.path) == wanted.path or not self._is_taken(said)

    def _real(self, path: str) -> str:
        if path not in self._paths:
            try:
                self._paths[path] = _text(_resolve(path))
            except (ValueError, OSError):
                self._paths[path] = path  # not a path
        return self._paths[path]

    def _is_taken(self, said: Workspace) -> bool:
        if said not in self._taken:
            try:
                self._taken[said] = find(said.path).id == said.id
            except (ValueError, OSError):
                self._taken[said] = False
        return self._taken[said]
