"""What all commands share: common options, help, the store, and the session that an id names.

A command is a function that takes a `Call` and its own arguments, calls the library, and prints the result.
It returns the exit code, or None for 0. A command that only reads opens the store read-only: it works without
write permission, and changes no file.
"""

import inspect
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import click

import hansard
from hansard.cli.screen import Screen

DEFAULT_STORE: Final = ".hansard"

#: Exit codes other than 0: findings or failure, usage error, interrupted.
FAILED: Final = 1
MISUSED: Final = 2
INTERRUPTED: Final = 130

#: Maximum ids compared with one that does not exist.
_COMPARED: Final = 5_000


@dataclass(slots=True)
class Settings:
    """The options before the name of the command."""

    store: str | None = None
    json: bool = False
    debug: bool = False


class Call:
    """One call of a command: the store, and where the output goes.

    Attributes:
        named: whether the call itself names the store.
        store: the directory or URL of the store.
        screen: the output.
    """

    def __init__(self, store: str | None, screen: Screen) -> None:
        self.named = store is not None
        self.store = store or store_of_environment()
        self.screen = screen

    def reading(self) -> "hansard.Store":
        """Open the store to read."""
        return hansard.open(self.store, create=False, read_only=True)

    def finding(self) -> "hansard.Store":
        """Open the store to list or search: only the index is written."""
        return open_indexed(self.store)

    def writing(self, *, create: bool = False) -> "hansard.Store":
        """Open the store to write; with `create`, create it if it does not exist."""
        # A command appends little; `hansard compact` compacts.
        return hansard.open(self.store, create=create, auto_compact=False)


def store_of_environment() -> str:
    """Return the store for a call that names none."""
    return os.environ.get("HANSARD_STORE") or DEFAULT_STORE


def open_indexed(where: str) -> "hansard.Store":
    """Open a store and keep its index; read-only if the user may not write.

    Without a kept index, each call would read every log.
    """
    try:
        return hansard.open(where, create=False, auto_compact=False)
    except (hansard.UnsafePath, hansard.DiskFailed):
        return hansard.open(where, create=False, read_only=True)


def session_of(store: "hansard.Store", session_id: str) -> "hansard.Session":
    """Return an existing session; the error for another id suggests a similar one."""
    if store.exists(session_id):
        return store.session(session_id)
    if session_id in store.trash():
        raise hansard.SessionDeleted(
            f"session {session_id!r} is in the trash; run `hansard restore {shlex.quote(session_id)}`"
        )
    close = _similar(store, session_id)
    hint = f"did you mean {close!r}?" if close else "`hansard ls` lists all sessions"
    raise hansard.SessionNotFound(f"no session {session_id!r} in this store; {hint}")


def _similar(store: "hansard.Store", wanted: str) -> str | None:
    from difflib import get_close_matches

    # Typing errors are rare at the beginning.
    known = [info.id for info in store.sessions(prefix=wanted[:1], limit=_COMPARED).items]
    found = get_close_matches(wanted, known, 1) + [id for id in known if id.startswith(wanted)]
    return next(iter(found), None)


def check_targets(ids: tuple[str, ...], verb: str, *, everything: bool) -> None:
    """Raise unless a call has either ids or --all."""
    if everything == bool(ids):
        raise click.UsageError(f"name the sessions to {verb}, or pass --all")


class Command(click.Command):
    """A command with the common options, and with examples in its help."""

    def __init__(self, *args: Any, examples: tuple[str, ...], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        #: Without `hansard`; the purpose follows `#`.
        self.examples = examples
        common_options(self)

    def invoke(self, ctx: click.Context) -> Any:
        """Call the function with a `Call` and its own arguments."""
        settings = ctx.ensure_object(Settings)
        given = dict(ctx.params)
        settings.debug = given.pop("debug") or settings.debug
        screen = Screen(json=given.pop("json") or settings.json)
        call = Call(given.pop("store") or settings.store, screen)
        assert self.callback is not None
        try:
            return self.callback(call, **given)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # names the command in the message
            raise

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the examples."""
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write_text(f"hansard {example.replace('  # ', '    # ')}")


def define(name: str, *examples: str) -> Callable[[Callable[..., int | None]], Command]:
    """Return a decorator that makes a command of a function. Its docstring is the help."""

    def make(function: Callable[..., int | None]) -> Command:
        first, line_feed, rest = (inspect.getdoc(function) or "").partition("\n")
        text = first.removesuffix(".") + line_feed + rest
        return click.command(name, cls=Command, examples=examples, help=text)(function)

    return make


def common_options(command: click.Command) -> None:
    """Add the options that `hansard` and all commands have."""
    store_help = "Directory or postgresql:// URL [env: HANSARD_STORE; default: .hansard]"
    command.params += [
        click.Option(["--json"], is_flag=True, help="Output JSON"),
        click.Option(["-s", "--store"], metavar="PATH", help=store_help),
        click.Option(["--debug"], is_flag=True, help="Print tracebacks"),
    ]


#: Options that several commands have.
markdown_option = click.option("--markdown", is_flag=True, help="Render Markdown on a terminal")
full_option = click.option("--full", is_flag=True, help="Do not truncate")
prefix_option = click.option(
    "--prefix", default="", metavar="TEXT", help="Only ids starting with TEXT"
)
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Write nothing; show what would be done"
)
yes_option = click.option("-y", "--yes", is_flag=True, help="Skip confirmation")


def count_option(
    *names: str, help: str, default: int | None = None, least: int = 0
) -> Callable[[Callable[..., int | None]], Callable[..., int | None]]:
    """Return an option that takes a number."""
    return click.option(
        *names,
        type=click.IntRange(min=least),
        default=default,
        show_default=default is not None,
        metavar="N",
        help=help,
    )
