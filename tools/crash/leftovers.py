"""Find leftovers of a case: descriptors, threads, child processes, unfinished files of a store."""

import gc
import os
import threading
from collections.abc import Iterable
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

#: Where Linux lists the open descriptors of a process. Other systems check everything else.
_OPEN = Path("/proc/self/fd")


class Leftovers:
    """The state at one moment, for a comparison with a later one."""

    def __init__(self) -> None:
        self._threads = set(threading.enumerate())
        self._descriptors = self._open()
        self._children = self._running()

    @staticmethod
    def _open() -> dict[str, str]:
        found = {}
        if _OPEN.exists():
            for name in os.listdir(_OPEN):
                try:
                    found[name] = os.readlink(_OPEN / name)
                except OSError:
                    continue  # the descriptor of the listing itself
        return found

    @staticmethod
    def _running() -> set[str]:
        path = Path(f"/proc/self/task/{threading.get_native_id()}/children")
        return set(path.read_text().split()) if path.exists() else set()

    def more(self) -> str:
        """Describe what is new; empty if nothing is."""
        found = self._more()
        if found:
            # A cycle of references may keep a closed handle for a while: that is not a leak.
            gc.collect()
            found = self._more()
        return found

    def _more(self) -> str:
        now = self._open()
        server: Any = forkserver._forkserver  # noqa: SLF001
        # Python's resource tracker, which starts with the first case that needs it and stays.
        now.pop(str(server._forkserver_alive_fd), None)  # noqa: SLF001
        own = {str(server._forkserver_pid)}  # noqa: SLF001
        descriptors = [now[name] for name in now if now[name] != self._descriptors.get(name)]
        threads = [thread.name for thread in set(threading.enumerate()) - self._threads]
        children = sorted(self._running() - self._children - own)
        kinds: dict[str, Iterable[str]] = {
            "descriptors": descriptors,
            "threads": threads,
            "processes": children,
        }
        return "; ".join(f"{name}: {', '.join(those)}" for name, those in kinds.items() if those)


def temporaries(store: Path) -> list[Path]:
    """Return all unfinished files of a store."""
    return sorted(store.rglob(".tmp-*"))
