"""Take long texts out of an event's data, and put them back.

Above: `backend`.  Below: `envelope`; docs/format.md, F-70 to F-72.
An image in base64, said again in fifty messages and in every fork, need not be kept fifty times. What is
taken out leaves an empty text behind, and a reference: the place, and the hash of what belongs there.
References are kept beside the data and not in them, so nothing that somebody says can be taken for one. Pure:
where the texts are kept is for others to know, and `Fetch` is how they are asked for.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from hansard.errors import Damaged
from hansard.event import codec
from hansard.event.envelope import Draft, Event
from hansard.event.kinds import MESSAGE_ADDED

#: A reference takes about this many bytes: to take out less would gain nothing.
SMALLEST: Final = 256


class Reference(msgspec.Struct, frozen=True):
    """A place in an event's data, and what belongs there.

    Attributes:
        at: the way to the place: names of members, and indexes.
        sha256: of the text's UTF-8 bytes, in lower-case hexadecimal digits.
        bytes: how many they are.
    """

    at: tuple[str | int, ...]
    sha256: str
    bytes: int


#: Returns the text that a reference stands for, or raises `Damaged`.
Fetch = Callable[[Reference], str]


class Taken(NamedTuple):
    """Data with gaps, and what was in them."""

    data: bytes
    #: As JSON, for the record.
    references: bytes
    #: The texts' UTF-8 bytes, by their hashes.
    contents: dict[str, bytes]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def take_out(data: bytes, threshold: int) -> Taken | None:
    """Take out every text that is longer than the threshold, in bytes; None if there is none.

    Only what comes back byte for byte: data in a form that this encoder would not write stay as they are.
    """
    if len(data) <= threshold:
        return None
    tree = _decode(data)
    references: list[Reference] = []
    contents: dict[str, bytes] = {}
    for holder, step, at in _long_texts(tree, threshold):
        content = holder[step].encode()
        reference = Reference(at, _sha256(content), len(content))
        if len(_encode(reference)) < len(content):
            references.append(reference)
            contents[reference.sha256] = content
            holder[step] = ""
    if not references:
        return None
    gapped = _encode(tree)
    texts = {digest: content.decode() for digest, content in contents.items()}
    again = put_back(gapped, tuple(references), lambda reference: texts[reference.sha256])
    return Taken(gapped, _encode(references), contents) if again == data else None


def _long_texts(tree: Any, threshold: int) -> list[tuple[Any, str | int, tuple[str | int, ...]]]:
    """Return each long text of a tree: what holds it, under which step, and the whole way to it."""
    found: list[tuple[Any, str | int, tuple[str | int, ...]]] = []
    waiting: list[tuple[Any, tuple[str | int, ...]]] = [(tree, ())]
    while waiting:
        holder, way = waiting.pop()
        steps = holder.items() if isinstance(holder, dict) else enumerate(holder)
        for step, value in steps:
            if isinstance(value, str):
                # Characters are at most bytes: counting those of a short text is not needed.
                if len(value) > threshold or (
                    4 * len(value) > threshold and len(value.encode()) > threshold
                ):
                    found.append((holder, step, (*way, step)))
            elif isinstance(value, dict | list):
                waiting.append((value, (*way, step)))
    return found


def _sha256(content: bytes) -> str:
    # Here, because only large content needs it and the import costs milliseconds.
    import hashlib

    return hashlib.sha256(content).hexdigest()


def take_out_all(
    drafts: Sequence[Draft], threshold: int | None
) -> tuple[Sequence[Draft], dict[str, bytes]]:
    """Return drafts of which the messages have gaps, and the contents of those, by their hashes."""
    contents: dict[str, bytes] = {}
    if threshold is None or all(len(draft.data) <= threshold for draft in drafts):
        return drafts, contents
    gapped = []
    for draft in drafts:
        taken = take_out(draft.data, threshold) if draft.kind == MESSAGE_ADDED else None
        if taken is None:
            gapped.append(draft)
        else:
            gapped.append(msgspec.structs.replace(draft, data=taken.data, large=taken.references))
            contents.update(taken.contents)
    return gapped, contents


def put_back(data: bytes, references: tuple[Reference, ...], fetch: Fetch) -> bytes:
    """Return data with the texts in their places: the inverse of `take_out`."""
    tree = _decode(data)
    _put(tree, references, fetch)
    return _encode(tree)


def _put(tree: Any, references: tuple[Reference, ...], fetch: Fetch) -> None:
    """Put a text into each gap; ValueError if a way leads to none."""
    for reference in references:
        holder = tree
        try:
            for step in reference.at[:-1]:
                holder = holder[step]
            is_gap = holder[reference.at[-1]] == ""
        except (KeyError, IndexError, TypeError):
            is_gap = False
        if not is_gap:
            raise ValueError(f"there is no gap at {list(reference.at)!r:.200}")
        holder[reference.at[-1]] = fetch(reference)


class Gaps:
    """What is missing from the data of one event, and how to get it.

    Attributes:
        references: what belongs where.
        fetch: returns the text that a reference stands for, or raises `Damaged`.
    """

    __slots__ = ("_where", "fetch", "references")

    def __init__(self, references: object, fetch: Fetch, where: str) -> None:
        """`references`: what `take_out` made, decoded. `where`: the log, for people."""
        self.fetch = fetch
        self._where = where
        try:
            self.references = msgspec.convert(references, tuple[Reference, ...])
        except msgspec.MsgspecError as error:
            raise self._damaged(f"references that cannot be read: {error}") from None
        sizes = [reference.bytes for reference in self.references]
        # It was whole before anything was taken out of it: what claims more is no work of ours.
        if min(sizes, default=0) < 0 or sum(sizes) > codec.MAX_BYTES:
            raise self._damaged("references to more than data can hold")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Gaps) and self.references == other.references

    def __hash__(self) -> int:
        return hash(self.references)

    def fill(self, data: bytes) -> bytes:
        """Return an event's data, whole."""
        try:
            return put_back(data, self.references, self.fetch)
        except ValueError as error:
            raise self._damaged(str(error)) from None

    def fill_message(self, message: dict[str, Any]) -> dict[str, Any]:
        """Put the texts into a message, which is changed, and return it."""
        tree = {"message": message}
        try:
            _put(tree, self.references, self.fetch)
        except ValueError as error:
            raise self._damaged(str(error)) from None
        return tree["message"]

    def fill_json(self, message: bytes) -> bytes:
        """Return a message, given as JSON, whole."""
        return _encode(self.fill_message(_decode(message)))

    def _damaged(self, reason: str) -> Damaged:
        return Damaged(self._where, 0, f"a record with large content: {reason}")


class LargeEvent(Event, frozen=True):
    """An event whose data are not all at hand: `raw` gets the texts each time it is asked.

    So nothing is read that nobody looks at: not for an event that was redacted, nor for one that is counted.
    """

    gaps: Gaps | None = None

    @property  # type: ignore[misc]
    def raw(self) -> bytes:
        """The event's data as JSON, whole."""
        assert self.gaps is not None  # whoever makes one gives them
        return self.gaps.fill(stored(self))

    def whole(self) -> Event:
        """Return the event with all that belongs to it."""
        return Event(self.seq, self.stamp, self.kind, self.raw, self.key)


def stored(event: Event) -> bytes:
    """Return an event's data as they are at hand: with gaps, if it has large content."""
    raw: bytes = Event.raw.__get__(event)  # type: ignore[attr-defined]
    return raw


def whole(event: Event) -> Event:
    """Return an event with all that belongs to it, to hand out."""
    return event.whole() if isinstance(event, LargeEvent) else event
