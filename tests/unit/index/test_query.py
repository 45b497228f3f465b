"""What a person types is understood, and is never an error of syntax."""

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
    """Words are joined by "and", phrases and beginnings are known, and what is no operator is a word."""
    assert query.expression(typed) == expected


@pytest.mark.parametrize("typed", ["", " ", "!!!", '""', "- -- *", "-a", "NOT a", "🎉", '"…"'])
def test_what_asks_for_nothing_is_refused(typed: str) -> None:
    """A text without a word, or with nothing but what to leave out, is a `ValueError` that says so."""
    with pytest.raises(ValueError, match="give a word"):
        query.expression(typed)


def test_too_many_words_are_refused(rng: random.Random) -> None:
    """So many words that answering would take seconds are refused, and those that are not are answered."""
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


PIECES = st.sampled_from(
    ['"', "*", "-", "OR", "AND", "NOT", "NEAR", *"(){}:^+ ';\\aé"],
)


@given(st.lists(PIECES | st.text(max_size=4), max_size=12).map("".join))
def test_nothing_that_is_typed_is_an_error_of_syntax(typed: str) -> None:
    """Any text is either understood by FTS5 or refused with a reason."""
    try:
        expression = query.expression(typed)
    except ValueError as error:
        assert "give" in str(error)  # noqa: PT017 - or it is understood
    else:
        fits(expression)
