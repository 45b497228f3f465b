"""Write docs/reference/command.md from the commands themselves.

`python tools/command_reference.py` prints the page; `--write` writes it. A test fails if the page is stale.
"""

import sys
from pathlib import Path

import click

from hansard.cli.app import COMMANDS, app, load
from hansard.cli.command import Command

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "command.md"

#: What every command takes stands once, at the top.
COMMON = ("json", "store", "debug")

HEAD = """# Reference: the command

Made by `tools/command_reference.py` from the commands themselves; do not edit it here.
There is also [a tour](../guides/command.md).

    hansard [-s STORE] COMMAND …

The store is a folder: that of `-s`, else of the variable `HANSARD_STORE`, else `.hansard` in the current
folder. `-s`, `--json` and `--debug` may stand before the command's name or behind it.

| exit code | |
| --- | --- |
| 0 | done |
| 1 | it found something, or failed |
| 2 | the words of the call are off |
| 130 | interrupted |

Results go to stdout; errors, in one line, questions, remarks and progress go to stderr. There are colours on
a terminal only, and none if `NO_COLOR` is set; in a pipe no line is wrapped or cut to a width. Control
characters in stored text are shown, as `\\x1b`, and do nothing.

Tab completion, with session ids: `eval "$(_HANSARD_COMPLETE=bash_source hansard)"` in `~/.bashrc`; in zsh the
same with `zsh_source`; in fish `_HANSARD_COMPLETE=fish_source hansard | source`.

Every command takes:

| option | |
| --- | --- |
"""


def page() -> str:
    """Return the whole page."""
    common = [param for param in load("replay").params if param.name in COMMON]
    parts = [HEAD + "\n".join(_option(param) for param in common)]
    version = next(param for param in app.params if param.name == "version")
    parts[0] += f"\n| `--version` | {getattr(version, 'help', '')} (before any command) |\n"
    section = ""
    for name, entry in COMMANDS.items():
        if entry.section != section:
            section = entry.section
            parts.append(f"## {section}\n")
        found = load(name)
        assert isinstance(found, Command)
        parts.append(_command(found))
    return "\n".join(parts)


def _command(command: Command) -> str:
    """Return what the page says of one command."""
    words = [
        param.make_metavar(click.Context(command))
        for param in command.params
        if isinstance(param, click.Argument)
    ]
    options = [
        param
        for param in command.params
        if isinstance(param, click.Option) and param.name not in COMMON
    ]
    title = " ".join(["hansard", str(command.name), *words])
    lines = [f"### `{title}`\n", f"{(command.help or '').strip()}\n"]
    if options:
        lines += ["| option | |", "| --- | --- |", *map(_option, options), ""]
    for example in command.examples:
        shown, _, purpose = example.partition("  # ")
        lines.append(f"    hansard {shown}" + (f"    # {purpose}" if purpose else ""))
    return "\n".join(lines) + "\n"


def _option(param: click.Parameter) -> str:
    """Return a row of a table of options."""
    assert isinstance(param, click.Option)
    words = ", ".join(param.opts)
    if not param.is_flag:
        words += f" {param.make_metavar(click.Context(load('replay')))}"
    default = f" [default: {param.default}]" if param.show_default else ""
    cells = (f"`{words}`", f"{param.help}{default}")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page())
