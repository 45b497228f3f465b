"""Tests cite the failure modes that they exclude, as `N-17`: all of docs/failure-modes.md, and no others."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


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


def test_every_failure_mode_is_cited() -> None:
    """Each of the ninety failure modes is cited by a test, and no test cites another number."""
    page = TESTS.parent.joinpath("docs", "failure-modes.md").read_text(encoding="utf-8")
    listed = [int(number) for number in re.findall(r"^\| N-(\d+) \|", page, re.MULTILINE)]
    assert listed == list(range(1, 91))
    assert sorted(cited()) == listed


def test_every_test_makes_a_claim() -> None:
    """Every test under tests/ has a docstring that is a sentence."""
    silent = [
        f"{path.relative_to(TESTS)}::{name}"
        for path in sorted(TESTS.rglob("test_*.py"))
        for name, text in docstrings(ast.parse(path.read_bytes()))
        if not text.split("\n\n")[0].rstrip().endswith((".", "!"))
    ]
    assert silent == []
