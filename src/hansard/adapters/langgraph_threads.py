"""The threads of LangGraph that are sessions of a store: which is which, and those kept in mind.

A thread is the session of the same id. Where no session can have that id, being empty, too long or no text,
or where it begins like what stands for such an id, the session's id is made of the thread's, one to one.
"""

from hashlib import sha256
from typing import Any, Final

import hansard
from hansard.adapters.langgraph_thread import FORMAT, MARK, Thread
from hansard.adapters.opening import ClosedPlace, Settled, StoreLike, opened, settled
from hansard.adapters.projection import Recent

#: Where a thread's id cannot be a session's, this stands before what is made of it.
_CODED: Final = "~"
_LONGEST: Final = 1024
#: In the metadata: the thread's id, where it cannot be told from the session's.
_THREAD: Final = "langgraph_thread"


class Threads:
    """The threads of one saver."""

    def __init__(self, store: StoreLike, prefix: str) -> None:
        self._store: Settled | ClosedPlace = settled(store)
        self._prefix = prefix
        self._known: Recent[Thread] = Recent()

    @property
    def store(self) -> hansard.Store:
        """The store; opened when it is needed, if a path was given."""
        return opened(self._store)

    def close(self, name: str) -> None:
        """Refuse further calls, on behalf of the saver of this name."""
        self._store = ClosedPlace(name)
        self._known.forget()

    def of(self, thread_id: str) -> Thread:
        """Return a thread, be it empty."""
        session_id = self.session_id(thread_id)
        return self._known.of(session_id, lambda name: Thread(self.store, name))

    def marked(self, thread_id: str) -> Thread:
        """Return a thread whose session says that it is one, by which it is found among all sessions."""
        thread = self.of(thread_id)
        if not thread.marked:
            self.mark(thread.handle, thread_id)
        return thread

    def mark(self, session: hansard.Session, thread_id: str) -> None:
        """Let a session say that it is a thread."""
        said: dict[str, Any] = {MARK: FORMAT}
        if session.id.startswith(self._prefix + 2 * _CODED):
            said[_THREAD] = thread_id.encode(errors="surrogatepass").hex()
        session.patch_metadata(said)

    def ids(self) -> list[str]:
        """Return the ids of all threads."""
        listed = self.store.sessions(prefix=self._prefix, where={MARK: FORMAT})
        return [self._thread_id(info) for info in listed.items if not info.damaged]

    def session_id(self, thread_id: str) -> str:
        """Return the id of a thread's session: its own, or, if no session can have that, one made of it."""
        thread_id = str(thread_id)  # some call their threads by numbers
        plain = self._prefix + thread_id
        coded = thread_id.encode(errors="surrogatepass").hex()
        if (
            thread_id
            and not thread_id.startswith(_CODED)
            and len(plain) <= _LONGEST
            and "\0" not in plain
            and not any("\ud800" <= character <= "\udfff" for character in thread_id)
        ):
            return plain
        if len(self._prefix) + 1 + len(coded) <= _LONGEST:
            return f"{self._prefix}{_CODED}{coded}"
        return f"{self._prefix}{2 * _CODED}{sha256(bytes.fromhex(coded)).hexdigest()}"

    def _thread_id(self, info: hansard.SessionInfo) -> str:
        own = info.id.removeprefix(self._prefix)
        if not own.startswith(_CODED):
            return own
        hashed = own.startswith(2 * _CODED)
        coded = str(info.metadata.get(_THREAD, "")) if hashed else own.removeprefix(_CODED)
        return bytes.fromhex(coded).decode(errors="surrogatepass")

    def forget(self, thread_id: str) -> None:
        """Keep a thread in mind no longer."""
        self._known.forget(self.session_id(thread_id))
