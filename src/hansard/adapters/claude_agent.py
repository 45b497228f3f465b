"""A transcript store for the Claude Agent SDK.

    from claude_agent_sdk import ClaudeAgentOptions
    from hansard.adapters.claude_agent import HansardSessionStore

    options = ClaudeAgentOptions(session_store=HansardSessionStore("data"))

Each transcript is a session, also that of a subagent. An entry's uuid is its idempotency key, so a batch that
the SDK sends again adds only what is missing. The SDK's own `fold_session_summary` creates the summaries.
"""

import asyncio
import copy
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

import hansard
from hansard import SecretRefused, SessionDeleted, SessionInfo, SessionNotFound, aio
from hansard.adapters import opening
from hansard.adapters.opening import opened
from hansard.adapters.session_projection import AdapterProjection, shown
from hansard.message import claude_entries, values

try:
    from claude_agent_sdk import fold_session_summary
except ImportError as error:
    opening.missing("claude_agent", "claude-agent-sdk", "claude-agent", error)

if TYPE_CHECKING:
    from claude_agent_sdk.types import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
    )

#: Projections that are kept: a listing reads every transcript.
_KEPT: Final = 1024
#: A longer uuid of an entry is not used as an idempotency key.
_LONGEST: Final = 1000


class HansardSessionStore:
    """Keeps the SDK's transcripts in a store: all six methods of its `SessionStore` protocol.

    Args:
        store: an open store, or the path of one.
        prefix: prefix of all session ids. A transcript is the session `<prefix><project key>/<session id>`,
            and a subagent's has its subpath after another `/`; in project key and session id `%` and `/`
            are written `%25` and `%2F`.
    """

    def __init__(self, store: opening.StoreLike, *, prefix: str = "claude/") -> None:
        self._store = opening.settled(store)
        self._prefix = prefix
        self._counted = lru_cache(64)(lambda name: _Counted(opened(self._store), name))
        self._summary = lru_cache(_KEPT)(lambda name: _Summary(opened(self._store), name))

    def id_of(self, key: "SessionKey") -> str:
        """Return the id of a transcript's session; no two keys have the same."""
        subpath = key.get("subpath")
        if subpath == "":
            raise ValueError("subpath must not be empty; leave it out for the transcript itself")
        return claude_entries.session_id(
            self._prefix, key["project_key"], key["session_id"], subpath
        )

    async def append(self, key: "SessionKey", entries: "list[SessionStoreEntry]") -> None:
        """Append entries, in order, except those whose uuid the transcript already has.

        If the call is cancelled or times out, it still completes what it has begun.
        """
        session_id = self.id_of(key)
        if entries:
            # Before the first await: the caller may change its list after that.
            drafts = [claude_entries.draft(cast("dict[str, Any]", entry)) for entry in entries]
            titles = None if "subpath" in key else claude_entries.titles(entries)
            answers = [copy.deepcopy(one) for one in entries if one.get("type") == "assistant"]
            await opening.finished(self._append(session_id, drafts, titles, answers))

    async def _append(
        self,
        session_id: str,
        drafts: list[claude_entries.Draft],
        titles: claude_entries.Titles | None,
        answers: "list[SessionStoreEntry]",
    ) -> None:
        session = (await opening.aopened(self._store)).session(session_id)
        # One append for each key; they share a write, in this order.
        appends = [session.append_all([one.event], key=one.key) for one in drafts]
        for answer in await asyncio.gather(*appends, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer
        if answers:
            await asyncio.to_thread(self._record_usage, session_id, answers)
        if titles is not None:
            await _set_title(session, titles)

    def _record_usage(self, session_id: str, answers: "list[SessionStoreEntry]") -> None:
        """Record the usage that answers report, unless it is recorded."""
        session = opened(self._store).session(session_id)
        for answer in answers:
            with self._counted(session_id).fresh() as counted:
                usage = counted.counts.new(answer)
            if usage is not None:
                name = answer.get("uuid")
                # A batch that is sent twice concurrently records it once.
                key = f"usage:{name}" if isinstance(name, str) and len(name) < _LONGEST else None
                with suppress(hansard.InvalidEvent):  # such as a number that is too large
                    session.record_usage(**usage, key=key)

    @opening.threaded
    def delete(self, key: "SessionKey") -> None:
        """Move a transcript to the trash, with those of its subagents.

        `store.restore(id)` restores one. Until then, or until it is purged, entries for it raise
        `SessionDeleted`.
        """
        store, session_id = opened(self._store), self.id_of(key)
        below = () if "subpath" in key else store.sessions(prefix=session_id + "/").items
        # The transcript last: after an interruption it is still listed, and can be deleted again.
        for one in (*(info.id for info in below), session_id):
            with suppress(SessionNotFound, SessionDeleted):
                store.delete(one)

    @opening.threaded
    def load(self, key: "SessionKey") -> "list[SessionStoreEntry] | None":
        """Return a transcript's entries, equal to those appended; None if there are none.

        Entries before a `clear`, and reverted ones, are not returned.
        """
        session_id = self.id_of(key)
        try:
            events = list(opened(self._store).session(session_id).events())
        except SessionDeleted:
            return None
        found = claude_entries.entries(shown(events), session_id)
        return cast("list[SessionStoreEntry]", found) or None

    @opening.threaded
    def list_sessions(self, project_key: str) -> "list[SessionStoreListEntry]":
        """Return the ids of a project's transcripts, and when each last changed, in ms."""
        listed = self._listed(project_key)
        return [{"session_id": name, "mtime": mtime} for name, _, mtime in listed]

    @opening.threaded
    def list_session_summaries(self, project_key: str) -> "list[SessionSummaryEntry]":
        """Return the SDK's summary of each of a project's transcripts."""
        found: list[SessionSummaryEntry] = []
        for name, info, mtime in self._listed(project_key):
            # A damaged or concurrently deleted one has none; `load` reports why.
            with suppress(hansard.Damaged, SessionDeleted):
                with self._summary(info.id).fresh() as summary:
                    data = copy.deepcopy(summary.data)
                found.append({"session_id": name, "mtime": mtime, "data": data})
        return found

    @opening.threaded
    def list_subkeys(self, key: "SessionListSubkeysKey") -> list[str]:
        """Return the subpaths of a transcript's subagents."""
        names = key["project_key"], key["session_id"]
        prefix = claude_entries.session_id(self._prefix, *names, subpath="")
        found = opened(self._store).sessions(prefix=prefix).items
        return [info.id.removeprefix(prefix) for info in found]

    def _listed(self, project_key: str) -> list[tuple[str, SessionInfo, int]]:
        """Return the transcripts of a project: the SDK's id, the session, and its time in ms."""
        prefix = f"{self._prefix}{values.escaped(project_key)}/"
        items = opened(self._store).sessions(prefix=prefix, order="updated").items
        named = ((info.id.removeprefix(prefix), info) for info in items)
        # The time of a damaged one is unknown: it may be the newest.
        now = datetime.now(UTC)
        timed = [(info.updated or now, name, info) for name, info in named if "/" not in name]
        found = []
        last = 0
        for time, name, info in sorted(timed, key=lambda one: one[0]):
            # The SDK sorts by these times, so each one is higher than the one before.
            last = max(int(time.timestamp() * 1000), last + 1)
            found.append((values.unescaped(name), info, last))
        return found


class _Summary(AdapterProjection):
    """The SDK's summary of one transcript."""

    def _begin(self) -> None:
        self.data: dict[str, Any] = {}

    def _add(self, event: hansard.Event) -> None:
        entry = claude_entries.entry(event)
        if entry is not None:
            before = cast("SessionSummaryEntry", {"session_id": "", "mtime": 0, "data": self.data})
            key: SessionKey = {"project_key": "", "session_id": ""}  # not part of `data`
            after = fold_session_summary(before, key, [cast("SessionStoreEntry", entry)])
            self.data = after["data"]


class _Counted(AdapterProjection):
    """The usage that is recorded of one transcript, by the answers' ids."""

    _follows_reverts = False

    def _begin(self) -> None:
        self.counts = claude_entries.UsageCounts()

    def _add(self, event: hansard.Event) -> None:
        if event.kind == "usage.recorded":
            self.counts.add(event.data)


async def _set_title(session: aio.Session, titles: claude_entries.Titles) -> None:
    """Set the session's title to the transcript's, for hansard's listing and search."""
    if titles.given:
        try:
            await session.set_title(titles.given)
        except SecretRefused:
            # The transcript keeps it as given; the session's title omits the apparent credential.
            await session.set_title(titles.given, automatic=True)
    elif titles.made_up:
        await session.set_title(titles.made_up, automatic=True)
