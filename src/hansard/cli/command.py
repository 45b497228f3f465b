"""What all commands share: common options, help, the store, and the session that an id names.

A command is a function that takes a `Call` and its own arguments, calls the library, and prints the result.
It returns the exit code, or None for 0. A command that only reads opens the store read-only: it works without
write permission, and changes no file.
"""

import inspect
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, Final
from zlib import crc32

import click

import hansard
from hansard.cli.screen import Screen

DEFAULT_STORE: Final = ".hansard"

#: A path that the Tab key completes, and that nothing checks.
PATH: Final = click.Path(readable=False)

#: Exit codes other than 0: findings or failure, usage error, interrupted.
FAILED: Final = 1
MISUSED: Final = 2
INTERRUPTED: Final = 130

#: Maximum ids compared with one that does not exist.
_COMPARED: Final = 5_000


class Settings:
    """The options before the name of the command, with their defaults."""

    store: str | None = None
    json: bool = False
    debug: bool = False
    pager: bool = True


class Call:
    """One call of a command: the store, and where the output goes.

    Attributes:
        named: whether the call itself names the store.
        store: the directory or URL of the store.
        screen: the output.
    """

    def __init__(self, store: str | None, screen: Screen) -> None:
        self.named = store is not None
        #: What a printed command needs to name the same store. Not a URL: it may contain a password.
        self.options = [] if store is None or "://" in store else ["-s", store]
        self.store = store or store_of_environment()
        self.screen = screen

    def again(self, *words: object) -> str:
        """Return a command on the same store, to be printed."""
        return shlex.join(["hansard", *self.options, *map(str, words)])

    def reading(self) -> "hansard.Store":
        """Open the store to read."""
        return hansard.open(self.store, create=False, read_only=True)

    def finding(self) -> "hansard.Store":
        """Open the store to list or search: only the index is written."""
        return open_indexed(self.store)

    def writing(self, *, create: bool = False) -> "hansard.Store":
        """Open the store to write; with `create`, create it if it does not exist."""
        # A command appends little; `hansard compact` compacts.
        return open_trusted(self.store, create=create)


def store_of_environment() -> str:
    """Return the store for a call that names none."""
    return os.environ.get("HANSARD_STORE") or DEFAULT_STORE


def open_trusted(
    where: str, *, create: bool = False, auto_compact: bool = False
) -> "hansard.Store":
    """Open a store to write, also one of another user's for a group, if the call or the environment names it.

    A `.hansard` that happens to be in the current directory is not trusted like that.
    """
    try:
        return hansard.open(where, create=create, auto_compact=auto_compact)
    except hansard.UnsafePath:
        if where != DEFAULT_STORE:
            with suppress(hansard.HansardError):
                return hansard.open(where, create=False, auto_compact=auto_compact, group=True)
        raise


def open_indexed(where: str) -> "hansard.Store":
    """Open a store and keep its index; read-only if the user may not write.

    Without a kept index, each call would read every log.
    """
    try:
        return open_trusted(where)
    except (hansard.UnsafePath, hansard.DiskFailed):
        return hansard.open(where, create=False, read_only=True)


#: Ids that name another session, unless one has this id: the newest, and the last that this user used.
LATEST: Final = "@latest"
LAST_USED: Final = "-"

#: Ids that the error for an ambiguous prefix lists.
_LISTED: Final = 5


def session_of(
    store: "hansard.Store", session_id: str, *, complete: bool = False
) -> "hansard.Session":
    """Return the session that an id names, and remember it as the last used one.

    A unique beginning of an id is enough, and `@latest` and `-` name sessions too; with `complete`, only a
    complete id is accepted. The error for another id suggests a similar one.
    """
    if not store.exists(session_id):
        session_id = _named(store, session_id) if not complete else session_id
        if not store.exists(session_id):
            raise _missing(store, session_id)
    remember(store, session_id)
    return store.session(session_id)


def _named(store: "hansard.Store", text: str) -> str:
    """Return the id that a text names if it is not an id; the text if it names none."""
    if text == LATEST:
        newest = store.sessions(order="-updated", archived=None, limit=1).items
        if not newest:
            raise hansard.SessionNotFound("@latest: this store has no sessions")
        return newest[0].id
    if text == LAST_USED:
        used = _last_used(store)
        if not used:
            raise hansard.SessionNotFound(
                "-: you have not used a session of this store yet; `hansard ls` lists them"
            )
        return used
    if text in store.trash():
        return text
    found = store.sessions(prefix=text, order="id", archived=None, limit=_LISTED + 1).items
    if len(found) > 1:
        listed = ", ".join(repr(info.id) for info in found[:_LISTED])
        more = ", …" if len(found) > _LISTED else ""
        raise hansard.SessionNotFound(
            f"{text!r} is the beginning of several ids: {listed}{more}; pass more of it"
        )
    return found[0].id if found else text


def remember(store: "hansard.Store", session_id: str) -> None:
    """Keep a session as the last used one, in the user's state directory; a failure is not reported."""
    if _last_used(store) != session_id:
        path = _state_file(store)
        with suppress(OSError, ValueError):
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(session_id)


def _last_used(store: "hansard.Store") -> str | None:
    with suppress(OSError, ValueError), open(_state_file(store), encoding="utf-8") as file:
        return file.read()
    return None


def _state_file(store: "hansard.Store") -> str:
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    # A checksum: the place may be a URL.
    name = f"{crc32(repr(store).encode(errors='replace')):08x}"
    return os.path.join(state, "hansard", "last", name)


def _missing(store: "hansard.Store", session_id: str) -> hansard.HansardError:
    if session_id in store.trash():
        return hansard.SessionDeleted(
            f"session {session_id!r} is in the trash; run `hansard restore {shlex.quote(session_id)}`"
        )
    from difflib import get_close_matches

    # Typing errors are rare at the beginning.
    known = [info.id for info in store.sessions(prefix=session_id[:1], limit=_COMPARED).items]
    close = get_close_matches(session_id, known, 1) or [
        id for id in known if id.startswith(session_id)
    ]
    hint = f"did you mean {close[0]!r}?" if close else "`hansard ls` lists all sessions"
    return hansard.SessionNotFound(f"no session {session_id!r} in this store; {hint}")


@contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Report a package that cannot be imported as a missing extra, which something needs."""
    try:
        yield
    except ImportError as error:
        raise click.ClickException(
            f"{what} needs more packages: pip install '/path/to/hansard[{name}]'"
        ) from error


def check_targets(ids: tuple[str, ...], verb: str, *, everything: bool) -> None:
    """Raise unless a call has either ids or --all."""
    if everything == bool(ids):
        both = ", not both" if everything else ""
        raise click.UsageError(f"name the sessions to {verb}, or pass --all{both}")


@contextmanager
def _naming(ctx: click.Context) -> Iterator[None]:
    """Let a usage error name the command."""
    try:
        yield
    except click.UsageError as error:
        error.ctx = error.ctx or ctx
        raise


class Command(click.Command):
    """A command with the common options, and with examples in its help."""

    #: Without `hansard`; the purpose follows `#`.
    examples: tuple[str, ...] = ()
    #: Whether its output may be long: a terminal shows it with a pager.
    paged = False

    def invoke(self, ctx: click.Context) -> Any:
        """Call the function with a `Call` and its own arguments."""
        settings = ctx.ensure_object(Settings)
        given = dict(ctx.params)
        settings.debug = given.pop("debug") or settings.debug
        screen = Screen(json=given.pop("json") or settings.json)
        call = Call(given.pop("store") or settings.store, screen)
        plain = given.pop("no_pager", False) or not settings.pager
        # What is shown as it comes, or controlled by keys, is not for a pager.
        live = any(given.get(name) for name in ("follow", "speed", "step"))
        assert self.callback is not None
        with (
            _naming(ctx),
            screen.paged() if self.paged and not plain and not live else nullcontext(),
        ):
            return self.callback(call, **given)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments."""
        with _naming(ctx):
            return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the examples as lines to paste, each with its purpose below: zsh takes no comments."""
        with formatter.section("Examples"):
            for example in self.examples:
                shown, _, purpose = example.partition("  # ")
                formatter.write(f"{'':{formatter.current_indent}}hansard {shown}\n")
                if purpose:
                    with formatter.indentation():
                        formatter.write_text(purpose)


def define(
    name: str, *examples: str, paged: bool = False
) -> Callable[[Callable[..., int | None]], Command]:
    """Return a decorator that makes a command of a function. Its docstring is the help."""

    def make(function: Callable[..., int | None]) -> Command:
        first, line_feed, rest = (inspect.getdoc(function) or "").partition("\n")
        text = first.removesuffix(".") + line_feed + rest
        made = click.command(name, cls=Command, help=text)(function)
        made.examples, made.paged = examples, paged
        common_options(made, paged=paged)
        return made

    return make


def common_options(command: click.Command, *, paged: bool = True) -> None:
    """Add the options that `hansard` and all commands have. `paged`: also the one against the pager."""
    store_help = "Directory or postgresql:// URL [env: HANSARD_STORE; default: .hansard]"
    command.params += [
        click.Option(["--json"], is_flag=True, help="Output JSON"),
        click.Option(["-s", "--store"], metavar="PATH", type=PATH, help=store_help),
        click.Option(["--debug"], is_flag=True, help="Print tracebacks"),
    ]
    if paged:
        pager_help = "Print long output as it is, without $PAGER"
        command.params.append(click.Option(["--no-pager"], is_flag=True, help=pager_help))
