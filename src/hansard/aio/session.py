"""One conversation, awaited: the twin of `hansard.Session`.

Above: user code, `store`.  Below: `group`, `pool`, `hansard.Session`.
Each method is its namesake there, which says what it does and takes. Appends that need no look at the
session first go through `group`, so that tasks share a sync; everything else is one call in a thread.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from copy import copy
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, TypeVar

import hansard
from hansard.aio.group import Groups, noting
from hansard.aio.pieces import pieces
from hansard.aio.stream import Stream
from hansard.backend.contract import Record
from hansard.event.envelope import Event
from hansard.reading import At, check_seq
from hansard.state import window as windows
from hansard.state.fold import State, Usage
from hansard.state.pairing import Problem
from hansard.state.views import View
from hansard.upkeep.compaction import CompactReport
from hansard.upkeep.dropping import DropReport
from hansard.upkeep.repair import RepairReport
from hansard.upkeep.scrub import ScrubReport
from hansard.upkeep.verify import SessionReport

if TYPE_CHECKING:
    from hansard.upkeep.comparison import Comparison
    from hansard.upkeep.transfer_export import Format

Answer = TypeVar("Answer")

#: `events(follow=True)` looks for more after this long, then after longer, up to the second.
FIRST_PAUSE: Final = 0.001
LONGEST_PAUSE: Final = 0.05


class Session:
    """A handle on one session of a store, to be used on an event loop; see `hansard.Session`.

    Made by `store.session(id)`, which touches nothing. What is a property of `hansard.Session` is awaited
    here without a call: `await session.seq`, `await session.metadata`.

    Attributes:
        id: the session's id.
    """

    __slots__ = ("_group", "_groups", "_make", "_noting", "_pool", "_twin", "id")

    def __init__(
        self, groups: Groups, session_id: str, make: Callable[[], hansard.Session]
    ) -> None:
        """`make` returns a new handle; it may look at the disk, so it is called in a thread."""
        self.id = session_id
        self._groups = groups
        self._group = groups.of(session_id)
        self._pool = groups.pool
        self._make = make
        self._twin: hansard.Session | None = None
        self._noting: hansard.Session | None = None

    def __repr__(self) -> str:
        return f"<hansard.aio.Session {self.id!r} in {self._pool.where!r}>"

    # -- how a call is made ---------------------------------------------------------------------

    def _session(self) -> hansard.Session:
        # Two threads may both make one: either is as good.
        if self._twin is None:
            self._twin = self._make()
        return self._twin

    def _noting_session(self) -> hansard.Session:
        if self._noting is None:
            self._noting = noting(self._make())
        return self._noting

    async def _read(self, call: Callable[[hansard.Session], Answer]) -> Answer:
        return await self._pool.run(lambda: call(self._session()))

    async def _write(self, call: Callable[[hansard.Session], Answer]) -> Answer:
        return await self._pool.run(lambda: call(self._session()), finish=True)

    async def _append_all(self, call: Callable[[hansard.Session], list[Event]]) -> list[Event]:
        return await self._group.append(lambda: call(self._noting_session()))

    async def _append(self, call: Callable[[hansard.Session], Event]) -> Event:
        (event,) = await self._append_all(lambda session: [call(session)])
        return event

    def _pieces(
        self, begin: Callable[[hansard.Session], Iterator[Answer]]
    ) -> AsyncIterator[Answer]:
        return pieces(self._pool, lambda: begin(self._session()))

    # -- saying something -----------------------------------------------------------------------

    async def add_message(
        self, message: dict[str, Any], *, key: str | None = None, expected_seq: int | None = None
    ) -> Event:
        """Append one message and return its event."""
        return await self._append(
            lambda session: session.add_message(message, key=key, expected_seq=expected_seq)
        )

    async def add_messages(
        self,
        messages: Iterable[dict[str, Any]],
        *,
        key: str | None = None,
        expected_seq: int | None = None,
    ) -> list[Event]:
        """Append several messages, all or none, and return their events."""
        return await self._append_all(
            lambda session: session.add_messages(messages, key=key, expected_seq=expected_seq)
        )

    async def append(
        self,
        kind: str,
        data: dict[str, Any],
        *,
        key: str | None = None,
        expected_seq: int | None = None,
    ) -> Event:
        """Append an event of the application's own, of a kind that begins with `x.`."""
        return await self._append(
            lambda session: session.append(kind, data, key=key, expected_seq=expected_seq)
        )

    async def append_all(
        self,
        events: Iterable[tuple[str, dict[str, Any]]],
        *,
        key: str | None = None,
        expected_seq: int | None = None,
    ) -> list[Event]:
        """Append messages and the application's own events together, all or none, and return them."""
        return await self._append_all(
            lambda session: session.append_all(events, key=key, expected_seq=expected_seq)
        )

    def stream(self, *, role: str = "assistant", **fields: Any) -> Stream:
        """Begin a message that is said bit by bit: `async with session.stream() as message`."""
        return Stream(self._pool, lambda: self._session().stream(role=role, **fields))

    async def set_metadata(self, **changes: Any) -> Event | None:
        """Merge keys into the metadata; None removes one, and dicts are merged in turn."""
        return await self._write(lambda session: session.set_metadata(**changes))

    async def patch_metadata(self, changes: dict[str, Any]) -> Event | None:
        """Do as `set_metadata` does, for keys that are no Python names."""
        return await self._write(lambda session: session.patch_metadata(changes))

    async def set_workspace(self, path: str | PathLike[str] = ".") -> Event | None:
        """Say which folder the session belongs to, so that `store.latest(workspace=…)` finds it."""
        return await self._write(lambda session: session.set_workspace(path))

    async def set_title(self, title: str, *, automatic: bool = False) -> Event | None:
        """Give the session a title."""
        return await self._write(lambda session: session.set_title(title, automatic=automatic))

    async def record_usage(
        self,
        *,
        model: str,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cost: float | None = None,
        **more: Any,
    ) -> Event:
        """Record what one call of a model took."""
        return await self._append(
            lambda session: session.record_usage(
                model=model,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                cost=cost,
                **more,
            )
        )

    # -- changing what is shown -----------------------------------------------------------------

    async def snapshot(self, label: str) -> Event:
        """Give the session's present seq a label, to come back to."""
        return await self._write(lambda session: session.snapshot(label))

    async def revert(
        self,
        to: int | str,
        *,
        messages: Iterable[dict[str, Any]] = (),
        expected_seq: int | None = None,
        keep_summary: bool = False,
    ) -> Event:
        """Let the model view go back to a seq or a snapshot."""
        return await self._write(
            lambda session: session.revert(
                to, messages=messages, expected_seq=expected_seq, keep_summary=keep_summary
            )
        )

    async def summarize(self, *, upto: int, message: dict[str, Any]) -> Event:
        """Let a message stand for all up to a seq in the model view."""
        return await self._write(lambda session: session.summarize(upto=upto, message=message))

    async def redact(self, seq: int, *, reason: str = "") -> Event:
        """Remove the message at a seq from every view, for good."""
        return await self._write(lambda session: session.redact(seq, reason=reason))

    async def scrub(self, *texts: str, reason: str = "scrubbed") -> ScrubReport:
        """Remove secrets from everything that is stored, permanently; return how many were found."""
        return await self._write(lambda session: session.scrub(*texts, reason=reason))

    async def drop_history(
        self, before: int, *, reason: str = "", dry_run: bool = False
    ) -> DropReport:
        """Take everything that was said before a seq out of every view, for good."""
        return await self._write(
            lambda session: session.drop_history(before, reason=reason, dry_run=dry_run)
        )

    async def clear(self) -> Event:
        """Let the model view start anew; the history view still shows all."""
        return await self._append(lambda session: session.clear())

    async def archive(self) -> Event:
        """Put the session out of the way."""
        return await self._append(lambda session: session.archive())

    async def unarchive(self) -> Event:
        """Undo `archive`."""
        return await self._append(lambda session: session.unarchive())

    async def close(self) -> Event:
        """Say that the conversation is over. A mark for people: it can be appended to as before."""
        return await self._append(lambda session: session.close())

    async def reopen(self) -> Event:
        """Undo `close`."""
        return await self._append(lambda session: session.reopen())

    async def fork(self, id: str | None = None, *, at: At | None = None) -> "Session":
        """Begin another session where this one is, or was; nothing is copied."""
        child = await self._write(lambda session: session.fork(id, at=at))
        return Session(self._groups, child.id, lambda: copy(child))

    # -- messages -------------------------------------------------------------------------------

    async def messages(
        self,
        *,
        last: int | None = None,
        after: int = 0,
        at: At | None = None,
        view: View = "model",
        repair: bool = False,
    ) -> list[dict[str, Any]]:
        """Return messages as dicts, which are the caller's to change."""
        return await self._read(
            lambda session: session.messages(
                last=last, after=after, at=at, view=view, repair=repair
            )
        )

    async def numbered(
        self,
        *,
        last: int | None = None,
        after: int = 0,
        at: At | None = None,
        view: View = "model",
    ) -> list[tuple[int, dict[str, Any]]]:
        """Return messages, each with its seq."""
        return await self._read(
            lambda session: session.numbered(last=last, after=after, at=at, view=view)
        )

    async def messages_json(
        self,
        *,
        last: int | None = None,
        after: int = 0,
        at: At | None = None,
        view: View = "model",
    ) -> bytes:
        """Return the same as a JSON array, in the stored bytes, without decoding the messages."""
        return await self._read(
            lambda session: session.messages_json(last=last, after=after, at=at, view=view)
        )

    async def window(
        self,
        *,
        turns: int | None = None,
        messages: int | None = None,
        tokens: int | None = None,
        keep_first: bool = False,
        counter: Callable[[dict[str, Any]], int] = windows.estimate_tokens,
        repair: bool = False,
    ) -> list[dict[str, Any]]:
        """Return the last messages of the model view that fit. `counter` is called in a thread."""
        return await self._read(
            lambda session: session.window(
                turns=turns,
                messages=messages,
                tokens=tokens,
                keep_first=keep_first,
                counter=counter,
                repair=repair,
            )
        )

    async def pairing(self) -> list[Problem]:
        """Return the tool calls without a result, and results without a call, of the model view."""
        return await self._read(lambda session: session.pairing())

    async def restore_into(self, history: list[dict[str, Any]]) -> int:
        """Fill a list with the session's messages, unless it has them already."""
        return await self._write(lambda session: session.restore_into(history))

    # -- events ---------------------------------------------------------------------------------

    def events(self, *, after: int = 0, follow: bool = False) -> AsyncIterator[Event]:
        """Yield every event with a higher seq than `after`; with `follow`, wait for more for ever."""
        check_seq("after", after)
        return self._events(after, follow=follow)

    async def _events(self, after: int, *, follow: bool) -> AsyncIterator[Event]:
        while True:
            async for event in self._pieces(lambda session: session.events(after=after)):  # noqa: B023 - begun at once
                yield event
                after = event.seq
            if not follow:
                return
            await self._more(after)

    async def _more(self, after: int) -> None:
        """Wait for an event behind a seq. No thread waits meanwhile, so a cancellation ends it at once."""
        pause = FIRST_PAUSE
        while not await self._read(lambda session: session._log.wait(after, 0.0)):  # noqa: SLF001
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def compare(
        self, other: "Session", *, at: At | None = None, other_at: At | None = None
    ) -> "Comparison":
        """Say what this session and another share, and where they differ."""
        return await self._read(
            lambda session: session.compare(
                other._session(),  # noqa: SLF001 - a session's, too
                at=at,
                other_at=other_at,
            )
        )

    def share(
        self,
        *,
        redact: bool = True,
        hook: Callable[[dict[str, Any]], dict[str, Any] | None] | None = None,
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield the session as JSON objects that can be given away. `hook` is called in a thread."""
        return self._pieces(lambda session: session.share(redact=redact, hook=hook))

    def export(
        self,
        format: "Format" = "jsonl",
        *,
        redacted: bool = True,
        view: View = "history",
        events: bool = True,
        parts: bool = False,
        own_only: bool = False,
    ) -> AsyncIterator[bytes]:
        """Yield the session as a file, piece by piece."""
        return self._pieces(
            lambda session: session.export(
                format,
                redacted=redacted,
                view=view,
                events=events,
                parts=parts,
                own_only=own_only,
            )
        )

    # -- what it adds up to ---------------------------------------------------------------------

    @property
    def seq(self) -> Awaitable[int]:
        """The seq of the last event: `await session.seq`."""
        return self._read(lambda session: session.seq)

    @property
    def metadata(self) -> Awaitable[dict[str, Any]]:
        """The metadata, as the events add up to: `await session.metadata`."""
        return self._read(lambda session: session.metadata)

    @property
    def title(self) -> Awaitable[str | None]:
        """The title among the metadata: `await session.title`."""
        return self._read(lambda session: session.title)

    @property
    def snapshots(self) -> Awaitable[dict[str, int]]:
        """The labels that `snapshot` gave, with their seqs: `await session.snapshots`."""
        return self._read(lambda session: session.snapshots)

    @property
    def usage(self) -> Awaitable[dict[str, Usage]]:
        """Tokens and cost, by model: `await session.usage`."""
        return self._read(lambda session: session.usage)

    @property
    def parent(self) -> Awaitable[str | None]:
        """The id of the session that this one was forked from: `await session.parent`."""
        return self._read(lambda session: session.parent)

    async def state(self, at: At | None = None) -> State:
        """Return everything the events add up to, now or as it was at a seq or a time."""
        return await self._read(lambda session: session.state(at))

    async def children(self) -> list[str]:
        """Return the ids of the sessions that were forked from this one and are not deleted."""
        return await self._read(lambda session: session.children())

    async def compact(
        self, *, progress: Callable[[int, int], None] | None = None, dry_run: bool = False
    ) -> CompactReport:
        """Seal, compress, and remove what was taken out; `progress` is called in another thread."""
        return await self._write(
            lambda session: session.compact(progress=progress, dry_run=dry_run)
        )

    async def repair(self, *, missing: bool = False) -> RepairReport:
        """Mend the session's files, if they are damaged; never done unless asked for."""
        return await self._write(lambda session: session.repair(missing=missing))

    def dump(self) -> AsyncIterator[Record]:
        """Yield what the session's own files hold, line by line, whole or not, with file and offset."""
        return self._pieces(lambda session: session.dump())

    async def verify(self) -> SessionReport:
        """Check every byte that is stored of the session, and report."""
        return await self._write(lambda session: session.verify())
