"""What a look at the files of a store has found: plain values, without a judgment."""

from typing import Literal

import msgspec


class HeldLock(msgspec.Struct, frozen=True):
    """A lock file whose lock a process holds.

    `command` is the program, empty where the system does not tell it. A `stopped` process releases nothing.
    """

    where: str
    pid: int
    command: str
    stopped: bool


class Leftover(msgspec.Struct, frozen=True):
    """A file, or a part of one, that no event needs.

    Attributes:
        what: "temporary" (a file that was being written), "staged" (a session that was being imported or
            copied), "damaged" (kept by a repair), or "discarded" (fragments of unfinished appends, inside
            an active log).
        where: the file.
        bytes: its size, or that of the fragments.
        age: seconds since it was last written.
        pid: the process that created it, as numbered in its PID namespace; None if unknown.
        living: a process holds the lock on it, and is still writing it.
        command: the program of that process, if it runs on this machine.
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


#: Others may read or write it; another user's; a symbolic link; not created by hansard; cannot be read.
Odd = Literal["mode", "owner", "link", "foreign", "unreadable"]


class UnexpectedFiles(msgspec.Struct, frozen=True):
    """Files that are not as hansard creates them, in one way: how many, and the first few."""

    what: Odd
    count: int
    where: list[str]


class MarksFiles(msgspec.Struct, frozen=True):
    """The change markers: files that list the sessions that changed since the last index refresh."""

    epochs: int = 0
    bytes: int = 0


class IndexStatus(msgspec.Struct, frozen=True):
    """The index.

    Attributes:
        there: it exists.
        bytes: its size, with what SQLite keeps next to it.
        version: its version; 0 if hansard did not create it.
        sessions: how many it knows.
        behind: of how many sessions it does not know the latest; the next listing reads these.
        texts: it holds the texts of messages, for `search`.
        reason: why it cannot be used; empty if it can.
        path: its file; empty for a server's tables.
        shared: a process may have it open: SQLite's own files are next to it.
    """

    there: bool = False
    bytes: int = 0
    version: int = 0
    sessions: int = 0
    behind: int = 0
    texts: bool = False
    reason: str = ""
    path: str = ""
    shared: bool = False


class Home(msgspec.Struct, frozen=True):
    """Where a store is.

    Attributes:
        file_system: its kind, such as ext4; empty where the system does not tell.
        mounted: where it is mounted.
        network: it is remote, or a program: its locks and syncs cannot be trusted.
        volatile: it is empty after a restart of the machine.
        writable: this user may create files there.
        owner, user: the owner of the store, and the user who runs this process.
        free_bytes, free_files: what there is space for; None where there is no limit.
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
    """The server of a store in PostgreSQL, with its settings as it spells them.

    Attributes:
        version, number: its version, for people and for programs.
        tables: the version of the store's tables.
        schema: where they are.
        bytes: their size, with the index.
        standby: it replicates another server, and is read-only.
        followers: connected standbys, each with what the server waits for before it acknowledges:
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


class StoreStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a store, and where they are; a store in memory has none. `Diagnosis` explains them."""

    version: int = 1
    home: Home = Home()
    locks: list[HeldLock] = []
    leftovers: list[Leftover] = []
    oddities: list[UnexpectedFiles] = []
    marks: MarksFiles = MarksFiles()
    index: IndexStatus = IndexStatus()
    server: DatabaseServer | None = None
