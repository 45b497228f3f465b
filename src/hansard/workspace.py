"""Know a workspace: the folder that a session was held in, also after it was moved or renamed.

A session says in its metadata where it belongs: `workspace`, a path, and, if the folder is in a git
repository, `workspace_id`. The id is random and lies in a small file inside the git directory, so it goes
where the repository goes, and no clone or commit carries it elsewhere. Where both sides have an id, the
ids decide; otherwise the paths do. The file is written when a session is given its workspace, and never by
looking for one.

A copy of a folder, git directory and all, has its original's file. It says for which path it was
written, so a copy is told from a move: if the original is still there, the copy is a workspace of its own.
The law for all this is docs/format.md, F-68 and F-69.
"""

import os
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from hansard.event.envelope import Event
from hansard.event.kinds import METADATA_SET, SESSION_CREATED
from hansard.log import disk, names

#: Where a folder may be given.
Folder = str | os.PathLike[str]

#: The metadata that say where a session belongs.
PATH: Final = "workspace"
ID: Final = "workspace_id"

#: The file inside a git directory.
MARKER: Final = "hansard-workspace"

_GIT: Final = ".git"
#: What every git directory has.
_HEAD: Final = "HEAD"
_POINTER: Final = b"gitdir:"
_LIMIT: Final = 64 * 1024
_ID_BYTES: Final = 16


class Workspace(NamedTuple):
    """A folder. `id` is None if it is in no git repository, or if no session was held there yet."""

    path: str
    id: str | None = None

    @property
    def key(self) -> str:
        """What sessions of one workspace have in common."""
        return self.path if self.id is None else self.id

    def metadata(self) -> dict[str, Any]:
        """Return what a session's metadata say about it; null takes an earlier id away."""
        return {PATH: self.path, ID: self.id}


class _Marker(msgspec.Struct):
    """The file: a random id, and the repository's folder when it was written."""

    workspace: str
    path: str


class _Repository(NamedTuple):
    """The folder in which a git repository is checked out, and its git directory."""

    folder: str
    git: str


# -- folders ------------------------------------------------------------------------------------


def find(folder: Folder) -> Workspace:
    """Return the workspace that a folder is. Writes nothing."""
    path = _resolve(folder)
    repository = _repository_of(path)
    if repository is None:
        return Workspace(_text(path))
    marker = _read(repository)
    return _workspace(path, repository, None if marker is None else _effective(marker, repository))


def mark(folder: Folder) -> Workspace:
    """Return the workspace that a folder is, and see to it that its repository can be told from others.

    Where the git directory cannot be written, the path alone will have to do.
    """
    path = _resolve(folder)
    repository = _repository_of(path)
    if repository is None:
        return Workspace(_text(path))
    marker = _read(repository)
    if marker is None:
        wanted = _Marker(os.urandom(_ID_BYTES).hex(), _text(repository.folder))
    else:
        # Whoever writes at the same time writes the same.
        wanted = _Marker(_effective(marker, repository), _text(repository.folder))
    if marker != wanted and not _write(repository, wanted, anew=marker is not None):
        # Another process was faster, or it cannot be written.
        marker = _read(repository)
        wanted_id = None if marker is None else _effective(marker, repository)
        return _workspace(path, repository, wanted_id)
    return _workspace(path, repository, wanted.workspace)


def completed(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return metadata with the id of the workspace that they name by its path alone, if it can have one."""
    path = metadata.get(PATH)
    if not isinstance(path, str) or ID in metadata or not os.path.isabs(path):
        return metadata
    try:
        found = mark(path).id
    except (ValueError, OSError):
        return metadata  # no path, so no folder that could be moved
    return metadata if found is None else {**metadata, ID: found}


def _resolve(folder: Folder) -> str:
    text = os.fsdecode(folder)
    if not text or "\0" in text:
        raise ValueError(f"a workspace must be the path of a folder, not {folder!r:.100}")
    return disk.real(os.path.expanduser(text))


def _text(path: str) -> str:
    """Return a path as JSON can hold it: bytes that are no UTF-8 are spelled out."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _workspace(path: str, repository: _Repository, marker_id: str | None) -> Workspace:
    if marker_id is None:
        return Workspace(_text(path))
    inside = os.path.relpath(path, repository.folder)
    return Workspace(_text(path), marker_id if inside == "." else f"{marker_id}/{_text(inside)}")


# -- git directories ----------------------------------------------------------------------------


def _repository_of(path: str) -> _Repository | None:
    """Return the nearest git repository that a folder is in."""
    while True:
        git = _git_directory(path)
        if git is not None:
            return _Repository(path, git)
        above = os.path.dirname(path)
        if above == path:
            return None
        path = above


def _git_directory(folder: str) -> str | None:
    """Return the git directory of a folder: `.git`, or what a file of this name points to."""
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
    # A worktree, or a submodule: the path is relative to the folder, if it is not absolute.
    target = os.fsdecode(text.removeprefix(_POINTER).strip(b" \t\r\n"))
    if not target or "\0" in target:
        return None
    git = os.path.normpath(os.path.join(folder, target))
    return git if _is_git(git) else None


def _is_git(path: str) -> bool:
    """Say whether a path is a git directory; nothing is ever written to what only claims to be one."""
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
    """Return what the file says; None if there is none, or it is not ours."""
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
    """Return a repository's id: the file's, unless it came here as a copy of one that still has it."""
    here = _text(repository.folder)
    if marker.path == here or not _holds(marker.path, marker):
        return marker.workspace
    import hashlib

    # Not drawn at random: whoever asks, and whoever writes, now or later, finds the same.
    return hashlib.sha256(f"{marker.workspace}\0{here}".encode()).hexdigest()[: 2 * _ID_BYTES]


def _holds(path: str, marker: _Marker) -> bool:
    """Say whether the folder for which a file was written is there, with the same file."""
    git = _git_directory(path)
    return git is not None and _read(_Repository(path, git)) == marker


def _write(repository: _Repository, marker: _Marker, *, anew: bool) -> bool:
    """Write the file; `anew`: in the place of the one that is there. False if that could not be."""
    temporary = names.temporary(MARKER)
    try:
        directory = disk.open_root(repository.git)
    except OSError:
        return False
    try:
        if not anew and disk.present(directory, MARKER):
            return False  # another's, or another's file
        descriptor = disk.create_file(directory, temporary)
        try:
            disk.write_all(descriptor, msgspec.json.encode(marker) + b"\n")
            # Under its name it is whole, also after a power cut.
            disk.sync(descriptor)
            if anew:
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
    """Return where a session belongs after one more event; None if to no workspace.

    An id counts only together with the path that it was given with: who sets another path by hand
    means another workspace.
    """
    patch = patch_of(event)
    path, given = patch.get(PATH), patch.get(ID)
    marker = given if isinstance(given, str) and given else None
    if PATH in patch:
        return Workspace(path, marker) if isinstance(path, str) and path else None
    return before if ID not in patch or before is None else before._replace(id=marker)


def patch_of(event: Event) -> Mapping[str, Any]:
    """Return what an event changes in the metadata, as a merge-patch; nothing, for most events."""
    if event.kind not in {METADATA_SET, SESSION_CREATED}:
        return {}
    patch = event.data.get("metadata")
    return patch if isinstance(patch, dict) else {}


class Match:
    """Says which sessions belong to one workspace. Looks at each recorded path once."""

    __slots__ = ("_paths", "_taken", "_wanted")

    def __init__(self, folder: Folder) -> None:
        self._wanted = find(folder)
        self._paths: dict[str, str] = {}
        self._taken: dict[Workspace, bool] = {}

    @property
    def path(self) -> str:
        """The workspace's folder."""
        return self._wanted.path

    def __call__(self, said: Workspace | None) -> bool:
        """Say whether a session that says so belongs here."""
        if said is None:
            return False
        wanted = self._wanted
        if said.id is None or wanted.id is None:
            return self._real(said.path) == wanted.path
        if said.id != wanted.id:
            return False
        # The same id at another place that still has it: that one is the original, and this a copy.
        return self._real(said.path) == wanted.path or not self._is_taken(said)

    def _real(self, path: str) -> str:
        if path not in self._paths:
            try:
                self._paths[path] = _text(_resolve(path))
            except (ValueError, OSError):
                self._paths[path] = path  # no path at all, so nobody's
        return self._paths[path]

    def _is_taken(self, said: Workspace) -> bool:
        if said not in self._taken:
            try:
                self._taken[said] = find(said.path).id == said.id
            except (ValueError, OSError):
                self._taken[said] = False
        return self._taken[said]
