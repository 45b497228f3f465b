"""One conversation, awaited: `hansard.Session`, and `hansard.Stream` which it gives out.

Appends that need not read the session first go through `append_queue`, so that tasks share a sync.
"""

from collections.abc import AsyncIterator, Callable, Coroutine
from copy import copy
from functools import wraps
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, cast

import hansard
from hansard.aio.append_queue import AppendQueue, requesting
from hansard.aio.methods import Twin, awaited, converted, later, pieces, poll
from hansard.event.event import Event
from hansard.session_reader import At, check_seq

if TYPE_CHECKING:
    from hansard.state.compare import Comparison

P = ParamSpec("P")
Answer = TypeVar("Answer")
Answer_co = TypeVar("Answer_co", covariant=True)


def _appends(
    call: Callable[Concatenate[hansard.Session, P], Answer], answer: Callable[[list[Event]], Answer]
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, Answer]]:
    """Return the awaitable twin of a method that does nothing but append."""

    @wraps(call)
    async def method(self: "Session", /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        return answer(
            await self._queue.append(self.id, lambda: call(self._requesting(), *args, **kwargs))
        )

    return method


_one: Callable[[list[Event]], Event] = itemgetter(0)


def _child(parent: "Session", child: hansard.Session) -> "Session":
    return Session(parent._queue, child.id, lambda: copy(child))  # noqa: SLF001 - a session's, too


class _Property(Protocol[Answer_co]):
    def __get__(self, instance: object, owner: type) -> Coroutine[Any, Any, Answer_co]: ...


def _property(read: Callable[[hansard.Session], Answer]) -> _Property[Answer]:
    """Return a property that is awaited without a call."""

    def get(self: "Session") -> Coroutine[Any, Any, Answer]:
        return self._pool.run(lambda: read(self._sync()), finish=False)

    return cast("_Property[Answer]", property(get))


class Stream(Twin[hansard.Stream]):
    """A message that is being streamed. Created by `session.stream`; for one task at a time.

    As `async with` it finishes the message at the end of the block. If the block ends with an error or is
    cancelled, what was written stays, and views show it as partial.
    """

    __slots__ = ()

    async def __aenter__(self) -> Self:
        await self._pool.run(self._sync)
        return self

    async def __aexit__(self, *raised: Any) -> None:  # noqa: PYI036 - passed on
        await self._pool.run(lambda: self._sync().__exit__(*raised))

    @property
    def id(self) -> str:
        """The id that its parts and its message share; empty until the first call is awaited."""
        return "" if self._made is None else self._made.id

    @property
    def text(self) -> str:
        """The text that was written so far."""
        return "" if self._made is None else self._made.text

    @property
    def event(self) -> Event | None:
        """The event that added the complete message; None until then."""
        return None if self._made is None else self._made.event

    @property
    def message(self) -> dict[str, Any]:
        """The message as it is so far, with its tool calls; yours to change."""
        return {} if self._made is None else self._made.message

    write = awaited(hansard.Stream.write)
    write_call = awaited(hansard.Stream.write_call)
    flush = awaited(hansard.Stream.flush)
    finish = awaited(hansard.Stream.finish)
    discard = awaited(hansard.Stream.discard)


class Session(Twin[hansard.Session]):
    """A handle on one session of a store, for an event loop; see `hansard.Session`.

    Created by `store.session(id)`, which touches nothing. A property of `hansard.Session` is awaited here
    without a call: `await session.seq`, `await session.metadata`.

    Attributes:
        id: the session's id.
    """

    __slots__ = ("_queue", "_requester", "id")

    def __init__(
        self, queue: AppendQueue, session_id: str, make: Callable[[], hansard.Session]
    ) -> None:
        super().__init__(queue.pool, make)
        self.id = session_id
        self._queue = queue
        self._requester: hansard.Session | None = None

    def __repr__(self) -> str:
        return f"<hansard.aio.Session {self.id!r} in {self._pool.where!r}>"

    def _requesting(self) -> hansard.Session:
        if self._requester is None:
            self._requester = requesting(self._make())
        return self._requester

    add_message = _appends(hansard.Session.add_message, _one)
    add_messages = _appends(hansard.Session.add_messages, list)
    append = _appends(hansard.Session.append, _one)
    append_all = _appends(hansard.Session.append_all, list)
    record_usage = _appends(hansard.Session.record_usage, _one)
    clear = _appends(hansard.Session.clear, _one)
    archive = _appends(hansard.Session.archive, _one)
    unarchive = _appends(hansard.Session.unarchive, _one)
    close = _appends(hansard.Session.close, _one)
    reopen = _appends(hansard.Session.reopen, _one)

    stream = later(hansard.Session.stream, Stream)
    set_metadata = awaited(hansard.Session.set_metadata)
    patch_metadata = awaited(hansard.Session.patch_metadata)
    set_workspace = awaited(hansard.Session.set_workspace)
    set_title = awaited(hansard.Session.set_title)
    snapshot = awaited(hansard.Session.snapshot)
    revert = awaited(hansard.Session.revert)
    summarize = awaited(hansard.Session.summarize)
    redact = awaited(hansard.Session.redact)
    scrub = awaited(hansard.Session.scrub)
    hold = awaited(hansard.Session.hold)
    release = awaited(hansard.Session.release)
    drop_history = awaited(hansard.Session.drop_history)
    restore_into = awaited(hansard.Session.restore_into)
    compact = awaited(hansard.Session.compact)
    repair = awaited(hansard.Session.repair)
    verify = awaited(hansard.Session.verify)

    messages = awaited(hansard.Session.messages, finish=False)
    numbered = awaited(hansard.Session.numbered, finish=False)
    messages_json = awaited(hansard.Session.messages_json, finish=False)
    window = awaited(hansard.Session.window, finish=False)
    transcript = awaited(hansard.Session.transcript, finish=False)
    pairing = awaited(hansard.Session.pairing, finish=False)
    state = awaited(hansard.Session.state, finish=False)
    children = awaited(hansard.Session.children, finish=False)
    seq = _property(lambda session: session.seq)
    metadata = _property(lambda session: session.metadata)
    title = _property(lambda session: session.title)
    snapshots = _property(lambda session: session.snapshots)
    usage = _property(lambda session: session.usage)
    parent = _property(lambda session: session.parent)

    share = later(hansard.Session.share, pieces)
    export = later(hansard.Session.export, pieces)
    dump = later(hansard.Session.dump, pieces)

    fork = converted(hansard.Session.fork, _child)

    async def compare(
        self, other: "Session", *, at: At | None = None, other_at: At | None = None
    ) -> "Comparison":
        """Compare this session with another: what they share, and where they differ."""
        return await self._pool.run(
            lambda: self._sync().compare(other._sync(), at=at, other_at=other_at),  # noqa: SLF001
            finish=False,
        )

    def events(self, *, after: int = 0, follow: bool = False) -> AsyncIterator[Event]:
        """Yield every event with a higher seq than `after`; with `follow`, wait for more permanently."""
        check_seq("after", after)
        return self._events(after, follow=follow)

    async def _events(self, after: int, *, follow: bool) -> AsyncIterator[Event]:
        while True:
            async for event in pieces(self._pool, lambda: self._sync().events(after=after)):  # noqa: B023 - begun before `after` changes
                yield event
                after = event.seq
            if not follow:
                return
            await poll(
                self._pool,
                lambda: self._sync()._log.wait(after, 0.0),  # noqa: B023, SLF001 - its twin's
                finish=False,
            )
