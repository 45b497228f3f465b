"""A part of a backend: the sessions whose ids begin alike, and no others.

For many tenants in one store. Whoever holds the part can name no session outside of it: not to list, read,
search, fork or write. What a session inside was forked from is read with it, wherever that is.
"""

from collections.abc import Iterable, Iterator

from hansard.backend.contract import Backend, Health, Hold, InternalLog, Log, Stage
from hansard.errors import Closed, InvalidSessionId


class ScopedBackend(Backend):
    """The sessions of another backend whose ids begin with a prefix."""

    def __init__(self, whole: Backend, prefix: str) -> None:
        self._whole = whole
        self._closed = False
        self.prefix = prefix
        self.where = f"{whole.where} ({prefix}…)"
        self.read_only = whole.read_only
        self.durability = whole.durability

    @property
    def unscoped(self) -> Backend:
        """The backend that this is a part of."""
        return self._whole.unscoped

    def log(self, session_id: str, *, from_trash: bool = False) -> Log:
        if from_trash:
            self.check_open()
            return self._whole.log(session_id, from_trash=True)
        return self._whole.log(self._inside(session_id))

    def stage(self, session_id: str, *, before: int = 0) -> Stage:
        return self._whole.stage(self._inside(session_id), before=before)

    def internal(self, name: str) -> InternalLog:
        self.check_open()
        return self._whole.internal(name)

    def internals(self) -> list[str]:
        self.check_open()
        return self._whole.internals()

    def exclusive(self, name: str, *, timeout: float = 0.0) -> Hold:
        self.check_open()
        return self._whole.exclusive(name, timeout=timeout)

    def ids(self, *, trash: bool = False) -> Iterator[str]:
        self.check_open()
        return (found for found in self._whole.ids(trash=trash) if found.startswith(self.prefix))

    def stamps(self, session_ids: Iterable[str] | None = None) -> dict[str, str]:
        self.check_open()
        if session_ids is not None:
            session_ids = [found for found in session_ids if found.startswith(self.prefix)]
        stamps = self._whole.stamps(session_ids)
        return {found: stamp for found, stamp in stamps.items() if found.startswith(self.prefix)}

    def delete(
        self, session_id: str, *, expected_seq: int | None = None, timeout: float | None = None
    ) -> None:
        self._whole.delete(self._inside(session_id), expected_seq=expected_seq, timeout=timeout)

    def restore(self, session_id: str) -> None:
        self._whole.restore(self._inside(session_id))

    def purge(self, session_id: str) -> None:
        self._whole.purge(self._inside(session_id))

    def probe(self) -> Health:
        self.check_open()
        return self._whole.probe()._replace(where=self.where)

    def close(self) -> None:
        """Close this part; the whole stays open."""
        self._closed = True

    def _inside(self, session_id: object) -> str:
        self.check_open()
        if not isinstance(session_id, str) or not session_id.startswith(self.prefix):
            raise InvalidSessionId(
                f"session id {session_id!r:.60} is outside of this store, which sees only the ids that "
                f"begin with {self.prefix!r}"
            )
        return session_id

    def check_open(self) -> None:
        """Raise if this part was closed."""
        if self._closed:
            raise Closed(f"{self.where}: the store was closed; open it again")
