"""Turn the items of a foreign session into what a log takes, and into a checksum of them.

Above: `bringing`.  Below: `source`, `event`.
Messages and summaries are what was said, and are kept word for word, and so are the kinds of `VERBATIM`. In
all else (settings, usage, what an importer keeps as events of its own) what looks like a credential is taken
out: nobody said it, and a session is no place for a key.
"""

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from hansard.errors import InvalidEvent
from hansard.event import codec, kinds, secrets
from hansard.event.envelope import NewEvent
from hansard.event.kinds import (
    APPLICATION,
    CONTROL,
    MESSAGE_ADDED,
    METADATA_SET,
    SESSION_CLEARED,
    SESSION_CLOSED,
    SESSION_REVERTED,
    SESSION_SNAPSHOTTED,
    SUMMARY_ADDED,
    USAGE_RECORDED,
)
from hansard.importers.source import MALFORMED, PLACES, VERBATIM, Item, explained

#: Under this name, a session's metadata say what was imported.
IMPORTED: Final = "imported"

_SAID: Final = frozenset({MESSAGE_ADDED, SUMMARY_ADDED})

#: What an importer may hand over, besides events of its own.
_ALLOWED: Final = _SAID | {
    METADATA_SET,
    SESSION_CLEARED,
    SESSION_CLOSED,
    SESSION_REVERTED,
    SESSION_SNAPSHOTTED,
    USAGE_RECORDED,
}

#: Stands where something cannot be stored: the others keep their places.
_LOST: Final = "x.import.lost"


class Entry(NamedTuple):
    """An item that can be stored."""

    kind: str
    #: Its data; for a kind of `PLACES`, without the place.
    data: bytes
    time: str | None
    at: int | tuple[int, ...] | None

    def draft(self, seq_of: Callable[[int], int]) -> NewEvent:
        """Return the draft of its event; `seq_of` says the seq of an item, 0 for none."""
        data = self.data
        if self.at is not None:
            seqs = [seq_of(item) for item in _several(self.at)]
            place = {PLACES[self.kind]: seqs if isinstance(self.at, tuple) else seqs[0]}
            data = codec.encode({**codec.decode(data), **place})
        return NewEvent(self.kind, data, self.kind in CONTROL, self.time)


def _several(at: int | tuple[int, ...]) -> tuple[int, ...]:
    return at if isinstance(at, tuple) else (at,)


def entries(
    items: Iterable[Item], begun: str | None, report: Callable[[int, str], None], *, first: int = 1
) -> list[Entry]:
    """Return items as they can be stored.

    What cannot be stored as it is, is reported by its number, from 1, and something stands in its place.

    Args:
        items: what an importer handed over.
        begun: the time of items before the first that has one.
        report: called with number and reason.
        first: the number of the first.
    """
    found: list[Entry] = []
    time = begun
    for number, item in enumerate(items, start=first):
        time = item.time or time
        found.append(_entry(item, time, number, report))
    return found


def _entry(item: Item, time: str | None, number: int, report: Callable[[int, str], None]) -> Entry:
    if item.kind not in _ALLOWED and not item.kind.startswith(APPLICATION):
        raise ValueError(f"an importer cannot hand over {item.kind!r}")
    if (item.at is not None) != (item.kind in PLACES):
        raise ValueError(
            f"{item.kind}: `at` is for the kinds {', '.join(PLACES)}, and they need it"
        )
    if item.at is not None and not all(0 <= one < number for one in _several(item.at)):
        raise ValueError(f"{item.kind}: item {number} cannot mean a place after {item.at} items")
    try:
        raw, whole = _stored(item)
    except (InvalidEvent, *MALFORMED) as error:
        why = str(error) if isinstance(error, InvalidEvent) else explained(error)
        report(number, f"cannot be stored: {why}")
        return Entry(_LOST, codec.encode({"kind": item.kind, "reason": why[:500]}), time, None)
    if not whole:
        report(
            number, "holds halves of characters (lone surrogates), which were replaced by \ufffd"
        )
    return Entry(item.kind, raw, time, item.at)


def _stored(item: Item) -> tuple[bytes, bool]:
    """Return the data of an item as they are stored, and whether they are as they were."""
    data = item.data
    if item.kind not in _SAID and item.kind not in VERBATIM:
        data, _ = secrets.redact(data)
    try:
        return _encoded(item.kind, data), True
    except InvalidEvent as error:
        try:
            return _encoded(item.kind, _without_surrogates(data)), False
        except InvalidEvent:
            raise error from None


def _encoded(kind: str, data: dict[str, Any]) -> bytes:
    kinds.check_kind(kind)
    if kind == METADATA_SET and IMPORTED in data.get("metadata", ()):
        data = {**data, "metadata": {k: v for k, v in data["metadata"].items() if k != IMPORTED}}
    raw = codec.encode(data)
    shape = PLACES.get(kind)
    whole = raw if shape is None else codec.encode({**data, shape: 0})
    if kind in kinds.KINDS and kinds.read(kind, whole) is None:
        raise InvalidEvent(f"{kind}: {data!r:.100} has not the shape of such an event")
    return raw


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_without_surrogates(one) for one in value]
    return value


def described(metadata: dict[str, Any], report: Callable[[str], None]) -> dict[str, Any]:
    """Return metadata without credentials, and without what cannot be stored, which is reported."""
    kept: dict[str, Any] = {}
    for name, value in metadata.items():
        if value is None or name == IMPORTED:
            continue
        try:
            shown, _ = secrets.redact({name: value})
            mended = _without_surrogates(shown)
            codec.encode(mended, "metadata", wrapped=True)
        except (InvalidEvent, RecursionError) as error:
            why = error if isinstance(error, InvalidEvent) else explained(error)
            report(f"metadata {name!r:.60} cannot be stored: {why}")
        else:
            kept.update(mended)
    return kept


def digest(stored: Iterable[Entry]) -> str:
    """Return the checksum of entries, by which they are known again. Their times are not in it."""
    found = hashlib.sha256()
    for entry in stored:
        found.update(line_of(entry))
    return found.hexdigest()


def line_of(entry: Entry) -> bytes:
    """Return an entry in a form that is the same for the same items only."""
    place = b"" if entry.at is None else ",".join(map(str, _several(entry.at))).encode()
    return b"%b\0%b\0%b\0" % (entry.kind.encode(), place, entry.data)
