"""`hansard serve` and `hansard mcp`: show sessions on a local web page, and serve them to agents as tools."""

import os
import signal
import sys

import click

import hansard
from hansard.cli import arguments
from hansard.cli.command import INTERRUPTED, PATH, Call, define, extra

#: A fixed token is as long as a password, at least.
_SHORTEST = 16


@define(
    "serve",
    "serve  # then open the printed address",
    "-s data serve --prefix support/ --open",
    "serve --public https://example.org/hansard  # with a reverse proxy",
)
@arguments.prefix_option
@click.option("--host", default="127.0.0.1", show_default=True, metavar="IP", help="Listen here")
@arguments.count_option(
    "--port", default=8400, most=65_535, help="Listen on this port; 0: a free one"
)
@click.option("--token", help="Fixed token instead of links that work once")
@click.option("--public", default="", metavar="URL", help="Address that a reverse proxy serves")
@click.option("--unredacted", is_flag=True, help="Show what looks like a credential")
@click.option("--open", "opened", is_flag=True, help="Open the page in a browser")
def serve(
    call: Call,
    prefix: str,
    host: str,
    port: int,
    token: str | None,
    public: str,
    *,
    unredacted: bool,
    opened: bool,
) -> None:
    """Show sessions on a local web page.

    Prints an address with a token. The token works once; each use prints a new address. The page can read the
    store, and cannot change it. Stop with Ctrl-C.

    With --json: one document with the address.
    """
    if token is not None and len(token) < _SHORTEST:
        raise click.UsageError(f"--token needs at least {_SHORTEST} characters")
    with call.finding() as store:
        with extra("web", "hansard serve"):
            from hansard.viewer import pages, web
        if token is None and not web.is_loopback(host):
            raise click.UsageError(f"--host {host}: other machines reach it; pass --token too")
        scoped: hansard.Store = store.scoped(prefix) if prefix else store
        # A URL may contain a password.
        where = store.health().where if "://" in call.store else call.store
        site = pages.Site(scoped, where, redacted=not unredacted)

        def linked(url: str) -> None:
            call.screen.note(f"A browser used the link. For another one: {url}")

        try:
            server = web.Server(site, host, port, token=token, public=public, linked=linked)
        except (OSError, OverflowError) as error:
            raise click.ClickException(
                f"cannot listen on {host} port {port}: {error}; pass another --port, or 0"
            ) from error
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        call.screen.document({"url": server.url, "port": server.port})
        call.screen.line(("hansard serve", "bold"), f": {where}, read-only. Stop with Ctrl-C.")
        call.screen.line(server.url)
        call.screen.flush()
        if opened:
            click.launch(server.url)
        server.run()


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
def mcp(
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
            from hansard.viewer import mcp as server
        if call.screen.json:
            given = {
                f"--prefix={prefix}": prefix,
                "--unredacted": unredacted,
                "--all": everything,
                f"--workspace={place}": workspace is not None,
            }
            options = [option for option, wanted in given.items() if wanted]
            call.screen.document(server.configuration(call.store, options))
            return
        scoped: hansard.Store = store.scoped(prefix) if prefix else store
        if sys.stdin.isatty():
            # The server would wait for the thread that reads the terminal. Nothing is left to be written.
            signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
            call.screen.note("waiting for an MCP client on stdin. Stop with Ctrl-C.")
        server.server(server.Scope(scoped, place, redacted=not unredacted)).run("stdio")
