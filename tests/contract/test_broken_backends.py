"""N-17: the tests of the contract fail on a broken backend.

Each row of the table is the memory backend with one deliberate bug, of the kind that real stores have
shipped, and the tests of which one must fail because of it.
"""

import inspect
import json
import time
from collections.abc import Callable
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
from hansard.errors import SessionExists
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

#: Called in place of a method, with the real method, the object and the arguments.
Bug = Callable[..., Any]


class Broken(NamedTuple):
    """A method of the memory backend, what takes its place, and the tests that must notice."""

    owner: type
    method: str
    name: str
    bug: Bug
    noticed_by: ModuleType


BROKEN: list[Broken] = []


def broken(owner: type, method: str, noticed_by: ModuleType, **bugs: Bug) -> None:
    """Add rows to the table."""
    BROKEN.extend(Broken(owner, method, name, bug, noticed_by) for name, bug in bugs.items())


def without_option(name: str) -> Bug:
    """Return a bug that ignores an option of a call."""

    def bug(real: Bug, self: Any, *args: Any, **options: Any) -> Any:
        options.pop(name, None)
        return real(self, *args, **options)

    return bug


# -- append -----------------------------------------------------------------------------------------


def ignoring(option: str) -> Bug:
    """Return a bug that ignores an option of an append."""
    nothing: Any = getattr(AppendRequest(()), option)
    return lambda real, self, request: real(self, replace(request, **{option: nothing}))


def _appends_one_by_one(real: Bug, self: Any, request: AppendRequest) -> Any:
    events = []
    for one in request.events:
        events += real(self, replace(request, events=[one]))
        request = AppendRequest(())
        time.sleep(0)
    return events


def _stores_the_meaning_instead_of_the_bytes(real: Bug, self: Any, request: Any) -> Any:
    events = [
        replace(one, data=json.dumps(json.loads(one.data), sort_keys=True).encode())
        for one in request.events
    ]
    return real(self, replace(request, events=events))


def _restores_at_an_append(real: Bug, self: Any, request: AppendRequest) -> Any:
    self._record.deleted = False
    return real(self, request)


broken(
    MemoryLog,
    "append",
    test_appending,
    ignores_key=ignoring("key"),
    ignores_expected_seq=ignoring("expected_seq"),
    ignores_new_only=ignoring("new_only"),
    # A retry after a lost acknowledgement looks like a conflict.
    checks_seq_before_key=lambda real, self, request: real(
        self,
        request if request.expected_seq in (None, self._record.seq) else replace(request, key=None),
    ),
    # Readers see half of a batch.
    appends_one_by_one=_appends_one_by_one,
    stores_the_meaning_instead_of_the_bytes=_stores_the_meaning_instead_of_the_bytes,
)
# A delete is undone by the next append (N-28).
broken(MemoryLog, "append", test_keeping, appends_to_a_deleted_session=_restores_at_an_append)
broken(
    MemoryLog,
    "append",
    test_forking,
    ignores_before=ignoring("before"),
    drops_events_that_are_not_durable=lambda real, self, request: real(
        self, request if request.durable else replace(request, events=request.events[-1:])
    ),
)
broken(MemoryLog, "sync", test_keeping, syncs_a_closed_store=lambda _real, _self: None)


# -- read -------------------------------------------------------------------------------------------

_SHARED: dict[int, Any] = {}


broken(
    MemoryReader,
    "read",
    test_reading,
    stops_one_early=lambda real, self, after=0, upto=None: real(
        self, after, None if upto is None else upto - 1
    ),
)
broken(
    MemoryReader,
    "read_back",
    test_reading,
    reads_back_to_the_start=lambda real, self, upto=None, *_, **__: real(self, upto),
)
broken(
    MemoryReader,
    "controls",
    test_reading,
    returns_every_event_as_control=lambda _real, self, upto=None, *, after=0: [
        event for chunk in self.read(after, upto) for event in chunk.events()
    ],
)
# Two callers get the same objects (N-63).
broken(
    MemoryChunk,
    "messages",
    test_reading,
    shares_decoded_messages=lambda real, self: [
        (seq, _SHARED.setdefault(seq, message)) for seq, message in real(self)
    ],
)
broken(MemoryChunk, "keyed", test_staging, hides_keys=lambda _real, _self: {})
broken(
    MemoryLog,
    "wait",
    test_reading,
    always_wakes=lambda real, self, after, _timeout: real(self, after, 0.0) or True,
)
broken(MemoryLog, "verify", test_keeping, finds_no_damage=lambda _real, _self: [])


# -- sessions ---------------------------------------------------------------------------------------


def _folds_the_case_of_ids(real: Bug, self: Any, session_id: str, **options: Any) -> Any:
    real(self, session_id)
    return real(self, session_id.lower(), **options)


def _hides_deleted_parents(real: Bug, self: Any, session_id: str, **options: Any) -> Any:
    real(self, session_id, **options)
    return real(self, session_id)


def _lists_the_trash(real: Bug, self: Any, *, trash: bool = False) -> Any:
    deleted = () if trash else real(self, trash=True)
    return iter([*real(self, trash=trash), *deleted])


def _purges_live_sessions(real: Bug, self: Any, session_id: str) -> None:
    self._existing(session_id)._record.deleted = True
    real(self, session_id)


def _empties_the_audit_log(real: Bug, self: Any, name: str) -> Any:
    self._records.pop(INTERNAL + name, None)
    return real(self, name)


# `Foo` and `foo` are one session (N-5).
broken(MemoryBackend, "log", test_keeping, folds_the_case_of_ids=_folds_the_case_of_ids)
broken(MemoryBackend, "log", test_forking, hides_deleted_parents=_hides_deleted_parents)
broken(MemoryBackend, "ids", test_keeping, lists_the_trash=_lists_the_trash)
broken(MemoryBackend, "close", test_keeping, never_closes=lambda _real, _self: None)
broken(
    MemoryBackend,
    "purge",
    test_retention,
    purges_live_sessions=_purges_live_sessions,
)
broken(
    MemoryBackend,
    "delete",
    test_retention,
    ignores_expected_seq=without_option("expected_seq"),
)
broken(MemoryBackend, "internal", test_retention, empties_the_audit_log=_empties_the_audit_log)
broken(
    MemoryBackend,
    "stamps",
    test_watching,
    reports_one_stamp_for_all=lambda real, self, *ids: dict.fromkeys(real(self, *ids), "1"),
)


# -- changes ----------------------------------------------------------------------------------------

_SEEN: dict[int, dict[str, str]] = {}


def _reports_a_change_once(real: Bug, self: Any, since: str) -> Changed:
    before, now = _SEEN.get(id(self), {}), self.stamps()
    _SEEN[id(self)] = now
    return Changed(
        frozenset(name for name in now.keys() | before.keys() if now.get(name) != before.get(name))
    )


broken(
    MemoryBackend,
    "changed",
    test_watching,
    reports_no_change=lambda _real, _self, since: Changed(every=not since, since="seen"),
    # A change is lost with the refresh that read it.
    reports_a_change_once=_reports_a_change_once,
)


# -- staging ----------------------------------------------------------------------------------------


def _shows_what_is_staged(real: Bug, self: Any, drafts: Any, *, key: str | None = None) -> None:
    real(self, drafts, key=key)
    self._backend.log(self.session_id).append(AppendRequest(drafts, key=key))


def _replaces_a_session(real: Bug, self: Any) -> None:
    try:
        real(self)
    except SessionExists:
        self._backend.delete(self.session_id)
        self._backend.purge(self.session_id)
        real(self)


broken(
    MemoryStage,
    "append",
    test_staging,
    shows_what_is_staged=_shows_what_is_staged,
    forgets_times=lambda real, self, drafts, *, key=None: real(
        self, [replace(draft, time=None) for draft in drafts], key=key
    ),
    ignores_key=without_option("key"),
)
# Publishing overwrites what exists (N-88).
broken(MemoryStage, "publish", test_staging, replaces_a_session=_replaces_a_session)
broken(MemoryBackend, "stage", test_staging, ignores_before=without_option("before"))


# -- compaction -------------------------------------------------------------------------------------


def masked(mask: Callable[[Any, Event], Event]) -> Bug:
    """Return a bug of `compact` that takes other events out than it should."""
    return lambda real, self, forget, **options: real(
        self, forget._replace(mask=lambda event: mask(forget, event)), **options
    )


def emptied_if(condition: Callable[[Any, Event], bool]) -> Bug:
    """Return a bug of `compact` that also takes out the data of other events."""
    return masked(
        lambda forget, event: (
            replace(event, raw=b"{}") if condition(forget, event) else forget.mask(event)
        )
    )


def _forgets_keys(real: Bug, self: Any, forget: Any, **options: Any) -> Any:
    done = real(self, forget, **options)
    self._record.keys.clear()
    return done


def _loses_concurrent_appends(real: Bug, self: Any, forget: Any, **options: Any) -> Any:
    events = list(self._record.events)
    time.sleep(0.001)
    done = real(self, forget, **options)
    self._record.events = list(map(forget.mask, events))
    return done


broken(
    MemoryLog,
    "compact",
    test_compaction,
    forgets_nothing=masked(lambda _forget, event: event),
    forgets_only_listed_seqs=masked(
        lambda forget, event: forget.mask(event) if event.seq in forget.seqs else event
    ),
    forgets_control_events=emptied_if(lambda forget, event: event.seq < forget.before),
    forgets_every_part=emptied_if(lambda _forget, event: event.kind == "message.part"),
    # A retry after a compaction is appended again (N-56).
    forgets_keys=_forgets_keys,
    loses_concurrent_appends=_loses_concurrent_appends,
)


# -- internal logs ----------------------------------------------------------------------------------


def _lets_two_have_it(real: Bug, self: Any, name: str, **options: Any) -> Any:
    self._held.pop(name, None)
    return real(self, name, **options)


def _counts_from_one_again(real: Bug, self: Any, events: Any, *, expected_seq: int) -> None:
    real(self, events, expected_seq=expected_seq)
    self._record.before = 0


broken(MemoryBackend, "exclusive", test_cursors, lets_two_have_it=_lets_two_have_it)
broken(MemoryLog, "drop", test_cursors, drops_nothing=lambda _real, self: self._record.exists)
broken(
    MemoryLog,
    "replace",
    test_cursors,
    replaces_at_any_seq=lambda real, self, events, **_: real(
        self, events, expected_seq=self._record.seq
    ),
    counts_from_one_again=_counts_from_one_again,
)


# -- the tests --------------------------------------------------------------------------------------


def claims_of(module: ModuleType) -> list[Callable[[Context], None]]:
    """Return the tests of a module that need one backend, opened once."""
    return [
        function
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if name.startswith("test_")
        and not getattr(function, "pytestmark", None)
        and list(inspect.signature(function).parameters) == ["context"]
    ]


@pytest.mark.parametrize("row", BROKEN, ids=[f"{row.method}-{row.name}" for row in BROKEN])
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
