"""Find the command that is called, load it and nothing else, and see what becomes of it."""

import importlib
import os
from collections.abc import Sequence
from typing import Final, NamedTuple

import click

from hansard.cli import VERSION, faults
from hansard.cli.command import STORE_HELP, Settings


class Entry(NamedTuple):
    """A command in the table below."""

    section: str
    #: Its first line of help. Here too, so that `hansard --help` need not load every command.
    help: str
    #: Its module in `commands`, if that has another name than the command.
    module: str = ""


#: Every command, in the order in which `hansard --help` lists them.
COMMANDS: Final = {
    "ls": Entry("Look", "List sessions: which ones, whose, when."),
    "replay": Entry("Look", "Play a session's events in order, as they came."),
    "show": Entry("Look", "Show what a session is, and what was said in it."),
    "tail": Entry("Look", "Show the last events of a session, or of all; -f waits for more."),
    "diff": Entry("Look", "Show what two sessions share, and where they differ."),
    "tree": Entry("Look", "Draw where sessions come from, and what was forked from them.", "ls"),
    "search": Entry("Look", "Find what was said, and in which session."),
    "stats": Entry("Look", "Say what a store adds up to: sizes, growth, usage of models."),
    "dump": Entry("Look", "Print the physical records of a session, with their offsets."),
    "add": Entry("Change", "Append a message, several from a file, or an event of your own."),
    "fork": Entry("Change", "Begin another session where one is, or was.", "edit"),
    "snapshot": Entry(
        "Change", "Give the place where a session is a label, to come back to.", "edit"
    ),
    "revert": Entry("Change", "Let the model view go back to a seq or a snapshot.", "edit"),
    "redact": Entry("Change", "Take messages out of every view, for good.", "edit"),
    "rm": Entry("Change", "Move sessions to the trash.", "edit"),
    "restore": Entry("Change", "Bring sessions back from the trash.", "edit"),
    "prune": Entry("Change", "Move sessions in which nothing happened for long to the trash."),
    "compact": Entry("Mend", "Make sessions small, and remove the bytes of what was redacted."),
    "verify": Entry("Mend", "Check every byte of sessions, and report what is wrong."),
    "repair": Entry("Mend", "Mend damaged sessions; the damaged bytes are kept."),
    "doctor": Entry("Mend", "Say how the store is, and what needs attention."),
    "export": Entry(
        "Move",
        "Write sessions out: JSONL, Markdown, an HTML page, or other programs' formats; redacted.",
    ),
    "import": Entry(
        "Move", "Take in sessions that `hansard export` wrote, or another program.", "importing"
    ),
    "copy": Entry("Move", "Copy sessions from one store to another, event for event."),
    "demo": Entry("Try", "Show what hansard does, step by step, on a real store."),
}


class App(click.Group):
    """The command itself: it knows all others by name, and loads the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Load one command."""
        return load(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is called; if there is none, say which may have been meant."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            close = get_close_matches(args[0], COMMANDS, 1)
            hint = f"; did you mean `hansard {close[0]}`?" if close else ""
            raise click.UsageError(f"no such command: {args[0]}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of commands, by what they are for, without loading them."""
        for section in dict.fromkeys(entry.section for entry in COMMANDS.values()):
            with formatter.section(section):
                formatter.write_dl(
                    [
                        (name, entry.help)
                        for name, entry in COMMANDS.items()
                        if entry.section == section
                    ]
                )


def load(name: str) -> click.Command:
    """Import the module of a command, and return the command."""
    module = importlib.import_module(f"hansard.cli.commands.{COMMANDS[name].module or name}")
    members = vars(module).values()
    return next(one for one in members if isinstance(one, click.Command) and one.name == name)


@click.group(
    cls=App,
    name="hansard",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="The exit code is 0: done; 1: it found something, or failed; 2: the words of the call are "
    'off; 130: interrupted. Tab completion: `eval "$(_HANSARD_COMPLETE=bash_source hansard)"`, or '
    "zsh_source, or fish_source.",
)
@click.option("-s", "--store", metavar="PATH", help=STORE_HELP)
@click.option("--json", is_flag=True, help="Print JSON, for programs.")
@click.option("--debug", is_flag=True, help="Show the trace of an error, too.")
@click.version_option(VERSION, "-V", "--version", message="hansard %(version)s")
@click.pass_context
def app(ctx: click.Context, store: str | None, *, json: bool, debug: bool) -> None:
    """Look into a store of LLM-agent sessions, change it, mend it, move it."""
    settings = ctx.ensure_object(Settings)
    settings.store = store or None
    settings.json = json
    settings.debug = settings.debug or debug
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run(words: Sequence[str]) -> int:
    """Do what the words say; return the exit code. Errors become one line on stderr."""
    settings = Settings()
    if "_HANSARD_COMPLETE" in os.environ:
        importlib.import_module("hansard.cli.completion")  # registers how shells are answered
    faults.see_to_streams()
    with faults.told(settings) as outcome:
        found = app.main(list(words), prog_name="hansard", standalone_mode=False, obj=settings)
        outcome.code = found if isinstance(found, int) else 0
    return outcome.code
