"""Errors say what failed, where, why, and what to do; each case of the style guide that can be provoked."""

import json
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import Store
from hansard.log import disk
from hansard.log.disk import Lock

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
    """Open a store that belongs to another user, as one who is not root."""
    store.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "user", lambda: os.stat(path).st_uid + 5)
        real = disk.status
        patch.setattr(disk, "status", lambda *a: real(*a)._replace(owner=7))
        hansard.open(path)


def read_only(store: Store, path: Path) -> None:
    """Append to a store that was opened to read."""
    store.close()
    with hansard.open(path, read_only=True) as opened:
        opened.session("a").add_message(USER)


def damaged(store: Store, path: Path) -> None:
    """Read a log with a flipped bit."""
    store.close()
    log = path / "sessions" / "a" / "log.jsonl"
    data = bytearray(log.read_bytes())
    data[-20] ^= 1
    log.write_bytes(data + data[data.rindex(b"\n", 0, -1) + 1 :])
    with hansard.open(path) as opened:
        opened.session("a").messages()


def missing(store: Store, path: Path) -> None:
    """Read a session whose sealed segments were removed."""
    store.session("a").compact()
    store.session("a").add_message(USER)
    store.close()
    for sealed in (path / "sessions" / "a").glob("*.zst"):
        sealed.unlink()
    with hansard.open(path) as opened:
        opened.session("a").messages()


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


def exported(store: Store) -> bytes:
    """Return the session as a file."""
    return b"".join(store.session("a").export(redacted=False))


CASES: dict[str, tuple[Callable[[Store, Path], Any], str]] = {
    "last": (
        lambda store, _: store.session("a").messages(last=-1),
        "last must be a non-negative count, got -1",
    ),
    "after": (
        lambda store, _: store.session("a").messages(after=-1),
        "after must be a seq >= 0, got -1",
    ),
    "empty id": (
        lambda store, _: store.session(""),
        "session id is empty; pass a string, or call store.session() for a generated id",
    ),
    "empty cursor": (lambda store, _: store.follow(cursor=""), "cursor name is empty"),
    "redact": (
        lambda store, _: store.session("a").redact(7),
        "cannot redact seq 7: last seq of session 'a' is 1",
    ),
    "no export": (lambda store, _: store.import_session(b"hello"), "not a hansard export"),
    "truncated": (
        lambda store, _: store.import_session(exported(store)[:-10], id="b"),
        "export is truncated at line 3",
    ),
    "modified": (
        lambda store, _: store.import_session(exported(store).replace(b"hi", b"ho"), id="b"),
        "checksum mismatch: the export was modified",
    ),
    "age": (
        lambda store, _: store.prune(older_than=timedelta(0)),
        "older_than must be a timedelta or seconds, greater than 0",
    ),
    "foreign": (foreign, "is not a hansard store and not empty"),
    "owner": (owned, "belongs to uid 7; use your own directory or read_only=True"),
    "version": (marker, "unsupported store version 9 (supported: 1); nothing was changed. Upgrade"),
    "read only": (read_only, "store is read-only; reopen without read_only=True"),
    "damaged": (damaged, "log.jsonl at byte "),
    "missing": (
        missing,
        "log.jsonl: sealed segments are missing; restore them, or run `hansard repair --missing`",
    ),
    "locked": (locked, "compaction within 0 s: held by "),
    "bytes": (
        lambda store, _: store.session("a").add_message({"role": "user", "content": b"x"}),
        "bytes is not JSON; convert it to str, number, list or dict",
    ),
    "secret": (
        lambda store, _: store.session("a").set_metadata(api_key="sk-" + "a1B2" * 12),
        "nothing was stored. Store a name: 'env:OPENAI_API_KEY'",
    ),
    "page": (
        lambda store, _: store.sessions(cursor="nonsense"),
        "invalid cursor 'nonsense'; pass `next` of the previous page",
    ),
    "prefix": (lambda store, _: store.scoped(""), "prefix must not be empty"),
}


@pytest.mark.parametrize("case", CASES)
def test_an_error_says_what_to_do(tmp_path: Path, case: str) -> None:
    """N-89: the message has the place, the reason, the state of the data, and the next step."""
    provoke, text = CASES[case]
    with (
        fill(tmp_path / "store") as store,
        pytest.raises((hansard.HansardError, ValueError)) as caught,
    ):
        provoke(store, tmp_path / "store")
    assert text in str(caught.value)


def test_a_key_on_two_appends_is_named(tmp_path: Path) -> None:
    """N-56: a file with one idempotency key on two appends is refused with the key."""
    with fill(tmp_path / "store") as store:
        session = store.session("k")
        session.add_message(USER, key="k")
        session.add_message(USER, key="l")
        lines = b"".join(session.export(redacted=False)).splitlines()
        events = [{**json.loads(line), "key": "k"} for line in lines[1:-1]]
        from hansard.transfer.export_file import sha256

        body = lines[0] + b"\n" + b"".join(json.dumps(e).encode() + b"\n" for e in events)
        end = b'{"hansard":"end","events":2,"redactions":0'
        digest = sha256()
        digest.update(body + end)
        data = body + end + b',"sha256":"%b"}\n' % digest.hexdigest().encode()
        with pytest.raises(hansard.InvalidExport, match="idempotency key 'k' is used twice"):
            store.import_session(data, id="b")
