"""The status of a store: what its files and its server report, without a judgment."""

from typing import Literal

import msgspec


class HeldLock(msgspec.Struct, frozen=True):
    """A lock that a process holds.

    Attributes:
        where: the lock file.
        pid: the process id of the holder.
        command: the holder's program; empty where the system does not report it.
        stopped: the holder is stopped, by Ctrl-Z or a debugger, and does not release the lock.
    """

    where: str
    pid: int
    command: str
    stopped: bool


class Leftover(msgspec.Struct, frozen=True):
    """A file, or a part of one, that no event needs.

    Attributes:
        what: "temporary" (a process that has died was writing it), "damaged" (kept by a repair), or
            "discarded" (fragments of unfinished appends, inside an active log).
        where: the file.
        bytes: its size, or the size of the fragments.
        count: number of fragments; 1 for a file.
    """

    what: Literal["temporary", "damaged", "discarded"]
    where: str
    bytes: int
    count: int = 1


#: Other users can access it; in a store of a group, others can, or the group cannot; another user owns it; a
#: symbolic link; not created by hansard; unreadable.
Odd = Literal["mode", "others", "group", "owner", "link", "foreign", "unreadable"]


class UnexpectedFiles(msgspec.Struct, frozen=True):
    """Files that differ in one way from what hansard creates.

    Attributes:
        what: the difference: "mode" (other users can access them), "owner" (another user owns them), "link"
            (a symbolic link), "foreign" (not created by hansard) or "unreadable". In a store of a group:
            "others" (users outside of the group can access them) or "group" (the group cannot).
        count: number of files.
        where: the first 20 of their paths.
    """

    what: Odd
    count: int
    where: list[str]


class IndexStatus(msgspec.Struct, frozen=True):
    """The index.

    Attributes:
        there: it exists.
        bytes: its size, including SQLite's files next to it.
    """

    there: bool = False
    bytes: int = 0


class Home(msgspec.Struct, frozen=True):
    """The file system of a store.

    Attributes:
        file_system: its type, such as ext4; empty where the system does not report it.
        mounted: its mount point.
        network: it is remote or in user space, so its locks and syncs cannot be trusted.
        volatile: a restart of the machine empties it.
        writable: this user can create files in the store.
        owner: the uid of the store's owner.
        user: the uid of this process.
        group: the gid of the group that the store is for; None if it is for its owner.
        free_bytes: free space in bytes; None if unknown.
        free_files: number of files that can still be created; None if unlimited.
    """

    file_system: str = ""
    mounted: str = ""
    network: bool = False
    volatile: bool = False
    writable: bool = True
    owner: int | None = None
    user: int | None = None
    group: int | None = None
    free_bytes: int | None = None
    free_files: int | None = None


class DatabaseServer(msgspec.Struct, frozen=True):
    """The server of a store in PostgreSQL, with its settings as it spells them.

    Attributes:
        version: its version, for people.
        number: its version as a number, such as 160004.
        tables: the version of the store's tables.
        schema: the schema of the tables.
        bytes: size of the tables, including the index.
        standby: it is a read-only standby of another server.
        fsync, full_page_writes, synchronous_commit, synchronous_standby_names: its settings of these names.
        followers: connected standbys, each with its state: `async`, `potential`, `sync` or `quorum`; empty if
            the role must not read them.
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
    """The files of a store and its file system; none in memory. `Diagnosis` describes the fields."""

    version: int = 1
    home: Home = Home()
    locks: list[HeldLock] = []
    leftovers: list[Leftover] = []
    oddities: list[UnexpectedFiles] = []
    index: IndexStatus = IndexStatus()
    server: DatabaseServer | None = None
