"""What an import did: session by session, and whatever it could not do.

Above: `bringing`, the command.  Below: `source`.
"""

import msgspec

from hansard.importers.source import Skipped


class Brought(msgspec.Struct, frozen=True):
    """A session of the source, and what became of it.

    Attributes:
        session: its id in the store.
        where: the file that it is from.
        outcome: `imported`; `continued`: more was appended to what an earlier import had brought; `present`:
            there was nothing to do.
        items: how many items it has.
        new: how many of them were brought now.
        parent: the session that it is a fork of, if it became one now.
    """

    session: str
    where: str
    outcome: str
    items: int
    new: int
    parent: str | None = None


class Report(msgspec.Struct):
    """What an import did.

    Attributes:
        kind: what was imported.
        sessions: the sessions of the source that are in the store now, and what became of each.
        skipped: what was not imported, or not as it stood there: where, and why.
        dry_run: whether nothing was written, and this is what would have been.
    """

    kind: str
    sessions: list[Brought] = []
    skipped: list[Skipped] = []
    dry_run: bool = False

    @property
    def imported(self) -> list[Brought]:
        """The sessions that are new."""
        return self._became("imported")

    @property
    def continued(self) -> list[Brought]:
        """The sessions that had grown since an earlier import."""
        return self._became("continued")

    @property
    def present(self) -> list[Brought]:
        """The sessions that were there already."""
        return self._became("present")

    def _became(self, outcome: str) -> list[Brought]:
        return [one for one in self.sessions if one.outcome == outcome]
