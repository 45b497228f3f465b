"""N-17: the tests of the contract fail on a broken backend.

Each row of the table is the memory backend with one deliberate bug, of the kind that real stores have
shipped, and the test that must fail because of it.
"""

import inspect
import json
import time
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from hansard.backend.contract import INTERNAL, AppendRequest, Changed
from hansard.backend.memory import (
    MemoryBackend,
    MemoryChunk,
    MemoryLog,
    MemoryReader,
    MemoryStage,
)
from hansard.errors import SessionDeleted, SessionExists
from hansard.event.event import Event
from tests.contract import (
    test_appending,
    test_compaction,
    test_cursors,
    test_forking,
    test_keeping,
    test_reading,
    test_retention,
    test_staging,
    test_watching,
)
from tests.contract.backends import Context

#: The real method, and what it is called with.
Bug = Callable[..., Any]


class Broken(NamedTuple):
    """A method of the memory backend, what takes its place, and the tests that must notice."""

    owner: type
    method: str
    bug: Bug
    noticed_by: ModuleType


BROKEN: list[Broken] = []


def broken(owner: type, method: str, noticed_by: ModuleType) -> Callable[[Bug], Bug]:
    """Add a row to the table."""

    def add(bug: Bug) -> Bug:
        BROKEN.append(Broken(owner, method, bug, noticed_by))
        return bug

    return add


def without_option(*names: str) -> Bug:
    """Return a bug that ignores some options of a call."""

    def bug(real: Bug, self: Any, *args: Any, **options: Any) -> Any:
        return real(self, *args, **{name: options[name] for name in options if name not in names})

    bug.__name__ = f"ignores_{'_and_'.join(names)}"
    return bug


# -- append -----------------------------------------------------------------------------------------


def ignoring(option: str) -> Bug:
    """Return a bug that ignores an option of an append."""
    nothing: Any = getattr(AppendRequest(()), option)

    def bug(real: Bug, self: Any, request: AppendRequest) -> Any:
        return real(self, replace(request, **{option: nothing}))

    bug.__name__ = f"ignores_{option}"
    return bug


for option, tests in {
    "key": test_appending,
    "expected_seq": test_appending,
    "new_only": test_appending,
    "before": test_forking,
}.items():
    broken(MemoryLog, "append", tests)(ignoring(option))


@broken(MemoryLog, "append", test_appending)
def checks_seq_before_key(real: Bug, self: Any, request: AppendRequest) -> Any:
    """A retry after a lost acknowledgement looks like a conflict."""
    if request.expected_seq not in (None, self._record.seq):
        request = replace(request, key=None)
    return real(self, request)


@broken(MemoryLog, "append", test_appending)
def appends_one_by_one(real: Bug, self: Any, request: AppendRequest) -> Any:
    """Readers see half of a batch."""
    events = []
    for one in request.events:
        events += real(self, replace(request, events=[one]))
        request = AppendRequest(())
        time.sleep(0)
    return events


@broken(MemoryLog, "append", test_appending)
def reads_seq_outside_the_lock(real: Bug, self: Any, request: AppendRequest) -> Any:
    """Two threads mint the same seq (N-26)."""
    if request != AppendRequest(request.events):
        return real(self, request)
    self._check_open()
    seq = len(self._record.events)
    time.sleep(0.0001)
    stamp = "2026-01-01T00:00:00.000000Z"
    events = [
        Event(seq + at, stamp, one.kind, one.data) for at, one in enumerate(request.events, 1)
    ]
    self._record.events.extend(events)
    return events


@broken(MemoryLog, "append", test_appending)
def stores_the_meaning_instead_of_the_bytes(real: Bug, self: Any, request: Any) -> Any:
    """Keys are sorted on the way in."""
    events = [
        replace(one, data=json.dumps(json.loads(one.data), sort_keys=True).encode())
        for one in request.events
    ]
    return real(self, replace(request, events=events))


@broken(MemoryLog, "append", test_keeping)
def appends_to_a_deleted_session(real: Bug, self: Any, request: AppendRequest) -> Any:
    """A delete is undone by the next append (N-28)."""
    self._record.deleted = False
    return real(self, request)


@broken(MemoryLog, "append", test_forking)
def drops_events_that_are_not_durable(real: Bug, self: Any, request: AppendRequest) -> Any:
    """Of a light batch only the last event is kept."""
    return real(self, request if request.durable else replace(request, events=request.events[-1:]))


@broken(MemoryLog, "sync", test_keeping)
def syncs_a_closed_store(real: Bug, self: Any) -> None:
    """Success is returned for nothing."""


# -- read -------------------------------------------------------------------------------------------


@broken(MemoryReader, "read", test_reading)
def stops_one_early(real: Bug, self: Any, after: int = 0, upto: int | None = None) -> Any:
    """The last event of a range is missing."""
    return real(self, after, None if upto is None else upto - 1)


@broken(MemoryReader, "read_back", test_reading)
def reads_back_to_the_start(real: Bug, self: Any, upto: int | None = None, after: int = 0) -> Any:
    """`after` does not end the walk."""
    return real(self, upto)


_SHARED: dict[int, Any] = {}


@broken(MemoryChunk, "messages", test_reading)
def shares_decoded_messages(real: Bug, self: Any) -> Any:
    """Two callers get the same objects (N-63)."""
    return [(seq, _SHARED.setdefault(seq, message)) for seq, message in real(self)]


@broken(MemoryChunk, "keyed", test_staging)
def hides_keys(real: Bug, self: Any) -> dict[int, int]:
    """A chunk does not say which events share a key."""
    return {}


@broken(MemoryReader, "controls", test_reading)
def returns_every_event_as_control(
    real: Bug, self: Any, upto: int | None = None, *, after: int = 0
) -> Any:
    """Messages are among the control events."""
    return [event for chunk in self.read(after, upto) for event in chunk.events()]


@broken(MemoryLog, "wait", test_reading)
def always_wakes(real: Bug, self: Any, after: int, timeout: float) -> bool:
    """A follower is told of an event that is not there."""
    real(self, after, 0.0)
    return True


@broken(MemoryLog, "reader", test_forking)
def hides_that_a_session_was_deleted(real: Bug, self: Any) -> Any:
    """Deleted looks like never begun."""
    try:
        return real(self)
    except SessionDeleted:
        return MemoryBackend().log(self.session_id).reader()


class _Unsteady:
    """A reader that looks again at each question."""

    def __init__(self, look: Callable[[], Any]) -> None:
        self._look = look

    def __getattr__(self, name: str) -> Any:
        return getattr(self._look(), name)


@broken(MemoryLog, "reader", test_reading)
def looks_again_at_each_question(real: Bug, self: Any) -> Any:
    """What a reader says first and last is not of one moment."""
    return _Unsteady(lambda: real(self))


@broken(MemoryLog, "verify", test_keeping)
def finds_no_damage(real: Bug, self: Any) -> list[Any]:
    """`verify` says nothing, also of what is not there."""
    return []


# -- sessions ---------------------------------------------------------------------------------------


@broken(MemoryBackend, "log", test_keeping)
def folds_the_case_of_ids(real: Bug, self: Any, session_id: str, **options: Any) -> Any:
    """`Foo` and `foo` are one session (N-5)."""
    real(self, session_id)
    return real(self, session_id.lower(), **options)


@broken(MemoryBackend, "ids", test_keeping)
def lists_the_trash(real: Bug, self: Any, *, trash: bool = False) -> Any:
    """A deleted session is listed."""
    deleted = () if trash else real(self, trash=True)
    return iter([*real(self, trash=trash), *deleted])


@broken(MemoryBackend, "close", test_keeping)
def never_closes(real: Bug, self: Any) -> None:
    """A closed store can be used."""


@broken(MemoryLog, "set_deleted", test_keeping)
def loses_the_last_event_in_the_trash(real: Bug, self: Any, **options: Any) -> None:
    """Delete and restore lose an event."""
    real(self, **options)
    if options["deleted"]:
        self._record.events.pop()


@broken(MemoryBackend, "purge", test_retention)
def lists_what_was_purged(real: Bug, self: Any, session_id: str) -> None:
    """An emptied session stays in the trash."""
    real(self, session_id)
    self._records[session_id].deleted = True


@broken(MemoryBackend, "purge", test_retention)
def keeps_keys_of_what_was_purged(real: Bug, self: Any, session_id: str) -> None:
    """A new session of that id knows old keys."""
    keys = dict(self._record(session_id).keys)
    real(self, session_id)
    self._record(session_id).keys = keys


@broken(MemoryBackend, "purge", test_retention)
def purges_live_sessions(real: Bug, self: Any, session_id: str) -> None:
    """What was never deleted is purged."""
    self._existing(session_id)._record.deleted = True
    real(self, session_id)


@broken(MemoryBackend, "delete", test_retention)
def compares_the_seq_too_early(real: Bug, self: Any, session_id: str, **options: Any) -> None:
    """What is appended after the check is deleted too."""
    if options.get("expected_seq") not in (None, self._existing(session_id)._record.seq):
        real(self, session_id, **options)
    time.sleep(0.001)
    real(self, session_id)


broken(MemoryBackend, "delete", test_retention)(without_option("expected_seq"))


@broken(MemoryBackend, "log", test_forking)
def hides_deleted_parents(real: Bug, self: Any, session_id: str, **options: Any) -> Any:
    """A fork cannot read its parent in the trash."""
    real(self, session_id, **options)
    return real(self, session_id)


@broken(MemoryBackend, "internal", test_retention)
def empties_the_audit_log(real: Bug, self: Any, name: str) -> Any:
    """The audit log is lost."""
    self._records.pop(INTERNAL + name, None)
    return real(self, name)


@broken(MemoryBackend, "stamps", test_retention)
def reports_one_stamp_for_all(real: Bug, self: Any, *ids: Any) -> Any:
    """Nothing seems to grow."""
    return dict.fromkeys(real(self, *ids), "1")


# -- changes ----------------------------------------------------------------------------------------


@broken(MemoryBackend, "changed", test_watching)
def reports_no_change(real: Bug, self: Any, since: str) -> Changed:
    """After the first refresh nothing changes any more."""
    return Changed(every=not since, since="seen")


_SEEN: dict[int, dict[str, str]] = {}


@broken(MemoryBackend, "changed", test_watching)
def reports_a_change_once(real: Bug, self: Any, since: str) -> Changed:
    """A change is lost with the refresh that read it."""
    before, now = _SEEN.get(id(self), {}), self.stamps()
    _SEEN[id(self)] = now
    return Changed(
        frozenset(name for name in now.keys() | before.keys() if now.get(name) != before.get(name))
    )


# -- staging ----------------------------------------------------------------------------------------


@broken(MemoryStage, "append", test_staging)
def shows_what_is_staged(real: Bug, self: Any, drafts: Any, *, key: str | None = None) -> None:
    """A staged session is seen before it is published."""
    real(self, drafts, key=key)
    self._backend.log(self.session_id).append(AppendRequest(drafts, key=key))


@broken(MemoryStage, "publish", test_staging)
def replaces_a_session(real: Bug, self: Any) -> None:
    """Publishing overwrites what exists (N-88)."""
    try:
        real(self)
    except SessionExists:
        self._backend.delete(self.session_id)
        self._backend.purge(self.session_id)
        real(self)


@broken(MemoryStage, "append", test_staging)
def forgets_times(real: Bug, self: Any, drafts: Any, *, key: str | None = None) -> None:
    """Imported events get today's time."""
    real(self, [replace(draft, time=None) for draft in drafts], key=key)


broken(MemoryStage, "append", test_staging)(without_option("key"))
broken(MemoryBackend, "stage", test_staging)(without_option("before"))


# -- compaction -------------------------------------------------------------------------------------


broken(MemoryLog, "compact", test_compaction)(without_option("dry_run"))


def masked(mask: Callable[[Any, Event], Event]) -> Bug:
    """Return a bug of `compact` that takes other events out than it should."""

    def bug(real: Bug, self: Any, forget: Any, **options: Any) -> Any:
        return real(self, forget._replace(mask=partial(mask, forget)), **options)

    bug.__name__ = mask.__name__
    return bug


def emptied(event: Event) -> Event:
    """Return an event without its data."""
    return Event(event.seq, event.stamp, event.kind, b"{}", event.key)


def forgets_nothing(forget: Any, event: Event) -> Event:
    """Compact without taking anything out."""
    return event


def forgets_only_listed_seqs(forget: Any, event: Event) -> Event:
    """Compact without regard to the bound."""
    return forget.mask(event) if event.seq in forget.seqs else event


def forgets_control_events(forget: Any, event: Event) -> Event:
    """Empty everything before the bound."""
    return emptied(event) if event.seq < forget.before else forget.mask(event)


def forgets_every_part(forget: Any, event: Event) -> Event:
    """Empty all parts of streams."""
    return emptied(event) if event.kind == "message.part" else forget.mask(event)


def forgets_times_of_events(forget: Any, event: Event) -> Event:
    """Give all events the time of the compaction."""
    return replace(event, stamp="2099-01-01T00:00:00.000000Z")


for mask in (
    forgets_nothing,
    forgets_only_listed_seqs,
    forgets_control_events,
    forgets_every_part,
    forgets_times_of_events,
):
    broken(MemoryLog, "compact", test_compaction)(masked(mask))


@broken(MemoryLog, "compact", test_compaction)
def forgets_keys(real: Bug, self: Any, forget: Any, **options: Any) -> Any:
    """A retry after a compaction is appended again (N-56)."""
    done = real(self, forget, **options)
    self._record.keys.clear()
    return done


@broken(MemoryLog, "compact", test_compaction)
def renumbers_events(real: Bug, self: Any, forget: Any, **options: Any) -> Any:
    """The gap of what was forgotten is closed."""
    done = real(self, forget, **options)
    kept = [event for event in self._record.events if event.seq not in forget.seqs]
    self._record.events = [replace(event, seq=seq) for seq, event in enumerate(kept, 1)]
    return done


@broken(MemoryLog, "compact", test_compaction)
def loses_concurrent_appends(real: Bug, self: Any, forget: Any, **options: Any) -> Any:
    """What is appended while it runs is lost."""
    events = list(self._record.events)
    time.sleep(0.001)
    done = real(self, forget, **options)
    self._record.events = list(map(forget.mask, events))
    return done


# -- internal logs ------------------------------------------------------------------------------------


@broken(MemoryBackend, "exclusive", test_cursors)
def lets_two_have_it(real: Bug, self: Any, name: str, **options: Any) -> Any:
    """Two consumers share a cursor."""
    self._held.pop(name, None)
    return real(self, name, **options)


_kept: list[object] = []


@broken(MemoryLog, "drop", test_cursors)
def drops_nothing(real: Bug, self: Any) -> Any:
    """A dropped cursor stays."""
    return self._record.exists


@broken(MemoryLog, "replace", test_cursors)
def replaces_at_any_seq(real: Bug, self: Any, events: Any, *, expected_seq: int) -> None:
    """A consumer that lost its cursor writes over the positions of the next."""
    del expected_seq
    real(self, events, expected_seq=self._record.seq)


@broken(MemoryLog, "replace", test_cursors)
def counts_from_one_again(real: Bug, self: Any, events: Any, *, expected_seq: int) -> None:
    """After a replacement an old seq is a valid one again."""
    real(self, events, expected_seq=expected_seq)
    self._record.before = 0


# -- the tests --------------------------------------------------------------------------------------


def claims_of(module: ModuleType) -> list[Callable[[Context], None]]:
    """Return the tests of a module that need one handle."""
    return [
        function
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if name.startswith("test_") and not getattr(function, "pytestmark", None)
    ]


@pytest.mark.parametrize("row", BROKEN, ids=[f"{row.method}-{row.bug.__name__}" for row in BROKEN])
def test_a_broken_backend_fails_its_tests(row: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-17: a backend with one deliberate bug fails a test of the contract."""
    real = getattr(row.owner, row.method)

    def method(self: Any, *args: Any, **options: Any) -> Any:
        return row.bug(real, self, *args, **options)

    monkeypatch.setattr(row.owner, row.method, method)
    for test in claims_of(row.noticed_by):
        context = Context(MemoryBackend)
        try:
            test(context)
        except (Exception, pytest.fail.Exception):  # noqa: BLE001 - any error tells of the bug
            return
        finally:
            context.close()
    pytest.fail("no test noticed the bug")
