"""N-17: the tests of the contract fail on a broken backend.

Each row is the memory backend with one deliberate bug, of the kind that real stores have shipped, and the
tests of which one must fail because of it. `tools/crash/mutants` has such bugs of the other backends.
"""

import inspect
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from msgspec.structs import replace

from hansard.backend.contract import INTERNAL, AppendRequest, Changed
from hansard.backend.memory import MemoryBackend, MemoryChunk, MemoryLog, MemoryReader, MemoryStage
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


def ignoring(option: str) -> Bug:
    """Return a bug that ignores an option of an append."""
    nothing: Any = getattr(AppendRequest(()), option)
    return lambda real, self, request: real(self, replace(request, **{option: nothing}))


def masked(mask: Bug) -> Bug:
    """Return a bug of `compact` that takes other events out than it should."""
    return lambda real, self, forget, **options: real(
        self, forget._replace(mask=lambda event: mask(forget, event)), **options
    )


def appending_one_by_one(real: Bug, self: Any, request: AppendRequest) -> Any:
    """Append a batch of which readers see half."""
    events = []
    for one in request.events:
        events += real(self, replace(request, events=[one]))
        request = AppendRequest(())
        time.sleep(0)
    return events


def deaf(_: Bug, *__: Any, **___: Any) -> Any:
    """Do nothing."""


SHARED: dict[int, Any] = {}

#: What is broken, the bug, and the tests that must notice it.
BROKEN: dict[str, tuple[type, str, Bug, ModuleType]] = {
    "ignores the key": (MemoryLog, "append", ignoring("key"), test_appending),
    "ignores the expected seq": (MemoryLog, "append", ignoring("expected_seq"), test_appending),
    "ignores new_only": (MemoryLog, "append", ignoring("new_only"), test_appending),
    "shows half a batch": (MemoryLog, "append", appending_one_by_one, test_appending),
    "ignores where a session begins": (MemoryBackend, "stage",
        lambda real, self, name, **options: real(self, name, **{**options, "before": 0}), test_forking),
    "syncs a closed store": (MemoryLog, "sync", deaf, test_keeping),
    "finds no damage": (MemoryLog, "verify", lambda *_: [], test_keeping),
    "stops one early": (
        MemoryReader,
        "read",
        lambda real, self, after=0, upto=None, **options: real(
            self, after, None if upto is None else upto - 1, **options
        ),
        test_reading,
    ),
    "reads back to the start": (
        MemoryReader,
        "read",
        lambda real, self, after=0, upto=None, *, back=False: real(
            self, 0 if back else after, upto, back=back
        ),
        test_reading,
    ),
    "gives two callers the same objects (N-63)": (MemoryChunk, "messages",
        lambda real, self: [(seq, SHARED.setdefault(seq, one)) for seq, one in real(self)], test_reading),
    "hides keys": (MemoryChunk, "keyed", lambda *_: {}, test_staging),
    "takes `Foo` for `foo` (N-5)": (MemoryBackend, "log",
        lambda real, self, name, **options: real(self, str(name).lower(), **options), test_keeping),
    "never closes": (MemoryBackend, "close", deaf, test_keeping),
    "forks without a parent": (MemoryBackend, "stage",
        lambda real, self, name, *, before=0, **_: real(self, name, before=before), test_staging),
    "purges without a look": (MemoryBackend, "purge", lambda real, self, name, _=None: real(self, name),
        test_staging),
    "deletes whatever the seq": (MemoryBackend, "delete", lambda real, self, name, **_: real(self, name),
        test_retention),
    "empties the audit log": (MemoryBackend, "internal",
        lambda real, self, name: (self._records.pop(INTERNAL + name, None), real(self, name))[1],
        test_retention),
    "has one stamp for all": (MemoryBackend, "stamps",
        lambda real, self, *ids: dict.fromkeys(real(self, *ids), "1"), test_watching),
    "reports no change": (MemoryBackend, "changed",
        lambda _, __, since: Changed(every=not since, since="seen"), test_watching),
    "publishes without the first append": (MemoryStage, "append",
        lambda real, self, drafts, *, key=None: real(self, drafts[1:] or drafts, key=key), test_staging),
    "forgets nothing": (MemoryLog, "compact", masked(lambda _, event: event), test_compaction),
    "forgets control events": (
        MemoryLog,
        "compact",
        masked(
            lambda forget, event: (
                replace(event, raw=b"{}") if event.seq < forget.before else forget.mask(event)
            )
        ),
        test_compaction,
    ),
    "drops nothing": (MemoryLog, "drop", lambda _, self: self._record.exists, test_cursors),
    "replaces at any seq": (MemoryLog, "replace",
        lambda real, self, events, **_: real(self, events, expected_seq=self._record.seq), test_cursors),
}  # fmt: skip


def notices(module: ModuleType) -> bool:
    """Return whether a test of a module that needs one backend, opened once, fails."""
    for name, test in inspect.getmembers(module, inspect.isfunction):
        is_simple = list(inspect.signature(test).parameters) == ["context"]
        if name.startswith("test_") and is_simple and not getattr(test, "pytestmark", None):
            context = Context(MemoryBackend)
            try:
                test(context)
            except (Exception, pytest.fail.Exception):  # noqa: BLE001 - any error tells of the bug
                return True
            finally:
                context.close()
    return False


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_backend_fails_its_tests(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-17: a backend with one deliberate bug fails a test of the contract."""
    owner, method, bug, module = BROKEN[name]
    real = getattr(owner, method)

    def broken(self: Any, *args: Any, **options: Any) -> Any:
        return bug(real, self, *args, **options)

    monkeypatch.setattr(owner, method, broken)
    assert notices(module), "no test noticed the bug"
