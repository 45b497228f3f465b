"""`hansard serve`: show sessions on a local web page."""

import click

import hansard
from hansard.cli import arguments
from hansard.cli.command import Call, define, extra

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
def command(
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
        if opened:
            click.launch(server.url)
        server.run()
