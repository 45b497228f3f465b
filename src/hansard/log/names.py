"""Map session ids to directory names and back; define every file name in a store.

The map never changes, because a changed map would move sessions on disk: docs/format.md, F-5 to F-11. A name
is lower-case ASCII, so no file system folds or normalizes two names into one. Nothing here touches a file.
"""

import os
import re
import threading
import time
from functools import lru_cache
from typing import Final

from hansard.errors import InvalidSessionId
from hansard.log import disk

# The store's own files. Session directories are in `sessions/`, so no id conflicts with these (N-4).
MARKER: Final = "hansard.json"  # says that this is a store, and its format version
SESSIONS: Final = "sessions"  # one directory per session
TRASH: Final = "trash"  # deleted sessions until purged
INTERNAL: Final = "internal"  # logs of the store itself: the audit log, consumer cursors
STAGED: Final = "staged"  # part of the name of a temporary file that becomes a log
PURGED: Final = "purged"  # part of the temporary name of a directory that is being removed
MARKS: Final = "marks"  # derived: which sessions have changed since the last index refresh
INDEX: Final = "index"  # derived: empty; its inode and time name the database (`index_database`)

# The files of one session.
LOG: Final = "log.jsonl"  # the active segment
CHECKPOINT: Final = "checkpoint"  # derived: control events and state of the sealed segments
HOLDER: Final = "holder"  # of an internal log: empty; a consumer holds the OS lock on it
COMPACTION: Final = "compaction"  # empty; compactors take the OS lock on it
LOCK: Final = "lock"  # always empty; writers take the OS lock on it
EPOCH: Final = "epoch"  # next to the change marks: a number that writers compare

MAX_ID_CHARACTERS: Final = 1024
MAX_NAME_BYTES: Final = 200  # a temporary name stays below the usual limit of 255
_MAX_PREFIX: Final = 100  # readable characters of a hashed name
_HASH_MARK: Final = "%~"  # no unit contains `~`, so no unhashed name contains this
_SHOWN: Final = 40  # characters of a bad id or name that an error repeats


def check_id(session_id: object) -> None:
    """Raise `InvalidSessionId` unless every backend can store this id (F-5)."""
    if not isinstance(session_id, str):
        raise InvalidSessionId(
            f"session id must be a str, not {type(session_id).__name__}; "
            "convert it first, for example with str()"
        )
    if not session_id:
        raise InvalidSessionId(
            "session id is empty; pass a string, or call store.session() for a generated id"
        )
    if len(session_id) > MAX_ID_CHARACTERS:
        raise InvalidSessionId(
            f"session id {session_id[:_SHOWN]!r}... has {len(session_id)} characters; "
            f"use at most {MAX_ID_CHARACTERS}, for example a hash of it"
        )
    if (at := session_id.find("\0")) >= 0:
        # PostgreSQL's text cannot hold NUL. All backends refuse it, so that sessions can be copied.
        raise InvalidSessionId(
            f"session id {session_id[:_SHOWN]!r} has a NUL at index {at}; remove it"
        )
    try:
        session_id.encode()
    except UnicodeEncodeError as error:
        raise InvalidSessionId(
            f"session id {session_id[:_SHOWN]!r} has a lone surrogate at index {error.start}, "
            "which UTF-8 cannot hold; decode the original bytes with their true encoding"
        ) from None


class _LastId:
    """The last id that this process generated, as a number: milliseconds, then 74 random bits."""

    def __init__(self) -> None:
        self.after_fork()

    def after_fork(self) -> None:
        """Start again: a child that continued from its parent's value would draw ids from the same range."""
        # Re-entrant: a signal handler that generates an id while its own thread does must not hang.
        self.lock = threading.RLock()
        self.value = 0


_last_id = _LastId()
disk.reset_after_fork(_last_id)


def new_id() -> str:
    """Return a new id: a version 7 UUID, greater than all others from this process (N-10)."""
    drawn = int.from_bytes(os.urandom(10), "big")
    with _last_id.lock:
        now = time.time_ns() // 1_000_000
        if now > _last_id.value >> 74:
            value = now << 74 | drawn >> 6
        else:
            # The same millisecond, or a clock that was set back: add a random step. An overflow
            # carries into the time, which is then a millisecond ahead.
            value = _last_id.value + 1 + (drawn & 0xFFFF_FFFF)
        _last_id.value = value
    # RFC 9562: 48 bits of time, version 7, 12 bits, variant 0b10, 62 bits.
    high = value >> 74 << 16 | 0x7000 | value >> 62 & 0xFFF
    low = 0b10 << 62 | value & (1 << 62) - 1
    text = f"{high:016x}{low:016x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _unit(byte: int) -> str:
    """Encode one byte of an id (F-6)."""
    char = chr(byte)
    if char in "abcdefghijklmnopqrstuvwxyz0123456789-_.":
        return char
    if char in "ABCDEFGHIJKLMNOPQRSTUVWXYZ":
        return "^" + char.lower()
    if char == "/":
        return "+"
    return f"%{byte:02x}"


_UNITS: Final = tuple(_unit(byte) for byte in range(256))
_ANY_UNIT: Final = r"[a-z0-9_.+-]|\^[a-z]|%[0-9a-f]{2}"
_HASHED: Final = rf"(?!\.)(?:{_ANY_UNIT})+{_HASH_MARK}[0-9a-f]{{64}}"
_DEVICES: Final = frozenset(
    ["con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))]
)

# Ids that are their own names: nearly all of them.
_PLAIN: Final = re.compile(
    r"(?!(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\.|\Z))"
    rf"[a-z0-9_-][a-z0-9_.-]{{0,{MAX_NAME_BYTES - 1}}}(?<!\.)"
)


def _escape(raw: bytes) -> list[str]:
    """Encode all bytes of an id, one unit each (F-6, F-10)."""
    units = [_UNITS[byte] for byte in raw]
    # No hidden file, no `.` or `..`, and no last dot, which Windows would drop.
    for end in (0, -1):
        if units[end] == ".":
            units[end] = "%2e"
    # Windows opens the device for `con` and for `con.anything`. The units are lower case.
    if "".join(units).partition(".")[0] in _DEVICES:
        units[0] = f"%{raw[0]:02x}"
    return units


def _unescape(name: str) -> bytes:
    """Undo `_escape`; raise ValueError if it never returns this name."""
    units = re.findall(_ANY_UNIT, name)
    raw = bytes(
        int(unit[1:], 16) if unit[0] == "%"  # escaped
        else ord(unit[1].upper()) if unit[0] == "^"  # upper case
        else ord("/" if unit == "+" else unit)
        for unit in units
    )  # fmt: skip
    # Escaping it again finds `%61` for `a`, a bare first dot, a bare device, and bytes of no unit.
    if not raw or 0 in raw or "".join(_escape(raw)) != name:
        raise ValueError(f"{name[:_SHOWN]!r} is not the name of a session; find its owner")
    return raw


def encode(session_id: str) -> str:
    """Return the name of this session's directory (F-6 to F-11)."""
    # A subclass of str, such as an Enum, takes the long way, which returns a plain str.
    if type(session_id) is str and _PLAIN.fullmatch(session_id):
        return session_id
    check_id(session_id)
    return _encode(session_id)


@lru_cache(maxsize=1 << 14)
def _encode(session_id: str) -> str:
    raw = session_id.encode()
    units = _escape(raw)
    name = "".join(units)
    if len(name) <= MAX_NAME_BYTES:
        return name
    # Imported here: only long ids need it, and the import takes milliseconds.
    import hashlib

    return _prefix(units) + _HASH_MARK + hashlib.sha256(raw).hexdigest()


def decode(name: str) -> str | None:
    """Return the id with this name; None if the name is hashed, and only the log has the id.

    Raises ValueError for a name that no id has.
    """
    if _PLAIN.fullmatch(name):
        return name
    # Only the log has the id of a hashed name.
    if re.fullmatch(_HASHED, name) and name.index(_HASH_MARK) <= _MAX_PREFIX:
        return None
    raw = _unescape(name)
    if len(name) > MAX_NAME_BYTES:
        raise ValueError(f"{name[:_SHOWN]!r}... is longer than the name of a session can be")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{name[:_SHOWN]!r} is not UTF-8; find its owner") from None


def is_hashed(name: str) -> bool:
    """Return whether the id cannot be decoded from this name (F-11)."""
    return _HASH_MARK in name and is_encoded(name)


def is_encoded(name: str) -> bool:
    """Return whether some session id has this name."""
    try:
        decode(name)
    except ValueError:
        return False
    return True


def _prefix(units: list[str]) -> str:
    """Return as many units as fit into a hashed name, without dots at the end (F-11)."""
    length = 0
    for count, unit in enumerate(units):
        length += len(unit)
        if length > _MAX_PREFIX:
            units = units[:count]
            break
    return "".join(units).rstrip(".")


# Compiled by their first use: an append needs none of them.
_INDEX_DATABASE: Final = r"index-[0-9a-f]+-[0-9a-f]+\.db(-wal|-shm|-journal)?"
_TEMPORARY: Final = r"(?s)\.tmp-.+-[0-9]+-[0-9a-f]{16}"
_KIND: Final = r"[a-z]+"
_SEALED: Final = r"([0-9]{20})\.jsonl(?:\.zst)?"


def internal_directory(name: str) -> str:
    """Return the name of an internal log's directory: its kind, and the encoded rest of its name."""
    kind, slash, rest = name.partition("/")
    # What `internal_name` returns for a log that cannot be read must lead to that log.
    return f"{kind}-{rest if is_hashed(rest) else encode(rest)}" if slash else kind


def internal_name(directory: str) -> str | None:
    """Return the name of the internal log in a directory; None if the directory is not one.

    A hash stays a hash: only the log itself has the name then (F-11).
    """
    kind, dash, rest = directory.partition("-")
    if not dash:
        return kind if re.fullmatch(_KIND, kind) else None
    try:
        return f"{kind}/{decode(rest) or rest}"
    except ValueError:
        return None


def check_cursor(name: object) -> None:
    """Raise `InvalidSessionId` unless every backend can store a cursor of this name (F-5)."""
    try:
        check_id(name)
    except InvalidSessionId as error:
        raise InvalidSessionId(
            str(error).partition("; pass")[0].replace("session id", "cursor name", 1)
        ) from None


def temporary(base: str) -> str:
    """Return a unique name for a file that will be renamed to `base`."""
    return f".tmp-{base}-{os.getpid()}-{os.urandom(8).hex()}"


def is_temporary(name: str) -> bool:
    """Return whether `temporary` generated this name. No session has such a name (F-10)."""
    return re.fullmatch(_TEMPORARY, name) is not None


def is_purged(name: str) -> bool:
    """Return whether this is the temporary name of a directory that is being removed (F-64)."""
    return name.startswith(f".tmp-{PURGED}-") and is_temporary(name)


def index_database(inode: int, changed: int) -> str:
    """Return the name of the index's database, by inode and ctime (in ns) of the file `INDEX` (F-155).

    No copy of a store keeps both numbers, and no one can predict them.
    """
    return f"index-{inode:x}-{changed:x}.db"


def is_index_database(name: str) -> bool:
    """Return whether a file is an index's database, or one that SQLite keeps next to it."""
    return re.fullmatch(_INDEX_DATABASE, name) is not None


def sealed(first_seq: int) -> str:
    """Return the name of the sealed segment that begins at this seq.

    Twenty digits hold every 64-bit seq and make the order of names the order of seqs.
    """
    if not 1 <= first_seq < 10**20:
        raise ValueError(f"a segment cannot begin at seq {first_seq}: seqs begin at 1")
    return f"{first_seq:020d}.jsonl.zst"


def unpacked(first_seq: int) -> str:
    """Return the name of a sealed segment that is not compressed yet."""
    return sealed(first_seq).removesuffix(".zst")


def damaged(name: str, time: str) -> str:
    """Return the name of a repair's copy of a damaged segment."""
    return f"damaged-{''.join(filter(str.isdigit, time))}-{name}"


def sealed_first_seq(name: str) -> int | None:
    """Return the first seq of the sealed segment with this name, compressed or not; None for other names."""
    match = re.fullmatch(_SEALED, name)
    return int(match[1]) or None if match else None
