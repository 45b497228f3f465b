"""The command line: the table of commands, and one line and an exit code for every error."""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

import click

from hansard.cli import VERSION
from hansard.cli.command import (
    DEBUG_HELP,
    FAILED,
    INTERRUPTED,
    JSON_HELP,
    MISUSED,
    STORE_HELP,
    Interrupted,
    ReaderGone,
    Settings,
)
from hansard.cli.screen import visible


class Entry(NamedTuple):
    """A command in the table below."""

    group: str
    #: The first line of its help, here too so that `hansard --help` loads no command.
    help: str
    #: Its module in `commands`, if not the command's name.
    module: str = ""


#: All commands, in the order of `hansard --help`.
COMMANDS: Final = {
    "ls": Entry("Inspect", "List sessions"),
    "replay": Entry("Inspect", "Play back a session's events"),
    "show": Entry("Inspect", "Show a session's state and messages"),
    "tail": Entry("Inspect", "Show the latest events; -f to follow"),
    "diff": Entry("Inspect", "Compare two sessions or points"),
    "tree": Entry("Inspect", "Show forks as a tree", "ls"),
    "search": Entry("Inspect", "Search messages and titles"),
    "stats": Entry("Inspect", "Show totals, growth and model usage"),
    "dump": Entry("Inspect", "Print raw log records"),
    "add": Entry("Edit", "Append messages, events or metadata"),
    "fork": Entry("Edit", "Create a session from a point in another", "edit"),
    "snapshot": Entry("Edit", "Name the current point, or list names", "edit"),
    "revert": Entry("Edit", "Revert the model view to a point", "edit"),
    "redact": Entry("Edit", "Permanently hide messages", "edit"),
    "rm": Entry("Edit", "Move sessions to the trash", "edit"),
    "restore": Entry("Edit", "Restore sessions from the trash", "edit"),
    "prune": Entry("Edit", "Move inactive sessions to the trash"),
    "compact": Entry("Maintain", "Compress sessions and erase redacted data"),
    "verify": Entry("Maintain", "Check sessions for damage"),
    "repair": Entry("Maintain", "Repair damaged sessions, keeping a copy"),
    "doctor": Entry("Maintain", "Diagnose the store"),
    "export": Entry("Transfer", "Export sessions to files"),
    "import": Entry("Transfer", "Import sessions from files or programs", "importing"),
    "copy": Entry("Transfer", "Copy sessions between stores"),
    "demo": Entry("Demo", "Run a demo on a real store"),
}


class App(click.Group):
    """The command `hansard`: it loads only the command that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Load one command."""
        return load(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; the error for another name suggests a similar one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            close = get_close_matches(args[0], COMMANDS, 1)
            hint = f"; did you mean `hansard {close[0]}`?" if close else ""
            raise click.UsageError(f"no such command: {args[0]}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of commands by group, without loading them."""
        for group in dict.fromkeys(entry.group for entry in COMMANDS.values()):
            with formatter.section(group):
                formatter.write_dl(
                    [(name, entry.help) for name, entry in COMMANDS.items() if entry.group == group]
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
    epilog="Exit codes: 0 success, 1 findings or failure, 2 usage error, 130 interrupted. "
    'Tab completion: `eval "$(_HANSARD_COMPLETE=bash_source hansard)"`, or zsh_source, or '
    "fish_source.",
)
@click.option("-s", "--store", metavar="PATH", help=STORE_HELP)
@click.option("--json", is_flag=True, help=JSON_HELP)
@click.option("--debug", is_flag=True, help=DEBUG_HELP)
@click.version_option(VERSION, "-V", "--version", message="hansard %(version)s")
@click.pass_context
def app(ctx: click.Context, store: str | None, *, json: bool, debug: bool) -> None:
    """Inspect, edit, maintain and transfer the sessions of LLM agents."""
    settings = ctx.ensure_object(Settings)
    settings.store = store or None
    settings.json = json
    settings.debug = settings.debug or debug
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run(arguments: Sequence[str]) -> int:
    """Run a command and return the exit code. An error is one line on stderr; --debug adds the traceback."""
    settings = Settings()
    if "_HANSARD_COMPLETE" in os.environ:
        importlib.import_module("hansard.cli.completion")  # registers the shells
    _open_missing_streams()
    try:
        found = app.main(list(arguments), prog_name="hansard", standalone_mode=False, obj=settings)
        # Flushed here: after the end of `main`, Python itself would report a closed pipe.
        sys.stdout.flush()
    except (BrokenPipeError, ReaderGone):
        _close_stdout()
        return 0
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except BaseException as error:
        if not isinstance(error, Exception | KeyboardInterrupt):
            raise
        return _report(error, settings)
    else:
        return found if isinstance(found, int) else 0
    finally:
        _flush_quietly()


# -- errors -------------------------------------------------------------------------------------


def _report(error: BaseException, settings: Settings) -> int:
    """Write an error to stderr, and return the exit code."""
    from hansard.errors import HansardError

    if settings.debug:
        import traceback

        traceback.print_exc()
    match error:
        case KeyboardInterrupt() | Interrupted() | click.Abort():
            if isinstance(error.__cause__, EOFError):
                # Click raises Abort for an unexpected EOFError, too.
                _say(_unexpected(error.__cause__))
                return FAILED
            if isinstance(error, Interrupted) and sys.stderr.isatty():
                sys.stderr.write("\n")  # after the ^C that the terminal has printed
            _say("interrupted; the store is intact, and completed changes are kept")
            return INTERRUPTED
        case click.UsageError():
            _say(_usage(error))
            return MISUSED
        case click.ClickException():
            _say(error.format_message())
        case HansardError() | OSError() | ValueError():
            _say(_explain(error))
        case _ if settings.debug:
            _say(_explain(error))
        case _:
            _say(_unexpected(error))
    return FAILED


def _unexpected(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}; this is a bug in hansard, --debug shows where"


def _explain(error: BaseException) -> str:
    from hansard import errors

    text = str(error) or type(error).__name__
    match error:
        case errors.StoreNotFound():
            # The library's hint names Python arguments; the path comes first.
            path = text.partition(": no hansard store here")[0]
            return (
                f"{path}: no hansard store here; name one with -s PATH or HANSARD_STORE, "
                "or create one with `hansard add` or `hansard demo`"
            )
        case errors.Damaged() if "hansard " not in text:
            return f"{text}; run `hansard verify` for details, or `hansard repair`"
        case errors.HansardError():
            return text
        case PermissionError():
            return f"{_path(error)}: permission denied; ask its owner for access"
        case OSError(strerror=str(reason)):
            return f"{_path(error)}: {reason}"
        case _:
            return text


def _path(error: OSError) -> str:
    # The library's errors name a file: one without is about stdout.
    return str(error.filename) if error.filename is not None else "the output"


def _usage(error: click.UsageError) -> str:
    path = error.ctx.command_path if error.ctx is not None else "hansard"
    message = error.format_message().rstrip(".")
    return f"{message[:1].lower()}{message[1:]}; see `{path} --help`"


def _say(message: str) -> None:
    try:
        sys.stderr.write(f"hansard: {visible(' '.join(message.split()))}\n")
        sys.stderr.flush()
    except OSError:
        pass  # stderr is closed, too


# -- streams ------------------------------------------------------------------------------------


def _open_missing_streams() -> None:
    """Open /dev/null for streams that `>&-` or `<&-` has closed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - until the end


def _close_stdout() -> None:
    """Send the rest of the buffer nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _flush_quietly() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        _close_stdout()  # or Python would try again, and print its own message
