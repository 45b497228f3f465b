"""The URL of a store: its options, and its password, which is never shown."""

import asyncio
import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hansard
from hansard.adapters import opening
from hansard.backend.postgres.url import display_url, parse_url
from hansard.cli.app import run

PASSWORD = "s3cr:t/ä?&="  # noqa: S105 - not a real one
QUOTED = "s3cr%3At%2F%C3%A4%3F%26%3D"


def test_options_of_hansard_are_removed_from_the_url() -> None:
    """`schema`, `connections` and `patience` are removed; libpq gets the rest unchanged."""
    found = parse_url(
        "postgres://u@h:1,k:2/db?sslmode=require&schema=one&options=-c%20a%3Db&connections=3&patience=2.5"
    )
    assert found.libpq == "postgres://u@h:1,k:2/db?sslmode=require&options=-c%20a%3Db"
    assert (found.schema, found.connections, found.patience) == ("one", 3, 2.5)
    assert parse_url("postgresql://h/db").schema == "hansard"
    assert parse_url("postgresql://h/db", schema="two").schema == "two"


def test_a_url_is_shown_without_user_password_and_settings() -> None:
    """N-65: what is left is the location, also as an option, and a schema that is not the default one."""
    for url, shown in (
        ("postgresql:///db?host=a", "postgresql:///db?host=a"),
        ("postgresql://u:p@a:5433/db?sslmode=require", "postgresql://a:5433/db"),
        (f"postgresql://u:{QUOTED}@a/db?schema=two&sslpassword=p", "postgresql://a/db?schema=two"),
        ("postgresql://a/db?schema=hansard", "postgresql://a/db"),
    ):
        found = parse_url(url)
        assert display_url(url) == found.where == shown
        assert repr(found) == f"<StoreUrl {shown!r}>"
    assert display_url("some/folder") == "some/folder"


def test_both_spellings_of_a_password_are_hidden() -> None:
    """N-65: `hide` replaces all passwords of the URL in a text, escaped or not."""
    found = parse_url(f"postgresql://user:{QUOTED}@h/db?sslpassword=other")
    hidden = found.hide(f"FATAL: {PASSWORD} or {QUOTED} or other")
    assert hidden == "FATAL: *** or *** or ***"


@pytest.mark.parametrize(
    "schema", ["", "1a", "a b", 'a"b', "a;b", "pg_x", "PG_X", "a" * 64, "ä", "a%b", "a.b"]
)
def test_an_unsafe_schema_name_is_refused(schema: str) -> None:
    """A name that needs quoting, or that PostgreSQL reserves, is refused before a connection is opened."""
    with pytest.raises(ValueError, match="schema"):
        parse_url("postgresql://h/db", schema=schema)


def test_a_url_that_contradicts_itself_is_refused() -> None:
    """Two schemas, invalid numbers, and a schema for a directory are errors."""
    with pytest.raises(ValueError, match="'a' in the URL and 'b' as an argument"):
        hansard.open("postgresql://h/db?schema=a", schema="b")
    for bad in ("connections=0", "connections=x", "connections=-1", "patience=x", "patience=-1"):
        with pytest.raises(ValueError, match=r"connections|patience"):
            hansard.open(f"postgresql://h/db?{bad}")
    for path in ("memory:", "somewhere"):
        with pytest.raises(ValueError, match="schema is only for"):
            hansard.open(path, schema="a")


SECRET = "Zq7xK"  # noqa: S105 - not a real one


@pytest.mark.parametrize(
    "rest",
    [
        f"u:{SECRET}?w@localhost:1/db", f"u:w@{SECRET}@localhost:1/db", f"u:{SECRET}@w@localhost:1/db",
        f"u:w/{SECRET}@localhost:1/db", f"u:w?{SECRET}=1@localhost:1/db", f"u:{SECRET}", f"u:{SECRET}/db",
        f"u:w@{SECRET}?a=b@localhost:1/db", f"localhost:1/db?password={SECRET}@w",
    ],
)  # fmt: skip
def test_a_password_that_is_not_escaped_is_refused_and_not_shown(
    rest: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """N-65: an `@`, `?` or `/` in a password is refused, before libpq names a part of it as host or port."""
    url = f"postgresql://{rest}"
    assert SECRET not in display_url(url) + repr(hansard.aio.open(url))
    for call in (hansard.open, hansard.migrate):
        with pytest.raises(ValueError, match="%40, %2F, %3F") as caught:
            call(url)
        assert SECRET not in "".join(traceback.format_exception(caught.value))
    monkeypatch.setenv("HANSARD_STORE", url)
    for words in (["ls"], ["doctor", "--json"]):
        assert run(words) != 0
        assert SECRET not in "".join(capsys.readouterr())


#: None of these letters is in the rest of a URL, or of an error.
_PIECE = st.text("ĀĂĄ", min_size=1, max_size=4)


@given(
    pieces=st.lists(st.sampled_from("@?/:#=+%[], ") | _PIECE, min_size=1, max_size=8),
    as_option=st.booleans(),
)
def test_no_part_of_any_password_is_shown(pieces: list[str], as_option: bool) -> None:
    """N-65: neither the shown URL nor an error contains a letter of any password."""
    password = "".join(pieces)
    url = "postgresql://user:" + password + "@host:5432/db"
    if as_option:
        url = "postgresql://user@host/db?sslmode=disable&password=" + password
    told = display_url(url)
    try:
        found = parse_url(url)
    except ValueError as error:
        told += f"{error!r}"
    else:
        told += repr(found) + found.hide(f"no {password}: {' '.join(password.split())} there")
    assert not set("ĀĂĄ") & set(told)


#: URLs of other kinds of stores, and mistakes.
STRANGE = [
    ":memory:", "MEMORY:", "memory://", "memory:x", "sqlite:///x", "sqlite:x", "mysql://u:Zq7xK@h/db",
    "postgressql://u:Zq7xK@h/db", "POSTGRESQL://u:Zq7xK@h/db", "postgresql:/u:Zq7xK@h", "s3://bucket/x",
    "file:///tmp/x", "file:x", "redis://:Zq7xK@h", "postgresql+asyncpg://u:Zq7xK@h/db", "u:Zq7xK@h/db",
]  # fmt: skip


@pytest.mark.parametrize("path", STRANGE)
def test_other_schemes_are_refused_and_nothing_is_created(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """N-65: the error names an unknown scheme, and not what follows it; no directory is created."""
    monkeypatch.chdir(tmp_path)
    scheme = path.partition(":")[0]

    async def wait() -> None:
        await hansard.aio.open(path)

    for call in (
        lambda: hansard.open(path),
        lambda: hansard.open(Path(path) if path != "memory://" else path),
        lambda: hansard.migrate(path),
        lambda: opening.opened(path),
        lambda: asyncio.run(wait()),
    ):
        with pytest.raises(
            ValueError, match=f"the scheme '{scheme}'".replace("+", r"\+")
        ) as caught:
            call()
        assert "Zq7xK" not in "".join(traceback.format_exception(caught.value))
        assert "'postgresql://…'" in str(caught.value)
    assert "Zq7xK" not in repr(hansard.aio.open(path))
    monkeypatch.setenv("HANSARD_STORE", path)
    for words in (["add", "a", "hello"], ["--store", path, "ls"], ["doctor", "--json"]):
        assert run(words) != 0
        shown = "".join(capsys.readouterr())
        assert f"the scheme '{scheme}'" in shown
        assert "Zq7xK" not in shown
    assert list(tmp_path.iterdir()) == []


def test_a_directory_with_a_colon_needs_a_slash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a slash, a colon is a part of a name; `memory` without a colon is a directory."""
    monkeypatch.chdir(tmp_path)
    for path in ("./a:b", str(tmp_path / "c:d"), "memory", "e/f:g"):
        with hansard.open(path, durability="os") as store:
            store.session("s").add_message({"role": "user", "content": "x"})
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a:b", "c:d", "e", "memory"]
    with hansard.open("memory:") as store:
        assert list(store.sessions().items) == []
