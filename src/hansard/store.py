"""A store of sessions: open one, find sessions in it, look after it.

Above: user code.  Below: `session`, `upkeep`, `backend`.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Self

import msgspec

from hansard.backend.contract import Backend, Health
from hansard.errors import (
    BackendUnavailable,
    Damaged,
    DiskFailed,
    HansardError,
    InvalidSessionId,
    SessionDeleted,
    UnknownFormat,
    UnsafePath,
)
from hansard.session import Session, create
from hansard.upkeep.verify import StoreReport, verify_store

if TYPE_CHECKING:
    from hansard.follow import Follower


class SessionInfo(msgspec.Struct, frozen=True):
    """One line of a listing.

    Attributes:
        id: the session's id.
        seq: its last event.
        created, updated: when it began, and when its last event was written: RFC 3339 text.
        bytes: what it takes on disk.
        metadata: what `set_metadata` calls add up to.
        damaged: what is wrong with it; empty if it can be read.
    """

    id: str
    seq: int = 0
    created: str = ""
    updated: str = ""
    bytes: int = 0
    metadata: dict[str, Any] = {}
    damaged: str = ""

    @property
    def title(self) -> str | None:
        """The title that the metadata give it."""
        title = self.metadata.get("title")
        return title if isinstance(title, str) else None


class Page(msgspec.Struct, frozen=True):
    """Some sessions of a listing, and where it goes on: the `cursor` of the next call, or None."""

    items: list[SessionInfo]
    next: str | None


def open(
    path: str | os.PathLike[str],
    *,
    create: bool = True,
    read_only: bool = False,
    durability: Literal["sync", "os"] = "sync",
    lock_timeout: float = 10.0,
) -> "Store":
    """Open a store, making it if it is missing.

    Args:
        path: a directory, or `memory:` for a store that lives as long as this object.
        create: make the directory if it is not there; otherwise raise `StoreNotFound`.
        read_only: write nothing at all; works on a read-only file system.
        durability: "sync": an acknowledged append survives a power cut. "os": it survives a killed
            process, and costs a hundredth.
        lock_timeout: how many seconds to wait for another writer of the same session.
    """
    if durability not in {"sync", "os"}:
        raise ValueError(f"durability must be 'sync' or 'os', not {durability!r}")
    if not lock_timeout >= 0:
        raise ValueError(f"lock_timeout must be a number of seconds, not {lock_timeout!r}")
    where = os.fsdecode(path)
    if not where or "\0" in where:
        raise ValueError(f"the path of a store must be a text without NUL, not {where!r}")
    if where == "memory:":
        from hansard.backend.memory import MemoryBackend

        return Store(MemoryBackend())
    if where.startswith(("postgresql://", "postgres://")):
        raise BackendUnavailable(
            "this version of hansard has no PostgreSQL backend; give a directory, or 'memory:'"
        )
    from hansard.backend.local import LocalBackend

    return Store(
        LocalBackend(
            where,
            create=create,
            read_only=read_only,
            durability=durability,
            lock_timeout=lock_timeout,
        )
    )


class Store:
    """Holds sessions. Made by `hansard.open`; safe to share between threads and across a fork."""

    __slots__ = ("_backend",)

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def __repr__(self) -> str:
        return f"<hansard.Store {self._backend.where!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all files. What was acknowledged was safe before; nothing is left to write."""
        self._backend.close()

    # -- sessions -------------------------------------------------------------------------------

    def session(self, id: str | None = None) -> Session:
        """Return a handle on a session; it exists from its first event on.

        Without an id, one that is fresh, unique and ordered by time.
        """
        if id is None:
            from hansard.log.names import new_id

            id = self._backend.prefix + new_id()
        return Session(self._backend, id)

    def create(self, id: str, *, metadata: dict[str, Any] | None = None) -> Session:
        """Make a session that must not exist yet, or raise `SessionExists`."""
        return create(self._backend, id, {} if metadata is None else metadata)

    def exists(self, id: str) -> bool:
        """Say whether a session has an event and is not deleted; one that cannot be read exists."""
        if self._backend.prefix and not id.startswith(self._backend.prefix):
            return False  # what a scoped store cannot see is not there
        try:
            return self._backend.log(id).head() is not None
        except SessionDeleted:
            return False
        except (Damaged, UnknownFormat):
            return True

    def delete(self, id: str) -> None:
        """Move a session to the trash. Handles on it raise `SessionDeleted` from now on."""
        self._backend.delete(id)

    def restore(self, id: str) -> Session:
        """Bring a deleted session back, with everything that was in it."""
        self._backend.restore(id)
        return Session(self._backend, id)

    def sessions(
        self, *, prefix: str = "", limit: int | None = None, cursor: str | None = None
    ) -> Page:
        """List sessions by id, with what can be said about each without reading it whole.

        Args:
            prefix: only ids that begin so.
            limit: at most so many; the page's `next` is the `cursor` for the rest.
            cursor: go on after a page.
        """
        if limit is not None and limit < 1:
            raise ValueError(f"limit must be 1 or more, not {limit!r}")
        ids = sorted(
            found
            for found in self._backend.ids()
            if found.startswith(prefix) and (cursor is None or found > cursor)
        )
        items: list[SessionInfo] = []
        for session_id in ids:
            if limit is not None and len(items) == limit:
                return Page(items, items[-1].id)
            info = self._info(session_id)
            if info is not None:
                items.append(info)
        return Page(items, None)

    def _info(self, session_id: str) -> SessionInfo | None:
        """Describe a session; None if it was deleted meanwhile."""
        log = self._backend.log(session_id)
        try:
            head = log.head()
            if head is None:
                return None
            metadata = Session(self._backend, session_id).metadata
        except SessionDeleted:
            return None
        except (Damaged, UnknownFormat, DiskFailed, UnsafePath) as error:
            # Flagged, and hiding no other: the listing is how people find out.
            return SessionInfo(session_id, damaged=str(error))
        return SessionInfo(
            session_id,
            seq=head.seq,
            created=head.created,
            updated=head.updated,
            bytes=head.size,
            metadata=metadata,
        )

    def scoped(self, prefix: str) -> "Store":
        """Return a store of the sessions whose ids begin with a prefix; it cannot see or touch others.

        Ids are the same in both. End the prefix with a separator, as in `tenant-1/`: without it,
        `tenant-10` begins alike. Closing it closes only it.
        """
        if not prefix:
            raise InvalidSessionId(
                "an empty prefix would hide nothing; give one such as 'tenant-a/'"
            )
        if not prefix.startswith(self._backend.prefix):
            raise InvalidSessionId(
                f"prefix {prefix!r:.60} is outside of this store, which sees only the ids that begin "
                f"with {self._backend.prefix!r}"
            )
        from hansard.backend.scoped import ScopedBackend

        return Store(ScopedBackend(self._backend, prefix))

    def follow(
        self,
        *,
        prefix: str = "",
        session: str | None = None,
        cursor: str | None = None,
        from_now: bool = False,
        on_damage: Callable[[str, HansardError], None] | None = None,
    ) -> "Follower":
        """Yield the events of all sessions, those that are there and those to come, for ever.

        Args:
            prefix: only sessions whose ids begin so.
            session: only this session.
            cursor: remember under this name how far the consumer got, and go on from there.
            from_now: leave out what is there already, unless the cursor knows the session.
            on_damage: called with id and error for a session that cannot be read, which is then left
                out; without it, the error is raised.
        """
        from hansard.follow import Follower

        opened = None if cursor is None else self._backend.cursor(cursor)
        return Follower(
            self._backend,
            wanted=lambda found: found.startswith(prefix) and (session is None or found == session),
            cursor=opened,
            from_now=from_now,
            on_damage=on_damage,
        )

    def cursors(self) -> list[str]:
        """Return the names of the cursors that `follow` keeps."""
        return self._backend.cursors()

    def drop_cursor(self, name: str) -> bool:
        """Forget how far a consumer got; say whether there was such a cursor."""
        return self._backend.drop_cursor(name)

    # -- looking after it -----------------------------------------------------------------------

    def verify(self) -> StoreReport:
        """Check every byte of every session, and report."""
        return verify_store(self._backend, self._backend.ids())

    def health(self) -> Health:
        """Try that the store can be read and, unless read-only, written. Raises if it cannot."""
        return self._backend.health()
