"""What the index returns: lines and pages of a listing, hits of a search, sums of a store.

Separate, because `import hansard` needs these names, and must not import SQLite.
"""

from typing import Any

import msgspec

from hansard.state.fold import Usage


class SessionInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a listing.

    Attributes:
        id: the session's id.
        title: the title that the metadata give it; None if they give none.
        seq: its last event: how many events there are, inherited ones included.
        created, updated: when it began, and when something last happened in it, as RFC 3339 text. To give
            it a title, to archive or to close it is not something that happened.
        message_count: how many messages were added.
        bytes: what it takes on disk.
        input_tokens, output_tokens, cost: what was recorded of its use of models, added up.
        parent: the session it was forked from; None if it was not.
        forked_at: the parent's seq at which it was forked; 0 if it was not.
        children: how many sessions were forked from it and are not deleted.
        workspace: the folder that it belongs to; None if it belongs to none.
        archived: whether it was put out of the way.
        closed: whether the conversation was declared over.
        metadata: what `set_metadata` calls add up to.
        damaged: what is wrong with it; empty if it can be read.
    """

    id: str
    title: str | None = None
    seq: int = 0
    created: str = ""
    updated: str = ""
    message_count: int = 0
    bytes: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    parent: str | None = None
    forked_at: int = 0
    children: int = 0
    workspace: str | None = None
    archived: bool = False
    closed: bool = False
    metadata: dict[str, Any] = {}
    damaged: str = ""


class Page(msgspec.Struct, frozen=True):
    """A page of a listing.

    Attributes:
        items: the sessions of the page, in the requested order.
        next: the `cursor` for the next page; None after the last one.
    """

    items: list[SessionInfo]
    next: str | None


class Hit(msgspec.Struct, frozen=True):
    """Something that a search has found.

    Attributes:
        session: the id of the session that shows it.
        seq: the message's seq; 0 if it is the session's title that was found.
        time: when it was said, as RFC 3339 text; of a title, when something last happened in the session.
        role: who said it; empty for a title, and for a message that does not say.
        snippet: the text around what was found, on one line; `…` where something is left out.
        matches: where in the snippet the words stand that were found: start and end of each.
        rank: how well it fits, from its own text: the higher, the better. Only to be compared with others of
            the same search.
        title: the title of the session; None if it has none.
    """

    session: str
    seq: int
    time: str
    role: str
    snippet: str
    matches: tuple[tuple[int, int], ...]
    rank: float
    title: str | None = None


class DayStats(msgspec.Struct, frozen=True):
    """What a day (UTC) has added.

    Attributes:
        sessions: how many began.
        events: how many were appended.
        messages: how many of these were messages.
    """

    sessions: int = 0
    events: int = 0
    messages: int = 0


class StoreStats(msgspec.Struct, frozen=True):
    """What a store adds up to. Each event counts once: what a fork inherits is its parent's.

    Attributes:
        sessions: how many there are, without those in the trash.
        archived: how many of these were put out of the way.
        damaged: how many cannot be read; nothing of them is counted below.
        forks: how many were forked from another.
        events: how many were appended.
        messages: how many of these were messages.
        bytes: what the sessions take on disk.
        raw_bytes: what they would take if nothing was compressed.
        days: what each day (UTC, `2026-01-31`) has added, of the sessions that are still there.
        models: calls, tokens and cost, by model.
        workspaces: how many sessions belong to each folder.
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

    @property
    def compression(self) -> float:
        """How many times smaller the sessions are than they would be: 1.0 if nothing was compressed."""
        return self.raw_bytes / self.bytes if self.bytes else 1.0
