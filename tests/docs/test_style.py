"""The prose follows the style of the project: short sentences, short lines, plain words."""

import ast
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "guides").glob("*.md")]
)
#: Every text of the project that people read: pages, and the source with its comments and messages.
TEXTS = sorted(
    path
    for pattern in (
        "README.md",
        "CHANGELOG.md",
        "docs/**/*.md",
        "src/**/*.py",
        "src/**/*.html",
        "src/**/*.js",
        "tests/**/*.py",
        "tools/**/*",
        "pyproject.toml",
    )
    for path in ROOT.glob(pattern)
    if path.suffix in {".md", ".py", ".html", ".js", ".c", ".sh", ".toml", ""}
    and path.is_file()
    and "reference" not in path.parts
    and path != Path(__file__)
)
_CODE = re.compile(r"^```[\s\S]*?^```$|^(?: {4}|\t).*$|`[^`\n]*`", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
#: Where a second sentence begins in a line. A number at its beginning ends with a point too.
_SECOND = re.compile(r"(?<!\b\d\.)(?<!\b\d\d\.)(?<=[a-z0-9)`\]\"E%][.!?]) (?=[A-Z\[*\"(`])")
#: Words to avoid, because there is a standard one.
_AVOIDED = re.compile(
    r"\b(whoever|nobody|somebody|anybody|everybody|anew|for ever|be it|so many|the like|by itself|"
    r"of (?:its|their) own|beside|behind|mend(?:ed|ing|s)?|ask(?:ed|s) for|meanwhile|lets? go of|"
    r"(?<!\")go(?:es)? on|other hands|"
    r"says? whether|tells? whether|stands(?!-)|is gone|are gone|learnt|folder|spoken|buried|caretaker|"
    r"teller|upkeep|thaw\w*|(?<!there )is no (?!longer)[a-z]+)\b",
    re.IGNORECASE,
)
#: The same, but tests use these words as the names of their data.
_METAPHORS = re.compile(
    r"\b(whole(?! number)|house|room|whatever|once more|goes? away|astray|in vain|leads? nowhere|"
    r"hands? (?:it|them|over|on)|change hands|look(?:s|ed)? (?:at|again|once|before|after))\b"
    r"|(?:^|[.:;] )Who (?!am|can|is|was)\w+ ",
    re.IGNORECASE,
)
#: Quotations and names: a path below the repository, and a text that must be in the line.
_ALLOWED = (
    ("tools/record.py", "asked for"),  # said in a conversation
    ("tools/crash/hostile.py", '"folder'),  # a name on disk
    ("tools/bench/conversation.py", "{folder}"),  # the name of a variable
    ("tests/postgres/server.py", '"nobody"'),  # a user of the system
    ("tests/postgres/test_addresses.py", '"some/folder"'),  # a name on disk
    ("src/hansard/workspace.py", "{folder!r"),  # likewise
    ("src/hansard/store.py", "Folder | None"),  # the name of a type
    ("src/hansard/viewer/static/page.js", "whole"),  # the name of a variable
    ("src/hansard/viewer/pages.py", "{whole"),  # likewise
    ("tools/crash/shim.c", "whole"),  # likewise
    ("tools/crash/shim.c", "room"),  # likewise
    ("src/hansard/backend/local/index_file.py", '"look at"'),  # what failed, in an error
)


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _prose(page: Path) -> str:
    return _CODE.sub("CODE", _text(page))


def _lines(page: Path) -> list[str]:
    """Return the source lines outside of tables, headings and code; links without their targets."""
    lines = _LINK.sub(lambda link: f"[{link[1]}]", _prose(page)).splitlines()
    return [line for line in lines if not line.startswith(("|", "#", "!"))]


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_sentences_are_short(page: Path) -> None:
    """A sentence outside of tables has at most 30 words; in README and guides, at most 25."""
    most = 25 if page.name == "README.md" or page.parent.name == "guides" else 30
    # A line without an end continues in the next one, unless that begins an item or is code.
    text = re.sub(
        r"(?<![.!?:\n])(?<!\nCODE)\n(?!\s*(?:[-*>·]|\d+\.|<!--.*|CODE$)(?:\s|$))(?=.*\S)",
        " ",
        "\n".join(_lines(page)),
        flags=re.MULTILINE,
    )
    sentences = [line.strip("-* >") for line in re.split(r"(?<=[.!?])[)”\"]?\s+|\n", text)]
    assert not [found for found in sentences if len(found.split()) > most]


def test_the_readme_is_short() -> None:
    """README.md has at most 130 lines."""
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 130


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_lines_are_short(page: Path) -> None:
    """A source line outside of tables and code has one sentence, and at most 200 characters."""
    text = re.sub(r"^```[\s\S]*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE)
    lines = [line for line in text.splitlines() if not line.startswith(("|", "    ", "!"))]
    assert not [line for line in lines if len(line) > 200]
    assert not [line for line in _lines(page) if _SECOND.search(line)]


@pytest.mark.parametrize("path", sorted((ROOT / "src").rglob("*.py")), ids=_name)
def test_sentences_of_docstrings_are_short(path: Path) -> None:
    """A sentence of a docstring in src has at most 30 words."""
    texts = [
        ast.get_docstring(node) or ""
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    # Without examples; a blank line, an item and an argument begin a sentence.
    prose = [re.sub(r"(?m)^ {4}.*$|`[^`\n]*`", "CODE", text) for text in texts]
    parts = [part for text in prose for part in re.split(r"\n\s*\n|\n(?=- |\d\. |\w+: )", text)]
    sentences = [one for part in parts for one in re.split(r"(?<=[.!?])\s+", part)]
    assert not [found for found in sentences if len(found.split()) > 30]


@pytest.mark.parametrize("path", TEXTS, ids=_name)
def test_words_are_plain(path: Path) -> None:
    """No text uses a word that has a standard one in its place."""
    found = [
        f"{_name(path)}:{number}: {match[0]}"
        for number, line in enumerate(_text(path).splitlines(), 1)
        for pattern in ((_AVOIDED,) if "tests" in path.parts else (_AVOIDED, _METAPHORS))
        for match in pattern.finditer(line)
        if not any(_name(path) == allowed and part in line for allowed, part in _ALLOWED)
    ]
    assert not found


def _text(path: Path) -> str:
    if path.suffix != ".py":
        # Without the table of modules, which is generated from their docstrings.
        return re.sub(r"(?m)^\| `[\w/]+\.py`.*", "", path.read_text("utf-8"))
    # Comments and strings, each in its line.
    lines = [""] * (path.read_bytes().count(b"\n") + 1)
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type in {tokenize.COMMENT, tokenize.STRING}:
                for number, line in enumerate(token.string.split("\n"), token.start[0] - 1):
                    lines[number] += f" {line}"
    return "\n".join(lines)
