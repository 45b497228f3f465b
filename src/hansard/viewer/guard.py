"""Decide which requests `hansard serve` answers, and which headers all responses have.

Any page in the browser can send requests to any address of this machine, and an attacker can point a domain
name at it. So each request needs an expected Host, no foreign Origin, and the cookie that only the
printed address sets. Everything else is refused before a handler sees it.
"""

import hmac
import secrets
from collections.abc import Callable, Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: Nothing is loaded, run or sent to anywhere but the server itself; nothing is inline.
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}

#: What browsers send for the user's own input, and for requests of our own pages.
_OWN: Final = {"none", "same-origin"}


class Guard:
    """An ASGI application that passes only expected requests to another.

    Args:
        app: the application.
        origins: the exact origins at which browsers reach the server, such as `http://127.0.0.1:8400`.
        base: the path at which a reverse proxy serves the pages, such as `/hansard`; or empty.
        token: a fixed token; without one, a link works once.
        linked: called with a new token when the one before was used.
    """

    def __init__(
        self,
        app: ASGIApp,
        origins: Iterable[str],
        *,
        base: str = "",
        token: str | None = None,
        linked: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._app = app
        self._origins = frozenset(origins)
        self._hosts = frozenset(urlsplit(origin).netloc for origin in self._origins)
        self._base = base
        self._fixed = token is not None
        self.token = token or secrets.token_urlsafe(24)
        self._linked = linked
        self._secret = secrets.token_urlsafe(32)
        # Cookies do not differ by port: two servers must not take each other's.
        self._cookie = f"hansard_{secrets.token_hex(4)}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refused = self._refusal(scope)
        if refused is None:
            path = scope["path"]
            if self._base and path.startswith(f"{self._base}/"):
                scope = {**scope, "path": path.removeprefix(self._base), "raw_path": None}
            await self._app(scope, receive, guarded)
        else:
            await refused(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the answer to a request that the application may not see."""
        headers = Headers(scope=scope)
        if scope["method"] not in {"GET", "HEAD"}:
            return _refuse("This server is read-only: use GET.", 405, {"Allow": "GET, HEAD"})
        if len(headers.getlist("host")) != 1 or headers["host"].lower() not in self._hosts:
            return _refuse("Unexpected Host header. Use the address that hansard printed.", 421)
        # A browser says that another site made the request.
        origins, sites = headers.getlist("origin"), headers.getlist("sec-fetch-site")
        if not self._origins.issuperset(origins) or not _OWN.issuperset(sites):
            return _refuse(
                "Requests of other sites are refused. Paste the address into the address bar.", 403
            )
        query = scope["query_string"].decode("latin-1")
        given = parse_qs(query, keep_blank_values=True).get("token")
        if given is not None:
            return self._login(scope, given, query)
        if self._known(headers):
            return None
        return _refuse(
            "Open the address that hansard printed: it has a token. A token works once; hansard printed "
            "a new address when it was used.",
            401,
        )

    def _known(self, headers: Headers) -> bool:
        """Return whether a request has our cookie."""
        for line in headers.getlist("cookie"):
            try:
                found = SimpleCookie(line).get(self._cookie)
            except CookieError:
                continue
            if found is not None and _equal(found.value, self._secret):
                return True
        return False

    def _login(self, scope: Scope, given: list[str], query: str) -> Response:
        """Exchange a token for the cookie, at an address without the token."""
        if len(given) != 1 or not _equal(given[0], self.token):
            return _refuse("Wrong token, or one that was used. Open the last printed address.", 401)
        if scope["method"] == "GET" and not self._fixed:
            self.token = secrets.token_urlsafe(24)
            self._linked(self.token)
        path = scope["path"].removeprefix(self._base) if self._base else scope["path"]
        rest = urlencode([(name, value) for name, value in parse_qsl(query) if name != "token"])
        # One slash only: `//host/` would lead to another server.
        place = f"{self._base}/{path.lstrip('/')}"
        answer = RedirectResponse(place + (f"?{rest}" if rest else ""), 303)
        secure = all(origin.startswith("https:") for origin in self._origins)
        answer.set_cookie(
            self._cookie,
            self._secret,
            path=f"{self._base}/",
            httponly=True,
            samesite="strict",
            secure=secure,
        )
        return answer


def _equal(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), wanted.encode())


def _refuse(reason: str, status: int, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse(f"{reason}\n", status, headers)
