"""The parts of a history: calls, answers, the final content, and violations."""

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

#: What may be wrong with a history.
Kind = Literal[
    "lost",  # acknowledged, and not there
    "twice",  # there more than once
    "phantom",  # stored, and not appended by any call, or refused
    "altered",  # there, but altered
    "gap",  # the seqs are not 1, 2, 3 …
    "torn batch",  # a part of a batch, or something in the middle of it
    "order",  # before an event that was acknowledged before the call
    "not a prefix",  # a reader saw what never was the beginning of the session
    "stale",  # a reader did not see an event that was acknowledged before the read
    "compare-and-set",  # appended although the session was elsewhere, or refused although it was not
    "key",  # one key, and not one answer
    "fork",  # a child that does not begin as its parent did
    "resurrected",  # there, although it had been deleted
    "vanished",  # reported as deleted, although no call deleted it
    "failed",  # an error that nothing explains
    "hung",  # a worker that did not come to its end
    "damaged",  # `verify` found something
]

#: What came of something that was asked. "unknown": the process was killed before the answer.
Outcome = Literal["ok", "refused", "failed", "unknown"]


class Violation(NamedTuple):
    """A promise that a history shows to be broken."""

    kind: Kind
    session: str
    #: What is wrong, with the operations that show it.
    detail: str
    #: The calls that concern the session, in the first report of it: when, what, and what came of it.
    calls: Sequence[str] = ()

    def __str__(self) -> str:
        said = f"{self.kind}: {self.session or 'the store'}: {self.detail}"
        return "\n    ".join([said, *self.calls])


class Operation(NamedTuple):
    """One call of the store: arguments, time, caller and result."""

    #: Worker, thread and number: `w2.0.17`.
    id: str
    #: append, revert, fork, create, delete, restore, purge, compact, read, view, list or search.
    do: str
    session: str
    #: The arguments, as documented in `histories`.
    asked: dict[str, Any]
    #: Nanoseconds of the one clock that all workers share.
    invoked: int
    #: When the answer came; None if it never did.
    returned: int | None = None
    outcome: Outcome = "unknown"
    #: The result; `error` with its text if the call was refused or failed.
    result: Mapping[str, Any] = MappingProxyType({})


class Record(NamedTuple):
    """One event, as a reader finds it."""

    seq: int
    kind: str
    data: dict[str, Any]
    key: str | None = None
    stamp: str = ""


class Final(NamedTuple):
    """One session after all is over."""

    events: list[Record]
    deleted: bool = False


class History(NamedTuple):
    """All calls on a store with their answers, and its final content."""

    operations: list[Operation]
    sessions: dict[str, Final]
    #: What was noticed besides: workers that hung, what `verify` found.
    noticed: Sequence[Violation] = ()
    #: Number of killed workers: "chosen" by the run, or at a chosen call, such as "write amid".
    kills: Mapping[str, int] = MappingProxyType({})


def message(operation: str, place: int, size: int, pad: int) -> dict[str, Any]:
    """Return a message with its writer and a checksum."""
    text = "".join(f" {operation}/{place}/{number}" for number in range(pad))
    return {
        "role": "user",
        "content": text,
        "op": operation,
        "place": place,
        "of": size,
        "sum": zlib.crc32(text.encode()),
    }


def is_intact(said: dict[str, Any]) -> bool:
    """Return whether a message is unchanged."""
    text = said.get("content")
    return isinstance(text, str) and zlib.crc32(text.encode()) == said.get("sum")


#: The digest of no event at all.
EMPTY = ""


def digest(before: str, records: Iterable[Record]) -> str:
    """Return the digest of a beginning of a session, from that of a shorter one and what follows it."""
    for record in records:
        content = json.dumps(record, sort_keys=True)
        before = hashlib.blake2b(f"{before}{content}".encode(), digest_size=8).hexdigest()
    return before


def view_digest(before: str, said: dict[str, Any]) -> str:
    """Return the digest of a list of messages, from that of the list without its last one."""
    return hashlib.blake2b(
        f"{before}{said.get('op')}/{said.get('place')}".encode(), digest_size=8
    ).hexdigest()
