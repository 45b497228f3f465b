"""What all commands have in common: the options that each one takes, and how its help looks.

A command is a function that takes a `Call` and its own words, calls the library, and shows what came back.
It returns the exit code, or None for 0.
"""

import inspect
import os
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from hansard.cli.screen import Screen

STORE_HELP: Final = (
    "The store: a folder, or postgresql://… Else $HANSARD_STORE, else .hansard in this folder."
)

#: Where a store is if nobody says so.
DEFAULT_STORE: Final = ".hansard"


class ReaderGone(Exception):
    """Whoever read our output has seen enough: no error, `hansard replay x | head` ends so."""


class Interrupted(Exception):
    """Somebody has pressed Ctrl-C."""


class Settings:
    """What was said before the name of the command."""

    __slots__ = ("debug", "json", "store")

    def __init__(self) -> None:
        self.store: str | None = None
        self.json = False
        self.debug = False


class Call:
    """One call of a command: which store, and where its output goes."""

    __slots__ = ("named", "screen", "store")

    def __init__(self, store: str | None, screen: Screen) -> None:
        #: Whether the call itself names the store.
        self.named = store is not None
        self.store = store or store_of_environment()
        self.screen = screen


def store_of_environment() -> str:
    """Return the store that is meant if the call names none. Asked for each time: it may change."""
    return os.environ.get("HANSARD_STORE") or DEFAULT_STORE


class Command(click.Command):
    """A command with the options that every one takes, and with examples in its help."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        #: Without `hansard` before them; what follows `#` says what an example is for.
        self.examples = tuple(examples)
        self.params.extend(_common())

    def invoke(self, ctx: click.Context) -> Any:
        """Call the function with what all commands are given, and with its own words."""
        settings = ctx.ensure_object(Settings)
        words = dict(ctx.params)
        settings.debug = words.pop("debug") or settings.debug
        screen = Screen(json=words.pop("json") or settings.json)
        call = Call(words.pop("store") or settings.store, screen)
        assert self.callback is not None
        try:
            return self.callback(call, **words)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # so that it can say whose help to read
            raise
        except BrokenPipeError as error:
            # Under a name of its own: Click takes a closed pipe for a failure.
            raise ReaderGone from error
        except KeyboardInterrupt as error:
            # Likewise: Click would print an empty line.
            raise Interrupted from error

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, as they are typed."""
        if not self.examples:
            return
        with formatter.section("Examples"):
            for example in self.examples:
                words, _, purpose = example.partition("  # ")
                formatter.write_text(f"hansard {words}" + (f"    # {purpose}" if purpose else ""))
        super().format_epilog(ctx, formatter)


def _common() -> list[click.Parameter]:
    return [
        click.Option(["--json"], is_flag=True, help="Print JSON, for programs."),
        click.Option(["-s", "--store"], metavar="PATH", help=STORE_HELP),
        click.Option(["--debug"], is_flag=True, help="Show the trace of an error, too."),
    ]


def define(name: str, *, examples: Sequence[str]) -> Callable[[Callable[..., int | None]], Command]:
    """Make a command of a function. Its docstring is the help; what `--json` prints must be in it."""

    def make(function: Callable[..., int | None]) -> Command:
        return click.command(name, cls=Command, examples=examples, help=inspect.getdoc(function))(
            function
        )

    return make


#: The option of commands that show what was said.
markdown_option = click.option(
    "--markdown",
    is_flag=True,
    help="Render Markdown, on a terminal. Without it, texts are shown verbatim.",
)


def one_line(text: str) -> str:
    """Return a text without its line breaks."""
    return " ".join(text.split())
