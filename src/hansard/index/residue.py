"""Rid the index of what was taken out of the logs: what a compaction does last.

Above: `store`, `session`.  Below: `finder`, if there is an index.
"""

from hansard.backend.contract import Backend


def forget(backend: Backend) -> None:
    """Leave nothing in the index, if there is one, of what was redacted, dropped, deleted or purged."""
    place = backend.whole.place()
    if place is not None:
        # One that came with a copy of the store may hold all of it, and is never opened.
        place.sweep()
    kept = place is not None and place.identity() is not None
    if kept or backend.whole.tables() is not None:
        # Here, because it takes SQLite: most who compact have no index.
        from hansard.index import finder

        finder.of(backend).forget()
