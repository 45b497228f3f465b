"""The index: listing, search and statistics; here, the types of its results.

Everything in an index is derived from the logs and can be deleted at any time. `index` answers the calls of a
store. `sqlite_storage` and `postgres_storage` hold the tables, and `catalog` and `text_index` refresh them
from the logs. `listing`, `search` and `stats` query them. This module must not import SQLite, because
`import hansard` needs it.
"""

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from hansard import clock
from hansard.backend.contract import Backend
from hansard.backend.local.index_file import LocalIndexFile
from hansard.state.fold import Usage


class SessionInfo(
    clock.Dated, msgspec.Struct, frozen=True, omit_defaults=True, rename=clock.STAMPS
):
    """A session in a listing.

    Attributes:
        id: the session's id.
        title: the title in its metadata; None if it has none.
        seq: its last seq: the number of events, including inherited ones.
        created_stamp, updated_stamp: `created` and `updated`, the times of its first event and of its last
            activity, as RFC 3339 text in UTC. Setting a title or other metadata, archiving, closing and
            holding are not activity.
        message_count: number of messages, including inherited ones.
        bytes: its size on disk.
        input_tokens, output_tokens, cost: totals of its recorded model usage; the cost is exact.
        parent: the session that it was forked from; None if it is not a fork.
        forked_at: the parent's seq at which it was forked; 0 if it is not a fork.
        children: number of its forks, without deleted ones.
        workspace: the directory that it belongs to; None if it belongs to none.
        archived: it is archived.
        closed: the conversation is closed.
        held: it is under a legal hold.
        metadata: its metadata.
        damaged: why it cannot be read; empty if it can.
    """

    id: str
    title: str | None = None
    seq: int = 0
    created_stamp: str = ""
    updated_stamp: str = ""
    message_count: int = 0
    bytes: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal = Decimal(0)
    parent: str | None = None
    forked_at: int = 0
    children: int = 0
    workspace: str | None = None
    archived: bool = False
    closed: bool = False
    held: bool = False
    metadata: dict[str, Any] = {}
    damaged: str = ""


class Page(msgspec.Struct, frozen=True):
    """A page of a listing: iterate over it, or use `items`.

    Attributes:
        items: the sessions of the page, in the requested order.
        next: the `cursor` for the next page; None after the last one.
    """

    items: list[SessionInfo]
    next: str | None

    def __iter__(self) -> Iterator[SessionInfo]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


class Hit(msgspec.Struct, frozen=True, rename={"stamp": "time"}):
    """A message or title that a search found.

    Attributes:
        session: the id of the session that shows it.
        seq: the message's seq; 0 if the session's title was found.
        stamp: `time` as RFC 3339 text in UTC.
        role: the role of the message; empty for a title, and for a message without a role.
        snippet: the text around the first match, on one line; `…` where something is omitted.
        matches: start and end of each match in the snippet.
        rank: how well it matches, from its own text: higher is better; 0 if it is not among the newest 200
            hits. Compare it only within one search.
        title: the title of the session; None if it has none.
    """

    session: str
    seq: int
    stamp: str
    role: str
    snippet: str
    matches: tuple[tuple[int, int], ...]
    rank: float
    title: str | None = None

    @property
    def time(self) -> datetime | None:
        """The time of the message; of a title, the session's last activity."""
        return clock.moment(self.stamp)


class DayStats(msgspec.Struct, frozen=True):
    """What a day (UTC) added.

    Attributes:
        sessions: number of sessions that began.
        events: number of events that were appended.
        messages: number of these that are messages.
        tokens: what models were recorded to read and write.
    """

    sessions: int = 0
    events: int = 0
    messages: int = 0
    tokens: int = 0


class StoreStats(msgspec.Struct, frozen=True):
    """Totals of a store. Each event counts once: what a fork inherits belongs to its parent.

    Attributes:
        sessions: number of sessions, without those in the trash.
        archived: number of these that are archived.
        damaged: number of these that cannot be read; the totals below exclude them.
        forks: number of these that are forks.
        events: number of events that were appended.
        messages: number of these that are messages.
        bytes: size of the sessions on disk.
        raw_bytes: their size without compression.
        days: what each day (UTC, `2026-01-31`) added, of the sessions that still exist.
        models: calls, tokens and cost, by model.
        workspaces: number of sessions of each directory.
        tools: number of calls, and of failed ones, by tool.
    """

    sessions: int = 0
    archived: int = 0
    damaged: int = 0
    forks: int = 0
    events: int = 0
    messages: int = 0
    bytes: int = 0
    raw_bytes: int = 0
    days: dict[str, DayStats] = {}
    models: dict[str, Usage] = {}
    workspaces: dict[str, int] = {}
    tools: dict[str, tuple[int, int]] = {}

    @property
    def compression(self) -> float:
        """The ratio of `raw_bytes` to `bytes`: 1.0 if nothing was compressed."""
        return self.raw_bytes / self.bytes if self.bytes else 1.0


def erase_removed(backend: Backend) -> None:
    """Erase what was redacted, dropped, deleted or purged from the index: the last step of a compaction."""
    home = backend.unscoped.index_storage
    if home is None:
        return
    if isinstance(home, LocalIndexFile):
        # An index that came with a copy of the store may hold its texts, and is never opened.
        home.sweep()
        if home.identity() is None:
            return
    # Imported here, because it imports SQLite: most stores that are compacted have no index.
    from hansard.index import index

    index.of(backend).forget()
