"""Make the tables of a store, and bring older ones up to date.

Above: `backend`.  Below: `connections`.
A store is a schema: several in one database are several schemas, and dropping a schema drops a store. Each
entry of `MIGRATIONS` takes the tables from one version to the next, in one transaction, under an advisory
lock: of several who come at once, one does it, and the others find it done. docs/decisions/0018-postgres.md
says what each column is for.
"""

import hashlib
from typing import TYPE_CHECKING, Final

from hansard.backend.postgres import faults
from hansard.backend.postgres.address import Address
from hansard.backend.postgres.connections import Connections
from hansard.backend.postgres.index_tables import INDEX
from hansard.backend.postgres.pooled import Connection
from hansard.errors import BackendUnavailable, HansardError, StoreNotFound, UnknownFormat

if TYPE_CHECKING:
    import psycopg

#: Columns that are read as Python texts are `varchar`, those whose bytes are handed on are `text`: the two
#: are one to PostgreSQL, and two to whoever reads them in binary.
_FIRST: Final = """
CREATE TABLE {schema}.sessions (
    session uuid PRIMARY KEY,
    life uuid NOT NULL DEFAULT gen_random_uuid(),
    before bigint NOT NULL,
    last_seq bigint NOT NULL,
    bytes bigint NOT NULL,
    deleted_at timestamptz,
    rewritten integer NOT NULL DEFAULT 0,
    id varchar COLLATE "C" NOT NULL,
    created varchar COLLATE "C" NOT NULL,
    updated varchar COLLATE "C" NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE {schema}.events (
    session uuid NOT NULL,
    seq bigint NOT NULL,
    append_id uuid,
    append_count integer,
    control boolean NOT NULL,
    stamp varchar COLLATE "C" NOT NULL,
    kind varchar COLLATE "C" NOT NULL,
    key varchar COLLATE "C",
    data text COLLATE "C" NOT NULL,
    PRIMARY KEY (session, seq)
);
CREATE UNIQUE INDEX events_append ON {schema}.events (session, append_id) WHERE append_id IS NOT NULL;
CREATE INDEX events_control ON {schema}.events (session, seq) WHERE control;

CREATE TABLE {schema}.checkpoints (
    session uuid PRIMARY KEY,
    life uuid NOT NULL,
    seq bigint NOT NULL,
    stamp varchar COLLATE "C" NOT NULL,
    state bytea NOT NULL
);

CREATE TABLE {schema}.cursors (
    cursor uuid PRIMARY KEY,
    name varchar COLLATE "C" NOT NULL
);

CREATE TABLE {schema}.positions (
    cursor uuid NOT NULL,
    session uuid NOT NULL,
    seq bigint NOT NULL,
    id varchar COLLATE "C" NOT NULL,
    PRIMARY KEY (cursor, session)
);
"""

#: The first takes an empty schema to version 1, and so on.
MIGRATIONS: Final[tuple[str, ...]] = (_FIRST, INDEX)

#: The version that this hansard reads and writes.
VERSION: Final = len(MIGRATIONS)

#: How long a migration waits for those who are using the tables, in seconds.
_PATIENCE: Final = 60.0

_STATE: Final = """
SELECT to_regclass(%(table)s) IS NOT NULL, current_setting('server_encoding')"""


def quoted(name: str) -> str:
    """Return a schema's name as it stands in a statement; `address` has seen that nothing odd is in it."""
    return f'"{name}"'


def lock_number(*words: str) -> int:
    """Return the number of an advisory lock: the same for the same words, everywhere."""
    digest = hashlib.sha256("\0".join(("hansard", *words)).encode()).digest()
    return int.from_bytes(digest[:8], signed=True)


def prepare(connections: Connections, *, create: bool) -> None:
    """See that the store is there, in the version known here; make it if it is not.

    A server that is away for a moment is waited for, as by every other call.
    """
    connections.trying(lambda: _prepare(connections, create=create))


def _prepare(connections: Connections, *, create: bool) -> None:
    address = connections.address
    with connections.first() as connection:
        version = version_of(connection, address)
        if version is None:
            if not create:
                raise StoreNotFound(
                    f"{address.where}: no store there; give create=True, or the right schema"
                )
            migrate(connection, address)
        elif version < VERSION:
            raise UnknownFormat(
                f"{address.where}: a store of version {version}, older than version {VERSION} of this "
                "hansard; run `hansard doctor --migrate` once, when all programs that write to it are of "
                "this version"
            )
        elif version > VERSION:
            raise _newer(address, version)


def bring_up_to_date(address: Address) -> list[int]:
    """Migrate a store that is there; return the versions that were gone through."""
    connections = Connections(address, read_only=False, lock_timeout=_PATIENCE)
    try:
        return connections.trying(lambda: _bring_up_to_date(connections))
    finally:
        connections.close()


def _bring_up_to_date(connections: Connections) -> list[int]:
    address = connections.address
    with connections.first() as connection:
        version = version_of(connection, address)
        if version is None:
            raise StoreNotFound(f"{address.where}: no store there; give the right schema")
        if version > VERSION:
            raise _newer(address, version)
        return migrate(connection, address)


def _newer(address: Address, version: int) -> UnknownFormat:
    return UnknownFormat(
        f"{address.where}: a store of version {version}, and this hansard knows version {VERSION}; "
        "use a newer hansard"
    )


def version_of(connection: Connection, address: Address) -> int | None:
    """Return the version of a store's tables; None if there are none."""
    import psycopg

    schema = quoted(address.schema)
    try:
        there, encoding = connection.execute(
            _STATE.encode(), {"table": f"{schema}.migrations"}
        ).fetchone() or (False, "UTF8")
        if encoding != "UTF8":
            raise BackendUnavailable(
                f"{address.where}: the database is in {encoding}, which cannot hold every text; make one "
                "with `CREATE DATABASE … ENCODING 'UTF8'`"
            )
        if not there:
            return None
        found = connection.execute(
            f"SELECT coalesce(max(version), 0) FROM {schema}.migrations".encode()  # noqa: S608
        ).fetchone()
    except psycopg.Error as error:
        raise _meant(connection, address, error) from None
    return int(found[0]) if found is not None else None


def _meant(connection: Connection, address: Address, error: "psycopg.Error") -> Exception:
    """Return what to raise for an error: `Lost` if all of it may be done again."""
    if faults.is_lost(error, broken=connection.broken or connection.closed):
        return faults.lost(address, error)
    return faults.translate(address, error)


def migrate(connection: Connection, address: Address) -> list[int]:
    """Make the tables, or bring them up to date; return the versions that were gone through."""
    import psycopg

    try:
        return _migrate(connection, address)
    except psycopg.errors.InsufficientPrivilege as error:
        raise _may_not(address, error) from None
    except psycopg.Error as error:
        raise _meant(connection, address, error) from None


def _migrate(connection: Connection, address: Address) -> list[int]:
    schema = quoted(address.schema)
    done = []
    with connection.transaction():
        connection.execute("SELECT set_config('statement_timeout', '0', true)")
        number = lock_number("migrate", address.schema)
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (number,))
        # From the table, and not from `to_regnamespace`: that may remember from before the lock was had that
        # there is none. And asked at all, since `IF NOT EXISTS` needs the right to make one in any case.
        query = "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s"
        if connection.execute(query, (address.schema,)).fetchone() is None:
            connection.execute(f"CREATE SCHEMA {schema}".encode())
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {schema}.migrations ("
            "version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())".encode()
        )
        at = version_of(connection, address) or 0
        for version, script in enumerate(MIGRATIONS[at:], at + 1):
            connection.execute(script.replace("{schema}", schema).encode())
            connection.execute(
                f"INSERT INTO {schema}.migrations (version) VALUES (%s)".encode(),  # noqa: S608
                (version,),
            )
            done.append(version)
    return done


def _may_not(address: Address, error: Exception) -> HansardError:
    said = address.hide(" ".join(str(error).split()))
    return BackendUnavailable(
        f"{address.where}: the tables cannot be made: {said}; let a role that may create them open the store "
        "once: docs/guides/postgres.md lists the grants"
    )
