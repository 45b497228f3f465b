"""Parse the URL of a store in PostgreSQL, and show it without its password.

Imports no psycopg: every path that a caller opens is checked here first. A URL is libpq's, with three more
options: `schema` (the schema of the store's tables), `connections` (the maximum per process) and
`patience` (for how many seconds to retry a server that cannot be reached). libpq handles all others, such
as `sslmode` or several hosts.
"""

import re
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode

SCHEMES: Final = ("postgresql://", "postgres://")

_DEFAULT_SCHEMA: Final = "hansard"
#: Maximum pooled connections per process.
_DEFAULT_CONNECTIONS: Final = 10
#: Seconds: enough for a server to restart, or for a standby to take over.
_DEFAULT_PATIENCE: Final = 10.0

#: Options that say where the database is. They are shown.
_LOCATION: Final = ("host", "hostaddr", "port", "dbname", "service")
_OWN: Final = frozenset({"schema", "connections", "patience"})
_SCHEMA: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")
_PORT: Final = re.compile(r"[0-9]*")


class StoreUrl(NamedTuple):
    """A parsed URL. Do not show `libpq`: it may contain a password."""

    #: The URL for libpq, without hansard's own options.
    libpq: str
    schema: str
    connections: int
    patience: float
    #: For people: without user and password.
    where: str
    #: Secrets, both as written in the URL and unescaped.
    secrets: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<StoreUrl {self.where!r}>"

    def hide(self, text: str) -> str:
        """Return a text, such as an error of libpq, with its secrets replaced."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


def is_postgres_url(path: str) -> bool:
    """Return whether a path is the URL of a store in PostgreSQL; raise ValueError for any other scheme.

    Text before a colon is a scheme, unless a slash comes first. The error does not show what follows it.
    """
    if path.startswith(SCHEMES):
        return True
    scheme = _scheme(path)
    if scheme is None:
        return False
    hint = "; did you mean 'memory:'?" if path.strip(":").lower() == "memory" else ""
    raise ValueError(
        f"a store cannot have the scheme {scheme!r:.40}{hint}; pass a directory, 'memory:' or "
        "'postgresql://…'. For a directory with a colon in its name write './a:b'"
    )


def _scheme(path: str) -> str | None:
    """Return the scheme of a path; None for a directory and for `memory:`."""
    scheme, colon, _ = path.partition(":")
    return None if not colon or "/" in scheme or path == "memory:" else scheme


def parse_url(url: str, *, schema: str | None = None) -> StoreUrl:
    """Parse a URL. `schema`: the caller's own argument, which must agree with the URL."""
    userinfo, location, query = _split(url)
    options = _options(query)
    own = {name: value for name, value in options if name in _OWN}
    rest = urlencode([pair for pair in options if pair[0] not in own], quote_via=quote)
    if schema is not None and own.get("schema", schema) != schema:
        raise ValueError(f"schema is {own['schema']!r} in the URL and {schema!r} as an argument")
    name = own.get("schema", _DEFAULT_SCHEMA) if schema is None else schema
    if not _SCHEMA.fullmatch(name) or name.lower().startswith("pg_"):
        raise ValueError(
            "schema must be 1 to 63 letters, digits, '_' or '-', not start with a digit or 'pg_', "
            f"got {name!r:.80}"
        )
    connections = own.get("connections", str(_DEFAULT_CONNECTIONS))
    if not connections.isascii() or not connections.isdigit() or int(connections) < 1:
        raise ValueError(f"connections must be a number >= 1, got {connections!r:.20}")
    try:
        patience = float(own.get("patience", _DEFAULT_PATIENCE))
    except ValueError:
        patience = -1.0
    if not patience >= 0:
        raise ValueError(f"patience must be a number of seconds >= 0, got {own['patience']!r:.20}")
    base = url.partition("?")[0]
    return StoreUrl(
        f"{base}?{rest}" if rest else base,
        name,
        int(connections),
        patience,
        _where(location, options, name),
        _secrets(userinfo, options),
    )


def display_url(path: str) -> str:
    """Return a store's path for people: a URL without user, password and settings."""
    if not path.startswith(SCHEMES):
        scheme = _scheme(path)
        return path if scheme is None else f"{scheme:.40}:…"
    try:
        _, location, query = _split(path)
    except ValueError:
        return "postgresql://…"
    options = _options(query)
    return _where(location, options, dict(options).get("schema", _DEFAULT_SCHEMA))


def _split(url: str) -> tuple[str, str, str]:
    """Return userinfo, host with path, and query; raise ValueError if the URL is ambiguous.

    libpq guesses instead: it takes a part of the password for the host, the port or an option, and shows
    that part in its errors.
    """
    rest = url.partition("://")[2]
    start = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
    userinfo, _, hosts = rest[:start].rpartition("@")
    ports = (host.rpartition("]")[2].partition(":")[2] for host in hosts.split(","))
    if "@" in userinfo or "@" in rest[start:] or not all(_PORT.fullmatch(port) for port in ports):
        raise ValueError(
            "postgresql://…: an '@', '/', '?' or ':' in user, password or options is not escaped, or a port "
            "is not a number; write %40, %2F, %3F and %3A. The URL is not shown: it may contain a password"
        )
    path, _, query = rest[start:].partition("?")
    return userinfo, hosts + path, query


def _options(query: str) -> list[tuple[str, str]]:
    # As in libpq, a plus sign is not a space.
    return parse_qsl(query.replace("+", "%2B"), keep_blank_values=True)


def _where(location: str, options: list[tuple[str, str]], schema: str) -> str:
    # A `dbname` may be a complete connection string, with a password: skip values with "=".
    shown = [(name, value) for name, value in options if name in _LOCATION and "=" not in value]
    if schema != _DEFAULT_SCHEMA:
        shown.append(("schema", schema))
    return f"postgresql://{location}" + (f"?{urlencode(shown, safe='/:,')}" if shown else "")


def _secrets(userinfo: str, options: list[tuple[str, str]]) -> tuple[str, ...]:
    password = userinfo.partition(":")[2]
    found = {password, unquote(password)}
    found.update(value for name, value in options if "password" in name)
    found.update(quote(value, safe="") for value in list(found))
    # Errors are joined into one line.
    found.update(" ".join(value.split()) for value in list(found))
    # Longest first: one may be a part of another.
    return tuple(sorted(filter(None, found), key=len, reverse=True))
