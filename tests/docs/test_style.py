"""The prose follows the style of the project: short sentences, short lines, plain words."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "guides").glob("*.md")]
)
_CODE = re.compile(r"^```[\s\S]*?^```$|^(?: {4}|\t).*$|`[^`\n]*`", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_BANNED = re.compile(
    r"\b(whoever|nobody|somebody|anew|for ever|be it|meanwhile|by itself|of its own|behind|beside|"
    r"mend(?:ed|ing|s)?|the like|asked for|goes on|let go of|(?<!there )is no [a-z]+)\b",
    re.IGNORECASE,
)


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _prose(page: Path) -> str:
    # Without the table of modules, which is generated from their docstrings.
    text = re.sub(r"^\| `[\w/]+\.py`.*", "", page.read_text("utf-8"), flags=re.MULTILINE)
    return _CODE.sub("CODE", text)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_sentences_are_short(page: Path) -> None:
    """A sentence outside of tables has at most 30 words."""
    lines = [line.strip("-*# >") for line in _prose(page).splitlines() if not line.startswith("|")]
    sentences = re.split(r"(?<=[.!?:;])\s+|\n", _LINK.sub(r"\1", "\n".join(lines)))
    long = [found for found in sentences if len(found.split()) > 30]
    assert not long


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_lines_are_short(page: Path) -> None:
    """A source line outside of tables, lists and code has at most 200 characters."""
    text = re.sub(r"^```[\s\S]*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE)
    lines = [line for line in text.splitlines() if not line.startswith(("|", "- ", "    ", "!"))]
    assert not [line for line in lines if len(line) > 200]


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_words_are_plain(page: Path) -> None:
    """No phrase of the list of words to avoid is used."""
    assert not sorted({found.lower() for found in _BANNED.findall(_prose(page))})
