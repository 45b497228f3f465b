"""Serve a store as read-only pages: the routes, live updates, and the server.

Each request reads from the store and returns HTML that the server made; the scripts of the page only add to
it. `guard` decides which requests are answered at all.
"""

import socket
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import jinja2
import msgspec
import uvicorn
from anyio.to_thread import run_sync
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

import hansard
from hansard.cli import screen
from hansard.message.parse import size
from hansard.transfer.transcript import visible
from hansard.viewer import pages
from hansard.viewer.guard import Guard
from hansard.viewer.pages import Site

#: Seconds between two checks of a watched session, of a watched list, and between two keep-alive comments.
_POLL: Final = 0.2
_LIST_POLL: Final = 1.0
_ALIVE: Final = 15.0
#: Maximum sessions that are watched at a time.
_WATCHED: Final = 50

#: Paths and templates of the pages.
_Read = Callable[[Site, Mapping[str, str]], dict[str, Any]]
_PAGES: Final[dict[str, tuple[str, _Read]]] = {
    "/": ("sessions", pages.sessions),
    "/session": ("session", pages.session),
    "/time": ("time", pages.time),
    "/compare": ("compare", pages.compare),
    "/search": ("search", pages.search),
    "/stats": ("stats", pages.stats),
    "/health": ("health", pages.health),
}

_MISSING: Final = (hansard.SessionNotFound, hansard.SessionDeleted, hansard.InvalidSessionId)


def templates(site: Site, url: Callable[..., str] | None = None) -> jinja2.Environment:
    """Return the templates. All values are escaped, and control characters in them are shown as escapes.

    `url` returns the address of a page, if it is not that of the site.
    """
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("hansard.viewer"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: (
            visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
        ),
    )
    made.globals.update(site=site, url=url or site.url, many=screen.many)
    made.filters.update(
        size=size,
        short=screen.rounded,
        clock=pages.clock,
        code=pages.code,
        money=pages.money,
        span=pages.span,
    )
    return made


class _App:
    """The handlers, without the guard."""

    def __init__(self, site: Site, closing: Callable[[], bool]) -> None:
        self._site = site
        self._closing = closing
        self._templates = templates(site)
        self._watched = 0

    def application(self) -> Starlette:
        """Return the routes, and the handlers that show errors."""
        failures = (hansard.HansardError, ValueError, RecursionError)
        handlers: dict[Any, Any] = {404: self._missing, **dict.fromkeys(failures, self._failed)}
        routes: list[BaseRoute] = [
            *(Route(path, self._page(name, read)) for path, (name, read) in _PAGES.items()),
            Route("/event", self._event),
            Route("/picture", self._picture),
            Route("/live", self._live),
            Mount("/static", StaticFiles(packages=[("hansard.viewer", "static")])),
        ]
        return Starlette(routes=routes, exception_handlers=handlers)

    def _html(self, template: str, status: int = 200, /, **values: object) -> Response:
        made = self._templates.get_template(f"{template}.html")
        text = made.render(page=template, **values)
        # A lone surrogate in a message has no UTF-8.
        return HTMLResponse(text.encode(errors="replace"), status)

    def _page(self, name: str, read: _Read) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            part = name == "session" and "part" in request.query_params
            values = read(self._site, request.query_params)
            return self._html("entries" if part else name, **values)

        return answer

    def _event(self, request: Request) -> Response:
        found = pages.event(self._site, request.query_params)
        return Response(found, media_type="application/json")

    def _picture(self, request: Request) -> Response:
        media, data = pages.picture(self._site, request.query_params)
        return Response(data, media_type=media)

    async def _live(self, request: Request) -> Response:
        site, query = self._site, request.query_params

        session = await run_sync(site.session, query) if "id" in query else None

        def look() -> object:
            return {"seq": session.seq} if session else {"list": hash(str(pages.newest(site)))}

        if self._watched >= _WATCHED:
            return self._html("error", 503, reason="too many sessions are watched; close a tab")
        news = self._news(look, _POLL if session else _LIST_POLL)
        return StreamingResponse(news, media_type="text/event-stream")

    async def _news(self, look: Callable[[], object], pause: float) -> AsyncIterator[bytes]:
        """Yield the result of `look` whenever it changes, as server-sent events."""
        self._watched += 1
        try:
            known: object = None
            quiet = 0.0
            while not self._closing():
                try:
                    found = await run_sync(look)
                except hansard.HansardError as error:
                    found = {"problem": self._site.clean(str(error))}
                if found != known:
                    yield b"data: " + msgspec.json.encode(found) + b"\n\n"
                    known, quiet = found, 0.0
                elif quiet >= _ALIVE:
                    yield b": alive\n\n"
                    quiet = 0.0
                await anyio.sleep(pause)
                quiet += pause
        finally:
            self._watched -= 1

    def _failed(self, _: Request, error: Exception) -> Response:
        """Show an error of the library or of the arguments."""
        status = 404 if isinstance(error, _MISSING) else 400
        if isinstance(error, hansard.Damaged | OSError):
            status = 500
        return self._html("error", status, reason=self._site.clean(str(error)))

    def _missing(self, _: Request, __: Exception) -> Response:
        return self._html("error", 404, reason="there is no such page")


class Server:
    """A server on a socket that is open already.

    Args:
        site: what it shows.
        host, port: where it listens; port 0 takes a free one.
        token: a fixed token. An address that other machines reach needs one.
        public: the address at which a reverse proxy serves the pages, such as `https://example.org/hansard`.
        linked: called with the address of a new link when the one before was used.
    """

    def __init__(
        self,
        site: Site,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        token: str | None = None,
        public: str = "",
        linked: Callable[[str], None] = lambda _: None,
    ) -> None:
        given = urlsplit(public)
        if public and (given.scheme not in {"http", "https"} or not given.netloc or given.query):
            raise ValueError(f"--public must be an http(s) address, got {public!r}")
        base = given.path.rstrip("/")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family)
        self.port: int = self._socket.getsockname()[1]
        own = [f"http://{name}:{self.port}" for name in names_of(host)]
        self._root = f"{given.scheme}://{given.netloc}{base}" if public else own[0]
        origins = [f"{given.scheme}://{given.netloc.lower()}"] if public else own
        self._guard = Guard(
            _App(site._replace(base=base), lambda: self._server.should_exit).application(),
            origins,
            base=base,
            token=token,
            linked=lambda token: linked(f"{self._root}/?token={token}"),
        )
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._guard,
                http="h11",
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=200,
                timeout_graceful_shutdown=1,
            )
        )

    @property
    def url(self) -> str:
        """The address to open, with its token."""
        return f"{self._root}/?token={self._guard.token}"

    def run(self) -> None:
        """Serve until an interrupt."""
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """Make `run` return."""
        self._server.should_exit = True


def names_of(host: str) -> list[str]:
    """Return the names at which browsers may reach a host; the address to print first."""
    own = f"[{host}]" if ":" in host else host
    others = ("127.0.0.1", "localhost", "[::1]") if is_loopback(host) else ()
    return list(dict.fromkeys([own, *others]))


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host."""
    return host in {"127.0.0.1", "::1", "localhost"}
