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
    """Say whether a path is the URL of a store in PostgreSQL."""
    return path.startswith(SCHEMES)


def read(url: str, *, schema: str | None = None) -> Address:
    """Take a URL apart. `schema`: what the caller gave besides, which must not contradict it."""
    base, _, query = url.partition("?")
    options = parse_qsl(query, keep_blank_values=True)
    own = {name: value for name, value in options if name in _OWN}
    # As libpq reads it: a plus is a plus.
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
        f"{base}?{rest}" if rest else base,
        name,
        int(connections),
        patience,
        _where(base, options, name),
        _secrets(base, options),
    )


def shown(path: str) -> str:
    """Return a store's path as it may be shown: a URL without user, password and settings."""
    if not is_address(path):
        return path
    base, _, query = path.partition("?")
    options = parse_qsl(query)
    return _where(base, options, dict(options).get("schema", SCHEMA))


def _where(base: str, options: list[tuple[str, str]], schema: str) -> str:
    place = base.partition("://")[2].rpartition("@")[2]
    said = [pair for pair in options if pair[0] in _PLACES]
    if schema != SCHEMA:
        said.append(("schema", schema))
    return f"postgresql://{place}" + (f"?{urlencode(said, safe='/:,')}" if said else "")


def _secrets(base: str, options: list[tuple[str, str]]) -> tuple[str, ...]:
    user = base.partition("://")[2].rpartition("@")[0]
    password = user.partition(":")[2]
    found = {password, unquote(password)}
    found.update(value for name, value in options if "password" in name)
    found.update(quote(value, safe="") for value in list(found))
    # The longest first: one may be a part of another.
    return tuple(sorted(filter(None, found), key=len, reverse=True))
