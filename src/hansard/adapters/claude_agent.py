"""A transcript store for the Claude Agent SDK.

    from claude_agent_sdk import ClaudeAgentOptions
    from hansard.adapters.claude_agent import HansardSessionStore

    options = ClaudeAgentOptions(session_store=HansardSessionStore("data"))

A transcript is a session, and so is that of each subagent. An entry's uuid is its key, so a batch that the
SDK sends again adds only what is missing. What a listing says about a transcript is folded from its entries
with the SDK's own `fold_session_summary`.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import hansard
from hansard import Event, SecretRefused, SessionDeleted, SessionInfo, SessionNotFound, aio
from hansard.adapters import opening, projection
from hansard.adapters.opening import aopened, escaped, opened, unescaped
from hansard.message import claude_entries

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

Answer = TypeVar("Answer")

#: What is folded without a session's id: `data` does not hold it.
_NOBODY: Final = {"project_key": "", "session_id": ""}


class HansardSessionStore:
    """Keeps the SDK's transcripts in a store: all six methods of its `SessionStore` protocol.

    Args:
        store: an open store, or the path of one.
        prefix: what the ids of all transcripts begin with. A transcript is the session
            `<prefix><project key>/<session id>`, and a subagent's has its subpath after another `/`; in
            project key and session id `%` and `/` are written `%25` and `%2F`.
    """

    def __init__(self, store: opening.StoreLike, *, prefix: str = "claude/") -> None:
        self._store = opening.settled(store)
        self._prefix = prefix
        self._sums: projection.Recent[projection.Sum] = projection.Recent(projection.SUMS)

    def __repr__(self) -> str:
        return f"<hansard.adapters.claude_agent.HansardSessionStore {self._prefix!r} in {self._store!r}>"

    # -- which session ------------------------------------------------------------------------------

    def id_of(self, key: "SessionKey") -> str:
        """Return the id of the session that a transcript is: no two keys have the same."""
        whole = self._project(key["project_key"]) + escaped(key["session_id"])
        subpath = key.get("subpath")
        if subpath is None:
            return whole
        if not subpath:
            raise ValueError("subpath must not be empty; leave it out for the transcript itself")
        return f"{whole}/{subpath}"

    def _project(self, project_key: str) -> str:
        return f"{self._prefix}{escaped(project_key)}/"

    # -- writing --------------------------------------------------------------------------------

    async def append(self, key: "SessionKey", entries: "list[SessionStoreEntry]") -> None:
        """Append entries, in order, but for those whose uuid the transcript has already.

        If it is cancelled, or the SDK's patience ends, what was begun is done nevertheless.
        """
        session_id = self.id_of(key)
        if entries:
            # Before the first await: the caller may change its list after that.
            drafts = [claude_entries.draft(cast("dict[str, Any]", entry)) for entry in entries]
            titles = None if "subpath" in key else claude_entries.titles(entries)
            _check_loop()
            await opening.finished(self._append(session_id, drafts, titles))

    async def _append(
        self,
        session_id: str,
        drafts: list[claude_entries.Draft],
        titles: claude_entries.Titles | None,
    ) -> None:
        session = (await aopened(self._store)).session(session_id)
        # Each on its own, since each has its key; they go to the disk together, in this order.
        asked = [session.append_all([one.event], key=one.key) for one in drafts]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        if errors:
            raise errors[0]
        if titles is not None:
            await _entitle(session, titles)

    async def delete(self, key: "SessionKey") -> None:
        """Move a transcript to the trash, and with it those of its subagents.

        `store.restore(id)` brings one back. Until then, or until it is purged, entries for it are refused
        with `SessionDeleted`.
        """
        _check_loop()
        await opening.finished(_in_thread(self._delete, self.id_of(key), "subpath" in key))

    def _delete(self, session_id: str, alone: bool) -> None:  # noqa: FBT001 - for to_thread
        store = opened(self._store)
        # The transcript itself last: if this is interrupted, it is still listed, and can be deleted again.
        found = [] if alone else [info.id for info in store.sessions(prefix=session_id + "/").items]
        for one in (*found, session_id):
            with suppress(SessionNotFound, SessionDeleted):
                store.delete(one)

    # -- reading --------------------------------------------------------------------------------

    async def load(self, key: "SessionKey") -> "list[SessionStoreEntry] | None":
        """Return a transcript's entries, equal to what was appended; None if there are none.

        What was taken back with hansard's `revert` or `clear` is not among them.
        """
        found = await _in_thread(self._load, self.id_of(key))
        return cast("list[SessionStoreEntry] | None", found)

    def _load(self, session_id: str) -> list[dict[str, Any]] | None:
        try:
            events = list(opened(self._store).session(session_id).events())
        except SessionDeleted:
            return None
        return claude_entries.entries(projection.shown(events), session_id) or None

    async def list_sessions(self, project_key: str) -> "list[SessionStoreListEntry]":
        """Return ids of a project's transcripts, and when something last happened in each, in ms."""
        found = await _in_thread(self._listed, self._project(project_key))
        return [{"session_id": name, "mtime": mtime} for name, _, mtime in found]

    async def list_session_summaries(self, project_key: str) -> "list[SessionSummaryEntry]":
        """Return a summary of each of a project's transcripts, in the SDK's own words."""
        return await _in_thread(self._summaries, project_key)

    def _summaries(self, project_key: str) -> "list[SessionSummaryEntry]":
        store = opened(self._store)
        found: list[SessionSummaryEntry] = []

        def make(session_id: str) -> projection.Sum:
            return projection.Sum(store, session_id, dict, _fold)

        for name, info, mtime in self._listed(self._project(project_key)):
            # A damaged or concurrently deleted one has none; `load` reports why.
            with suppress(hansard.Damaged, SessionDeleted):
                _, data = self._sums.of(info.id, make).value()
                found.append({"session_id": name, "mtime": mtime, "data": data})
        return found

    async def list_subkeys(self, key: "SessionListSubkeysKey") -> list[str]:
        """Return the subpaths of a transcript's subagents."""
        prefix = self._project(key["project_key"]) + escaped(key["session_id"]) + "/"
        found = await _in_thread(lambda: opened(self._store).sessions(prefix=prefix).items)
        return [info.id.removeprefix(prefix) for info in found]

    def _listed(self, prefix: str) -> list[tuple[str, SessionInfo, int]]:
        """Return the transcripts of a project: the SDK's id, the session, and its time in ms."""
        items = opened(self._store).sessions(prefix=prefix, order="updated").items
        named = ((info.id.removeprefix(prefix), info) for info in items)
        timed = [(_milliseconds(info), name, info) for name, info in named if "/" not in name]
        found = []
        last = 0
        for time, name, info in sorted(timed, key=lambda one: one[0]):
            # The SDK sorts by these: of two in the same millisecond, the later one is the later one.
            last = max(time, last + 1)
            found.append((unescaped(name), info, last))
        return found


# -- summaries, titles, times -------------------------------------------------------------------


def _fold(data: dict[str, Any], event: Event) -> None:
    entry = claude_entries.entry(event)
    if entry is None:
        return
    before = cast("SessionSummaryEntry", {"session_id": "", "mtime": 0, "data": data})
    key = cast("SessionKey", _NOBODY)
    after = fold_session_summary(before, key, [cast("SessionStoreEntry", entry)])
    data.clear()
    data.update(after["data"])


async def _entitle(session: aio.Session, titles: claude_entries.Titles) -> None:
    """Give the session the transcript's title, so that hansard's listing and search show it."""
    if titles.given:
        try:
            await session.set_title(titles.given)
        except SecretRefused:
            # The transcript keeps it as given; the session's title omits what looks like a credential.
            await session.set_title(titles.given, automatic=True)
    elif titles.made_up:
        await session.set_title(titles.made_up, automatic=True)


def _milliseconds(info: SessionInfo) -> int:
    # The time of a damaged one is unknown: it may be the newest.
    when = datetime.fromisoformat(info.updated) if info.updated else datetime.now(UTC)
    return int(when.timestamp() * 1000)


async def _in_thread(call: Callable[..., Answer], *given: Any) -> Answer:
    _check_loop()
    return await asyncio.to_thread(call, *given)


def _check_loop() -> None:
    """Raise an error that says what is needed, where trio runs."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "HansardSessionStore needs asyncio, and another event loop runs; nothing was read or stored. "
            "Use anyio.run(…, backend='asyncio')"
        ) from None
