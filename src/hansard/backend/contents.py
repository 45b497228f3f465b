"""Keep large content once for all sessions, in files or in memory, and remove what nobody refers to.

Above: `local`, `memory`.  Below: `contract`, `event.large`, `log.vault`.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from hansard.backend.contract import Content, Log
from hansard.errors import Damaged
from hansard.event.large import Gaps, Reference
from hansard.log.root import Root
from hansard.log.vault import Kept, Vault

#: Is given every session, and returns the hashes of what they refer to.
Refers = Callable[[Iterator[Log]], set[str]]


class LocalContents:
    """The large content of a store on files."""

    __slots__ = ("_check_open", "_vault")

    def __init__(self, root: Root, check_open: Callable[[], None], timeout: float) -> None:
        self._vault = Vault(root, timeout)
        self._check_open = check_open

    def gaps(self, references: object, where: str) -> Gaps:
        """Return the gaps of a record in a log."""
        return Gaps(references, self.fetch, where)

    def fetch(self, reference: Reference) -> str:
        """Return the text that a reference stands for, or raise `Damaged`."""
        self._check_open()
        return self._vault.read(reference.sha256, reference.bytes).decode()

    @contextmanager
    def keeping(self, contents: dict[str, bytes]) -> Iterator[None]:
        """Keep contents, and keep collectors away until what is to refer to them is written."""
        with self.sharing():
            self.keep(contents)
            yield

    def sharing(self) -> AbstractContextManager[None]:
        """Keep collectors away."""
        return self._vault.sharing(create=True)

    def keep(self, contents: dict[str, bytes]) -> None:
        """Keep contents. The caller is `sharing`."""
        self._vault.keep(contents)

    def moving(self) -> AbstractContextManager[None]:
        """Keep collectors away while a session moves to the trash, or out of it."""
        return self._vault.sharing(create=False)

    def listing(self) -> list[Content]:
        """Return what is kept."""
        self._check_open()
        return [Content(kept.sha256, kept.bytes) for kept in self._vault.listing()]

    def collect(
        self,
        refers: Refers,
        names: Callable[[], list[str]],
        log: Callable[[str], Log],
        *,
        dry_run: bool,
    ) -> list[Content]:
        """Remove what nothing refers to (F-77). `names`: of all sessions, as they are at the moment."""
        self._check_open()
        vault = self._vault
        if dry_run:
            # Nothing is removed, so nobody needs to be kept away.
            doomed = _unreferred(vault.listing(), refers(log(name) for name in names()))
        elif vault.listing():
            with vault.alone():
                kept = vault.listing()
                sessions = names()
            doomed = _unreferred(kept, refers(log(name) for name in sessions))
            if doomed:
                with vault.alone():
                    doomed = vault.remove(doomed)
        else:
            doomed = []
        return [Content(kept.sha256, kept.bytes) for kept in doomed]


def _unreferred(kept: list[Kept], referred: set[str]) -> list[Kept]:
    return [content for content in kept if content.sha256 not in referred]


class MemoryContents:
    """The large content of a store in memory: a dict."""

    __slots__ = ("_check_open", "_kept", "_mutex", "_touched", "_where")

    def __init__(self, where: str, check_open: Callable[[], None]) -> None:
        self._where = where
        self._check_open = check_open
        self._kept: dict[str, bytes] = {}
        #: How often each was kept: a collector removes none that was kept once more since it looked.
        self._touched: Counter[str] = Counter()
        #: Taken before a session's own: by writers until what refers to content is there, and by a collector.
        self._mutex = threading.Lock()

    def gaps(self, references: object) -> Gaps:
        """Return the gaps of an event."""
        return Gaps(references, self.fetch, self._where)

    def fetch(self, reference: Reference) -> str:
        """Return the text that a reference stands for, or raise `Damaged`."""
        self._check_open()
        try:
            return self._kept[reference.sha256].decode()
        except KeyError:
            raise Damaged(self._where, 0, f"large content {reference.sha256} is missing") from None

    @contextmanager
    def keeping(self, contents: dict[str, bytes]) -> Iterator[None]:
        """Keep contents, and keep collectors away until what is to refer to them is there."""
        if not contents:
            yield
            return
        with self._mutex:
            self._kept.update(contents)
            self._touched.update(contents.keys())
            yield

    def listing(self) -> list[Content]:
        """Return what is kept."""
        self._check_open()
        return sorted(Content(sha256, len(kept)) for sha256, kept in list(self._kept.items()))

    def collect(
        self, refers: Refers, logs: Callable[[], Iterator[Log]], *, dry_run: bool
    ) -> list[Content]:
        """Remove what nothing refers to."""
        with self._mutex:
            kept = self.listing()
            sessions = list(logs())
            before = self._touched.copy()
        referred = refers(iter(sessions))
        with self._mutex:
            doomed = [
                content
                for content in kept
                if content.sha256 not in referred
                and self._touched[content.sha256] == before[content.sha256]
                and content.sha256 in self._kept
            ]
            if not dry_run:
                for content in doomed:
                    del self._kept[content.sha256]
        return doomed
