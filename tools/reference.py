"""Write docs/reference/library.md from the docstrings of the public names.

`python tools/reference.py` prints the page; `--write` writes it. A test fails if the page is stale.
"""

import inspect
import re
import sys
from pathlib import Path

import hansard

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "library.md"

_MODULE = re.compile(r"\b(?:hansard|typing|collections\.abc|datetime)\.(?:[a-z_]+\.)*")
_FUNCTION = re.compile(r"<function (\w+) at 0x[0-9a-f]+>")
_QUOTED = re.compile(r"'([A-Z]\w+)'")

HEAD = """# Reference: the library

Made by `tools/reference.py` from the docstrings; do not edit it here.
"""


def page() -> str:
    """Return the whole page."""
    parts = [HEAD]
    public = {name: getattr(hansard, name) for name in hansard.__all__}
    plain = {n: o for n, o in public.items() if inspect.isfunction(o)}
    errors = {n: o for n, o in public.items() if inspect.isclass(o) and issubclass(o, Exception)}
    classes = {n: o for n, o in public.items() if n not in plain and n not in errors}
    parts += [
        f"## `hansard.{name}{_signature(thing)}`\n\n{_doc(thing)}\n"
        for name, thing in plain.items()
    ]
    for name in ("Store", "Session", *sorted(set(classes) - {"Store", "Session"})):
        parts.append(_class(name, classes[name]))
    parts.append("## Errors\n")
    for name, thing in errors.items():
        parents = ", ".join(f"`{base.__name__}`" for base in thing.__bases__)
        parts.append(f"### `{name}`\n\nA kind of {parents}.\n\n{_doc(thing)}\n")
    return "\n".join(parts)


def _class(name: str, thing: type) -> str:
    parts = [f"## `{name}`\n\n{_doc(thing)}\n"]
    for member, value in vars(thing).items():
        if member.startswith("_") or not getattr(value, "__doc__", None):
            continue
        if isinstance(value, property):
            parts.append(f"### `{name}.{member}`\n\n{_doc(value)}\n")
        elif inspect.isfunction(value):
            parts.append(f"### `{name}.{member}{_signature(value)}`\n\n{_doc(value)}\n")
    return "\n".join(parts)


def _signature(function: object) -> str:
    assert callable(function)
    signature = inspect.signature(function)
    kept = [p for p in signature.parameters.values() if p.name != "self"]
    text = str(signature.replace(parameters=kept))
    # Modules say where a name lives, not what it is; and a quoted class is a class.
    return _QUOTED.sub(r"\1", _MODULE.sub("", _FUNCTION.sub(r"\1", text)))


def _doc(thing: object) -> str:
    """Return a docstring as Markdown: its lists of arguments become lists."""
    lines = []
    for line in (inspect.getdoc(thing) or "").splitlines():
        stripped = line.strip()
        if stripped in {"Args:", "Attributes:"}:
            lines.append("")
        elif line.startswith("    ") and not line.startswith("     ") and ": " in stripped:
            name, text = stripped.split(": ", 1)
            lines.append(f"- `{name}`: {text}")
        elif line.startswith("        "):
            lines.append(f"  {stripped}")
        else:
            lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page())
