"""Limit the descriptors that all stores of a process keep open.

Sessions and stores keep files open for reuse, and can close them at any time. They share one budget: half of
what the process may open; the application has the rest. The least recently used files are closed first. If
the system still refuses to open a file, all idle files are closed, and `disk` retries once.
"""

import resource
from collections import OrderedDict
from typing import Final, Protocol
from weakref import WeakSet, ref

from hansard.log import disk

#: Descriptors of a session that is written to: its log, its lock and its directory.
SESSION: Final = 3
#: Of a store, besides its root directory: two directories, three for its change markers, three for its index.
STORE: Final = 8

#: The minimum and maximum of the budget, in descriptors.
_FEWEST: Final = 2 * STORE
_MOST: Final = 256 * SESSION


class Holder(Protocol):
    """An object that keeps files open.

    Attributes:
        descriptors: maximum number of its open files.
    """

    descriptors: int

    def release_files(self, *, wait: bool = True) -> None:
        """Close idle files. Without `wait`, skip locked ones: the calling thread may hold the lock."""


#: Open stores: each keeps its root directory open, to find it after it was renamed.
stores: "WeakSet[object]" = WeakSet()

#: Guards the three variables below. Re-entrant, for signal handlers.
_mutex = disk.ForkLock()
_recent: "OrderedDict[ref[Holder], int]" = OrderedDict()
_latest: "ref[Holder] | None" = None
_total = 0


def budget() -> int:
    """Return the budget: half of the process's limit, less one for each store."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    half = _MOST if soft == resource.RLIM_INFINITY else soft // 2
    return max(_FEWEST, min(_MOST, half - len(stores)))


def total() -> int:
    """Return the number of descriptors that the holders may have open."""
    return _total


def use(holder: Holder) -> None:
    """Record that a holder opens files; close those of the least recently used holders."""
    global _latest, _total  # noqa: PLW0603 - one budget for the process is the point
    me = ref(holder)
    if me is _latest:
        return
    over: list[Holder] = []
    with _mutex.lock:
        _latest = me
        _total += holder.descriptors - _recent.pop(me, 0)
        _recent[me] = holder.descriptors
        most = budget()
        while _total > most and len(_recent) > 1:
            oldest, count = _recent.popitem(last=False)
            _total -= count
            found = oldest()
            if found is not None:
                over.append(found)
    for found in over:
        found.release_files(wait=False)


def relieve() -> None:
    """Close all idle files."""
    global _latest, _total  # noqa: PLW0603 - as above
    with _mutex.lock:
        _latest = None
        holders = [found for one in _recent if (found := one()) is not None]
        _recent.clear()
        _total = 0
    for found in holders:
        found.release_files(wait=False)


disk.relief.append(relieve)
