"""Say at which seq an item of an imported session stands.

Above: `bringing`.  Below: `encoding`; `backend.contract`, `event`.
An import writes its items behind an event whose metadata say how many there are, and how many there were
before: `{"imported": {"before": 3, "items": 7, …}}` at seq 9 means that items 4 to 7 stand at 10 to 13. One
such event is written for each import that brought something, and a fork inherits those of its parent. Behind
the items stand as many events as `closing` says, which are no items.
"""

from typing import Any, Final, NamedTuple, Self

from hansard.backend.contract import Log
from hansard.event import codec
from hansard.event.envelope import Event
from hansard.event.kinds import (
    METADATA_SET,
    SESSION_CLEARED,
    SESSION_CREATED,
    SESSION_REVERTED,
    is_said,
)
from hansard.importers.encoding import IMPORTED, Entry
from hansard.importers.source import PLACES

#: What must be there, and be numbers.
_NUMBERS: Final = ("before", "items", "closing")


class Batch(NamedTuple):
    """The items after `before`, up to `items`: they stand behind `seq`."""

    seq: int
    before: int
    items: int


class Places:
    """Where the items of a session stand.

    Attributes:
        batches: what each import brought, the oldest first.
        tally: what the last import wrote down; None if nothing can be made of it.
    """

    __slots__ = ("batches", "tally")

    def __init__(self, batches: list[Batch], tally: dict[str, Any] | None) -> None:
        self.batches = batches
        self.tally = tally

    @classmethod
    def of(cls, log: Log) -> Self | None:
        """Return the places of a session, given with what it inherits; None if it was not imported."""
        batches: list[Batch] = []
        tally: dict[str, Any] | None = None
        for event in log.controls():
            found = _tally(event)
            if found is not None:
                batches.append(Batch(event.seq, found["before"], found["items"]))
                tally = found
        return None if tally is None else cls(batches, tally)

    @classmethod
    def of_new(cls, earlier: "Places | None", seq: int, tally: dict[str, Any]) -> Self:
        """Return the places of a session when an import has written its event at a seq."""
        batches = [] if earlier is None else earlier.batches
        return cls([*batches, Batch(seq, tally["before"], tally["items"])], tally)

    def seq(self, item: int) -> int:
        """Return the seq of an item, counted from 1; 0 for the place before the first."""
        for batch in reversed(self.batches):
            if batch.before < item <= batch.items:
                return batch.seq + item - batch.before
        return 0

    def end(self) -> int:
        """Return the seq of the last event that the last import wrote."""
        last = self.batches[-1]
        closing = 0 if self.tally is None else self.tally["closing"]
        return last.seq + last.items - last.before + closing

    def holds(self, log: Log, items: list[Entry]) -> bool:
        """Say whether a session begins with these items, word for word."""
        wanted = {self.seq(number): item for number, item in enumerate(items, start=1)}
        if len(wanted) != len(items) or 0 in wanted:
            return False
        for chunk in log.read(min(wanted) - 1, max(wanted)):
            for event in chunk.events():
                item = wanted.pop(event.seq, None)
                if item is not None and not _same(event, item):
                    return False
        return not wanted


def _tally(event: Event) -> dict[str, Any] | None:
    if event.kind not in {METADATA_SET, SESSION_CREATED}:
        return None
    metadata = event.data.get("metadata")
    found = metadata.get(IMPORTED) if isinstance(metadata, dict) else None
    if not isinstance(found, dict) or not all(type(found.get(name)) is int for name in _NUMBERS):
        return None
    return {"kind": None, "from": None, "sha256": None, **found}


def _same(event: Event, item: Entry) -> bool:
    if event.kind != item.kind:
        return False
    if item.at is None:
        return event.raw == item.data
    data = event.data
    data.pop(PLACES[item.kind], None)
    return codec.equal(data, codec.decode(item.data))


def went_on(log: Log, after: int) -> bool:
    """Say whether something was said in a session, or its view was changed, after a seq."""
    return any(
        is_said(event.kind) or event.kind in {SESSION_REVERTED, SESSION_CLEARED}
        for chunk in log.read(after)
        for event in chunk.events()
    )
