"""What a look at the files of a store has found: plain values, which judge nothing.

Above: `examination`, `contract`, `upkeep.examination`, `index.condition`.  Below: nothing.
"""

from typing import Literal

import msgspec


class HeldLock(msgspec.Struct, frozen=True):
    """A lock that somebody holds.

    Attributes:
        where: the lock file.
        pid: the process that holds it.
        command: its command line; empty where the system does not tell it.
        stopped: it was stopped, and so lets go of nothing.
    """

    where: str
    pid: int
    command: str
    stopped: bool


class Leftover(msgspec.Struct, frozen=True):
    """A file, or a part of one, that no event needs.

    Attributes:
        what: "temporary" (a file that was being made), "staged" (a session that was being imported or
            copied), "damaged" (what a repair has kept), or "discarded" (fragments of unfinished appends,
            inside an active log).
        where: the file.
        bytes: its size, or that of the fragments.
        age: how many seconds ago it was last written.
        pid: the process that created it, as numbered in its PID namespace; None for what a repair has kept.
        living: a process holds the lock on it, and is still writing it.
        command: its command line, if it is at work on this machine.
        count: how many fragments there are; 1 for a file.
    """

    what: Literal["temporary", "staged", "damaged", "discarded"]
    where: str
    bytes: int
    age: float
    pid: int | None = None
    living: bool = False
    command: str = ""
    count: int = 1


class Oddity(msgspec.Struct, frozen=True):
    """Files that are not as hansard made them: the first few, and how many there are.

    Attributes:
        what: "mode" (others may read or write it), "owner" (another user's), "link" (a symbolic link),
            "kind" (neither file nor directory, or one in the place of the other), "hard link" (it has a name
            outside of the store), "foreign" (none of ours), "unreadable".
        count: how many.
        where: some of them.
    """

    what: Literal["mode", "owner", "link", "kind", "hard link", "foreign", "unreadable"]
    count: int
    where: list[str]


class MarksFiles(msgspec.Struct, frozen=True):
    """The marks of sessions that have changed since the index was last brought up to date."""

    epochs: int = 0
    bytes: int = 0


class IndexFile(msgspec.Struct, frozen=True):
    """The file of the index.

    Attributes:
        there: there is one.
        bytes: its size, with what SQLite keeps beside it.
        version: its version; 0 if it is none of ours.
        sessions: how many it knows.
        behind: of how many sessions it does not know the latest; the next listing reads these.
        texts: it holds what was said, for `search`.
        reason: why it cannot be used; empty if it can.
    """

    there: bool = False
    bytes: int = 0
    version: int = 0
    sessions: int = 0
    behind: int = 0
    texts: bool = False
    reason: str = ""


class Home(msgspec.Struct, frozen=True):
    """Where a store lives.

    Attributes:
        file_system: its kind, such as ext4; empty where the system does not tell.
        mounted: where it is mounted.
        network: another machine, or a program, is behind it: its locks and syncs cannot be trusted.
        volatile: it is empty after a restart of the machine.
        writable: this user may make files there.
        owner, user: whose the store is, and who looks.
        free_bytes, free_files: what there is room for; None where there is no limit.
    """

    file_system: str = ""
    mounted: str = ""
    network: bool = False
    volatile: bool = False
    writable: bool = True
    owner: int | None = None
    user: int | None = None
    free_bytes: int | None = None
    free_files: int | None = None


class DatabaseServer(msgspec.Struct, frozen=True):
    """The server that a store lives on.

    Attributes:
        version: as the server says it, such as `18.1`.
        number: the same as a number, such as 180001.
        tables: the version of the store's tables.
        schema: where they are.
        bytes: what they take, the index included.
        standby: it follows another one, and only reads.
        fsync, full_page_writes, synchronous_commit, synchronous_standby_names: its settings, as it says them.
        followers: standbys that are connected, each with what the server waits for before it acknowledges:
            `async`, `potential`, `sync` or `quorum`; empty also where the role may not know.
    """

    version: str
    number: int
    tables: int
    schema: str
    bytes: int
    standby: bool
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    synchronous_standby_names: str
    followers: dict[str, str]


class Condition(msgspec.Struct, frozen=True):
    """The files of a store, and where they are. What lives in memory has none."""

    version: int = 1
    home: Home = Home()
    locks: list[HeldLock] = []
    leftovers: list[Leftover] = []
    oddities: list[Oddity] = []
    marks: MarksFiles = MarksFiles()
    #: The file of the index, and the bytes that it takes with what is beside it; "" if there is none.
    index_path: str = ""
    index_bytes: int = 0
    #: Somebody may have it open: there are files of SQLite's beside it.
    index_shared: bool = False
    #: The server that has it instead; None for files.
    server: DatabaseServer | None = None
