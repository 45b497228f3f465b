"""What all commands have in common: start-up, help, errors, pipes, completion, colours."""

import errno
import json
import tomllib
from pathlib import Path

import pytest

import hansard as library
from hansard.cli import VERSION
from hansard.cli.app import COMMANDS, load
from hansard.cli.command import Command
from tests.cli.conftest import OpenTerminal
from tests.cli.running import hansard, python
from tests.crashlab import faults

ROOT = Path(__file__).parents[2]


def test_the_version_is_the_package_s_own() -> None:
    """`hansard --version` prints the version of pyproject.toml, with exit 0 and nothing on stderr."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["version"] == VERSION
    assert hansard("--version") == (0, f"hansard {VERSION}\n", "")


def test_the_version_is_answered_before_anything_is_imported() -> None:
    """`hansard --version` loads neither the library nor Click nor Rich nor msgspec."""
    program = (
        "import sys, json; sys.argv = ['hansard', '--version']\n"
        "from hansard.cli.__main__ import main; main()\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    loaded = json.loads(python(program).out.splitlines()[1])
    assert [name for name in loaded if name.startswith("hansard")] == [
        "hansard",
        "hansard.cli",
        "hansard.cli.__main__",
    ]
    assert not {"click", "rich", "msgspec"} & set(loaded)


def test_a_command_loads_only_what_it_needs(store: Path) -> None:
    """A command whose output goes into a pipe loads its own module only, and nothing for terminals."""
    program = (
        "import sys; before = set(sys.modules)\n"
        "sys.argv = ['hansard', 'show', 'agent/1', '--json']\n"
        "from hansard.cli.__main__ import main; main()\n"
        "print([n for n in sys.modules if n.startswith(('hansard.cli.commands.', 'rich'))])\n"
        "print({'hashlib', 'shutil', 'subprocess'} & (set(sys.modules) - before))"
    )
    loaded = python(program, store).out.splitlines()[-2:]
    assert loaded == ["['hansard.cli.commands.replay']", "set()"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(name: str) -> None:
    """Each command takes --json, -s and --debug, and has help, examples, and a word on each option."""
    command = load(name)
    assert isinstance(command, Command)
    assert command.name == name
    options = {word for param in command.params for word in param.opts}
    assert {"--json", "-s", "--store", "--debug"} <= options
    assert command.help
    assert "--json" in command.help, "what --json prints must be said"
    assert command.examples
    for param in command.params:
        assert param.param_type_name == "argument" or getattr(param, "help", None), param.name


def test_help_lists_every_command() -> None:
    """`hansard` and `hansard --help` list all commands, and `hansard replay --help` has its examples."""
    listed = hansard("--help")
    assert listed.code == 0
    assert [n for n in COMMANDS if f"\n  {n} " not in listed.out] == []
    assert hansard() == listed
    own = hansard("replay", "-h")
    assert own.code == 0
    assert "Examples:" in own.out
    # To be pasted as it is, also into zsh: the purpose is in the next line.
    assert "\n  hansard replay support/42 --speed 10\n    ten times as fast\n" in own.out


def test_debug_shows_the_trace(tmp_path: Path) -> None:
    """`--debug`, before or after the command's name, shows the trace above the line."""
    for words in (("--debug", "verify"), ("verify", "--debug")):
        done = hansard("-s", tmp_path / "none", *words)
        assert done.code == 1
        assert done.err.startswith("Traceback")
        assert "no hansard store here" in done.err.splitlines()[-1]


def test_hints_name_commands(store: Path) -> None:
    """N-90: where the library's hint names a call, the command names a command."""
    with library.open(store) as opened:
        opened.delete("agent/1-b")
        with faults.fail(errno.EIO, only={"sync"}), pytest.raises(library.SyncFailed):
            opened.session("agent/1").add_message({})
    for name, hint in (
        ("agent/1", "`hansard verify --reopen`"),
        ("agent/1-b", "`hansard restore`"),
    ):
        done = hansard("add", name, "hi", store=store)
        assert done.code == 1
        assert hint in done.err
        assert "()" not in done.err


def test_the_store_is_named_by_option_variable_or_place(store: Path, tmp_path: Path) -> None:
    """N-90: -s is accepted anywhere and takes precedence over HANSARD_STORE, then `.hansard`."""
    for words in (("-s", store, "snapshot", "agent/1"), ("snapshot", "agent/1", "-s", store)):
        assert hansard(*words, store=tmp_path / "none").code == 0
    assert hansard("snapshot", "agent/1", store=store).code == 0
    (tmp_path / "here").mkdir()
    store.rename(tmp_path / "here" / ".hansard")
    assert hansard("snapshot", "agent/1", cwd=tmp_path / "here").code == 0


def test_a_terminal_that_knows_only_ascii(store: Path) -> None:
    """Characters that an encoding lacks are shown as escapes, and JSON stays JSON."""
    plain = hansard("replay", "agent/1", store=store, PYTHONIOENCODING="ascii")
    assert plain.code == 0
    assert "\\u2192 lookup(" in plain.out
    with library.open(store) as opened:
        opened.session("e").add_message({"role": "user", "content": "é→😀"})
    lines = hansard("replay", "e", "--json", store=store, PYTHONIOENCODING="ascii").lines
    assert lines[0]["data"]["message"]["content"] == "é→😀"


def test_colours_are_for_terminals_that_want_them(store: Path, terminal: OpenTerminal) -> None:
    """There are colours on a terminal, none with NO_COLOR, none in a pipe, none with --json."""
    coloured = terminal("replay", "agent/1", store=store)
    assert coloured.wait() == 0
    assert b"\x1b[1;32m" in coloured.raw
    plain = terminal("replay", "agent/1", store=store, NO_COLOR="1")
    assert plain.wait() == 0
    assert b"\x1b[3" not in plain.raw.replace(b"\x1b[3m", b"")
    assert "\x1b" not in hansard("replay", "agent/1", store=store).out
    machine = terminal("replay", "agent/1", "--json", store=store)
    assert machine.wait() == 0
    assert b"\x1b" not in machine.raw
