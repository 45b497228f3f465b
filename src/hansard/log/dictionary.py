"""Keep, find and train the dictionaries that small sealed segments are compressed with.

Above: `root`, `sealed`, `backend.local`.  Below: `disk`, `names`, zstandard.
A dictionary is what sessions of a store have in common. It is kept twice, under a name made from its own
content, so that each copy proves itself; and it is durable before anything is compressed with it. None is
ever changed or replaced: a segment names the one that it needs.

A dictionary holds pieces of what was said, so it holds only what several sessions say (`shared`): what
one of them said can be taken out of that one, and is then nowhere.
"""

import contextlib
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Final

from hansard.errors import Damaged, UnsafePath
from hansard.log import disk, names
from hansard.log.root import STALE_SECONDS, Root, sweep

#: What a dictionary holds at most: two thirds of it what sessions say in common, and a third the words that
#: they share. Of 1,000 sessions of 58 KB, it saves 0.006 of their JSON more than one of half that size.
SIZE: Final = 480 * 1024
#: It is kept twice, so where there is less to save, it holds less: this share of what it is trained on.
_SHARE: Final = 32
SMALLEST: Final = 128 * 1024
#: No dictionary of ours holds more, so none may claim to (N-74).
LARGEST: Final = 1024 * 1024

#: What is shorter gains by a dictionary; longer ones are as good as one.
SMALL: Final = 1024 * 1024

#: What is trained on: so much of a session, and so much of all of them.
SAMPLE: Final = 64 * 1024
SAMPLES: Final = 8 * 1024 * 1024
#: Fewer sessions have not enough in common to tell what is common.
FEWEST: Final = 64

#: In so many sessions must something be said to be in a dictionary.
SHARED_BY: Final = 3
#: What is looked for in several sessions: as many words as take so many bytes. Of less, nobody could tell
#: later whether it was forgotten (`retirement.GRAM`); with 12, a dictionary saves 0.003 less.
WIDTH: Final = 8

#: Lengths of the strings that are chosen, and of those that are counted, found by trying.
_CHOSEN: Final = 200
_COUNTED: Final = 8

#: For the dictionary's own file, of which there are few.
_LEVEL: Final = 19

#: A word and what separates it from the next. A byte above 127 is a part of a letter, or of a sign.
_WORDS: Final = re.compile(
    rb"[0-9A-Za-z_\x80-\xff]+[^0-9A-Za-z_\x80-\xff]*|[^0-9A-Za-z_\x80-\xff]+"
)

#: A word of letters, with what separates it from the next.
_PLAIN_WORDS: Final = re.compile(
    rb"(?<![0-9A-Za-z_\x80-\xff])[A-Za-z][a-z]{3,19}[^0-9A-Za-z_\n\x80-\xff]{1,4}"
)

_NAME: Final = re.compile(r"1-[0-9a-f]{32}")
_COPY: Final = ".copy"
#: An empty file of this name beside a dictionary: nothing is to be compressed with it any more.
RETIRED: Final = ".retired"
#: What follows the name of a dictionary in the name of a file that says where it says what was forgotten.
DOUBT: Final = ".doubt-"

#: Dictionaries as zstd wants them, by their names, the latest last: making one takes a millisecond.
_prepared: OrderedDict[str, Any] = OrderedDict()
_PREPARED: Final = 4


def name_of(content: bytes) -> str:
    """Return the name of a dictionary: the version of its kind, and a hash of its content."""
    import hashlib

    return f"1-{hashlib.blake2b(content, digest_size=16).hexdigest()}"


def prepared(name: str, find: Callable[[str], bytes]) -> Any:
    """Return a dictionary as zstd wants it; `find` finds its content by its name."""
    known = _prepared.get(name)
    if known is None:
        import zstandard

        known = _prepared[name] = zstandard.ZstdCompressionDict(find(name))
        while len(_prepared) > _PREPARED:
            with contextlib.suppress(KeyError):  # another thread did so
                _prepared.popitem(last=False)
    return known


# -- files --------------------------------------------------------------------------------------


def read(root: Root, name: str) -> bytes:
    """Return the content of a dictionary, from whichever of its two files is whole."""
    path = root.path_of_dictionary(name)
    if _NAME.fullmatch(name) is None:
        raise Damaged(path, 0, "not the name of a dictionary", "restore it from a backup")
    directory = root.open_dictionaries()
    reasons = ["missing"]
    if directory is not None:
        try:
            found = [_read(directory, name, file) for file in (name, name + _COPY)]
        finally:
            disk.close(directory)
        for one in found:
            if isinstance(one, bytes):
                return one
        reasons = [one for one in found if isinstance(one, str)]
    raise Damaged(
        path,
        0,
        f"the dictionary is {reasons[0]}, and its copy is {reasons[-1]}",
        f"restore {name} or {name}{_COPY} from a backup: either will do",
    )


def _read(directory: int, name: str, file: str) -> bytes | str:
    """Return the content of a dictionary's file, or what is wrong with it."""
    import zstandard

    try:
        packed = disk.read_all(directory, file, LARGEST)
        if not 0 <= zstandard.frame_content_size(packed) <= LARGEST:
            return "damaged"
        content: bytes = zstandard.ZstdDecompressor().decompress(packed, max_output_size=LARGEST)
    except FileNotFoundError:
        return "missing"
    except OSError as error:
        return f"unreadable ({error.strerror})"
    except zstandard.ZstdError:
        return "damaged"
    return content if name_of(content) == name else "damaged"


def keep(root: Root, content: bytes) -> str:
    """Keep a dictionary; return its name when it is durable, both times."""
    import zstandard

    root.check_writable()
    name = name_of(content)
    directory = root.open_dictionaries(create=True)
    assert directory is not None  # or it has raised
    try:
        sweep(directory, older_than=STALE_SECONDS, now=time.time())
        for file in (name, name + _COPY):
            if _read(directory, name, file) != content:
                write(directory, file, zstandard.ZstdCompressor(level=_LEVEL).compress(content))
        disk.sync_directory(directory)
        # The directory itself may be younger than this opening.
        root.sync_dictionaries()
    except OSError as error:
        hint = "nothing refers to it: the sessions are as they were"
        raise disk.explain(error, "write", root.path_of_dictionary(name), hint) from error
    finally:
        disk.close(directory)
    return name


def copy_of(name: str) -> str:
    """Return the name of a dictionary's second file."""
    return name + _COPY


def write(directory: int, file: str, packed: bytes) -> None:
    """Write a file beside the dictionaries, whole under its name; the directory is not synced yet."""
    temporary = names.temporary(file)
    descriptor = disk.create_file(directory, temporary)
    try:
        disk.write_all(descriptor, packed)
        disk.sync(descriptor)
        # Over whatever is there: it was looked at, and is not what its name says.
        disk.move(directory, temporary, directory, file)
    except BaseException:
        disk.discard(directory, temporary)
        raise
    finally:
        disk.close(descriptor)


def files(root: Root) -> list[str]:
    """Return the names of all files beside the dictionaries, sorted; none where something else is."""
    try:
        directory = root.open_dictionaries()
    except UnsafePath:
        return []
    if directory is None:
        return []
    try:
        return sorted(disk.names(directory))
    except OSError as error:
        raise disk.explain(error, "list", root.path_of_dictionary()) from error
    finally:
        disk.close(directory)


def retired(root: Root) -> frozenset[str]:
    """Return the names of the dictionaries that nothing is to be compressed with any more."""
    found = (file for file in files(root) if file.endswith(RETIRED))
    return frozenset(file.removesuffix(RETIRED) for file in found)


def is_ours(file: str) -> bool:
    """Tell whether a file beside the dictionaries is one, or says something about one."""
    match = _NAME.match(file)
    rest = file[match.end() :] if match else "?"
    return rest in {"", _COPY, RETIRED} or rest.startswith(DOUBT)


def kept(root: Root) -> list[str]:
    """Return the names of the dictionaries of which a file is there."""
    return sorted(
        {name for file in files(root) if _NAME.fullmatch(name := file.removesuffix(_COPY))}
    )


def listing(root: Root) -> list[str]:
    """Return the names of the dictionaries of which a file is there, the youngest last."""
    directory = root.open_dictionaries()
    if directory is None:
        return []
    try:
        found: dict[str, float] = {}
        for file in disk.names(directory):
            name = file.removesuffix(_COPY)
            if _NAME.fullmatch(name):
                with contextlib.suppress(FileNotFoundError):
                    found[name] = max(found.get(name, 0.0), disk.modified(directory, file))
    except OSError as error:
        raise disk.explain(error, "list", root.path_of_dictionary()) from error
    finally:
        disk.close(directory)
    return sorted(found, key=lambda name: (found[name], name))


def problems(root: Root) -> Iterator[tuple[str, str]]:
    """Yield path and reason of each file that is not what it should be."""
    directory = root.open_dictionaries()
    if directory is None:
        return
    try:
        for name in listing(root):
            for file in (name, name + _COPY):
                found = _read(directory, name, file)
                if isinstance(found, str):
                    yield root.path_of_dictionary(file), found
    finally:
        disk.close(directory)


# -- training -----------------------------------------------------------------------------------


def train(samples: Iterable[bytes]) -> bytes:
    """Return a dictionary for texts like these, one of each session; empty if too little is common."""
    import zstandard

    chosen: list[bytes] = []
    size = 0
    for sample in samples:
        chosen.append(sample[:SAMPLE])
        size += len(chosen[-1])
        if size >= 2 * SAMPLES:
            break
    # Runs of words cost more time than words alone: half of the texts must do.
    common: list[bytes | bytearray | memoryview] = [
        text for text in shared(_beginning(chosen)) if len(text) >= _COUNTED
    ]
    room = min(SIZE, max(SMALLEST, size // _SHARE))
    if len(common) < FEWEST or sum(map(len, common)) < 4 * SMALLEST:
        return b""
    try:
        found = zstandard.train_dictionary(room * 2 // 3, common, k=_CHOSEN, d=_COUNTED)
    except zstandard.ZstdError:
        return b""  # it finds nothing that is worth it
    # What stands at the end is the cheapest to refer to.
    content: bytes = found.as_bytes() + shared_words(chosen, room // 3)
    return content


def _beginning(samples: list[bytes]) -> list[bytes]:
    """Return the first texts, as many as are enough."""
    sizes = accumulate(map(len, samples))
    return [text for text, size in zip(samples, sizes, strict=True) if size < SAMPLES + SAMPLE]


def shared_words(samples: Sequence[bytes], size: int) -> bytes:
    """Return words that at least `SHARED_BY` texts say, one to a line, those that save most last.

    Prose says the same words in ever new order, so few runs of them are shared. Only words of letters, and
    none that is shorter than what is looked for when something is forgotten (`retirement`).
    """
    said: Counter[bytes] = Counter()
    texts: Counter[bytes] = Counter()
    for sample in samples:
        found = Counter(word for word in _PLAIN_WORDS.findall(sample) if len(word) >= _COUNTED)
        said.update(found)
        texts.update(found.keys())
    common = [word for word, count in texts.items() if count >= SHARED_BY]
    # By what each saves, and then by itself: not in an order in which a session said them.
    common.sort(key=lambda word: (said[word] * (len(word) - 3), word), reverse=True)
    lengths = accumulate(len(word) + 1 for word in common)
    fitting = [word for word, length in zip(common, lengths, strict=True) if length <= size]
    return b"".join(b"\n" + word for word in reversed(fitting))


def shared(samples: Sequence[bytes]) -> list[bytes]:
    """Return of each text what at least `SHARED_BY` of them say; what is left out leaves a line's end.

    Texts are compared by runs of words: two or more, of at least `WIDTH` bytes. Between two ends of lines
    stands nothing but runs that are in enough texts: so every word here, with the one before it, was said in
    so many sessions.
    """
    # By their hashes, of 64 bits and with a key of this process: the runs would take ten times the memory.
    seen: dict[int, int] = {}
    for sample in samples:
        for found in {run for _, run in _runs(_WORDS.findall(sample))}:
            seen[found] = seen.get(found, 0) + 1
    return [_join(_WORDS.findall(sample), seen) for sample in samples]


def _runs(words: list[bytes]) -> Iterator[tuple[int, int]]:
    """Yield, for each word, the end of the run that begins with it, and the run's hash."""
    end = size = 0
    count = len(words)
    for begin, word in enumerate(words):
        while size < WIDTH or end < begin + 2:
            if end == count:
                return
            size += len(words[end])
            end += 1
        yield end, hash(b"".join(words[begin:end]))
        size -= len(word)


def _join(words: list[bytes], seen: dict[int, int]) -> bytes:
    kept: list[bytes] = []
    done = 0
    last = -2
    for begin, (end, run) in enumerate(_runs(words)):
        if seen[run] < SHARED_BY:
            continue
        if begin > last + 1:
            # Also where this one begins inside the last: a run between the two is in too few.
            kept.append(b"\n")
            done = begin
        kept.extend(words[done:end])
        done = max(done, end)
        last = begin
    return b"".join(kept[1:])
