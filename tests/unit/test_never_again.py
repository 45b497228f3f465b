"""Every number of never-again that this part answers for has its test, or says what it waits for.

A test cites the numbers that it proves in its docstring, as `N-17`. What is not cited anywhere
stands in the table below, with the part of the work that brings what it needs.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]

#: Parts 1 to 8.
ANSWERED_HERE = set(range(1, 91))

#: Numbers that need a later part, and what of it.
WAITING: dict[int, str] = {}

#: Numbers of which a test proves what this part has, and a later part adds the rest.
HALF_PROVED: dict[int, str] = {}


def cited() -> dict[int, list[str]]:
    """Return the tests that cite each number in their docstrings."""
    found: dict[int, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for name, text in docstrings(ast.parse(path.read_bytes())):
            for number in re.findall(r"\bN-(\d+)\b", text):
                found.setdefault(int(number), []).append(f"{path.relative_to(TESTS)}::{name}")
    return found


def docstrings(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield name and docstring of each test function of a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node.name, ast.get_docstring(node) or ""


def test_every_number_is_proved_or_waits() -> None:
    """Each number that this part answers for is cited by a test, or waits visibly for a later part."""
    missing = sorted(ANSWERED_HERE - cited().keys() - WAITING.keys())
    assert missing == [], f"no test cites {', '.join(f'N-{number}' for number in missing)}"


def test_what_waits_is_not_proved_yet() -> None:
    """A number leaves the table of those that wait once a test cites it."""
    proved = {number: cited()[number] for number in WAITING if number in cited()}
    assert proved == {}, "proved by now; take it out of the table"
    assert set(WAITING) <= ANSWERED_HERE
    assert all("part" in reason for reason in (*WAITING.values(), *HALF_PROVED.values()))


def test_no_number_is_made_up() -> None:
    """There are ninety numbers, and no test cites another."""
    assert sorted(number for number in cited() if not 1 <= number <= 90) == []


def test_every_test_makes_a_claim() -> None:
    """Every test under tests/ has a docstring that is a sentence."""
    silent = [
        f"{path.relative_to(TESTS)}::{name}"
        for path in sorted(TESTS.rglob("test_*.py"))
        for name, text in docstrings(ast.parse(path.read_bytes()))
        if not text.split("\n\n")[0].rstrip().endswith((".", "!"))
    ]
    assert silent == []
