"""A disk whose sync fails once: the next sync succeeds.

A disk of 32 MB is a file on a disk of 6 MB. What is written to it fits the cache, but not the disk below.
The sync that detects this fails once; later ones succeed, in every process, with the bytes lost.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import hansard
from tools.crash import mounts
from tools.crash.checker import check
from tools.crash.ledger import Ledger, read
from tools.crash.nursery import nursery, place
from tools.crash.row import Outcome
from tools.crash.workloads import append, open_store

#: Each message is so large that a few dozen are more than the lower disk holds.
_SIZE: Final = 128 * 1024
_MOST: Final = 100


class FailingDisk:
    """The only case of this kind."""

    label = "a sync that really fails"

    def run(self) -> Outcome:
        """Write until the sync fails, check in another process, repair the disk, check again."""
        reason = mounts.missing("ext4")
        if reason:
            return Outcome(ok=True, label=self.label, skipped=reason)
        directory = tempfile.mkdtemp(prefix="hansard-failing-", dir=place())
        try:
            ended = nursery().run("tools.crash.failing_disk:suffer", directory=directory)
        finally:
            shutil.rmtree(directory)
        if ended.result is None:
            return Outcome(ok=False, label=self.label, detail=ended.error or "hung, or died")
        wrong = ended.result["wrong"]
        return Outcome(ok=not wrong, label=self.label, detail="; ".join(wrong))


def suffer(directory: str) -> dict[str, Any]:
    """Run it in this process, which has a private mount namespace. For a nursery."""
    home = Path(directory)
    lower = home / "lower"
    lower.mkdir()
    mounts.enter_namespace()
    mounts.mount_memory(lower, "size=6m")
    image = mounts.Image("ext4", lower / "image", home / "disk", "errors=continue")
    path = str(image.point / "store")
    ledger = Ledger(str(home / "ledger"))
    store = open_store(path, auto_compact=False)
    number = next(
        (n for n in range(_MOST) if not append(store, ledger, "s", f"m{n}", size=_SIZE)), 0
    )
    # The next sync would succeed, so no process may retry it.
    shut = not append(store, ledger, "s", "after")
    shut = shut and _in_another(lambda: _is_shut(path))
    store.close()
    mounts.remount(lower, "size=64m")
    image.power_on()
    found = check(path, [str(home / "ledger")], damage=True)
    refused = [step for step in read([str(home / "ledger")]) if step.refused]
    wrong = found["wrong"]
    if not shut:
        wrong.append("a process could append after the sync had failed")
    if not number or refused[0].refused != "SyncFailed":
        wrong.append(f"after {number} appends: {refused[0]}")
    return {"wrong": wrong}


def _is_shut(path: str) -> bool:
    """Return whether another process is refused, too."""
    try:
        with open_store(path) as store:
            store.session("s").add_message({"id": "stranger"})
    except hansard.HansardError:
        return True
    return False


def _in_another(question: Callable[[], bool]) -> bool:
    """Ask in another process."""
    child = os.fork()
    if child == 0:
        answer = False
        try:
            answer = question()
        finally:
            os._exit(0 if answer else 1)
    return os.waitpid(child, 0)[1] == 0
