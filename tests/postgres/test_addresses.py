"""The URL of a store: what it may say, and what nobody gets to see of it."""

import pytest

import hansard
from hansard.backend.postgres import address

PASSWORD = "s3cr:t/ä?&="  # noqa: S105 - nobody's
QUOTED = "s3cr%3At%2F%C3%A4%3F%26%3D"


def test_our_own_options_are_taken_out_of_a_url() -> None:
    """`schema`, `connections` and `patience` are ours; what is left is for libpq, as it was."""
    found = address.read(
        "postgres://u@h:1,k:2/db?sslmode=require&schema=one&options=-c%20a%3Db&connections=3&patience=2.5"
    )
    assert found.url == "postgres://u@h:1,k:2/db?sslmode=require&options=-c%20a%3Db"
    assert (found.schema, found.connections, found.patience) == ("one", 3, 2.5)
    assert address.read("postgresql://h/db").schema == "hansard"
    assert address.read("postgresql://h/db", schema="two").schema == "two"


def test_a_password_is_shown_nowhere() -> None:
    """N-65: neither `where` nor `repr` has user or password; `hide` takes both spellings out of a text."""
    url = f"postgresql://user:{QUOTED}@h/db?schema=x&sslpassword=other"
    found = address.read(url)
    assert found.where == "postgresql://h/db?schema=x" == address.shown(url)
    for text in (repr(found), str(found), found.where, address.shown(url)):
        assert "user" not in text
        assert "s3cr" not in text
    hidden = found.hide(f"FATAL: {PASSWORD} or {QUOTED} or other")
    assert hidden == "FATAL: *** or *** or ***"
    assert repr(hansard.aio.open(url)) == f"<hansard.aio.open({found.where!r})>"


def test_where_tells_databases_apart() -> None:
    """What says where a database is stays visible, also as an option; the default schema is not said."""
    texts = {
        address.shown(url)
        for url in (
            "postgresql:///db?host=a",
            "postgresql:///db?host=b",
            "postgresql://a/db",
            "postgresql://a/db?schema=two",
            "postgresql://a:5433/db",
        )
    }
    assert len(texts) == 5
    assert address.shown("postgresql://a/db?schema=hansard") == "postgresql://a/db"
    assert address.shown("some/folder") == "some/folder"


@pytest.mark.parametrize(
    "schema", ["", "1a", "a b", 'a"b', "a;b", "pg_x", "PG_X", "a" * 64, "ä", "a%b", "a.b"]
)
def test_a_schema_that_could_be_something_else_is_refused(schema: str) -> None:
    """A name that would need quoting, or that is PostgreSQL's own, is refused before anything is asked."""
    with pytest.raises(ValueError, match="schema"):
        address.read("postgresql://h/db", schema=schema)


def test_a_url_that_contradicts_itself_is_refused() -> None:
    """Two schemas, a size that is none, and a schema for a directory are mistakes, told as such."""
    with pytest.raises(ValueError, match="'a' and the caller 'b'"):
        hansard.open("postgresql://h/db?schema=a", schema="b")
    for bad in ("connections=0", "connections=x", "connections=-1", "patience=x", "patience=-1"):
        with pytest.raises(ValueError, match=r"connections|patience"):
            hansard.open(f"postgresql://h/db?{bad}")
    for path in ("memory:", "somewhere"):
        with pytest.raises(ValueError, match="schema is for a database"):
            hansard.open(path, schema="a")
