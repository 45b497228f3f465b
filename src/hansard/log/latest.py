"""Lend the dictionary to compress with now, and let go of those that hold what is to be forgotten.

Above: `backend.local`, `backend.compaction`.  Below: `dictionary`, `retirement`, zstandard.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from hansard.errors import Damaged, DiskFailed, LockTimeout, UnsafePath
from hansard.log import dictionary, disk, retirement
from hansard.log.root import Root


class Latest:
    """The dictionary to compress with now: the youngest that is whole, and was not retired."""

    __slots__ = ("_idle", "_known", "_root", "_timeout")

    def __init__(self, root: Root, timeout: float) -> None:
        self._root = root
        self._timeout = timeout
        #: Compressors that nobody uses: of which dictionary, at which level.
        self._idle: deque[tuple[tuple[str, int], Any]] = deque(maxlen=1)
        #: The one last found whole, and what its files were then.
        self._known: tuple[str, list[object]] = ("", [])

    def name(self) -> str:
        """Return its name; empty if there is none.

        One of which a file was lost or damaged is kept twice again before it is used.
        """
        name, files = self._known
        if name and self._files(name) == files:
            return name
        try:
            gone = dictionary.retired(self._root)
            listed = [found for found in dictionary.listing(self._root) if found not in gone]
        except (DiskFailed, UnsafePath):
            return ""  # without one, everything is only larger
        for found in reversed(listed):
            with contextlib.suppress(Damaged, DiskFailed, UnsafePath):
                dictionary.keep(self._root, dictionary.read(self._root, found))
                self._known = (found, self._files(found))
                return found
        return ""

    def learn(self, samples: Iterable[bytes]) -> None:
        """Train one on texts of sessions, one of each, and keep it, unless they have too little in common."""
        content = dictionary.train(samples)
        if content:
            # What cannot be kept is not used, and the compaction that asked goes on without.
            with contextlib.suppress(DiskFailed, UnsafePath):
                dictionary.keep(self._root, content)

    def retired(self) -> frozenset[str]:
        """Return the names of those that nothing is to be compressed with any more."""
        return dictionary.retired(self._root)

    def forgetting(self, texts: Sequence[bytes]) -> contextlib.AbstractContextManager[None]:
        """Note, before the block begins, which dictionaries hold what is forgotten in it."""
        return retirement.forgetting(self._root, texts)

    def moving(self) -> contextlib.AbstractContextManager[None]:
        """Let nobody take a dictionary away while a session moves to the trash, or out of it."""
        return retirement.using(self._root, self._timeout)

    def remove_unneeded(self) -> int:
        """Take away those that were retired, and that no segment needs any more; return how many."""
        try:
            return retirement.remove_unneeded(self._root, self._timeout)
        except LockTimeout:
            return 0  # somebody is compacting all the time; the next one takes them away

    def doubted(self) -> bool:
        """Say whether one that is in use may hold what was forgotten."""
        return bool(retirement.doubts(self._root))

    def judge(self, samples: Iterable[bytes]) -> bool:
        """Retire those that hold what too few sessions still say; say whether there are any."""
        return retirement.judge(self._root, samples)

    def training(self) -> contextlib.AbstractContextManager[None]:
        """Let nobody forget anything while a dictionary is made, or judged."""
        return retirement.training(self._root, self._timeout)

    @contextlib.contextmanager
    def compressor(
        self, level: int, *, small: bool
    ) -> Iterator[tuple[str, Callable[[bytes], bytes]]]:
        """Lend what compresses with it, and its name: empty if there is none, or the text is not small."""
        # Chosen and used while nobody takes one away: what is compressed has its name by the end of this.
        with retirement.using(self._root, self._timeout) if small else contextlib.nullcontext():
            name = self.name() if small else ""
            with self._lent(name, level) as compress:
                yield name, compress

    @contextlib.contextmanager
    def _lent(self, name: str, level: int) -> Iterator[Callable[[bytes], bytes]]:
        import zstandard

        # Only one thread at a time may use one. Made anew for each session, it would spend most of its time
        # on the dictionary.
        try:
            lent, made = self._idle.pop()
        except IndexError:
            lent, made = ("", 0), None
        if made is None or lent != (name, level):
            known = dictionary.prepared(name, self._root.dictionary) if name else None
            made = zstandard.ZstdCompressor(level=level, dict_data=known)
        yield made.compress
        self._idle.append(((name, level), made))

    def _files(self, name: str) -> list[object]:
        directory = self._root.open_dictionaries()
        if directory is None:
            return []
        try:
            gone = disk.present(directory, name + dictionary.RETIRED)
            return [
                gone,
                *(disk.version(directory, file) for file in (name, dictionary.copy_of(name))),
            ]
        except OSError:
            return []  # it is looked at whole, which says what is wrong
        finally:
            disk.close(directory)
