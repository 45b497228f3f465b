"""A name means one thing: modules and classes of hansard, and the records of decisions."""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "hansard"
DECISIONS = ROOT / "docs" / "decisions"
MODULES = [path for path in sorted(SOURCE.rglob("*.py")) if not path.stem.startswith("__")]

#: Names of several modules: one thing on several levels, or one framework as adapter and as importer.
LEVELS = {
    "backend": {"backend/local", "backend/postgres"},
    "compact": {"backend/local", "backend/postgres", "cli/commands", "maintenance"},
    "doctor": {"cli/commands", "maintenance"},
    "langgraph": {"adapters", "importers"},
    "log": {"backend/local", "backend/postgres"},
    "openai_agents": {"adapters", "importers"},
    "pydantic_ai": {"adapters", "importers"},
    "search": {"cli/commands", "index"},
    "session": {".", "aio"},
    "stats": {"cli/commands", "index"},
    "store": {".", "aio"},
    "verify": {"backend/local", "cli/commands", "maintenance"},
}
#: The awaited classes have the names of the others.
AWAITED = {"Follower", "Session", "Store", "Stream"}
#: Modules of less than 80 lines, commands aside: what depends on another package, or one framework or format.
SHORT = {"importers/workspace_files", "message/openai_items", "prices", "transfer/markdown"}


def test_a_module_name_is_used_for_one_thing() -> None:
    """Two modules have one name only if they are the same thing on two levels."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in MODULES:
        found[path.stem].add(str(path.parent.relative_to(SOURCE)))
    assert {name: places for name, places in found.items() if len(places) > 1} == LEVELS


def test_a_class_name_is_used_once() -> None:
    """No two classes of hansard have one name, except those of `aio` and what they await."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(SOURCE)))
    twins = {name: places for name, places in found.items() if len(places) > 1}
    assert twins.keys() == AWAITED
    assert all(
        sorted(place.startswith("aio/") for place in twins[name]) == [False, True] for name in twins
    )


def test_few_modules_are_short() -> None:
    """A module of less than 80 lines that is not a command is an exception with a name."""
    short = {
        str(path.relative_to(SOURCE).with_suffix(""))
        for path in MODULES
        if path.parent.name != "commands" and len(path.read_text("utf-8").splitlines()) < 80
    }
    assert short == SHORT


def test_the_architecture_names_the_long_modules() -> None:
    """docs/architecture.md names each module of more than 500 lines, and no other."""
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    named = page.partition("These have more than 500")[2].partition("<!--")[0]
    long = {
        str(path.relative_to(SOURCE).with_suffix(""))
        for path in MODULES
        if len(path.read_text("utf-8").splitlines()) > 500
    }
    assert set(re.findall(r"`([\w/]+)`", named)) == long


def test_the_list_of_decisions_is_complete() -> None:
    """docs/decisions/index.md has the number and the title of each record, and of no other."""
    records = sorted(DECISIONS.glob("[0-9]*.md"))
    titles = [re.match(r"# (\d{4}): (.+)\n", path.read_text("utf-8")) for path in records]
    expected = [
        (title[1], path.name, title[2].lower())
        for path, title in zip(records, titles, strict=True)
        if title
    ]
    assert [number for number, *_ in expected] == [path.name[:4] for path in records]
    page = (DECISIONS / "index.md").read_text("utf-8")
    rows = re.findall(r"^\| \[(\d{4})\]\(([\w.-]+)\) \| (.+?) \|$", page, re.MULTILINE)
    assert [(number, name, title.lower()) for number, name, title in rows] == expected
