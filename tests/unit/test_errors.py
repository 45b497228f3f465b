"""Errors: one tree; each can be pickled, and its message has what failed, where, why, and what to do."""

import copy
import errno
import os
import pickle
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import Store, errors, importers
from hansard.errors import HansardError
from hansard.log import disk
from hansard.log.disk import Lock
from tests.format.handwritten_log import HandwrittenLog
from tests.unit.disk_probe import flip, log_of

CLASSES = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, HansardError)
}

#: The built-in error that callers may catch instead of ours.
FAMILIAR: dict[str, type[Exception]] = {
    "InvalidSessionId": ValueError,
    "InvalidEvent": ValueError,
    "StoreNotFound": FileNotFoundError,
    "ReadOnly": PermissionError,
    "Closed": ValueError,
    "SessionNotFound": LookupError,
    "SessionDeleted": LookupError,
    "LockTimeout": TimeoutError,
    "DiskFailed": OSError,
    "SyncFailed": OSError,
    "BackendUnavailable": ConnectionError,
}

SIMPLE = [
    kind
    for kind in CLASSES.values()
    if kind is not HansardError and "__init__" not in vars(kind) and kind is not errors.SyncFailed
]
SAMPLES: list[HansardError] = [
    *(kind("where: what; next") for kind in SIMPLE),
    errors.SecretRefused("where: what; next", place="metadata['api_key']"),
    errors.InUse("where: what; next", children=["a", "b"]),
    errors.Held("where: what; next", session="a", reason="case 7"),
    errors.InvalidExport("where: what; next", line=2),
    errors.NothingToImport("where: what; next", report=None),
    errors.SeqConflict("where: what; next", expected=3, actual=7),
    errors.LockTimeout("where: what; next", holder=4711),
    errors.LockTimeout("where: what; next"),
    errors.DiskFailed("write", "data/x", OSError(errno.ENOSPC, "full"), "free some space"),
    errors.SyncFailed("sync", "data/x", OSError(errno.EIO, "io"), "verify"),
    errors.Damaged("data/x", 40960, "checksum mismatch", "run verify"),
]


def test_every_error_is_a_public_name() -> None:
    """All errors are in one tree, and can be caught by their public names."""
    assert set(CLASSES) <= set(hansard.__all__)


def test_errors_are_also_the_familiar_ones() -> None:
    """Callers may catch the built-in error of the same meaning, or `HansardError`."""
    for name, familiar in FAMILIAR.items():
        assert issubclass(CLASSES[name], familiar)
        assert issubclass(CLASSES[name], HansardError)


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_errors_survive_pickling_and_copying(error: HansardError) -> None:
    """An error from a process pool, or handed to several threads, keeps type, message and fields."""
    assert type(error) in CLASSES.values()
    copies: list[Callable[[Any], Any]] = [
        copy.copy,
        copy.deepcopy,
        *[
            lambda value, protocol=protocol: pickle.loads(pickle.dumps(value, protocol))  # noqa: S301
            for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)
        ],
    ]
    for copied in copies:
        arrived = copied(error)
        assert type(arrived) is type(error)
        assert (str(arrived), arrived.args) == (str(error), error.args)
        assert vars(arrived) == vars(error)
        assert getattr(arrived, "errno", None) == getattr(error, "errno", None)


def test_every_error_is_among_the_samples() -> None:
    """No error is left out of the test above."""
    assert {type(error) for error in SAMPLES} == set(CLASSES.values()) - {HansardError}


USER = {"role": "user", "content": "hi"}


def fill(path: Path) -> Store:
    """Return a store with one session of one message."""
    store = hansard.open(path, durability="os", auto_compact=False)
    store.session("a").add_message(USER)
    return store


def marker(store: Store, path: Path) -> None:
    """Open a store of a later version."""
    store.close()
    (path / "hansard.json").write_text('{"hansard":"store","version":9}\n')
    hansard.open(path)


def foreign(_: Store, path: Path) -> None:
    """Open a directory with other files."""
    other = path.parent / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    hansard.open(other)


def owned(store: Store, path: Path) -> None:
    """Open a store that belongs to another user, without being root."""
    store.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "user", lambda: os.stat(path).st_uid + 5)
        found = list(os.stat(path))
        found[stat.ST_UID] = 7
        patch.setattr(disk, "status", lambda *_: os.stat_result(found))
        hansard.open(path)


def read_only(store: Store, path: Path) -> None:
    """Append to a store that was opened to read."""
    store.close()
    with hansard.open(path, read_only=True) as opened:
        opened.session("a").add_message(USER)


def reading(change: Callable[[Path], object]) -> Callable[[Store, Path], object]:
    """Return a function that changes the log of a session, and reads it."""

    def provoke(store: Store, path: Path) -> None:
        store.close()
        change(log_of(path, "a"))
        with hansard.open(path) as opened:
            opened.session("a").messages()

    return provoke


def spoil(log: Path) -> None:
    """Change the last record, and append another one."""
    data = flip(log, -20)
    log.write_bytes(data + data[data.rindex(b"\n", 0, -1) + 1 :])


def link(log: Path) -> None:
    """Replace a log by a symbolic link to it."""
    log.symlink_to(log.rename(log.parents[2] / "elsewhere"))


def locked(store: Store, path: Path) -> None:
    """Compact a session while another process holds its lock."""
    store.session("a").compact()
    held = path / "sessions" / "a" / "compaction"
    file = os.open(held, os.O_RDWR)
    lock = Lock(file, str(held))
    lock.acquire(0)
    try:
        with hansard.open(path, lock_timeout=0) as opened:
            opened.session("a").add_message(USER)
            opened.session("a").compact()
    finally:
        lock.release()


def reenter(store: Store, _: Path) -> None:
    """Append as a signal handler does in the middle of its thread's append."""
    session = store.session("a")
    with session._log._writer._group.exclusive():  # type: ignore[attr-defined]
        session.add_message(USER)


def blocked(store: Store, path: Path) -> None:
    """Append to a log that a later version has closed, for a reason of that version."""
    store.close()
    log_of(path, "a").write_bytes(HandwrittenLog("a").note("paused", {"shut": ["paused"]}).data)
    with hansard.open(path) as opened:
        opened.session("a").add_message(USER)


def purge_parent(store: Store, _: Path) -> None:
    """Purge a session that has a fork."""
    store.session("a").fork("child")
    store.delete("a")
    store.purge("a")


def redact_held(store: Store, _: Path) -> None:
    """Redact a message of a session under a legal hold."""
    store.session("a").hold("case 7")
    store.session("a").redact(1)


def closed(store: Store, _: Path) -> None:
    """Read from a closed store."""
    store.close()
    store.session("a").messages()


def deleted(store: Store, path: Path) -> None:
    """Read a session in the trash, from a store that is read only."""
    store.delete("a")
    with hansard.open(path, read_only=True) as opened:
        opened.session("a").messages()


def unsealed(store: Store, path: Path) -> None:
    """Read a session whose sealed segment was removed."""
    store.session("a").compact()
    next(log_of(path, "a").parent.glob("0*")).unlink()
    with hansard.open(path) as opened:
        opened.session("a").messages()


def exported(store: Store) -> bytes:
    """Return the session as a file."""
    return b"".join(store.session("a").export(redacted=False))


CASES: dict[str, tuple[type[Exception], Callable[[Store, Path], Any], str]] = {
    "last": (ValueError, lambda store, _: store.session("a").messages(last=-1),
        "last must be a non-negative count, got -1"),
    "limit": (ValueError, lambda store, _: store.sessions(limit=0), "limit must be >= 1, got 0"),
    "part of a limit": (ValueError, lambda store, _: store.sessions(limit=2.5),  # type: ignore[arg-type]
        "limit must be >= 1, got 2.5"),
    "hits": (ValueError, lambda store, _: store.search("x", limit=-1), "limit must be >= 1, got -1"),
    "empty id": (errors.InvalidSessionId, lambda store, _: store.session(""),
        "session id is empty; pass a string, or call store.session() for a generated id"),
    "redact": (errors.InvalidEvent, lambda store, _: store.session("a").redact(7),
        "cannot redact seq 7: last seq of session 'a' is 1"),
    "truncated": (errors.InvalidExport,
        lambda store, _: store.import_session(exported(store)[:-10], id="b"),
        "export is truncated at line 3"),
    "after": (ValueError, lambda store, _: list(store.session("a").events(after=-1)),
        "after must be a seq >= 0, got -1"),
    "modified": (errors.InvalidExport,
        lambda store, _: store.import_session(exported(store).replace(b"hi", b"ho"), id="b"),
        "checksum mismatch: the export was modified"),
    "no export": (errors.InvalidExport, lambda store, _: store.import_session(b"{}", id="b"),
        "line 1: not a hansard export"),
    "bytes": (errors.InvalidEvent, lambda store, _: store.session("a").add_message({"content": b"hi"}),
        "bytes is not JSON; convert it to str, number, list or dict"),
    "cursor": (ValueError, lambda store, _: store.sessions(cursor="x"),
        "invalid cursor 'x'; pass `next` of the previous page"),
    "prefix": (errors.InvalidSessionId, lambda store, _: store.scoped(""),
        "prefix must not be empty; pass one such as 'tenant-a/'"),
    "odd prefix": (errors.InvalidSessionId, lambda store, _: store.scoped("\ud800"),
        "has a lone surrogate at index 0"),
    "missing segment": (errors.Damaged, unsealed,
        "sealed segments are missing; restore them, or run `hansard repair --missing`"),
    "foreign": (errors.UnsafePath, foreign, "is not a hansard store and not empty"),
    "owner": (errors.UnsafePath, owned, "belongs to uid 7; use your own directory or read_only=True"),
    "version": (errors.UnknownFormat, marker,
        "unsupported store version 9 (supported: 1); nothing was changed. Upgrade"),
    "read only": (errors.ReadOnly, read_only, "store is read-only; reopen without read_only=True"),
    "damaged": (errors.Damaged, reading(spoil), "log.jsonl at byte "),
    "locked": (errors.LockTimeout, locked, "compaction within 0 s: held by "),
    "secret": (errors.SecretRefused,
        lambda store, _: store.session("a").set_metadata(api_key="sk-" + "a1B2" * 12),
        "nothing was stored. Store a name: 'env:OPENAI_API_KEY'"),
    "no store": (errors.StoreNotFound, lambda _, path: hansard.open(path / "none", create=False),
        "none: no hansard"),
    "newer log": (errors.UnknownFormat,
        reading(lambda log: log.write_bytes(log.read_bytes().replace(b'"version":1', b'"version":9', 1))),
        "Upgrade hansard"),
    "blocked": (errors.UnknownFormat, blocked,
        "appends blocked for unknown reason paused; nothing was appended. Upgrade hansard"),
    "link": (errors.UnsafePath, reading(link), "nothing was"),
    "closed": (errors.Closed, closed, "open it again"),
    "unknown": (errors.SessionNotFound, lambda store, _: store.delete("missing"),
        "'missing' in this store"),
    "exists": (errors.SessionExists, lambda store, _: store.create("a"), "'a' exists"),
    "deleted": (errors.SessionDeleted, deleted, "store.restore"),
    "in use": (errors.InUse, purge_parent, "delete and purge them first"),
    "held": (errors.Held, redact_held,
        "'a' is under a legal hold (case 7); nothing was removed. Release the hold first"),
    "no source": (errors.NothingToImport,
        lambda store, path: importers.import_sessions(store, "codex", path / "missing"),
        "the path and the kind"),
    "conflict": (errors.SeqConflict, lambda store, _: store.session("a").add_message(USER, expected_seq=9),
        "'a' is at seq 1"),
    "reentered": (errors.Reentered, reenter, "Set a flag"),
    "server": (errors.BackendUnavailable,
        lambda _, __: hansard.open("postgresql://user:password@127.0.0.1:1/db"),
        "postgresql://127.0.0.1:1/db"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_an_error_says_what_to_do(tmp_path: Path, case: str) -> None:
    """N-89: the message has the place, the reason, the state of the data, and the next step."""
    error, provoke, text = CASES[case]
    with fill(tmp_path / "store") as store, pytest.raises(error) as caught:
        provoke(store, tmp_path / "store")
    assert text in str(caught.value)
    assert type(caught.value) is error


def test_every_error_has_a_case() -> None:
    """Each error is among the cases, but for those of the disk, which tests/faults raises."""
    raised = {error.__name__ for error, _, _ in CASES.values()} & set(CLASSES)
    assert set(CLASSES) - raised == {"HansardError", "DiskFailed", "SyncFailed"}
