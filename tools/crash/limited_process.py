"""Use a store while the operating system refuses calls: no mocks, in a process that ends afterwards.

Each function takes a directory and returns what it found; an unexpected result raises.
"""

import contextlib
import importlib
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import hansard

#: The user that root becomes, since permissions do not restrict root.
UNPRIVILEGED = 65534

ID = "s"
MESSAGE = {"role": "user", "content": "hello"}


def permissions(place: Path) -> dict[str, object]:
    """N-32: take the permissions of each part of a store away in turn, and use it."""
    found: dict[str, object] = {}
    path = place / "store"
    with hansard.open(path) as store:
        store.session(ID).add_message(MESSAGE)
    # Imported while it can be: this user may not see the interpreter's files.
    importlib.import_module("hansard.index.index")
    if os.geteuid() == 0:
        for made in [place, path, *path.rglob("*")]:
            os.chown(made, UNPRIVILEGED, UNPRIVILEGED)
        os.setgroups([])
        os.setgid(UNPRIVILEGED)
        os.setuid(UNPRIVILEGED)
    for part in ("", "hansard.json", "sessions", f"sessions/{ID}", f"sessions/{ID}/log.jsonl"):
        before = contents(path)
        mode = (path / part).stat().st_mode
        inode = (path / part).stat().st_ino
        os.chmod(path / part, 0)
        try:
            found[part] = refusals(path)
        finally:
            os.chmod(path / part, mode)
        assert (path / part).stat().st_ino == inode, "it was created again"
        assert contents(path) == before
    return found


def refusals(path: Path) -> dict[str, str]:
    """Return the result of each call on a store that has an unreachable part."""
    calls: dict[str, Callable[[hansard.Store], object]] = {
        "exists": lambda store: store.exists(ID),
        "messages": lambda store: store.session(ID).messages(),
        "seq": lambda store: store.session(ID).seq,
        "append": lambda store: store.session(ID).add_message(MESSAGE),
        "create": lambda store: store.create(ID),
        "delete": lambda store: store.delete(ID),
        "session.verify": lambda store: store.session(ID).verify(),
        "sessions": lambda store: [info.damaged for info in store.sessions().items],
        "verify": lambda store: [finding.reason for finding in store.verify().findings],
    }
    said = {}
    for name, call in calls.items():
        try:
            with hansard.open(path) as store:
                said[name] = f"returned {call(store)!r}"
        except hansard.DiskFailed as error:
            said[name] = f"raised {error.strerror or error}"
    return said


def contents(path: Path) -> dict[str, bytes]:
    """Return every file of a store, but for what is derived."""
    derived = ("index", "marks")
    files = [
        found
        for found in path.rglob("*")
        if found.is_file() and not str(found.relative_to(path)).startswith(derived)
    ]
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


def file_size(place: Path) -> dict[str, object]:
    """N-29, F-40: append until the system allows no larger file; then raise the limit."""
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    acknowledged = 0
    with hansard.open(place / "store", durability="os") as store:
        session = store.session(ID)
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))
        try:
            while True:
                session.add_message(MESSAGE)
                acknowledged += 1
        except hansard.DiskFailed as error:
            said = str(error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        torn = [finding.severity for finding in session.verify().findings]
        session.add_message(MESSAGE)
        assert session.seq == acknowledged + 1
        assert session.verify().ok
    return {"acknowledged": acknowledged, "said": said, "torn": torn}


def descriptors(place: Path) -> dict[str, object]:
    """N-29: use a store with 0, 1, 2 … descriptors left in the process, until it has enough."""
    with hansard.open(place / "warm") as store:
        # All late imports are done by now: Python cannot import without descriptors.
        store.session(ID).add_message(MESSAGE)
        store.session(ID).verify()
    refused = 0
    acknowledged = 0
    for spare in range(64):
        failed = False
        with all_but(spare):
            try:
                with hansard.open(place / "store") as store:
                    session = store.session(ID)
                    session.add_message(MESSAGE)
                    acknowledged += 1
                    session.messages()
                    store.sessions()
            except hansard.HansardError:
                failed = True
                refused += 1
        with hansard.open(place / "store") as store:
            assert store.session(ID).seq >= acknowledged
            assert store.verify().ok
        if not failed:
            break
    with hansard.open(place / "store") as store:
        seq = store.session(ID).seq
    return {"refused": refused, "acknowledged": acknowledged, "seq": seq}


@contextlib.contextmanager
def all_but(spare: int) -> Iterator[None]:
    """Use up the descriptors of this process except for a number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    held = []
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        for descriptor in held[:spare]:
            os.close(descriptor)
        del held[:spare]
        yield
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
