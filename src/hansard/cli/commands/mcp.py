"""`hansard mcp`: serve sessions to agents as tools."""

import os
import signal
import sys

import click

import hansard
from hansard.cli import arguments
from hansard.cli.command import INTERRUPTED, PATH, Call, define, extra


@define(
    "mcp",
    "mcp  # the sessions of the current directory's workspace",
    "-s data mcp --all",
    "mcp --prefix support/ --json  # what to add to a client's configuration",
)
@arguments.prefix_option
@click.option(
    "--workspace", metavar="DIR", type=PATH, help="Only sessions of this directory [default: .]"
)
@click.option("--all", "everything", is_flag=True, help="Sessions of all workspaces")
@click.option("--unredacted", is_flag=True, help="Show what looks like a credential")
def command(
    call: Call, prefix: str, workspace: str | None, *, everything: bool, unredacted: bool
) -> None:
    """Serve sessions to agents over MCP.

    The server uses stdin and stdout. Its tools search, list, read and compare sessions. They change no log.
    With --json: the configuration that starts this server, for Claude Code and other clients.
    """
    if everything and workspace is not None:
        raise click.UsageError("--all excludes --workspace; pass one of them")
    place = None if everything else os.path.abspath(workspace or ".")
    with call.finding() as store:
        with extra("mcp", "hansard mcp"):
            from hansard.viewer import mcp
        if call.screen.json:
            given = {
                f"--prefix={prefix}": prefix,
                "--unredacted": unredacted,
                "--all": everything,
                f"--workspace={place}": workspace is not None,
            }
            options = [option for option, wanted in given.items() if wanted]
            call.screen.document(mcp.configuration(call.store, options))
            return
        scoped: hansard.Store = store.scoped(prefix) if prefix else store
        if sys.stdin.isatty():
            # The server would wait for the thread that reads the terminal. Nothing is left to be written.
            signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
            call.screen.note("waiting for an MCP client on stdin. Stop with Ctrl-C.")
        mcp.server(mcp.Scope(scoped, place, redacted=not unredacted)).run("stdio")
