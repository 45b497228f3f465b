"""Queries are parsed, and no query is a syntax error."""

import random
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansard.index import search as query


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("refund", '("refund")'),
        ("refund order", '("refund") AND ("order")'),
        ("refund AND order", '("refund") AND ("order")'),
        ("refund refund", '("refund")'),
        ('"my order" late', '("my order") AND ("late")'),
        ('"never closed', '("never closed")'),
        ("refun*", '("refun*" *)'),
        ('"my ord"*', '("my ord" *)'),
        ("a b OR c d", '("a") AND ("b" OR "c") AND ("d")'),
        ("a -b", '(("a")) NOT ("b")'),
        ('a NOT b -"c d"', '(("a")) NOT ("b" OR "c d")'),
        ("OR", '("OR")'),
        ("OR a", '("OR") AND ("a")'),
        ("a OR", '("a") AND ("OR")'),
        ("a NOT", '("a") AND ("NOT")'),
        ("AND", '("AND")'),
        ("--verbose", '("--verbose")'),
        ("a - b", '("a") AND ("b")'),
        ("a !!! b", '("a") AND ("b")'),
        ("user:ann NEAR(a b)", '("user:ann") AND ("NEAR(a") AND ("b)")'),
        ("退款", '("\x1f退\x1f款\x1f")'),
    ],
)
def test_words_and_operators(typed: str, expected: str) -> None:
    """Words are joined by AND; phrases and prefixes are recognized; all else is a word."""
    assert query.expression(typed) == expected


@pytest.mark.parametrize("typed", ["", " ", "!!!", '""', "- -- *", "-a", "NOT a", "🎉", '"…"'])
def test_a_query_without_a_word_to_find_is_refused(typed: str) -> None:
    """A query without a word, or with excluded words only, raises `ValueError` with the reason."""
    with pytest.raises(ValueError, match="give a word"):
        query.expression(typed)


def test_too_many_words_are_refused(rng: random.Random) -> None:
    """More than `MOST` words are refused, because the answer would take seconds."""
    most = [f"w{rng.randrange(10**9)}-{place}" for place in range(query.MOST)]
    fits(query.expression(" ".join(most)))
    with pytest.raises(ValueError, match="give fewer"):
        query.expression(" ".join([*most, "more"]))


def fits(expression: str) -> None:
    """Fail if FTS5 does not understand an expression."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE found USING fts5(text)")
        connection.execute(
            "SELECT count(*) FROM found WHERE found MATCH ?", (expression,)
        ).fetchone()
    finally:
        connection.close()


PIECES = st.sampled_from(['"', "*", "-", "OR", "AND", "NOT", "NEAR", *"(){}:^+ ';\\aé"])


@given(st.lists(PIECES | st.text(max_size=4), max_size=12).map("".join))
def test_no_query_is_a_syntax_error(typed: str) -> None:
    """FTS5 accepts any query that is not refused with a reason."""
    try:
        expression = query.expression(typed)
    except ValueError as error:
        assert "give" in str(error)  # noqa: PT017 - or it is understood
    else:
        fits(expression)
