"""The storage of Strands: bytes under keys, for snapshots and whatever else it keeps.

Each key is a session of its own, `strands/<key>`, and each write an event in it: the last one counts, and the
earlier ones can be read with hansard's own API. Text is stored as text, other bytes in base64.
"""

import base64
import builtins
import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Self

import hansard
from hansard import aio
from hansard.adapters.opening import StoreLike, aopened, missing, settled

try:
    from strands.storage.search import KeywordSearchStrategy, StorageSearchResult
    from strands.storage.storage import _NAMESPACED
    from strands.types.exceptions import StorageError
except ImportError as error:
    missing("strands", "strands-agents", "strands", error)

if TYPE_CHECKING:
    from strands.storage.search import SearchStrategy

VALUE: Final = "x.strands.value"
DELETED: Final = "x.strands.deleted"

#: What says in a session's metadata that it is a key.
MARK: Final = "strands_storage"


class HansardStorage:
    """Keeps the bytes that Strands stores under keys; for `SnapshotSessionManager` and `Agent(storage=…)`.

    Args:
        store: a `hansard.Store`, a `hansard.aio.Store`, or the path of one.
        prefix: what the ids of hansard's sessions begin with, before the key.
        search_strategy: indexes what is written, and answers `search`; Strands' search by keywords, if it is
            not given.
    """

    _namespaced: object = None

    def __init__(
        self,
        store: StoreLike,
        *,
        prefix: str = "strands/",
        search_strategy: "SearchStrategy[HansardStorage] | None" = None,
    ) -> None:
        self._store = settled(store)
        self._prefix = prefix
        self._strategy = search_strategy

    def namespace(self, prefix: str) -> Self:
        """Return a storage of the keys that begin with a prefix and `/`, which are named without it."""
        name = _checked(prefix).strip("/")
        scoped = copy.copy(self)
        scoped._prefix = f"{self._prefix}{name}/" if name else self._prefix  # noqa: SLF001 - of the same class
        # By this, Strands knows not to add a prefix of its own.
        scoped._namespaced = _NAMESPACED  # noqa: SLF001 - the same
        return scoped

    async def write(self, key: str, data: bytes) -> None:
        """Store bytes under a key, in place of what is there."""
        name = _key(key)
        with _failing(f"write {key!r}"):
            session = await self._session(name)
            if (await session.metadata).get(MARK) != 1:
                await session.set_metadata(**{MARK: 1})
            await session.append(VALUE, _packed(bytes(data)))
        if self._strategy is not None:
            try:
                await self._strategy.index(self, name, data)
            except Exception as error:
                raise StorageError(f"Wrote {key!r}, but indexing it failed: {error}") from error

    async def read(self, key: str) -> bytes | None:
        """Return the bytes under a key; None if there are none."""
        name = _key(key)
        with _failing(f"read {key!r}"), suppress(hansard.SessionDeleted):
            session = await self._session(name)
            return await _value(session, await session.seq)
        return None

    async def delete(self, key: str) -> None:
        """Let there be nothing under a key; what was there can still be read with hansard's own API."""
        name = _key(key)
        with _failing(f"delete {key!r}"), suppress(hansard.SessionDeleted):
            session = await self._session(name)
            if await _value(session, await session.seq) is not None:
                await session.append(DELETED, {})

    async def list(self, query: str = "") -> builtins.list[str]:
        """Return the keys that begin so, sorted."""
        prefix = _checked(query).lstrip("/")
        with _failing(f"list {query!r}"):
            store = await aopened(self._store)
            page = await store.sessions(prefix=self._prefix + prefix, where={MARK: 1})
            found = [
                info.id.removeprefix(self._prefix)
                for info in page.items
                if await _value(store.session(info.id), info.seq) is not None
            ]
            return sorted(found)

    async def search(self, query: str) -> builtins.list[StorageSearchResult]:
        """Find keys with the search strategy; by the words of what is under them, if there is none."""
        strategy = self._strategy or KeywordSearchStrategy()
        return await strategy.search(self, query)

    async def _session(self, name: str) -> aio.Session:
        store = await aopened(self._store)
        return store.session(self._prefix + name)


@contextmanager
def _failing(what: str) -> Iterator[None]:
    try:
        yield
    except hansard.HansardError as error:
        raise StorageError(f"Failed to {what}: {error}") from error


async def _value(session: aio.Session, seq: int) -> bytes | None:
    """Return what stands under a key: nearly always, it is in the last event."""
    step = 1
    while seq > 0:
        found: bytes | None = None
        said = False
        async for event in session.events(after=max(seq - step, 0)):
            if event.kind in {VALUE, DELETED}:
                said = True
                found = _unpacked(event.data) if event.kind == VALUE else None
        if said or seq <= step:
            return found
        step *= 8
    return None


def _packed(data: bytes) -> dict[str, Any]:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _unpacked(data: dict[str, Any]) -> bytes | None:
    if "text" in data:
        return str(data["text"]).encode()
    return base64.b64decode(data["base64"]) if "base64" in data else None


def _key(key: str) -> str:
    """Return a key as the storages of Strands have it."""
    name = _checked(key).strip("/")
    if not name:
        raise StorageError("Storage key must not be empty")
    return name


def _checked(key: str) -> str:
    if "\\" in key:
        raise StorageError(f"Invalid storage key {key!r}: backslashes are not allowed")
    if ".." in key.split("/"):
        raise StorageError(f"Invalid storage key {key!r}: '..' is not allowed")
    return re.sub(r"/+", "/", key)
