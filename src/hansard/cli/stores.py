"""Open the store that a command is about, and find sessions in it.

A command that only reads opens the store read-only, so it works where the user may not write, and leaves no
trace. One that lists or searches keeps the index, if it may write. Only commands that begin something create
a missing store.
"""

from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from hansard.cli.command import Call, Settings, store_of_environment

if TYPE_CHECKING:
    from hansard import Session, Store

#: Among so many ids the one that was meant is looked for.
_ENOUGH: Final = 5_000
#: So many are offered by the Tab key.
_OFFERED: Final = 200


def reading(call: Call) -> "Store":
    """Open the store to look at it."""
    import hansard

    return hansard.open(call.store, create=False, read_only=True)


def finding(call: Call) -> "Store":
    """Open the store to find sessions in it: nothing changes but the index."""
    return indexed(call.store)


def indexed(place: str) -> "Store":
    """Open a store, and keep its index; without it, each call would read every log.

    That is what happens where the user may read but not write: a store of another user, for example.
    """
    import hansard

    try:
        return hansard.open(place, create=False, auto_compact=False)
    except (hansard.UnsafePath, hansard.DiskFailed):
        return hansard.open(place, create=False, read_only=True)


def writing(call: Call, *, create: bool = False) -> "Store":
    """Open the store to change it. `create`: make it if it is not there."""
    import hansard

    try:
        # What a command appends is little; `hansard compact` compacts the log.
        return hansard.open(call.store, create=create, auto_compact=False)
    except hansard.UnsafePath as error:
        try:
            reading(call).close()
        except hansard.HansardError:
            raise error from None  # it cannot be read either: that is not about whose it is
        raise hansard.UnsafePath(
            f"{call.store}: belongs to another user, and this command writes to it; "
            f"`hansard copy {word(call.store)} PATH` copies what you may read into a store of yours"
        ) from error


def session_of(store: "Store", session_id: str) -> "Session":
    """Return a session that must exist; if it does not, say which one may have been meant."""
    from hansard import SessionDeleted, SessionNotFound

    if store.exists(session_id):
        return store.session(session_id)
    if session_id in store.trash():
        raise SessionDeleted(
            f"session {session_id!r} is in the trash; `hansard restore {word(session_id)}` brings it back"
        )
    close = _close(store, session_id)
    hint = f"did you mean {close!r}?" if close else "`hansard ls` lists what there is"
    raise SessionNotFound(f"no session {session_id!r} in this store; {hint}")


def deleted(store: "Store", session_id: str) -> None:
    """Raise unless a session is in the trash; say which one may have been meant."""
    from difflib import get_close_matches

    from hansard import SessionNotFound

    trash = store.trash()
    if session_id in trash:
        return
    close = get_close_matches(session_id, trash, 1)
    hint = f"did you mean {close[0]!r}?" if close else "`hansard restore` lists what is there"
    raise SessionNotFound(f"no session {session_id!r} in the trash; {hint}")


def ids(store: "Store", prefix: str = "", limit: int = _ENOUGH) -> list[str]:
    """Return the ids of sessions that begin so, sorted; not more than a limit."""
    return [info.id for info in store.sessions(prefix=prefix, limit=limit).items]


def _close(store: "Store", wanted: str) -> str | None:
    """Return the id that is most like another one."""
    from difflib import get_close_matches

    # Who mistypes rarely mistypes the beginning: of a large store this is the part to look at.
    for prefix in (wanted[:3], wanted[:1], ""):
        known = ids(store, prefix)
        found = get_close_matches(wanted, known, 1, 0.6)
        if found:
            return found[0]
        longer = [id for id in known if id.startswith(wanted)]
        if longer:
            return longer[0]
    return None


def word(text: str) -> str:
    """Return a text as it is typed in a shell."""
    import shlex

    return shlex.quote(text)


class SessionId(click.ParamType):  # type: ignore[type-arg] # generic in newer versions only
    """The id of a session; the Tab key completes it."""

    name = "id"

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002 - click's signature
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the sessions whose ids begin so. Where there is no store there is nothing to offer."""
        import hansard
        from hansard.cli.completion import is_safe

        try:
            # With the index, which is kept: who presses the Tab key does not wait for all logs to be read.
            with indexed(_named(ctx)) as store:
                found = store.sessions(prefix=incomplete, limit=_OFFERED).items
        except (hansard.HansardError, OSError, ValueError):
            return []
        return [
            CompletionItem(info.id, help=info.title)
            for info in found
            # The shell would take a line break for the end of it, and the command a dash for an option.
            if info.id.isprintable() and is_safe(info.id)
            if incomplete.startswith("-") or not info.id.startswith("-")
        ]


def _named(ctx: click.Context) -> str:
    """Return the store that the words of an unfinished call name."""
    above: Any = ctx.parent.params.get("store") if ctx.parent else None
    settings = ctx.find_object(Settings)
    said = settings.store if settings else None
    return ctx.params.get("store") or above or said or store_of_environment()


SESSION = SessionId()
