"""Tab completion for bash, zsh and fish, with quoted values.

A session id may contain any printable text, such as `$(rm x)`, and may come from someone else. zsh and fish
quote what they insert. bash does not, so values are quoted here.
"""

import os
import re
from typing import Any, Final

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

from hansard.cli.screen import cell

#: Characters that a shell may interpret.
_SPECIAL: Final = re.compile(r"[^\w@%+=:,./-]")

_BASH: Final = """\
%(complete_func)s() {
    local response completion
    response=$(env COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_WORD="$2" \\
%(complete_var)s=bash_complete "$1")
    COMPREPLY=()
    while IFS= read -r completion; do
        case $completion in
            dir,*) compopt -o dirnames ;;
            file,*) compopt -o default ;;
            plain,*) COMPREPLY+=("${completion#plain,}") ;;
        esac
    done <<< "$response"
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""

_FISH: Final = """\
function %(complete_func)s
    for completion in (env %(complete_var)s=fish_complete COMP_WORDS=(commandline -cp | string collect) \\
COMP_CWORD=(commandline -t) %(prog_name)s)
        set -l metadata (string split -m 1 -- "," $completion)
        switch $metadata[1]
            case dir
                __fish_complete_directories $metadata[2]
            case file
                __fish_complete_path $metadata[2]
            case plain
                printf '%%s\\n' $metadata[2]
        end
    end
end

complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
"""


@add_completion_class
class Bash(BashComplete):
    """Completion for bash."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the cursor, and the unfinished one."""
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)[1:]
        # If a further character begins a new word, the last word is complete.
        begins = len(split_arg_string(line + "x")[1:]) > len(words)
        return (words, "") if begins or not words else (words[:-1], words[-1])

    def format_completion(self, item: "CompletionItem[Any]") -> str:
        """Return the replacement of COMP_WORD: what was typed, and the rest of the value, quoted."""
        if item.type != "plain":
            return super().format_completion(item)
        line, word = os.environ["COMP_LINE"], os.environ["COMP_WORD"]
        typed = self.get_completion_args()[1]
        if not item.value.startswith(typed):
            typed = typed.rpartition("=")[2]  # --option=value
        rest = item.value[len(typed) :]
        if not item.value.startswith(typed) or not line.endswith(word):
            return ""
        if split_arg_string(line + " x")[-1] == "x":
            return f"plain,{word}" + _SPECIAL.sub(r"\\\g<0>", rest)
        # Inside quotes, or after a backslash: only values that need no quoting.
        return "" if _SPECIAL.search(rest) else f"plain,{word}{rest}"


@add_completion_class
class Zsh(ZshComplete):
    """Completion for zsh, which quotes what it inserts."""

    def format_completion(self, item: "CompletionItem[str]") -> str:
        """Return three lines. A value with a colon or a backslash has no help: zsh would split it there."""
        return super().format_completion(
            _one_line(item, helped=not re.search(r"[:\\]", item.value))
        )


@add_completion_class
class Fish(FishComplete):
    """Completion for fish, which quotes what it inserts."""

    source_template = _FISH

    def format_completion(self, item: "CompletionItem[str]") -> str:
        """Return one line."""
        return super().format_completion(_one_line(item))


def _one_line(item: "CompletionItem[str]", *, helped: bool = True) -> "CompletionItem[str]":
    return CompletionItem(item.value, item.type, cell(item.help) if item.help and helped else None)


def is_safe(value: str) -> bool:
    """Return whether a value is safe for the shell that asks."""
    shell = os.environ.get("_HANSARD_COMPLETE", "").partition("_")[0]
    return shell in {"bash", "zsh", "fish"} or not _SPECIAL.search(value)
