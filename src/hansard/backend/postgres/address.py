"""Read the URL of a store in PostgreSQL, and show it without what is nobody's business.

Above: `backend`, `store`, and whoever shows where a store is.  Below: `errors`.
Imports no psycopg: it is asked about every path. A URL is libpq's, with three options more: `schema`, the
schema that the store's tables are in; `connections`, how many one process may have; and `patience`, for how
many seconds a server that cannot be reached is tried again. Everything else, such as `sslmode` or several
hosts, is libpq's own business.
"""

import re
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode

SCHEMES: Final = ("postgresql://", "postgres://")

#: The schema of a store that was not given one.
SCHEMA: Final = "hansard"

#: So many connections a process may have for reading and appending.
CONNECTIONS: Final = 10

#: So long, in seconds, a server may be away: time enough to be started again, or to be replaced.
PATIENCE: Final = 10.0

#: Options that say where the database is; they are shown.
_PLACES: Final = ("host", "hostaddr", "port", "dbname", "service")
_OWN: Final = frozenset({"schema", "connections", "patience"})
_SCHEMA: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")
_PORT: Final = re.compile(r"[0-9]*")
_HIDDEN: Final = "***"


class Address(NamedTuple):
    """Where a store is. Not to be shown: `url` may hold a password."""

    #: For libpq, without our own options.
    url: str
    schema: str
    connections: int
    patience: float
    #: For people: no user, no password.
    where: str
    #: What must not be shown, as it stands in the URL and as it is.
    secrets: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<Address {self.where!r}>"

    def hide(self, text: str) -> str:
        """Return a text, such as an error of libpq, without what is secret in it."""
        for secret in self.secrets:
            text = text.replace(secret, _HIDDEN)
        return text


def is_address(path: str) -> bool:
    """Return whether a path is the URL of a store in PostgreSQL; raise ValueError for any other scheme.

    What is before a colon is a scheme, unless a slash comes first. The error does not show what comes after.
    """
    if path.startswith(SCHEMES):
        return True
    scheme = _scheme(path)
    if scheme is None:
        return False
    hint = "; did you mean 'memory:'?" if path.strip(":").lower() == "memory" else ""
    raise ValueError(
        f"a store cannot have the scheme {scheme!r:.40}{hint}; give a directory, 'memory:' or "
        "'postgresql://…'. A directory with a colon in its name needs a slash before it, as in './a:b'"
    )


def _scheme(path: str) -> str | None:
    """Return what makes a path something else than a directory or `memory:`; None for those."""
    scheme, colon, _ = path.partition(":")
    return None if not colon or "/" in scheme or path == "memory:" else scheme


def read(url: str, *, schema: str | None = None) -> Address:
    """Take a URL apart. `schema`: what the caller gave besides, which must not contradict it."""
    userinfo, base, query = _parts(url)
    options = _options(query)
    own = {name: value for name, value in options if name in _OWN}
    rest = urlencode([pair for pair in options if pair[0] not in own], quote_via=quote)
    if schema is not None and own.get("schema", schema) != schema:
        raise ValueError(
            f"the URL names schema {own['schema']!r} and the caller {schema!r}; give one of them"
        )
    name = own.get("schema", SCHEMA) if schema is None else schema
    if not _SCHEMA.fullmatch(name) or name.lower().startswith("pg_"):
        raise ValueError(
            f"schema {name!r:.80} can hold no store; give 1 to 63 letters, digits, '_' or '-', of which the "
            "first is no digit, and which do not begin with 'pg_'"
        )
    connections = own.get("connections", str(CONNECTIONS))
    if not connections.isascii() or not connections.isdigit() or int(connections) < 1:
        raise ValueError(f"connections={connections!r:.20}: must be a number, 1 or more")
    try:
        patience = float(own.get("patience", PATIENCE))
    except ValueError:
        patience = -1.0
    if not patience >= 0:
        raise ValueError(f"patience={own['patience']!r:.20}: must be a number of seconds")
    return Address(
        f"{url.partition('?')[0]}?{rest}" if rest else url.partition("?")[0],
        name,
        int(connections),
        patience,
        _where(base, options, name),
        _secrets(userinfo, options),
    )


def shown(path: str) -> str:
    """Return a store's path as it may be shown: a URL without user, password and settings."""
    if not path.startswith(SCHEMES):
        scheme = _scheme(path)
        return path if scheme is None else f"{scheme:.40}:…"
    try:
        _, base, query = _parts(path)
    except ValueError:
        return "postgresql://…"
    options = _options(query)
    return _where(base, options, dict(options).get("schema", SCHEMA))


def _parts(url: str) -> tuple[str, str, str]:
    """Return user and password, host with path, and options of a URL, or raise if they cannot be told apart.

    libpq guesses, and puts a part of the password into the host, the port or an option, which errors name.
    """
    rest = url.partition("://")[2]
    start = min((at for at in (rest.find("/"), rest.find("?")) if at >= 0), default=len(rest))
    userinfo, _, hosts = rest[:start].rpartition("@")
    ports = (host.rpartition("]")[2].partition(":")[2] for host in hosts.split(","))
    if "@" in userinfo or "@" in rest[start:] or not all(_PORT.fullmatch(port) for port in ports):
        raise ValueError(
            "postgresql://…: an '@', '/', '?' or ':' in user, password or options is not escaped, or a port "
            "is not a number; write %40, %2F, %3F and %3A. The URL is not shown: it may hold a password"
        )
    path, _, query = rest[start:].partition("?")
    return userinfo, hosts + path, query


def _options(query: str) -> list[tuple[str, str]]:
    # As libpq reads it: a plus is a plus.
    return parse_qsl(query.replace("+", "%2B"), keep_blank_values=True)


def _where(place: str, options: list[tuple[str, str]], schema: str) -> str:
    # A name of a database may be a whole connection string.
    said = [(name, value) for name, value in options if name in _PLACES and "=" not in value]
    if schema != SCHEMA:
        said.append(("schema", schema))
    return f"postgresql://{place}" + (f"?{urlencode(said, safe='/:,')}" if said else "")


def _secrets(userinfo: str, options: list[tuple[str, str]]) -> tuple[str, ...]:
    password = userinfo.partition(":")[2]
    found = {password, unquote(password)}
    found.update(value for name, value in options if "password" in name)
    found.update(quote(value, safe="") for value in list(found))
    # Errors are shown on one line.
    found.update(" ".join(value.split()) for value in list(found))
    # The longest first: one may be a part of another.
    return tuple(sorted(filter(None, found), key=len, reverse=True))
