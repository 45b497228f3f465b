"""Imports point downwards, and one module touches the operating system's files.

The tables are the drawing in docs/architecture.md, top to bottom. A layer has packages and
modules directly below `hansard`. Every import counts, also one in a function or for type checkers.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"

LAYERS = (
    # the edges: they use the public API, as any user's code would
    ("__main__", "cli", "viewer", "adapters", "importers", "exporters"),
    # the same as store and session, async
    ("aio",),
    # the package itself, `hansard/__init__`: the public names
    ("hansard",),
    # what a caller holds
    ("store", "session", "session_reader", "stream", "follow"),
    # export, import, copy, share: what leaves is what a compaction would keep
    ("transfer",),
    # compact, verify, repair, redact, delete, prune, diagnose
    ("maintenance",),
    # listing and search: derived, disposable
    ("index",),
    # fold, replay, checkpoint, lineage, views: pure
    ("state",),
    # contract and backends; the directory that a session belongs to
    ("backend", "workspace"),
    # messages of any framework: pure, and open to the edges; list prices of model calls
    ("message", "prices"),
    # events as values, and bytes on disk: neither imports the other
    ("event", "log"),
    # the tree of errors; times and pauses; log records and counters
    ("clock", "errors", "observe"),
)

# Members of one layer that may import each other, and why.
NEIGHBOURS = {
    # A store gives out sessions, and a session's fork is a session of the same store.
    ("store", "session"),
    ("session", "store"),
    # The reading half of a session, and a message that is streamed.
    ("session", "session_reader"),
    ("session", "stream"),
    # A store that is closed writes what streams have gathered.
    ("store", "stream"),
    # What `store.follow` gives out.
    ("store", "follow"),
    # The command `import` is its arguments and one call into an importer; `view` likewise.
    ("cli", "importers"),
    ("cli", "exporters"),
    ("cli", "viewer"),
    # The pages show sizes, costs and trees as the command does.
    ("viewer", "cli"),
    # `python -m hansard` is the command.
    ("__main__", "cli"),
}

# Of a lower layer, a package may import these modules and no others.
ONLY = {
    # State is pure: it folds the events that it is given, and never asks where they are kept.
    ("state", "backend"): {"hansard.backend.contract"},
    ("state", "log"): set[str](),
    # The command and the adapters use the public names of `hansard`, as any user's code would: nothing below
    # them, and of `aio` the package itself.
    **{
        (edge, name): set[str]()
        for edge in ("cli", "adapters")
        for row in LAYERS[3:-1]
        for name in row
        if name != "message"
    },
    ("adapters", "aio"): {"hansard.aio"},
    # Messages are plain JSON: no file is needed to read one, and of events only `event` and `codec`.
    ("message", "event"): {"hansard.event.codec", "hansard.event.event"},
    ("message", "log"): set[str](),
}

EDGES = LAYERS[0]

# The only module that may touch files.
TOUCHES_FILES = "hansard.log.disk"

# Importing one of these is touching files.
FILE_MODULES = {
    *("fcntl", "fileinput", "glob", "io", "mmap", "pathlib", "portalocker"),
    *("posix", "shutil", "tempfile"),
}

# But this is memory.
NO_FILE = ("io", "BytesIO")

# What the rest may use of `os`, besides constants (upper case). A list of what is harmless stays
# right when the next Python adds a way to open a file.
HARMLESS = {
    *("PathLike", "cpu_count", "environ", "fsdecode", "fsencode", "fspath", "getenv", "getpid"),
    *("path", "register_at_fork", "sep", "strerror", "urandom"),
}
HARMLESS_PATH = {
    *("abspath", "basename", "commonpath", "dirname", "expanduser", "isabs", "join", "normpath"),
    *("relpath", "sep", "split", "splitext"),
}


@dataclass(frozen=True)
class Module:
    """One file of the package, parsed."""

    name: str
    path: str
    tree: ast.Module
    is_package: bool

    @property
    def package(self) -> str:
        """The package or module directly below `hansard`; `hansard` for the package itself."""
        return package_of(self.name)


@dataclass(frozen=True)
class Import:
    """One name that a module imports, and where."""

    line: int
    module: str
    name: str | None = None


def package_of(module: str) -> str:
    """Return the package or module directly below `hansard` that a module is in."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def source_modules() -> list[Module]:
    """Parse every module under src/hansard."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        place = path.relative_to(SOURCE)
        parts = place.with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        shown = f"src/{place.as_posix()}"
        tree = ast.parse(path.read_bytes(), filename=shown)
        found.append(Module(name, shown, tree, is_package))
    return found


def imports_of(module: Module) -> Iterator[Import]:
    """Yield all imports of a module, also nested ones and a literal `import_module`."""
    package = module.name.split(".")[: None if module.is_package else -1]
    for node in ast.walk(module.tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield Import(node.lineno, alias.name)
            case ast.ImportFrom(module=target, names=names, level=level):
                start = package[: len(package) - level + 1] if level else []
                base = ".".join([*start, *([target] if target else [])])
                for alias in names:
                    yield Import(node.lineno, base, alias.name)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__")
                | ast.Attribute(attr="import_module" | "__import__"),
                args=[ast.Constant(value=str(target)), *_],
            ):
                yield Import(node.lineno, target)
            case _:
                pass


def direction_faults(module: Module, known: Iterable[str]) -> list[str]:
    """Return one line for each import that points upwards or sideways."""
    known = set(known)
    faults = []
    for found in imports_of(module):
        if found.module.split(".")[0] != "hansard":
            continue
        # `from hansard.log import disk` imports a module if there is one of that name.
        longer = f"{found.module}.{found.name}"
        target = longer if longer in known else found.module
        # `from hansard import errors` may be written before errors is.
        if found.module == "hansard" and found.name in {name for row in LAYERS for name in row}:
            target = longer
        fault = broken_rule(module.package, package_of(target), target)
        if fault:
            faults.append(f"{module.path}:{found.line}: imports {target}: {fault}")
    return faults


def broken_rule(importer: str, imported: str, target: str) -> str | None:
    """Return the rule that an import breaks, in words; None if it breaks none."""
    depth = {name: layer for layer, row in enumerate(LAYERS) for name in row}
    for name in (importer, imported):
        if name not in depth:
            return f"{name} is in no layer; add it to the table of {Path(__file__).name}"
    if importer in {imported, "hansard"}:
        return None
    if depth[imported] < depth[importer]:
        return f"{imported} is above {importer}, and a module imports only what is below it"
    if depth[imported] == depth[importer] and (importer, imported) not in NEIGHBOURS:
        return f"{imported} is in the same layer as {importer}, and neither imports the other"
    allowed = ONLY.get((importer, imported))
    if allowed is not None and target not in allowed:
        what = " and ".join(sorted(allowed)) or "nothing"
        return f"of {imported}, {importer} imports {what} only"
    return None


def file_faults(module: Module) -> list[str]:
    """Return one line for each way in which a module touches files without being disk."""
    if module.package in EDGES or module.name == TOUCHES_FILES:
        return []
    return [
        f"{module.path}:{line}: {what}: only log/disk.py touches the operating system's files"
        for line, what in sorted(file_uses(module))
    ]


def file_uses(module: Module) -> Iterator[tuple[int, str]]:
    """Yield line and name of each file function that a module imports or uses."""
    for found in imports_of(module):
        if (found.module, found.name) == NO_FILE:
            continue
        if found.module.split(".")[0] in FILE_MODULES or (
            found.module in {"os", "os.path"} and found.name not in {None, *HARMLESS}
        ):
            yield found.line, f"{found.module}.{found.name or ''}".rstrip(".")
    # The package's own `open` does not open files.
    names = {node.name for node in module.tree.body if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(module.tree):
        match node:
            case ast.Name(id="open") if "open" not in names:
                yield node.lineno, "open"
            case ast.Attribute(value=ast.Name(id="os"), attr=name):
                if name not in HARMLESS and not name.isupper():
                    yield node.lineno, f"os.{name}"
            case ast.Attribute(
                value=ast.Attribute(value=ast.Name(id="os"), attr="path"), attr=name
            ):
                if name not in HARMLESS_PATH:
                    yield node.lineno, f"os.path.{name}"
            case _:
                pass


MODULES = source_modules()
NAMES = [module.name for module in MODULES]


def test_the_package_is_found() -> None:
    """The rules below are checked against the package, not an empty directory."""
    assert "hansard" in NAMES


@pytest.mark.parametrize("module", MODULES, ids=NAMES)
def test_imports_point_downwards(module: Module) -> None:
    """A module imports only what is below it."""
    faults = direction_faults(module, NAMES)
    assert not faults, "\n" + "\n".join(faults)


@pytest.mark.parametrize("module", MODULES, ids=NAMES)
def test_only_disk_touches_files(module: Module) -> None:
    """No module but log/disk.py calls the operating system's file functions."""
    faults = file_faults(module)
    assert not faults, "\n" + "\n".join(faults)


#: Packages that have modules of the same name, for the same thing.
TWINS = ({"", "aio"}, {"adapters", "importers"}, {"backend.local", "backend.postgres"})


def test_no_name_is_used_for_two_things() -> None:
    """A module's name recurs in twins and below its command, a class's name only in `aio`."""
    modules: dict[str, set[str]] = {}
    classes: dict[str, set[str]] = {}
    for module in MODULES:
        package, _, name = module.name.removeprefix("hansard").strip(".").rpartition(".")
        if not module.is_package and name != "__main__":
            modules.setdefault(name, set()).add(package)
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and package != "aio":
                classes.setdefault(node.name, set()).add(module.name)
    twice = {name: found for name, found in modules.items() if len(found) > 1}
    assert {
        name: found
        for name, found in twice.items()
        if found not in TWINS and "cli.commands" not in found
    } == {}
    assert {name: found for name, found in classes.items() if len(found) > 1} == {}
