"""Find the index of a store, if there is one: for those who can do without.

Above: `store`, `reading`.  Below: `finder`, `backend.contract`.
To make an index means to read every session. Who wants to know one thing, and can find it out from the logs,
does not wait for that; and where there is no index, nothing of it is imported.
"""

from typing import TYPE_CHECKING

from hansard.backend.contract import Backend

if TYPE_CHECKING:
    from hansard.index.finder import Index


def existing(backend: Backend) -> "Index | None":
    """Return the index of a backend, or of that which it is a part of; None if there is none yet."""
    backend.check_open()
    whole = backend.whole
    if whole.finder is None:
        place = whole.place()
        kept = place is not None and place.identity() is not None
        if not kept and whole.tables() is None:
            return None
    from hansard.index import finder

    found = finder.of(backend)
    return found if found.ready() else None
