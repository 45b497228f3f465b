"""The errors: one tree, as it is drawn; each survives its journey and says where, what and what next."""

import copy
import errno
import inspect
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import errors, importers
from hansard.errors import HansardError
from tests.unit.disk_probe import log_of

CLASSES = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, HansardError)
}

#: The built-in error that callers who do not know ours may catch.
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

SAMPLES: list[HansardError] = [
    errors.InvalidSessionId("where: what; next"),
    errors.InvalidEvent("where: what; next"),
    errors.SecretRefused("where: what; next", place="metadata['api_key']"),
    errors.StoreNotFound("where: what; next"),
    errors.UnknownFormat("where: what; next"),
    errors.UnsafePath("where: what; next"),
    errors.ReadOnly("where: what; next"),
    errors.Closed("where: what; next"),
    errors.SessionNotFound("where: what; next"),
    errors.SessionExists("where: what; next"),
    errors.SessionDeleted("where: what; next"),
    errors.InUse("where: what; next", children=["a", "b"]),
    errors.InvalidExport("where: what; next", line=2),
    errors.NothingToImport("where: what; next", report=None),
    errors.SeqConflict("where: what; next", expected=3, actual=7),
    errors.LockTimeout("where: what; next", holder=4711),
    errors.LockTimeout("where: what; next"),
    errors.Reentered("where: what; next"),
    errors.DiskFailed("write", "data/x", OSError(errno.ENOSPC, "full"), "free some space"),
    errors.SyncFailed("sync", "data/x", OSError(errno.EIO, "io"), "verify"),
    errors.Damaged("data/x", 40960, "checksum mismatch", "run verify"),
    errors.BackendUnavailable("where: what; next"),
]

FIELDS = (
    "expected", "actual", "holder", "errno", "operation", "path", "offset", "reason", "children"
)  # fmt: skip


def drawn() -> dict[str, str]:
    """Return each error of the drawing in `errors`' docstring, with the one that it stands under."""
    parents: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in (inspect.getdoc(errors) or "").splitlines():
        found = re.match(r"([\s│├└─]*)([A-Z][A-Za-z]+)(\s\s|$)", line)
        if found and found[2] in CLASSES:
            depth = len(found[1])
            above = [(at, name) for at, name in above if at < depth]
            parents[found[2]] = above[-1][1] if above else "Exception"
            above.append((depth, found[2]))
    return parents


def test_the_tree_is_as_it_is_drawn() -> None:
    """The drawing in errors.py shows every error, under its true parent, and all are public names."""
    assert drawn() == {name: value.__bases__[0].__name__ for name, value in CLASSES.items()}
    assert set(CLASSES) <= set(hansard.__all__)


def test_errors_are_also_the_familiar_ones() -> None:
    """Callers may catch the built-in error of the same meaning, and `HansardError` for all."""
    for name, familiar in FAMILIAR.items():
        assert issubclass(CLASSES[name], familiar)
        assert issubclass(CLASSES[name], HansardError)


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_errors_survive_pickling_and_copying(error: HansardError) -> None:
    """An error from a process pool, or handed to several threads, keeps type, message and fields."""
    assert type(error) in CLASSES.values()
    journeys: list[Callable[[Any], Any]] = [
        copy.copy,
        copy.deepcopy,
        *[
            lambda value, protocol=protocol: pickle.loads(pickle.dumps(value, protocol))  # noqa: S301
            for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)
        ],
    ]
    for journey in journeys:
        arrived = journey(error)
        assert type(arrived) is type(error)
        assert (str(arrived), arrived.args) == (str(error), error.args)
        for field in FIELDS:
            assert getattr(arrived, field, None) == getattr(error, field, None), field


def test_every_error_is_among_the_samples() -> None:
    """No error is left out of the test above."""
    assert {type(error) for error in SAMPLES} == set(CLASSES.values()) - {HansardError}


def _reenter(session: hansard.Session) -> None:
    """Append as a signal handler does in the middle of its own thread's append."""
    with session._log._writer._turns.alone():  # type: ignore[attr-defined]
        session.add_message({"n": 2})


def _provoked(path: Path) -> dict[str, tuple[Callable[[], object], str, str]]:
    """Return, by error, a call that raises it, and what its message must say: where, and what next."""
    store = hansard.open(path / "store", durability="os")
    session = store.session("a/b")
    session.add_message({"n": 1})
    for name in ("gone", "broken", "newer", "linked"):
        store.session(name).add_message({"n": 1})
    store.delete("gone")
    store.create("parent").fork("child")
    store.delete("parent")
    log_of(path / "store", "broken").write_bytes(b"\n")
    log = log_of(path / "store", "newer")
    log.write_bytes(log.read_bytes().replace(b'"version":1', b'"version":9', 1))
    log = log_of(path / "store", "linked")
    log.rename(path / "elsewhere")
    log.symlink_to(path / "elsewhere")
    reader = hansard.open(path / "store", read_only=True)
    closed = hansard.open(path / "closed")
    closed.close()
    return {
        "InvalidSessionId": (lambda: store.session(""), "empty", "store.session()"),
        "InvalidEvent": (lambda: session.add_message({"n": {1}}), "message['n']", "convert it"),
        "SecretRefused": (
            lambda: session.set_metadata(password="correct horse"),  # noqa: S106 - none of ours
            "metadata['password']",
            "Store a name",
        ),
        "StoreNotFound": (
            lambda: hansard.open(path / "nowhere", create=False),
            str(path / "nowhere"),
            "create",
        ),
        "UnknownFormat": (
            lambda: reader.session("newer").messages(),
            "newer/log.jsonl",
            "use a newer",
        ),
        "UnsafePath": (
            lambda: reader.session("linked").messages(),
            "linked/log.jsonl",
            "nothing was",
        ),
        "ReadOnly": (lambda: reader.session("a/b").add_message({}), str(path), "reopen"),
        "Closed": (lambda: closed.session("x").messages(), str(path / "closed"), "open it again"),
        "SessionNotFound": (lambda: store.delete("nobody"), "'nobody'", "in this store"),
        "SessionExists": (lambda: store.create("a/b"), "'a/b'", "seq 1"),
        "SessionDeleted": (lambda: reader.session("gone").messages(), "'gone'", "store.restore"),
        "InUse": (lambda: store.purge("parent"), "'parent'", "delete and purge them first"),
        "InvalidExport": (
            lambda: store.import_session(b"{}\n"),
            "line 1",
            "Export the session again",
        ),
        "NothingToImport": (
            lambda: importers.import_sessions(store, "codex", path / "nobody"),
            "nobody",
            "the path and the kind",
        ),
        "SeqConflict": (
            lambda: session.add_message({}, expected_seq=9),
            "'a/b' is at seq 1",
            "decide again",
        ),
        "Reentered": (lambda: _reenter(session), "log.jsonl", "Set a flag"),
        "Damaged": (lambda: reader.session("broken").messages(), "broken/log.jsonl", "`verify`"),
        "BackendUnavailable": (
            lambda: hansard.open("postgresql://user:password@127.0.0.1:1/db"),
            "postgresql://127.0.0.1:1/db",
            "check that the server runs",
        ),
    }


@pytest.mark.parametrize(
    "name", sorted(set(CLASSES) - {"HansardError", "LockTimeout", "DiskFailed", "SyncFailed"})
)
def test_an_error_says_where_what_and_what_next(name: str, tmp_path: Path) -> None:
    """Each error that a call can raise names the place and ends with what to do."""
    call, where, what_next = _provoked(tmp_path)[name]
    with pytest.raises(CLASSES[name]) as caught:
        call()
    assert type(caught.value) is CLASSES[name]
    assert where in str(caught.value)
    assert what_next in str(caught.value)
