"""Ten ways in which a real system refuses a write: each causes a clear error, until its cause is removed."""

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import hansard
from tools.crash import limited_process, mounts
from tools.crash.nursery import nursery, place
from tools.crash.row import Outcome
from tools.crash.workloads import message

#: More messages than any of these disks can hold.
_ENOUGH: Final = 5000


class Wrong(Exception):
    """A broken guarantee, which the text names."""


def _fill(store: hansard.Store, reason: int = errno.ENOSPC) -> list[str]:
    """Append until the system refuses; return what was acknowledged."""
    ids: list[str] = []
    for number in range(_ENOUGH):
        try:
            store.session("s").add_message(message(f"m{number}", 500))
        except hansard.HansardError as error:
            _check_clear(error, reason)
            return ids
        ids.append(f"m{number}")
    raise Wrong("nothing was refused")


def _check_clear(error: hansard.HansardError, reason: int) -> None:
    """Check that an error has the system's message and the place."""
    if not isinstance(error, hansard.DiskFailed) or os.strerror(reason) not in str(error):
        raise Wrong(f"not clear: {error!r}")


def _refused(call: Callable[[], object], reason: int) -> None:
    """Check that a call is refused for this reason."""
    try:
        found = call()
    except hansard.HansardError as error:
        _check_clear(error, reason)
        return
    failed: dict[str, str] = getattr(found, "failed", {})
    if not failed or os.strerror(reason) not in str(failed):
        raise Wrong(f"not refused: {found!r}")


def _same(session: hansard.Session, ids: list[str]) -> None:
    """Check that a session has exactly these messages, and is valid."""
    found = [said["id"] for said in session.messages()]
    if found != ids:
        raise Wrong(f"{session.id} says {found[-5:]}, not {ids[-5:]}")
    if not session.verify().ok:
        raise Wrong(f"{session.id}: {session.verify().damage}")


def _works(store: hansard.Store, ids: list[str]) -> None:
    """Check that everything works again."""
    _same(store.session("s"), ids)
    store.session("s").add_message(message("again"))
    store.session("t").add_message(message("t"))
    if store.compact().failed or not store.verify().ok:
        raise Wrong("cannot be compacted, or is not valid")
    _same(store.session("s"), [*ids, "again"])
    listed = {info.id for info in store.sessions().items}
    if not {"s", "t"} <= listed:
        raise Wrong(f"listed are {listed}")
    left = [name for _, _, names in os.walk(store.health().where) for name in names]
    if [name for name in left if name.startswith(".tmp-")]:
        raise Wrong(f"left over: {left}")


def _open(point: Path, **options: Any) -> hansard.Store:
    return hansard.open(point / "store", **options)


def full(point: Path) -> None:
    """Append on a disk without space."""
    mounts.mount_memory(point, "size=64k")
    with _open(point) as store:
        ids = _fill(store)
        # Reading and listing need no space.
        _same(store.session("s"), ids)
        store.sessions()
        store.search("m0")
        mounts.remount(point, "size=8m")
        _works(store, ids)


def full_ext4(point: Path) -> None:
    """Append on a disk of ext4 without space."""
    mounts.Image("ext4", point.with_name("image"), point)
    with _open(point, durability="os", auto_compact=False) as store:
        store.session("s").add_message(message("m"))
        ballast = point / "ballast"
        with ballast.open("wb", buffering=0) as file:
            with contextlib.suppress(OSError):
                while file.write(bytes(1 << 16)):
                    pass
            file.truncate(file.tell() - (1 << 18))
        ids = ["m", *_fill(store)]
        ballast.unlink()
        _works(store, ids)


def full_compaction(point: Path) -> None:
    """Compact on a disk without space for the new file."""
    mounts.mount_memory(point, "size=128k")
    with _open(point) as store:
        ids = _fill(store)
        _refused(store.session("s").compact, errno.ENOSPC)
        _same(store.session("s"), ids)
        mounts.remount(point, "size=8m")
        _works(store, ids)


def full_import(point: Path) -> None:
    """Import more than fits on the disk."""
    mounts.mount_memory(point, "size=96k")
    with hansard.open("memory:") as source, _open(point) as store:
        for number in range(400):
            source.session("s").add_message(message(f"m{number}", 500))
        exported = list(source.session("s").export(redacted=False))
        _refused(lambda: store.import_session(exported), errno.ENOSPC)
        if store.exists("s"):
            raise Wrong("half of it is there")
        mounts.remount(point, "size=8m")
        store.import_session(exported)
        _works(store, [f"m{number}" for number in range(400)])


def no_inodes(point: Path) -> None:
    """Create sessions on a disk without inodes."""
    mounts.mount_memory(point, "size=8m", "nr_inodes=40")
    made = ["s"]
    with _open(point) as store:
        store.session("s").add_message(message("m"))
        for number in range(_ENOUGH):
            try:
                store.session(f"n{number}").add_message(message(f"m{number}"))
            except hansard.HansardError as error:
                _check_clear(error, errno.ENOSPC)
                break
            made.append(f"n{number}")
        if {info.id for info in store.sessions().items} != set(made):
            raise Wrong("a refused session is listed, or a created one is not")
        mounts.remount(point, "nr_inodes=400")
        _works(store, ["m"])


def read_only(point: Path) -> None:
    """Use a store on a disk that became read-only."""
    mounts.mount_memory(point, "size=8m")
    ids = [f"m{number}" for number in range(20)]  # enough for a compaction to save bytes
    with _open(point) as store:
        store.session("s").add_messages([message(id, 500) for id in ids])
    mounts.remount(point, "ro")
    with _open(point) as store:
        _same(store.session("s"), ids)
        store.sessions()
        _refused(lambda: store.session("s").add_message(message("n")), errno.EROFS)
        _refused(lambda: store.create("n"), errno.EROFS)
        _refused(lambda: store.delete("s"), errno.EROFS)
        _refused(store.compact, errno.EROFS)
        mounts.remount(point, "rw")
        _works(store, ids)


def no_permission(point: Path) -> None:
    """Use a store without permission."""
    point.chmod(0o755)
    # Also the nursery's directory, which another user cannot enter.
    for above in (point.parent, point.parent.parent):
        above.chmod(0o755)
    for part, said in limited_process.permissions(point).items():
        for call, answer in dict(said).items():  # type: ignore[call-overload]
            # If a listing succeeds, it flags the session that cannot be read.
            flags = call in {"sessions", "verify"} and part.startswith("sessions/")
            how = "returned [" if flags else "raised "
            if not answer.startswith(how) or "Permission denied" not in answer:
                raise Wrong(f"{part}: {call}: {answer}")


def file_size(point: Path) -> None:
    """Append up to the largest file that the process may write."""
    found = limited_process.file_size(point)
    refused = "log.jsonl: write: File too large" in str(found["said"])
    if not refused or found["torn"] not in ([], ["note"]):
        raise Wrong(str(found))


def descriptors(point: Path) -> None:
    """Use a store with 0, 1, 2 … descriptors left."""
    found = limited_process.descriptors(point)
    if found["seq"] != found["acknowledged"] or not found["refused"]:
        raise Wrong(str(found))


SITUATIONS: Final[dict[str, Callable[[Path], None]]] = {
    situation.__name__.replace("_", " "): situation
    for situation in (
        full,
        full_ext4,
        full_compaction,
        full_import,
        no_inodes,
        read_only,
        no_permission,
        file_size,
        descriptors,
    )
}

#: Situations that need no mount.
UNMOUNTED: Final = frozenset({"file size", "descriptors", "no permission"})


@dataclass(frozen=True)
class Refusal:
    """One of the situations."""

    label: str

    def run(self) -> Outcome:
        """Enter the situation, and leave it."""
        reason = ""
        if self.label not in UNMOUNTED:
            reason = mounts.missing("ext4" if self.label == "full ext4" else "tmpfs")
        if reason:
            return Outcome(ok=True, label=self.label, skipped=reason)
        directory = tempfile.mkdtemp(prefix="hansard-full-", dir=place())
        try:
            ended = nursery().run(
                "tools.crash.full_disks:meet", label=self.label, directory=directory
            )
        finally:
            shutil.rmtree(directory)
        wrong = "hung" if ended.hung else ended.error or (ended.signal and f"signal {ended.signal}")
        return Outcome(ok=not wrong, label=self.label, detail=str(wrong or ""))


def meet(label: str, directory: str) -> None:
    """Run a situation; raise `Wrong` on a broken guarantee. For a nursery."""
    point = Path(directory, "point")
    point.mkdir()
    if label not in UNMOUNTED:
        mounts.enter_namespace()
    SITUATIONS[label](point)
