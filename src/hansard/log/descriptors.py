"""Bound the descriptors that all stores of a process keep open together.

Sessions and stores keep files open to use them again, and can close them at any time. They share one
budget, half of what the process may open, so that the application has the rest; the least recently
used close first. If the system refuses one more all the same, everything that is idle is closed, and
`disk` tries once more.
"""

import resource
from collections import OrderedDict
from typing import Final, Protocol
from weakref import WeakSet, ref

from hansard.log import disk

#: Descriptors of a session that is written to: its log, its lock and its directory.
SESSION: Final = 3
#: Of a store, besides its own directory: two directories, three for its marks, three for its index.
STORE: Final = 8

#: The budget, in descriptors: never less than this, nor more.
_FEWEST: Final = 2 * STORE
_MOST: Final = 256 * SESSION


class Holder(Protocol):
    """What keeps files open.

    Attributes:
        descriptors: how many, at most.
    """

    descriptors: int

    def let_go(self, *, wait: bool = True) -> None:
        """Close what is not in use. Without `wait`, skip what a thread has locked: the caller may, too."""


#: Open stores: each keeps its own directory, by which it is found after it was renamed.
stores: "WeakSet[object]" = WeakSet()

#: Guards the three below; held for a moment only. Re-entrant, for signal handlers.
_mutex = disk.ForkLock()
_recent: "OrderedDict[ref[Holder], int]" = OrderedDict()
_latest: "ref[Holder] | None" = None
_total = 0


def budget() -> int:
    """Return how many descriptors may stay open: half of the limit, less one for each store."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    half = _MOST if soft == resource.RLIM_INFINITY else soft // 2
    return max(_FEWEST, min(_MOST, half - len(stores)))


def total() -> int:
    """Return how many descriptors may be open, by what their holders say."""
    return _total


def use(holder: Holder) -> None:
    """Note that a holder is about to open files; close those of the ones unused for longest."""
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
        found.let_go(wait=False)


def relieve() -> None:
    """Close everything that is idle."""
    global _latest, _total  # noqa: PLW0603 - as above
    with _mutex.lock:
        _latest = None
        holders = [found for one in _recent if (found := one()) is not None]
        _recent.clear()
        _total = 0
    for found in holders:
        found.let_go(wait=False)


disk.relief.append(relieve)
