"""Write one foreign session to a store: complete, and once.

A session is staged and published when it is complete, so a killed import leaves complete sessions or
nothing. An existing session is never overwritten. The session's metadata record each import under
`imported`: the kind, the foreign id, the number of items and their checksum. The next import compares the
source with that record, which compaction, redaction and renaming leave as it is:

    the same items             `present`: nothing is done
    the same, and more items   `continued`: the new ones are appended in one append. It is an error if the
                               session was continued here as well
    other items                an error

A record `{"before": 3, "items": 7, "closing": 1, …}` in the event at seq 9 says that items 4 to 7 are at the
seqs 10 to 13, followed by one closing event.

Messages and summaries are stored without redaction, and so are the kinds of `VERBATIM`. Credentials are
redacted in everything else: settings, usage, importers' own events.
"""

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from itertools import accumulate, groupby
from typing import Any, Final, NamedTuple

import msgspec

from hansard.backend.contract import AppendRequest, Backend, Log
from hansard.errors import InvalidEvent, SeqConflict, SessionExists
from hansard.event import codec, kinds, secrets
from hansard.event.event import Event, NewEvent
from hansard.importers.foreign_json import member
from hansard.importers.source import (
    MALFORMED,
    PLACES,
    VERBATIM,
    Files,
    ForeignSession,
    Item,
    explain,
)

#: The name in a session's metadata under which its import is recorded.
IMPORTED: Final = "imported"

#: Replaces an item that cannot be stored, so that the others keep their seqs.
_LOST: Final = "x.import.lost"

#: About how many bytes are staged in one append; an event counts as this many more.
_LARGE: Final = 256 * 1024
_AROUND: Final = 1024

#: Events after an import that continue a session, in addition to content.
_CONTINUED: Final = frozenset({kinds.SESSION_REVERTED, kinds.SESSION_CLEARED})


class ImportedSession(msgspec.Struct, frozen=True):
    """A session of the source, and what the import did with it.

    Attributes:
        session: its id in the store.
        where: the file that it is from.
        outcome: `imported`; `continued`: new items were appended to an earlier import; `present`: there
            was nothing to do.
        items: the number of its items.
        new: how many of them this import wrote.
    """

    session: str
    where: str
    outcome: str
    items: int
    new: int


class _Entry(NamedTuple):
    """An item that can be stored; its data lack the point that `at` refers to."""

    kind: str
    data: bytes
    time: str | None
    at: int | None

    def draft(self, records: "_Records") -> NewEvent:
        """Return the event to append, after imports with these records."""
        if self.at is None:
            return _draft(self.kind, self.data, self.time)
        found = (
            seq + self.at - record["before"]
            for seq, record in reversed(records)
            if record["before"] < self.at <= record["items"]
        )
        # 0 is the point before the first item.
        place = {PLACES[self.kind]: next(found, 0)}
        return _draft(self.kind, {**codec.decode(self.data), **place}, self.time)


def _draft(kind: str, data: bytes | dict[str, Any], time: str | None) -> NewEvent:
    raw = data if isinstance(data, bytes) else codec.encode(data)
    return NewEvent(kind, raw, kind in kinds.CONTROL, time)


def _digest(entries: Iterable[_Entry]) -> str:
    """Return a checksum of entries, without their times."""
    found = hashlib.sha256()
    for entry in entries:
        place = b"" if entry.at is None else b"%d" % entry.at
        found.update(b"%b\0%b\0%b\0" % (entry.kind.encode(), place, entry.data))
    return found.hexdigest()


class _Session:
    """A foreign session as it can be stored; what cannot be stored is reported, and replaced by an event."""

    def __init__(self, foreign: ForeignSession, files: Files) -> None:
        self.foreign = foreign
        self._files = files
        self.begun = foreign.created or next((one.time for one in foreign.items if one.time), None)
        self.items = self._entries(foreign.items, self.begun, 1)
        latest = self.items[-1].time if self.items else self.begun
        self.closing = self._entries(foreign.closing, latest, len(self.items) + 1)
        self.metadata = self._metadata(foreign.metadata)

    def record(self, kind: str, before: int) -> dict[str, Any]:
        """Return the record of an import of the items after `before`."""
        return {
            "kind": kind,
            "from": self.foreign.id,
            "items": len(self.items),
            "before": before,
            "closing": len(self.closing),
            "sha256": _digest(self.items),
        }

    def drafts(self, records: "_Records", after: int) -> list[NewEvent]:
        """Return the events of the items after `after`, and the closing events."""
        return [one.draft(records) for one in (*self.items[after:], *self.closing)]

    def _report(self, what: str) -> None:
        self._files.report(self.foreign.where, f"{self.foreign.id!r}: {what}")

    def _entries(self, items: Iterable[Item], time: str | None, first: int) -> list[_Entry]:
        found: list[_Entry] = []
        for number, item in enumerate(items, first):
            time = item.time or time
            found.append(self._entry(item, time, number))
        return found

    def _entry(self, item: Item, time: str | None, number: int) -> _Entry:
        assert (item.at is not None) == (item.kind in PLACES)
        assert item.at is None or 0 <= item.at < number
        try:
            raw, unchanged = _stored(item)
        except (InvalidEvent, *MALFORMED) as error:
            why = explain(error)
            self._report(f"item {number}: cannot be stored: {why}")
            return _Entry(_LOST, codec.encode({"kind": item.kind, "reason": why[:500]}), time, None)
        if not unchanged:
            self._report(f"item {number}: lone surrogates were replaced by \ufffd")
        return _Entry(item.kind, raw, time, item.at)

    def _metadata(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """Return metadata without credentials, and without what cannot be stored."""
        kept: dict[str, Any] = {}
        for name, value in metadata.items():
            if value is None or name == IMPORTED:
                continue
            try:
                stored = _without_surrogates(secrets.redact({name: value})[0])
                codec.encode(stored, "metadata", wrapped=True)
            except (InvalidEvent, *MALFORMED) as error:
                self._report(f"metadata {name!r:.60} cannot be stored: {explain(error)}")
            else:
                kept.update(stored)
        return kept


def _stored(item: Item) -> tuple[bytes, bool]:
    """Return the data of an item as stored, and whether they are unchanged."""
    data = item.data
    if item.kind not in {kinds.MESSAGE_ADDED, kinds.SUMMARY_ADDED} and item.kind not in VERBATIM:
        data, _ = secrets.redact(data)
    try:
        return _encoded(item.kind, data), True
    except InvalidEvent:
        repaired = _without_surrogates(data)
        if repaired == data:
            raise
        return _encoded(item.kind, repaired), False


def _encoded(kind: str, data: dict[str, Any]) -> bytes:
    kinds.check_kind(kind)
    raw = codec.encode(data)
    complete = codec.encode({**data, PLACES[kind]: 0}) if kind in PLACES else raw
    if kind in kinds.KINDS and kinds.read(kind, complete) is None:
        raise InvalidEvent(f"{kind}: {data!r:.100} does not have the shape of such an event")
    return raw


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(one) for key, one in value.items()}
    return [_without_surrogates(one) for one in value] if isinstance(value, list) else value


#: The records of a session's imports, oldest first, each with the seq of its event.
_Records = list[tuple[int, dict[str, Any]]]


def _record(event: Event) -> dict[str, Any] | None:
    if event.kind not in {kinds.METADATA_SET, kinds.SESSION_CREATED}:
        return None
    found: dict[str, Any] | None = member(event.data, "metadata", IMPORTED)
    good = all(type(member(found, name)) is int for name in ("before", "items", "closing"))
    return found if good else None


class SessionWriter:
    """Writes the sessions of one source to a store."""

    def __init__(self, backend: Backend, kind: str, files: Files, *, dry_run: bool) -> None:
        self._backend = backend
        self._kind = kind
        self._files = files
        self._dry_run = dry_run

    def write(self, session_id: str, foreign: ForeignSession) -> ImportedSession:
        """Write a session, or what is new in it, and return what was done."""
        session = _Session(foreign, self._files)
        log = self._backend.log(session_id)
        if log.reader().head() is None:
            try:
                if not self._dry_run:
                    self._create(session_id, session)
                return _done(session_id, session, "imported", 0)
            except SessionExists:
                if log.reader().head() is None:
                    raise
                # Another process was faster, perhaps with the same source.
        while True:
            # After a conflict it has grown, perhaps by another import: compare it again.
            with suppress(SeqConflict):
                return self._compare(session_id, log, session)

    def _create(self, session_id: str, session: _Session) -> None:
        record = session.record(self._kind, 0)
        data = {"metadata": {**session.metadata, IMPORTED: record}}
        drafts = [_draft(kinds.SESSION_CREATED, data, session.begun)]
        drafts += session.drafts([(1, record)], 0)
        if session.foreign.archived:
            drafts.append(_draft(kinds.SESSION_ARCHIVED, {}, drafts[-1].time))
        with self._backend.stage(session_id) as stage:
            sizes = accumulate(len(draft.data) + _AROUND for draft in drafts)
            pairs = zip(sizes, drafts, strict=True)
            for _, group in groupby(pairs, key=lambda pair: pair[0] // _LARGE):
                stage.append([draft for _, draft in group])
            stage.publish()

    def _compare(self, session_id: str, log: Log, session: _Session) -> ImportedSession:
        """Compare an existing session with its source, and append what is new."""

        def exists(why: str) -> SessionExists:
            what = f"session {session_id!r} {why}: left unchanged"
            return SessionExists(f"{what}; import with a prefix to have both")

        # An append after this is a conflict below.
        reader = log.reader()
        head = reader.head()
        if head is None:
            raise SessionExists(
                f"session {session_id!r} was deleted concurrently: nothing was done"
            )
        found = ((event.seq, _record(event)) for event in reader.controls())
        records = [(seq, record) for seq, record in found if record is not None]
        at, known = records[-1] if records else (0, {})
        if (known.get("kind"), known.get("from")) != (self._kind, session.foreign.id):
            raise exists("exists already, and is not from this source")
        count: int = known["items"]
        if count > len(session.items) or _digest(session.items[:count]) != known.get("sha256"):
            raise exists(
                "was imported before, and its source has changed since in what was imported"
            )
        if count == len(session.items):
            return _done(session_id, session, "present", count)
        end = at + count - known["before"] + known["closing"]
        later = (event.kind for chunk in reader.read(end) for event in chunk.events())
        if any(kinds.is_content(kind) or kind in _CONTINUED for kind in later):
            raise exists("was imported before, and was continued both here and in its source")
        record = session.record(self._kind, count)
        # Automatic: a title that a person has set here stays.
        data = {"metadata": {**session.metadata, IMPORTED: record}, "automatic": True}
        drafts = [_draft(kinds.METADATA_SET, data, session.items[count].time)]
        drafts += session.drafts([*records, (head.seq + 1, record)], count)
        if not self._dry_run:
            # In one append, so that a kill leaves all of them or none.
            log.append(AppendRequest(drafts, expected_seq=head.seq))
        return _done(session_id, session, "continued", count)


def _done(session_id: str, session: _Session, outcome: str, old: int) -> ImportedSession:
    count = len(session.items)
    return ImportedSession(session_id, session.foreign.where, outcome, count, count - old)
