"""Search every byte of a store for texts that must be erased.

A needle is found literally, in lower case, in JSON escapes, in file names, and inside zstd frames,
wherever they start. A full-text index stores words without the prefix that they share with the word
before, so the second half of a needle counts as well: use 12 or more random ASCII letters.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import zstandard

_FRAME: Final = b"\x28\xb5\x2f\xfd"

#: Maximum bytes that a frame is unpacked to.
_LARGEST: Final = 256 << 20


def leaks(store: str | Path, needle: str) -> list[str]:
    """Return where a text is: paths in a directory, or tables and files of a PostgreSQL schema."""
    if str(store).startswith("postgres"):
        return _leaks_in_server(str(store), needle)
    root = Path(store)
    found = []
    for path in sorted(root.rglob("*")):
        where = str(path.relative_to(root))
        if has(where.encode(), needle):
            found.append(f"{where}: name")
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            if has(content, needle):
                found.append(where)
            elif any(has(frame, needle) for frame in _unpacked(content)):
                found.append(f"{where}: zstd")
    return found


def has(content: bytes, needle: str) -> bool:
    """Return whether bytes contain a text in one of its forms."""
    lowered = content.lower()
    return any(form in lowered for form in _forms(needle))


def _forms(needle: str) -> set[bytes]:
    half = needle[len(needle) // 2 :]
    escaped = (json.dumps(needle)[1:-1], json.dumps(needle, ensure_ascii=False)[1:-1])
    texts = {needle, half, *escaped, json.dumps(escaped[0])[1:-1]}
    return {text.lower().encode(errors="surrogatepass") for text in texts}


def _unpacked(content: bytes) -> Iterator[bytes]:
    at = content.find(_FRAME)
    while at >= 0:
        with contextlib.suppress(zstandard.ZstdError):
            yield zstandard.ZstdDecompressor().decompressobj().decompress(content[at:])[:_LARGEST]
        at = content.find(_FRAME, at + 1)


def _leaks_in_server(url: str, needle: str, schema: str = "hansard") -> list[str]:
    """Search all rows, their statistics, and the files of all tables and indexes of a schema.

    The files can be read by a superuser only. The server's write-ahead log is not searched.
    """
    import psycopg
    from psycopg import sql

    found = []
    with psycopg.connect(url, autocommit=True) as connection:
        tables = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s) "
            "AND relkind IN ('r', 'p')",
            (schema,),
        ).fetchall()
        for (table,) in tables:
            likes = [f"%{needle.lower()}%", f"%{needle.encode().hex()}%"]
            query = sql.SQL("SELECT count(*) FROM {} AS t WHERE lower(t::text) LIKE ANY(%s)")
            rows = connection.execute(query.format(sql.Identifier(schema, table)), (likes,))
            if rows.fetchall() != [(0,)]:
                found.append(table)
        samples = connection.execute(
            "SELECT tablename, concat(most_common_vals, histogram_bounds, most_common_elems) "
            "FROM pg_stats WHERE schemaname = %s",
            (schema,),
        )
        found += [f"{table}: statistics" for table, text in samples if has(text.encode(), needle)]
        connection.execute("CHECKPOINT")
        # A relation's own file, and those of its TOAST table and that one's index.
        files = connection.execute(
            "SELECT c.relname, pg_read_binary_file(pg_relation_filepath(c.oid), true) "
            "FROM pg_class c WHERE pg_relation_filepath(c.oid) IS NOT NULL AND "
            "(c.relnamespace = to_regnamespace(%(schema)s) OR c.oid IN ("
            "SELECT unnest(ARRAY[t.reltoastrelid, i.indexrelid]) FROM pg_class t "
            "LEFT JOIN pg_index i ON i.indrelid = t.reltoastrelid "
            "WHERE t.relnamespace = to_regnamespace(%(schema)s) AND t.reltoastrelid <> 0))",
            {"schema": schema},
        )
        found += [f"{name}: file" for name, content in files if has(content or b"", needle)]
    return sorted(found)
