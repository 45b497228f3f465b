"""Say what went wrong in one line, with what to do next, and with an exit code that means something.

0: done; 1: it found something, or failed; 2: the words of the call are off; 130: interrupted.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from hansard.cli.command import Interrupted, ReaderGone, Settings, one_line
from hansard.cli.visible import visible

FAILED: Final = 1
MISUSED: Final = 2
INTERRUPTED: Final = 130


class Outcome:
    """What became of a call."""

    __slots__ = ("code",)

    def __init__(self) -> None:
        self.code = 0


def see_to_streams() -> None:
    """See to it that there are streams, be it to nowhere: `hansard … >&-` closes one, and `<&-` another."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - until the end


@contextmanager
def told(settings: Settings) -> Iterator[Outcome]:
    """Turn whatever the block raises into one line and an exit code; with --debug, show the trace first."""
    outcome = Outcome()
    try:
        yield outcome
        # Here, and not when Python ends: a pipe that is closed by then would be an error nobody catches.
        sys.stdout.flush()
    except (BrokenPipeError, ReaderGone):
        _let_go_of_stdout()
        outcome.code = 0
    except (KeyboardInterrupt, Interrupted, click.Abort) as error:
        _trace(settings)
        if isinstance(error.__cause__, EOFError):
            # Click takes it for the end of the input; a question that gets no answer ends otherwise.
            _say(_unexpected(error.__cause__))
            outcome.code = FAILED
            return
        if isinstance(error, Interrupted) and sys.stderr.isatty():
            sys.stderr.write("\n")  # the terminal has shown ^C, and the cursor stands behind it
        _say("interrupted; what was done is done, and the store is whole")
        outcome.code = INTERRUPTED
    except click.exceptions.Exit as exit_:
        outcome.code = exit_.exit_code
    except click.UsageError as error:
        _trace(settings)
        _say(_usage(error))
        outcome.code = MISUSED
    except click.ClickException as error:
        _trace(settings)
        _say(error.format_message())
        outcome.code = FAILED
    except Exception as error:  # noqa: BLE001 - what a user sees is one line, whatever it is
        if not _is_known(error) and not settings.debug:
            _say(_unexpected(error))
            outcome.code = FAILED
            return
        _trace(settings)
        _say(_explain(error))
        outcome.code = FAILED
    finally:
        _flush_quietly()


def _unexpected(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}; this should not happen: --debug shows where"


def _is_known(error: Exception) -> bool:
    """Say whether it is an error that a user's call can lead to, and not a mistake of ours."""
    from hansard.errors import HansardError

    return isinstance(error, HansardError | OSError | ValueError)


def _explain(error: Exception) -> str:
    from hansard import errors

    text = str(error) or type(error).__name__
    match error:
        case errors.StoreNotFound():
            # The library speaks to programmers; the place is what it says first.
            place = text.partition(": no hansard store here")[0]
            return (
                f"{place}: no hansard store here; name one with -s PATH or HANSARD_STORE, "
                "or make one: `hansard add`, `hansard demo`"
            )
        case errors.Damaged() if "hansard " not in text:
            return f"{text}; `hansard verify` says more, `hansard repair` saves what is whole"
        case errors.HansardError():
            return text
        case PermissionError():
            return f"{_place(error)}: permission denied; ask its owner for access, or run it as that user"
        case OSError(strerror=str(reason)):
            return f"{_place(error)}: {reason}"
        case _:
            return text


def _place(error: OSError) -> str:
    # The library's own errors name the file, always: what has none is about where the output goes.
    return str(error.filename) if error.filename is not None else "the output"


def _usage(error: click.UsageError) -> str:
    path = error.ctx.command_path if error.ctx is not None else "hansard"
    message = error.format_message().rstrip(".")
    return f"{message[:1].lower()}{message[1:]}; see `{path} --help`"


def _say(message: str) -> None:
    try:
        sys.stderr.write(f"hansard: {visible(one_line(message))}\n")
        sys.stderr.flush()
    except OSError:
        pass  # nobody listens there either


def _trace(settings: Settings) -> None:
    if settings.debug:
        import traceback

        traceback.print_exc()


def _let_go_of_stdout() -> None:
    """Let what is still in the buffer go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _flush_quietly() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _let_go_of_stdout()
    except OSError:
        _let_go_of_stdout()  # or Python would try once more, and complain in its own words
