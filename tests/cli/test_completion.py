"""The Tab key inserts session ids so that the shell takes them literally: bash, zsh and fish themselves."""

import os
import shutil
import sys
from pathlib import Path

import pytest

import hansard as library
from tests.cli.conftest import OpenTerminal
from tests.cli.running import hansard
from tests.cli.terminal import Terminal

#: How to start each shell without settings, and its first input.
SHELLS = {
    "bash": ("bash --norc --noprofile -i", 'eval "$(_HANSARD_COMPLETE=bash_source hansard)"; PS1='),
    "zsh": (
        "zsh -f -i",
        (
            "autoload -Uz compinit && compinit -D -u; "
            'eval "$(_HANSARD_COMPLETE=zsh_source hansard)"; PS1='
        ),
    ),
    "fish": (
        "fish --no-config -i",
        "_HANSARD_COMPLETE=fish_source hansard | source; function fish_prompt; end",
    ),
}

#: The command, for a shell: completion is the real one, and so is `show`; else the second word is printed.
PROGRAM = """#!/bin/sh
if [ -n "$_HANSARD_COMPLETE" ] || [ "$1" = show ]; then exec "{python}" -m hansard.cli "$@"; fi
printf '<%s>\\n' "$2"
"""

#: Ids that run something, or become something else, if a shell interprets them. Each begins otherwise.
HOSTILE = (
    "a1$(touch PWNED)", "a2`touch PWNED`;touch PWNED;", "a3|touch PWNED&touch PWNED>PWNED",
    "a4'$(touch PWNED)'", 'a5"$(touch PWNED)"\\$(touch PWNED)', "a6* {a,b} ~ #x !y $HOME, 100% <é日😀>",
    "a7:a=b,c@d",
)  # fmt: skip


@pytest.mark.parametrize("shell", SHELLS)
def test_a_completed_id_is_literal(shell: str, tmp_path: Path, terminal: OpenTerminal) -> None:
    """Tab after the beginning of an id inserts it literally: nothing in it, or in its title, is run."""
    with library.open(tmp_path / "store", durability="os") as store:
        for id in HOSTILE:
            session = store.create(id, metadata={"title": "a\nplain\n$(touch PWNED)\n_"})
            session.add_message({"role": "user", "content": "found it"})
    run = in_shell(shell, tmp_path, terminal)
    for id in HOSTILE:
        run.type(f"hansard tail {id[:2]}\t\n")
        run.wait_for(f"<{id}>")
    run.type("hansard show a1\t\n")
    run.wait_for("found it")
    run.type("exit\n")
    run.wait()
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_continues_a_word(shell: str, tmp_path: Path, terminal: OpenTerminal) -> None:
    """A word that was typed with a colon, an escape or quotes is completed; commands and options are, too."""
    with library.open(tmp_path / "store", durability="os") as store:
        for id in ("a:b/c d", "q-1"):
            store.session(id).add_message({})
    run = in_shell(shell, tmp_path, terminal)
    for typed, found in (
        ("hansard tai\ta:\t\n", "<a:b/c d>"),
        ("clear; hansard tail a:b/c\\ \t\n", "<a:b/c d>"),
        ("hansard tail 'q\t\n", "<q-1>"),
        ("hansard tail --ful\t\n", "<--full>"),
    ):
        run.type(typed)
        assert found in run.wait_for(found)
    run.type("exit\n")
    run.wait()


def in_shell(shell: str, tmp_path: Path, terminal: OpenTerminal) -> Terminal:
    """Start a shell in an empty directory, with the command on its path and completion set up."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    for name in ("bin", "empty"):
        (tmp_path / name).mkdir()
    program = tmp_path / "bin" / "hansard"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    words, setup = SHELLS[shell]
    run = terminal(
        store=tmp_path / "store",
        program=words.split(),
        cwd=tmp_path / "empty",
        rows=50,
        PATH=f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        HOME=str(tmp_path),
        LC_ALL="C.UTF-8",
    )
    run.type(f'{setup}; echo rea""dy\n')
    run.wait_for("ready")
    return run


def offered(store: Path, line: str, word: str | None = None) -> list[str]:
    """Return what bash is offered after a line, for its last word or for a part of it."""
    word = line.rpartition(" ")[2] if word is None else word
    asked = {"_HANSARD_COMPLETE": "bash_complete", "COMP_LINE": line, "COMP_WORD": word}
    return hansard(store=store, env=asked).out.strip().splitlines()


def test_ids_that_look_like_options_are_offered_after_two_dashes(tmp_path: Path) -> None:
    """An id that begins with a dash is not offered where it would be an option."""
    with library.open(tmp_path, durability="os") as store:
        store.session("--full").add_message({})
    assert offered(tmp_path, "hansard show ") == []
    assert offered(tmp_path, "hansard show -- --") == ["plain,--full"]


def test_other_shells_are_offered_only_what_needs_no_quoting(tmp_path: Path) -> None:
    """A shell whose quoting is not known here is not offered an id that it could interpret."""
    with library.open(tmp_path, durability="os") as store:
        for id in ("zz$(touch PWNED)", "zz-1"):
            store.session(id).add_message({})
    asked = {"_HANSARD_COMPLETE": "powershell_complete", "COMP_WORDS": "hansard show zz"}
    done = hansard(store=tmp_path, env={**asked, "COMP_CWORD": "2"})
    assert "PWNED" not in done.out


#: Unfinished lines after `hansard`, the part that bash replaces, and what is offered.
OFFERED = (
    ("replay a --at b", "b", "before\\ \\$\\(x\\)"),
    ("revert a ", "", "before\\ \\$\\(x\\)"),
    ("replay a --kind x", "x", "x.todo"),
    ("ls --where user=", "", "u7"),
    ("add a --meta pl", "pl", "plan=a\\ b"),
    ("diff a@b", "a@b", "a@before\\ \\$\\(x\\)"),
    ("stats --model ", "", "large"),
    ("restore ", "", "deleted"),
)


def test_names_kinds_metadata_models_and_the_trash_are_offered(tmp_path: Path) -> None:
    """Snapshot names and kinds of the named session, and metadata, models and the trash of the store."""
    with library.open(tmp_path, durability="os") as store:
        session = store.create("a", metadata={"user": "u7", "plan": "a b", "title": "T"})
        session.append("x.todo", {})
        session.snapshot("before $(x)")
        session.record_usage(model="large", input_tokens=1)
        store.session("deleted").add_message({})
        store.delete("deleted")
    for line, word, value in OFFERED:
        assert offered(tmp_path, f"hansard {line}", word) == [f"plain,{value}"], line
    assert offered(tmp_path, "hansard revert none ") == []


def test_paths_are_completed_by_the_shell(tmp_path: Path) -> None:
    """Where a path goes, the shell completes files."""
    library.open(tmp_path).close()
    for words in ("-s", "ls -s", "copy", "copy x", "import codex", "export a -o", "ls --workspace"):
        assert offered(tmp_path, f"hansard {words} d") == ["file,d"]
