"""Reading writes nothing, and importing decides nothing."""

import ast
import inspect
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import Store
from tests.programs import python
from tests.unit.disk_probe import log_of, tree
from tests.unit.sample_messages import said

#: The user to switch to from root, which modes do not restrict.
UNPRIVILEGED = 65534


def sample(root: Path) -> None:
    """Make a store with sessions in every state that a reader can meet."""
    with hansard.open(root, durability="os") as store:
        session = store.create("plain", metadata={"title": "T"})
        session.add_messages([{"n": 1}, {"n": 2}], key="k")
        for name in ("torn", "other", "deleted", "half deleted", "x" * 700):
            store.session(name).add_message({"n": 1})
        store.delete("deleted")
        # Shut by a note, as the first half of a deletion leaves it.
        store.delete("half deleted")
    (root / "trash" / "half%20deleted").rename(root / "sessions" / "half%20deleted")
    with open(log_of(root, "torn"), "ab") as file:
        file.write(b'{"seq":2,"time":"20')
    (root / "sessions" / "begun").mkdir(mode=0o700)


def read_everything(store: Store) -> None:
    """Call everything that reads."""
    found = {info.id for info in store.sessions().items}
    assert found == {"plain", "torn", "other", "x" * 700}
    for name in (*found, "missing", "begun"):
        assert said(store.session(name))["seq"] == {"plain": 3, "missing": 0, "begun": 0}.get(
            name, 1
        )
    assert next(store.session("plain").events(follow=True)).seq == 1
    assert [finding.severity for finding in store.session("torn").verify().findings] == ["note"]
    assert store.verify().ok
    assert store.prune(older_than=1e-6, dry_run=True).pruned == sorted(found)
    assert "deleted" in store.trash()
    assert [event.kind for event in store.audit()] == ["session.deleted"] * 2
    assert store.exists("plain")
    for name in ("missing", "deleted", "half deleted", "begun"):
        assert not store.exists(name)


def writes(store: Store) -> dict[str, Callable[[], object]]:
    """Return a call of everything that writes."""
    return {
        "add_message": lambda: store.session("plain").add_message({"n": 3}),
        "add_messages": lambda: store.session("new").add_messages([{"n": 3}], key="k"),
        "append": lambda: store.session("torn").append("x.a", {}),
        "set_metadata": lambda: store.session("plain").set_metadata(title="U"),
        "create": lambda: store.create("new"),
        "delete": lambda: store.delete("plain"),
        "restore": lambda: store.restore("deleted"),
        "restore half": lambda: store.restore("half deleted"),
        "purge": lambda: store.purge("deleted"),
        "prune": lambda: store.prune(older_than=1e-6),
    }


def test_reading_changes_nothing(tmp_path: Path) -> None:
    """N-62, F-41: after every reading call no file has appeared, vanished or changed in any way.

    Where it may write, a listing keeps an index, which may be deleted at any time; nothing else.
    """
    root = tmp_path / "store"
    sample(root)
    before = tree(tmp_path)
    with hansard.open(root, read_only=True) as store:
        read_everything(store)
        assert store.health().writable is False
        assert tree(tmp_path) == before
        for name, call in writes(store).items():
            with pytest.raises(hansard.ReadOnly):
                call()
            assert tree(tmp_path) == before, name
    with hansard.open(root, create=False) as store:
        read_everything(store)
    assert _kept(tree(tmp_path)) == _kept(before)


def _kept(found: dict[str, Any]) -> dict[str, Any]:
    """Return a tree without what is derived, and without the root, whose time that changes."""
    derived = ("store/index", "store/marks")
    return {
        name: seen
        for name, seen in found.items()
        if name != "store" and not name.startswith(derived)
    }


@pytest.fixture
def unwritable() -> Iterator[Path]:
    """Return a store that the test's user, or the one that root switches to, can read and not write."""
    place = Path(tempfile.mkdtemp(prefix="hansard-read-only-"))
    try:
        sample(place / "store")
        for path in [place, *place.rglob("*")]:
            if os.getuid() == 0:
                os.chown(path, UNPRIVILEGED, UNPRIVILEGED)
            path.chmod(0o500 if path.is_dir() else 0o400)
        yield place / "store"
    finally:
        for path in [place, *place.rglob("*")]:
            if path.is_dir():
                path.chmod(0o700)
        shutil.rmtree(place)


PROGRAM = f"""
import os, sys, errno
import hansard
from hansard.backend.local import backend
from tests.unit.test_read_only import read_everything, writes
import hansard.event.secrets, hansard.index.index, hansard.index.listing, hansard.maintenance.prune
import portalocker.portalocker  # imported while it can be: this user may not see the interpreter's files
if os.getuid() == 0:
    os.setgroups([])
    os.setgid({UNPRIVILEGED})
    os.setuid({UNPRIVILEGED})
root = sys.argv[1]
try:
    open(root + "/probe", "w")
except PermissionError:
    print("unwritable")
with hansard.open(root, read_only=True) as store:
    read_everything(store)
    store.health()
with hansard.open(root) as store:
    read_everything(store)
    for name, call in writes(store).items():
        try:
            call()
        except hansard.DiskFailed as error:
            assert error.errno == errno.EACCES, (name, error)
        else:
            raise AssertionError(name)
    read_everything(store)
print("read")
"""


def test_a_directory_that_cannot_be_written_can_be_read(unwritable: Path) -> None:
    """N-62: without leave to write, all reading works, every write raises, and no file appears."""
    before = tree(unwritable.parent)
    done = python("-c", PROGRAM, unwritable, cwd=Path(__file__).parents[2], timeout=60)
    assert done.stdout.split() == ["unwritable", "read"], done.stderr
    assert tree(unwritable.parent) == before


LATER = """
import os, sys
os.chdir(sys.argv[1])
import hansard
from hansard.backend import memory
from hansard.backend.local import backend
assert os.listdir(".") == [], "the import has made something"
os.mkdir("first"); os.mkdir("second"); os.mkdir("home")
os.environ["HOME"] = os.path.abspath("home")
os.chdir("first")
store = hansard.open("data", durability="os")
store.session("a").add_message({"n": 1})
os.chdir("../second")
store.session("a").add_message({"n": 2})
store.session("b").add_message({"n": 1})
other = hansard.open("data", durability="os")
assert not other.exists("a")
os.chdir("/")
store.delete("b"); store.restore("b"); store.health(); store.verify()
assert [info.id for info in store.sessions().items] == ["a", "b"]
assert store.health().where.endswith("first/data")
"""


def test_paths_are_resolved_when_a_store_is_opened(tmp_path: Path) -> None:
    """N-90: what changes after the import (directory, HOME) counts at `open`, and not after it."""
    subprocess.run([sys.executable, "-c", LATER, str(tmp_path)], check=True, timeout=60)
    assert sorted(os.listdir(tmp_path / "first" / "data" / "sessions")) == ["a", "b"]
    assert sorted(os.listdir(tmp_path / "second" / "data" / "sessions")) == []
    assert os.listdir(tmp_path / "home") == []


def test_no_module_asks_for_its_surroundings_at_import() -> None:
    """N-90: no module reads the environment, the directory or the home while it is imported."""
    found = []
    for path in Path(inspect.getfile(hansard)).parent.rglob("*.py"):
        tree_of_file = ast.parse(path.read_bytes())
        inside = {
            node
            for function in ast.walk(tree_of_file)
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            for node in ast.walk(function)
        }
        found += [
            f"{path.name}:{node.lineno}: {node.attr}"
            for node in ast.walk(tree_of_file)
            if isinstance(node, ast.Attribute)
            and node not in inside
            and node.attr in {"environ", "getenv", "getcwd", "cwd", "home", "expanduser", "abspath"}
        ]
    assert found == []
