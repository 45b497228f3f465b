"""Erase from the index what was removed from the logs: the last step of a compaction."""

from hansard.backend.contract import Backend, IndexFile


def forget(backend: Backend) -> None:
    """Leave nothing in the index, if there is one, of what was redacted, dropped, deleted or purged."""
    home = backend.whole.index_storage()
    if home is None:
        return
    if isinstance(home, IndexFile):
        # One that came with a copy of the store may hold all of it, and is never opened.
        home.sweep()
        if home.identity() is None:
            return
    # Imported here, because it takes SQLite: most stores that are compacted have no index.
    from hansard.index import index

    index.of(backend).forget()
