"""The sessions of a backend whose ids have a prefix, for many tenants in one store.

A scoped backend cannot list, read, search, fork or write any other session. The ancestors of a session are
read with it, even those outside of the prefix.
"""

from collections.abc import Callable, Iterable, Iterator

from hansard.backend.contract import Backend, Health, Hold, InternalLog, Log, Stage
from hansard.errors import Closed, InvalidSessionId
from hansard.event.kinds import SessionForked


class ScopedBackend(Backend):
    """The sessions of another backend whose ids begin with a prefix."""

    def __init__(self, parent: Backend, prefix: str) -> None:
        self._parent = parent
        self._closed = False
        self.prefix = prefix
        self.where = f"{parent.where} ({prefix}…)"
        self.read_only = parent.read_only
        self.durability = parent.durability

    @property
    def unscoped(self) -> Backend:
        """The backend with all sessions."""
        return self._open().unscoped

    def _open(self) -> Backend:
        if self._closed:
            raise Closed(f"{self.where}: the store was closed; open it again")
        return self._parent

    def _inside(self, session_id: object) -> str:
        self._open()
        if not isinstance(session_id, str) or not session_id.startswith(self.prefix):
            raise InvalidSessionId(
                f"session id {session_id!r:.60} is outside of this store, which sees only the ids that "
                f"begin with {self.prefix!r}"
            )
        return session_id

    def log(self, session_id: str, *, from_trash: bool = False) -> Log:
        if from_trash:
            return self._open().log(session_id, from_trash=True)
        return self._parent.log(self._inside(session_id))

    def stage(
        self, session_id: str, *, before: int = 0, forked: SessionForked | None = None
    ) -> Stage:
        return self._parent.stage(self._inside(session_id), before=before, forked=forked)

    def internal(self, name: str) -> InternalLog:
        return self._open().internal(name)

    def internals(self) -> list[str]:
        return self._open().internals()

    def exclusive(self, name: str) -> Hold:
        return self._open().exclusive(name)

    def ids(self, *, trash: bool = False) -> Iterator[str]:
        return (found for found in self._open().ids(trash=trash) if found.startswith(self.prefix))

    def stamps(self, session_ids: Iterable[str] | None = None) -> dict[str, str]:
        if session_ids is not None:
            session_ids = [found for found in session_ids if found.startswith(self.prefix)]
        stamps = self._open().stamps(session_ids)
        return {found: stamp for found, stamp in stamps.items() if found.startswith(self.prefix)}

    def delete(
        self,
        session_id: str,
        *,
        expected_seq: int | None = None,
        timeout: float | None = None,
        check: Callable[[], object] = bool,
    ) -> None:
        session_id = self._inside(session_id)
        self._parent.delete(session_id, expected_seq=expected_seq, timeout=timeout, check=check)

    def restore(self, session_id: str) -> None:
        self._parent.restore(self._inside(session_id))

    def purge(self, session_id: str, check: Callable[[], object] = bool) -> None:
        self._parent.purge(self._inside(session_id), check)

    def probe(self) -> Health:
        return self._open().probe()._replace(where=self.where)

    def close(self) -> None:
        """Close this backend; the one with all sessions stays open."""
        self._closed = True
