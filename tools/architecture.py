"""Write the table of modules in docs/architecture.md from the modules' docstrings.

    python tools/architecture.py            print the table
    python tools/architecture.py --write    write it into the page

A test fails if the table is stale.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "hansard"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN = "<!-- tools/architecture.py --write: from here -->\n"
END = "<!-- to here -->\n"


def table() -> str:
    """Return the table: package by package, each module with the first line of its docstring."""
    return "".join(_lines())


def page() -> str:
    """Return the page with a current table."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    return before + BEGIN + "\n" + table() + "\n" + END + rest.partition(END)[2]


def _lines() -> Iterator[str]:
    yield "| module | job |\n| --- | --- |\n"
    files = sorted(SOURCE.rglob("*.py"), key=lambda file: (file.parent, file.name))
    for file in files:
        doc = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
        job = doc.partition("\n")[0].rstrip(".")
        if file.name != "__init__.py" and job:
            yield f"| `{file.relative_to(SOURCE).as_posix()}` | {job} |\n"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(table(), end="")
