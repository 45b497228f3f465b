"""The public names are listed, and change only on purpose.

The list is public_names.txt: every name in `hansard.__all__`, with the members of its classes and the
parameters of its calls. After an intended change, write the list again and review the diff:

    python tests/unit/test_public_names.py --write
"""

import difflib
import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import hansard

LIST = Path(__file__).with_name("public_names.txt")
HOW = "if the change is meant: python tests/unit/test_public_names.py --write"

# `import hansard` costs little more than `import msgspec`. Each of these is loaded by the call
# that needs it: what locks or seals, what is awaited, what listens, what another package brings.
LOADED_LATER = set(
    """
    agents anyio asyncio claude_agent_sdk concurrent google hashlib http importlib.metadata langchain_core
    langgraph logging multiprocessing openai pathlib portalocker psycopg pydantic pydantic_ai rich socket
    sqlite3 ssl subprocess tempfile zstandard
    """.split()  # noqa: SIM905 - a table
)


def public_names(module: ModuleType, prefix: str) -> Iterator[str]:
    """Yield a line for each public name of a module, and for each member of its classes."""
    for name in sorted(module.__all__):
        value = getattr(module, name)
        line = f"{prefix}.{name}"
        if isinstance(value, ModuleType):
            yield f"{line}: module"
            if hasattr(value, "__all__"):
                yield from public_names(value, line)
        elif isinstance(value, type):
            bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
            yield f"{line}: class" + (f" ({bases})" if bases else "")
            yield from members(value, line)
        elif callable(value):
            yield line + parameters(value)
        else:
            yield f"{line}: {type(value).__name__}"


def members(cls: type, prefix: str) -> Iterator[str]:
    """Yield a line for each public attribute that our own code gives a class."""
    ours = [base for base in cls.__mro__ if base.__module__.split(".")[0] == "hansard"]
    names = {name for base in ours for name in (*vars(base), *inspect.get_annotations(base))}
    for name in sorted(name for name in names if not name.startswith("_")):
        value = inspect.getattr_static(cls, name, None)
        if isinstance(value, staticmethod | classmethod):
            value = value.__func__
        if inspect.isfunction(value):
            yield f"{prefix}.{name}{parameters(value)}"
        else:
            yield f"{prefix}.{name}"


def parameters(call: object) -> str:
    """Return the names of a call's parameters; those that may be left out end with `=`."""
    assert callable(call)
    shown = []
    kinds = inspect.Parameter
    marks: dict[object, str] = {kinds.VAR_POSITIONAL: "*", kinds.VAR_KEYWORD: "**"}
    star = False
    for name, parameter in inspect.signature(call).parameters.items():
        if name in {"self", "cls"}:
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            star = True
        elif parameter.kind is parameter.KEYWORD_ONLY and not star:
            star = True
            shown.append("*")
        optional = "" if parameter.default is parameter.empty else "="
        # A parameter that cannot be given by name has none that users could depend on.
        named = "_" if parameter.kind is parameter.POSITIONAL_ONLY else name
        shown.append(f"{marks.get(parameter.kind, '')}{named}{optional}")
    return f"({', '.join(shown)})"


def current_list() -> str:
    """Return the list as it follows from the code."""
    return "".join(f"{line}\n" for line in public_names(hansard, "hansard"))


def test_public_names_are_those_written_down() -> None:
    """No public name, member or parameter comes, goes or changes unnoticed."""
    assert LIST.exists(), f"{LIST} is not there yet; write it: {HOW.split(': ')[1]}"
    written, current = LIST.read_text(encoding="utf-8"), current_list()
    diff = "\n".join(
        difflib.unified_diff(
            written.splitlines(), current.splitlines(), "written down", "in the code", lineterm=""
        )
    )
    assert written == current, f"public names changed; {HOW}\n{diff}"


def loaded_by(statement: str) -> set[str]:
    """Return the names of the modules that are loaded once a fresh Python has run a statement."""
    # -I: ignores the caller's directory and PYTHON… variables.
    program = f"{statement}\nimport sys, json\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout))


def test_names_are_known_before_they_are_loaded() -> None:
    """A fresh `import hansard` loads none of its modules, and yet `dir` and `import *` have every name."""
    program = (
        "import sys, hansard\n"
        "assert [n for n in sys.modules if n.startswith('hansard.')] == []\n"
        "assert set(hansard.__all__) <= set(dir(hansard))\n"
        "from hansard import *\n"
        "assert set(hansard.__all__) <= set(globals())"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0


def test_import_loads_only_what_every_call_needs() -> None:
    """`import hansard` loads no lock, no compression, no event loop, no framework."""
    new = loaded_by("import hansard") - loaded_by("import msgspec, json")
    assert "hansard" in new
    assert sorted(new & LOADED_LATER) == []


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(f"usage: python {Path(__file__).name} --write")
    LIST.write_text(current_list(), encoding="utf-8")
