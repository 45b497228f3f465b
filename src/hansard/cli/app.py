"""The table of commands, and one line and an exit code for every error."""

import importlib
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import click

from hansard.cli import VERSION
from hansard.cli.command import FAILED, INTERRUPTED, MISUSED, Settings, common_options
from hansard.cli.screen import visible

#: The commands of each group, in the order of `hansard --help`.
GROUPS: Final = {
    "Inspect": ("ls", "replay", "show", "tail", "diff", "tree", "search", "stats", "dump"),
    "Edit": ("add", "fork", "snapshot", "revert", "redact", "hold", "rm", "restore", "prune"),
    "Maintain": ("compact", "verify", "repair", "doctor"),
    "Transfer": ("export", "import", "copy"),
    "Serve": ("serve", "mcp"),
    "Demo": ("demo",),
}
COMMANDS: Final = {name: group for group, names in GROUPS.items() for name in names}

#: The commands that are not in a module of their name, by their modules.
_MODULES: Final = {
    "replay": {"show", "tail"},
    "ls": {"tree"},
    "verify": {"dump", "repair"},
    "edit": {"fork", "snapshot", "revert", "redact", "hold", "rm", "restore", "prune"},
    "importing": {"import", "copy"},
    "serve": {"mcp"},
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
            hint = f" (did you mean `hansard {close[0]}`?)" if close else ""
            raise click.UsageError(f"no such command: {args[0]}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of commands by group."""
        for group, names in GROUPS.items():
            with formatter.section(group):
                helps = [(load(name).help or "").partition("\n")[0] for name in names]
                formatter.write_dl([*zip(names, helps, strict=True)])


def load(name: str) -> click.Command:
    """Import the module of a command, and return the command."""
    place = next((module for module, names in _MODULES.items() if name in names), name)
    module = importlib.import_module(f"hansard.cli.commands.{place}")
    members = vars(module).values()
    return next(one for one in members if isinstance(one, click.Command) and one.name == name)


@click.group(
    cls=App,
    name="hansard",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="For ID, a unique beginning of an id is enough. @latest is the newest session, and - the last "
    "used one.\n\n"
    "Exit codes: 0 success, 1 findings or failure, 2 usage error, 130 interrupted.\n\n"
    'Tab completion: `eval "$(_HANSARD_COMPLETE=bash_source hansard)"`, or zsh_source, or '
    "fish_source.",
)
@click.version_option(VERSION, "-V", "--version", message="hansard %(version)s")
@click.pass_context
def app(ctx: click.Context, store: str | None, *, json: bool, debug: bool, no_pager: bool) -> None:
    """Inspect, edit, maintain and transfer the sessions of LLM agents."""
    ctx.obj.store, ctx.obj.json, ctx.obj.debug = store or None, json, debug
    ctx.obj.pager = not no_pager
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


common_options(app)


def run(arguments: Sequence[str]) -> int:
    """Run a command and return the exit code. An error is one line on stderr; --debug adds the traceback."""
    _open_missing_streams()
    shell = os.environ.get("_HANSARD_COMPLETE")
    if shell:
        from click.shell_completion import shell_complete

        importlib.import_module("hansard.cli.completion")  # registers the shells
        return shell_complete(app, {}, "hansard", "_HANSARD_COMPLETE", shell)
    settings = Settings()
    try:
        # Not `app.main`, which takes a closed pipe for a failure, and an interrupt for an empty line.
        with app.make_context("hansard", list(arguments), obj=settings) as ctx:
            found = app.invoke(ctx)
        # Flushed here: after the end of `main`, Python itself would report a closed pipe.
        sys.stdout.flush()
    except BrokenPipeError:
        return 0  # the reader has closed the pipe, as in `hansard replay x | head`
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - reported
        return _report(error, settings)
    else:
        return found if isinstance(found, int) else 0
    finally:
        _flush_quietly()


def _report(error: BaseException, settings: Settings) -> int:
    """Print an error on stderr, and return the exit code."""
    if settings.debug:
        import traceback

        traceback.print_exc()
    interrupted = isinstance(error, KeyboardInterrupt | click.Abort)
    if interrupted and sys.stderr.isatty():
        sys.stderr.write("\n")  # after the ^C that the terminal has printed
    text = " ".join(_message(error, debug=settings.debug).split())
    with suppress(OSError):  # stderr is closed, too
        sys.stderr.write(f"hansard: {visible(text)}\n")
        sys.stderr.flush()
    misused = isinstance(error, click.UsageError)
    return INTERRUPTED if interrupted else MISUSED if misused else FAILED


def _message(error: BaseException, *, debug: bool) -> str:
    from hansard import errors

    text = str(error) or type(error).__name__
    match error:
        case KeyboardInterrupt() | click.Abort():
            text = "interrupted; the store is intact, and completed changes are kept"
        case click.UsageError():
            command = error.ctx.command_path if error.ctx is not None else "hansard"
            text = error.format_message().rstrip(".")
            text = text.replace("a valid float range", "a number")
            text = text.replace("a valid integer range", "an integer")
            text = re.sub(_RANGE, r"must be \2 \3, got \1", f"{text[:1].lower()}{text[1:]}")
            text += f"; see `{command} --help`"
        case click.ClickException():
            text = error.format_message()
        case errors.StoreNotFound():
            # The library's hint names Python arguments; the path comes first.
            path = text.partition(": no ")[0]
            text = (
                f"{path}: no hansard store here; check the path, name another store with -s PATH or "
                "HANSARD_STORE, or create one with `hansard add` or `hansard demo`"
            )
        case errors.Damaged() if "hansard " not in text:
            text = text.removesuffix("; `verify` lists all damage of the session")
            text += "; run `hansard verify` for details, or `hansard repair`"
        case errors.HansardError() | ValueError():
            text = _for_command(text)
        case OSError(strerror=str(reason)):
            if isinstance(error, PermissionError):
                reason = "permission denied; ask its owner for access"
            # The library's errors name a file: one without is about stdout.
            text = f"{error.filename or 'the output'}: {reason}"
        case OSError():
            pass
        case _:
            hint = "" if debug else "; this is a bug in hansard, --debug shows where"
            text = f"{type(error).__name__}: {error}{hint}"
    return text


#: Calls and arguments of the library in its hints.
_CALL: Final = r"`?\b(?:store|session)\.(\w+)\([^)`]*\)`?"
_ARGUMENT: Final = (
    r"(?:, group=True if it is for your group,)?(?:,? or(?: use)?|; reopen without) read_only=True"
)
#: Other hints of the library, and those of the command.
_HINTS: Final = {
    "`next` of the previous page": "the one that `hansard ls` printed",
    "pass a string, or call store.session() for a generated id": "pass one, such as support/42",
    "Release the hold first": "Release it with `hansard hold --release`",
}
#: How click reports a number that is too small or too large.
_RANGE: Final = r"(\S+) is not in the range x([<>]=?)(\S+)"


def _for_command(text: str) -> str:
    """Return a message of the library with flags and commands instead of its names."""
    for hint, ours in _HINTS.items():
        text = text.replace(hint, ours)
    text = re.sub(_ARGUMENT, "", text)
    return re.sub(_CALL, lambda call: f"`hansard {_COMMAND_OF.get(call[1], call[1])}`", text)


_COMMAND_OF: Final = {"delete": "rm", "verify": "verify --reopen"}


def _open_missing_streams() -> None:
    """Open /dev/null for streams that `>&-` or `<&-` has closed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - until the end


def _flush_quietly() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        # Send the rest of the buffer nowhere, or Python would try again, and print its own message.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
