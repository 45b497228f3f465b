"""Targets of the fuzzer: all readers of data that others may have altered."""

import base64
import contextlib
import glob
import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import hansard
from hansard.backend.local import compact
from hansard.log import format, names
from hansard.log.sealed_segment import INDEX_END, OURS
from tools.crash.struck import Wrong, scratch

#: Errors that stored bytes and wrong arguments may cause.
_UNREADABLE = hansard.HansardError
_INVALID = (hansard.HansardError, ValueError)


class Bench:
    """A store in which one file at a time is replaced."""

    def __init__(self) -> None:
        self.directory = scratch("hansard-fuzz-")
        self.path = os.path.join(self.directory, "store")
        self.export = b""
        with hansard.open(self.path, durability="os", auto_compact=False) as store:
            with _constant(compact, "CHECKPOINT", 0):
                _fill(store)
            self.export = b"".join(store.session("plain").export())
            self.listed = _listing(store)
            first, last = store.sessions(limit=2), store.sessions(limit=1, order="-updated")
            self.tokens = [token for token in (first.next, last.next) if token is not None]
        self.events = {}
        with self.opened() as store:
            for name in ("plain", "sealed"):
                self.events[name] = list(store.session(name).events())
            self.state = store.session("sealed").state()

        self._reader: hansard.Store | None = None

    @property
    def reader(self) -> hansard.Store:
        """The store, for calls that change none of its files; open until `rest`."""
        if self._reader is None:
            self._reader = self.opened()
        return self._reader

    def rest(self) -> None:
        """Close all files."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def close(self) -> None:
        """Remove the temporary files."""
        self.rest()
        shutil.rmtree(self.directory, ignore_errors=True)

    def opened(self) -> hansard.Store:
        """Open it as a read-only process would."""
        return hansard.open(self.path, read_only=True)

    def file(self, *parts: str) -> str:
        """Return the first file of the store whose path matches."""
        return min(glob.glob(os.path.join(self.path, *parts)))

    @contextlib.contextmanager
    def exchanged(self, file: str, data: bytes) -> Iterator[None]:
        """Replace a file temporarily."""
        kept = f"{file}-kept"
        os.rename(file, kept)
        try:
            with open(file, "wb") as new:
                new.write(data)
            yield
        finally:
            os.replace(kept, file)


@contextlib.contextmanager
def _constant(module: ModuleType, name: str, value: object) -> Iterator[None]:
    """Replace a constant temporarily."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def _fill(store: hansard.Store) -> None:
    for number in range(6):
        store.session("plain").add_message({"role": "user", "content": f"words {number}"})
    store.session("plain").add_messages([{"n": 1}, {"n": 2}], key="k")
    store.session("plain").set_metadata(title="a title")
    for number in range(40):
        said = {"role": "user", "content": f"words {number} " * 4}
        store.session("sealed").add_message(said, key=f"key {number}")
    store.session("sealed").set_metadata(title="sealed")
    store.session("sealed").compact()
    store.session("sealed").add_message({"role": "user", "content": "after"})
    follower = store.follow(cursor="consumer", prefix="plain")
    for _, _event in zip(range(3), follower, strict=False):
        pass
    follower.close()


def _listing(store: hansard.Store) -> list[tuple[str, str | None, int]]:
    return [(info.id, info.title, info.seq) for info in store.sessions().items]


class Target(NamedTuple):
    """A reader."""

    name: str
    #: Data that hansard wrote.
    seeds: Callable[[Bench], list[bytes]]
    #: Reads, and raises `Wrong` if the answer is wrong. The last argument: the checksum is right.
    feed: Callable[[Bench, bytes, bool], None]
    #: Corrects a checksum.
    reseal: Callable[[bytes], bytes] | None = None
    #: How many inputs take about a tenth of a second.
    inputs: int = 15


# -- sessions -----------------------------------------------------------------------------------


def _read_session(bench: Bench, name: str, *, sealed: bool) -> None:
    """Read a session in every way: the result must be a prefix of the stored messages."""
    with bench.opened() as store:
        session = store.session(name)
        found: list[hansard.Event] | None = None
        with contextlib.suppress(_UNREADABLE):
            found = list(session.events())
        if found is not None and [event.seq for event in found] != list(range(1, len(found) + 1)):
            raise Wrong(f"seqs {[event.seq for event in found]}")
        if found is not None and not sealed and found != bench.events[name][: len(found)]:
            raise Wrong("other events than were said")
        with contextlib.suppress(_UNREADABLE):
            last = session.messages(last=2)
            said = [event.message for event in bench.events[name] if event.message is not None]
            if not sealed and not _is_run(last, said):
                raise Wrong(f"other messages than were said: {last}")
        for look in (
            session.state,
            lambda: session.metadata,
            session.verify,
            lambda: list(session.dump()),
        ):
            with contextlib.suppress(_UNREADABLE):
                look()
        with contextlib.suppress(_UNREADABLE):
            store.exists(name)


def _is_run(found: list[dict[str, Any]], said: list[dict[str, Any]]) -> bool:
    size = len(found)
    return any(said[at : at + size] == found for at in range(len(said) - size + 1))


def _file_target(
    name: str, session: str, *file: str, reseal: Callable[[bytes], bytes] | None = None
) -> Target:
    def seeds(bench: Bench) -> list[bytes]:
        with open(bench.file(*file), "rb") as opened:
            return [opened.read()]

    def feed(bench: Bench, data: bytes, sealed: bool) -> None:  # noqa: FBT001 - as `Target.feed`
        with bench.exchanged(bench.file(*file), data):
            _read_session(bench, session, sealed=sealed)

    return Target(name, seeds, feed, reseal)


def _reseal_lines(data: bytes) -> bytes:
    """Give every line the checksum that it should have."""
    crc = 0
    lines = []
    for line in data.splitlines(keepends=True):
        if format.stored_crc(line) is not None:
            body = line[: -format.TRAILER]
            line = body + b',"crc":"%08x"}\n' % zlib.crc32(body, crc)  # noqa: PLW2901 - put right
            crc = format.crc_after(line, crc)
        else:
            crc = zlib.crc32(line, crc)
        lines.append(line)
    return b"".join(lines)


def _reseal_index(data: bytes) -> bytes:
    """Give the index of a sealed segment the checksum that it should have."""
    at = data.rindex(OURS) + len(OURS) - INDEX_END.size
    length, _, ours = INDEX_END.unpack_from(data, at)
    text = data[at - length : at]
    return data[:at] + INDEX_END.pack(length, zlib.crc32(text), ours) + data[at + INDEX_END.size :]


# -- other files --------------------------------------------------------------------------------


def _feed_checkpoint(bench: Bench, data: bytes, sealed: bool) -> None:  # noqa: FBT001 - as `Target.feed`
    """A checkpoint is derived: with any content of it, the state is the fold of the events."""
    with (
        bench.exchanged(bench.file("sessions", "sealed", names.CHECKPOINT), data),
        bench.opened() as store,
    ):
        found = store.session("sealed").state()
        if not sealed and found != bench.state:
            raise Wrong(f"another state: {found}")


def _checkpoint(bench: Bench) -> list[bytes]:
    with open(bench.file("sessions", "sealed", names.CHECKPOINT), "rb") as file:
        return [file.read()]


def _reseal_checkpoint(data: bytes) -> bytes:
    head, _, body = data.partition(b"\n")
    fields = {**json.loads(head), "sections": zlib.crc32(body)}
    fields.pop("crc", None)
    line, _ = format.close_line(json.dumps(fields, separators=(",", ":")).encode()[:-1], 0)
    return line + body


def _cursor_file(bench: Bench) -> list[bytes]:
    with open(bench.file("internal", "cursor-consumer", names.LOG), "rb") as file:
        return [file.read()]


def _feed_cursor_file(bench: Bench, data: bytes, sealed: bool) -> None:  # noqa: FBT001 - as `Target.feed`
    """A cursor's position may be too low, never too high: no event is skipped."""
    place = bench.file("internal", "cursor-consumer", names.LOG)
    with (
        bench.exchanged(place, data),
        contextlib.suppress(_UNREADABLE),
        hansard.open(bench.path, durability="os", auto_compact=False) as store,
        contextlib.closing(store.follow(cursor="consumer", session="plain")) as follower,
    ):
        first = next(follower)
        if not sealed and first.event.seq > 3:  # noqa: PLR2004 - two of them it had done
            raise Wrong(f"skipped to {first}")


def _index_file(bench: Bench) -> list[bytes]:
    with open(os.path.join(bench.path, names.INDEX), "rb") as file:
        return [file.read()]


def _feed_index(bench: Bench, data: bytes, _: bool) -> None:  # noqa: FBT001 - as `Target.feed`
    """The index is derived: if it cannot be used, it is rebuilt."""
    file = os.path.join(bench.path, names.INDEX)
    with bench.exchanged(file, data):
        try:
            with hansard.open(bench.path, durability="os", auto_compact=False) as store:
                with contextlib.suppress(_UNREADABLE):
                    ids = [one for one, _, _ in _listing(store)]
                    if ids != [one for one, _, _ in bench.listed]:
                        raise Wrong(f"other sessions are listed: {ids}")
                with contextlib.suppress(_UNREADABLE):
                    store.search("words")
        finally:
            for more in ("-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(file + more)


def _feed_export(bench: Bench, data: bytes, sealed: bool) -> None:  # noqa: FBT001 - as `Target.feed`
    """An import stores everything unchanged, or nothing."""
    with hansard.open("memory:") as store:
        try:
            report = store.import_session(data, id="taken")
        except _UNREADABLE:
            if list(store.sessions().items):
                raise Wrong("refused, and something is there") from None
            return
        found = list(store.session("taken").events())
        if [event.seq for event in found] != list(range(1, len(found) + 1)):
            raise Wrong(f"imported {report} with seqs {[event.seq for event in found]}")
        if not sealed and found != bench.events["plain"]:
            raise Wrong("imported other events than were exported")
        for look in (store.session("taken").messages, store.session("taken").state):
            look()


def _reseal_export(data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    end = {
        "hansard": "end",
        "events": len(lines) - 2,
        "redactions": json.loads(lines[-1])["redactions"],
    }
    body = b"".join(lines[:-1]) + json.dumps(end, separators=(",", ":")).encode()[:-1]
    return b'%b,"sha256":"%b"}\n' % (body, hashlib.sha256(body).hexdigest().encode())


# -- arguments of callers --------------------------------------------------------------------------


def _feed_token(bench: Bench, data: bytes, sealed: bool) -> None:  # noqa: FBT001 - as `Target.feed`
    """An altered token is refused, or continues a listing in order."""
    token = (
        base64.urlsafe_b64encode(data).decode().rstrip("=") if sealed else data.decode("latin-1")
    )
    for order in ("id", "-updated"):
        with contextlib.suppress(*_INVALID):
            page = bench.reader.sessions(order=order, limit=5, cursor=token)
            found = [info.id for info in page.items]
            if order == "id" and found != sorted(found):
                raise Wrong(f"not in order: {found}")


def _tokens(bench: Bench) -> list[bytes]:
    raw = [base64.urlsafe_b64decode(token + "==") for token in bench.tokens]
    return [*(token.encode() for token in bench.tokens), *raw]


def _feed_name(_: Bench, data: bytes, __: bool) -> None:  # noqa: FBT001 - as `Target.feed`
    """A directory name has one id, and an id one directory name."""
    text = data.decode("utf-8", "surrogateescape")
    with contextlib.suppress(*_INVALID):
        file = names.encode(text)
        if (
            "/" in file
            or file in {".", ".."}
            or not file.isascii()
            or len(file) > names.MAX_NAME_BYTES
        ):
            raise Wrong(f"{text!r} is kept as {file!r}")
        if names.decode(file) not in {text, None}:
            raise Wrong(f"{text!r} is kept as {file!r}, which is {names.decode(file)!r}")
    with contextlib.suppress(*_INVALID):
        found = names.decode(text)
        if found is not None and names.encode(found) != text:
            raise Wrong(
                f"{text!r} is taken for {found!r}, which is kept as {names.encode(found)!r}"
            )


def _feed_query(bench: Bench, data: bytes, _: bool) -> None:  # noqa: FBT001 - as `Target.feed`
    with contextlib.suppress(*_INVALID):
        bench.reader.search(data.decode("utf-8", "surrogateescape"))


def _feed_line(_: Bench, data: bytes, __: bool) -> None:  # noqa: FBT001 - as `Target.feed`
    for decode in (format.decode_lines, format.decode_header, format.decode_first):
        with contextlib.suppress(*format.DECODE_ERRORS):
            decode(data)


def _lines(bench: Bench) -> list[bytes]:
    with open(bench.file("sessions", "plain", names.LOG), "rb") as file:
        return file.read().splitlines(keepends=True)


def _texts(*found: str) -> Callable[[Bench], list[bytes]]:
    return lambda _: [text.encode() for text in found]


TARGETS = (
    Target("record", _lines, _feed_line, _reseal_lines, 400),
    _file_target("log", "plain", "sessions", "plain", names.LOG, reseal=_reseal_lines),
    _file_target("sealed", "sealed", "sessions", "sealed", "*.zst", reseal=_reseal_index),
    Target("checkpoint", _checkpoint, _feed_checkpoint, _reseal_checkpoint),
    Target("cursor", _cursor_file, _feed_cursor_file, _reseal_lines, 40),
    Target("index", _index_file, _feed_index, None, 1),
    Target("export", lambda bench: [bench.export], _feed_export, _reseal_export),
    Target("token", _tokens, _feed_token, lambda data: data, 60),
    Target(
        "name",
        _texts("support/42", "Änderung", "a b+c^d%2f", "con", "x" * 300),
        _feed_name,
        None,
        200,
    ),
    Target(
        "query", _texts('words "some more" -not refun* OR b', "é OR -", '"'), _feed_query, None, 60
    ),
)

BY_NAME = {target.name: target for target in TARGETS}
