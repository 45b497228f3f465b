"""Take a dictionary out of use, and away, when it holds what is to be forgotten.

Above: `backend.compaction`, `backend.local`.  Below: `dictionary`, `sealed`, `lock`, `disk`.
A dictionary holds what several sessions said, and each of them may take it out, or be purged. So whoever is
about to forget something looks whether a dictionary says it too, and leaves a *doubt* before the last other
trace of it goes: where in the dictionary it stands, and not what it is. The next compaction of the whole
store judges: what enough sessions still say is theirs, and the doubt goes; else the dictionary is *retired*.
Nothing is compressed with a retired one any more, what was is written anew, and when no segment needs it, it
goes.

Two locks, beside the dictionaries: `lock` is shared by who uses a dictionary or moves a session, and held
alone by who takes one away; `training` is shared by who forgets, and held alone by who trains and judges.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from hansard.errors import Damaged, DiskFailed, UnsafePath
from hansard.log import dictionary, disk, names
from hansard.log.lock import Lock
from hansard.log.root import Root
from hansard.log.sealed import Sealed

#: What is compared: so many bytes. Of less, nothing can be told, and a dictionary is made of no less.
GRAM: Final = 8

#: How much of what is forgotten at once is looked for; of more, everything is in doubt.
MOST: Final = 4 * 1024 * 1024

#: How long who forgets waits for who trains, which takes seconds.
_PATIENCE: Final = 60.0

_DOUBT: Final = dictionary.DOUBT
_TRAINING: Final = "training"

#: Offset and length of a piece of a dictionary.
_Piece = tuple[int, int]


# -- locks --------------------------------------------------------------------------------------


@contextlib.contextmanager
def using(root: Root, timeout: float) -> Iterator[None]:
    """Let nobody take a dictionary away: while one is used, or a session moves to the trash or out of it."""
    with _locked(root, names.LOCK, timeout, shared=True):
        yield


@contextlib.contextmanager
def training(root: Root, timeout: float) -> Iterator[None]:
    """Let nobody forget anything, from the first look at what sessions say to the dictionary made of it."""
    with _locked(root, _TRAINING, timeout, shared=False):
        yield


@contextlib.contextmanager
def _locked(root: Root, name: str, timeout: float, *, shared: bool) -> Iterator[None]:
    # Who trains makes the directory first. Where there is none, nobody trains, and nothing was trained.
    try:
        directory = root.open_dictionaries(create=not shared)
    except UnsafePath:
        if not shared:
            raise
        directory = None  # something else is in its place, so none of ours is used
    if directory is None:
        yield
        return
    path = root.path_of_dictionary(name)
    try:
        # Opened each time anew, so that threads keep each other away like processes.
        lock = Lock(disk.open_file(directory, name, writable=True, create=True), path)
    except OSError as error:
        raise disk.explain(error, "open", path, "nothing was compacted") from error
    finally:
        disk.close(directory)
    try:
        if shared:
            lock.acquire_shared(timeout)
        else:
            lock.acquire(timeout)
        yield
    finally:
        lock.release()
        lock.close()


# -- doubts -------------------------------------------------------------------------------------


@contextlib.contextmanager
def forgetting(root: Root, texts: Sequence[bytes]) -> Iterator[None]:
    """Leave a doubt of each dictionary that says what is forgotten in this block, durably, before it."""
    if not texts:
        yield
        return
    with _locked(root, _TRAINING, _PATIENCE, shared=True):
        for name in dictionary.kept(root):
            with contextlib.suppress(Damaged):  # what cannot be read says nothing
                found = _pieces(dictionary.read(root, name), texts)
                if found:
                    _leave(root, name, found)
        yield


def _pieces(content: bytes, texts: Sequence[bytes]) -> list[_Piece]:
    """Return the pieces of a dictionary that are in some texts."""
    if sum(map(len, texts)) > MOST:
        return [(0, len(content))]
    # A place of each: where else it stands does not matter, since it is looked for by what it says.
    places = {content[at : at + GRAM]: at for at in range(len(content) - GRAM + 1)}
    found = {
        places[text[at : at + GRAM]]
        for text in texts
        for at in range(len(text) - GRAM + 1)
        if text[at : at + GRAM] in places
    }
    pieces: list[_Piece] = []
    for at in sorted(found):
        if pieces and at < sum(pieces[-1]):
            begin = pieces[-1][0]
            pieces[-1] = (begin, at + GRAM - begin)
        else:
            pieces.append((at, GRAM))
    return pieces


def _leave(root: Root, name: str, found: list[_Piece]) -> None:
    """Write a doubt, under a name of its own: others may leave theirs at the same time."""
    data = msgspec.json.encode(found)
    _put(root, f"{name}{_DOUBT}{dictionary.name_of(data)}", data)


def _put(root: Root, file: str, data: bytes) -> None:
    directory = root.open_dictionaries(create=True)
    assert directory is not None  # or it has raised
    try:
        if not disk.present(directory, file):
            dictionary.write(directory, file, data)
        # Also if it was there: whoever wrote it may not have come to this.
        disk.sync_directory(directory)
    except OSError as error:
        hint = "nothing was forgotten: the sessions are as they were"
        raise disk.explain(error, "write", root.path_of_dictionary(file), hint) from error
    finally:
        disk.close(directory)


def doubts(root: Root) -> dict[str, list[str]]:
    """Return the files with doubts, by the dictionaries that are in use and doubted."""
    found: dict[str, list[str]] = {}
    gone = dictionary.retired(root)
    for file in dictionary.files(root):
        name, doubt, _ = file.partition(_DOUBT)
        if doubt and name not in gone:
            found.setdefault(name, []).append(file)
    return found


def judge(root: Root, samples: Iterable[bytes]) -> bool:
    """Retire the dictionaries that say what too few of these texts say; say whether there are any.

    The caller is `training`, and gives one text of each session.
    """
    doubted = doubts(root)
    pending: dict[str, dict[bytes, int]] = {}
    for name, files in doubted.items():
        with contextlib.suppress(Damaged):  # as long as it cannot be read, nobody can tell
            pending[name] = _doubted(root, name, files)
    for sample in samples:
        said = {sample[at : at + GRAM] for at in range(len(sample) - GRAM + 1)}
        for left in pending.values():
            for gram in left.keys() & said:
                left[gram] -= 1
                if not left[gram]:
                    del left[gram]
        if not any(pending.values()):
            break
    for name, left in pending.items():
        if left:
            _put(root, name + dictionary.RETIRED, b"")
        else:
            _remove(root, doubted[name])
    return any(pending.values())


def _doubted(root: Root, name: str, files: list[str]) -> dict[bytes, int]:
    """Return what is doubted of a dictionary, each with the number of sessions that must say it."""
    content = dictionary.read(root, name)
    found: dict[bytes, int] = {}
    directory = root.open_dictionaries()
    assert directory is not None  # it holds the files
    try:
        for file in files:
            try:
                data = disk.read_all(directory, file, dictionary.LARGEST)
                pieces = msgspec.json.decode(data, type=list[_Piece])
            except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                pieces = [(0, len(content))]  # it cannot be read, so it may doubt everything
            for begin, length in pieces:
                # No further than there is something, whatever the file says.
                last = min(begin + length, len(content)) - GRAM
                for at in range(max(begin, 0), last + 1):
                    found[content[at : at + GRAM]] = dictionary.SHARED_BY
    finally:
        disk.close(directory)
    return found


# -- retired ones -------------------------------------------------------------------------------


def remove_unneeded(root: Root, timeout: float) -> int:
    """Take away the retired dictionaries that no segment needs, in the trash or not; return how many."""
    if not dictionary.retired(root):
        return 0
    removed = 0
    with _locked(root, names.LOCK, timeout, shared=False):
        needed = _needed(root)
        for name in dictionary.retired(root) if needed is not None else ():
            if name in (needed or ()):
                continue
            _remove(root, [name, dictionary.copy_of(name)])
            # Last: whoever dies before leaves it for the next one to go on with.
            _remove(
                root,
                [file for file in dictionary.files(root) if file.startswith(f"{name}{_DOUBT}")],
            )
            _remove(root, [name + dictionary.RETIRED])
            removed += 1
    return removed


def _needed(root: Root) -> set[str] | None:
    """Return the names of the dictionaries that segments need; None if that cannot be told of one."""
    found: set[str] = set()
    live = [(name, root.open_live) for name in (*root.session_names(), names.AUDIT)]
    for name, opens in [*live, *((name, root.open_trashed) for name in root.trash_names())]:
        try:
            number = opens(name)
            if number is None:
                continue
            directory = disk.Open(number)
            for file in disk.names(number):
                if not file.endswith(".zst") or names.is_temporary(file):
                    continue
                try:
                    opened = disk.open_file(directory.descriptor, file)
                    path = root.path_of(name, file)
                    found.add(Sealed(opened, path, None, root.dictionary).index.dictionary)
                except Damaged:
                    # Of what a repair has kept, nobody could tell which one it needs.
                    if names.sealed_first_seq(file) is not None:
                        return None
        except (OSError, DiskFailed, UnsafePath):
            return None
    return found


def _remove(root: Root, files: Iterable[str]) -> None:
    directory = root.open_dictionaries()
    if directory is None:
        return
    try:
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                disk.remove(directory, file)
        disk.sync_directory(directory)
    except OSError as error:
        raise disk.explain(error, "remove", root.path_of_dictionary()) from error
    finally:
        disk.close(directory)
