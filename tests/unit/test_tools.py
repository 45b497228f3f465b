"""The scripts of the checkout: they parse, they run, and their errors name what is missing."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]

# What a person or a robot starts. The README names the first two.
COMMANDS = (
    "tools/try", "tools/test", "tools/check", "tools/docs", "tools/release", "tools/replay",
    "tools/compact", ".ci/run",
)  # fmt: skip


def first_line(path: Path) -> bytes:
    """Return the first line of a file."""
    with path.open("rb") as file:
        return file.readline()


def scripts() -> list[str]:
    """Return the files of tools/ and .ci/ that have an interpreter line."""
    found = [path for folder in ("tools", ".ci") for path in (CHECKOUT / folder).rglob("*")]
    return sorted(
        path.relative_to(CHECKOUT).as_posix()
        for path in found
        if path.is_file() and first_line(path).startswith(b"#!")
    )


def kept_files() -> list[Path]:
    """Return the files that are in the repository, or would be with the next commit."""
    if shutil.which("git") is None or not (CHECKOUT / ".git").exists():
        pytest.skip("this is a copy without its repository")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT,
        check=True,
        capture_output=True,
    )
    paths = [CHECKOUT / os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def run_tool(name: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run one of the commands, from another directory, with some variables set."""
    return subprocess.run(
        [CHECKOUT / name, *arguments],
        cwd="/",
        env={**os.environ, **variables},
        check=False,
        capture_output=True,
        text=True,
    )


def test_the_commands_are_there() -> None:
    """Every command that the docs name is a script that the next tests check."""
    assert set(COMMANDS) <= set(scripts())


@pytest.mark.parametrize(
    "script",
    [
        "tools/lib/environment.sh",
        *(name for name in scripts() if first_line(CHECKOUT / name).endswith(b"bash\n")),
    ],
)
def test_shell_scripts_parse(script: str) -> None:
    """Bash finds no syntax error in a shell script."""
    done = subprocess.run(
        ["bash", "-n", CHECKOUT / script], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_readme_names_the_first_two_commands_in_order() -> None:
    """The README's first command is tools/try, its second tools/test."""
    readme = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"tools/(?:try|test)\b", readme)
    assert list(dict.fromkeys(commands)) == ["tools/try", "tools/test"]


@pytest.mark.parametrize(
    "name",
    ["tools/try", "tools/test", "tools/check", "tools/release", "tools/replay", "tools/compact"],
)
def test_an_old_python_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    """A tool with a too old Python ends with one line, and creates nothing."""
    old = tmp_path / "an old python"
    old.write_text("#!/bin/sh\necho 3.9.18\nexit 1\n", encoding="utf-8")
    old.chmod(0o755)
    done = run_tool(name, PYTHON=str(old))
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{name} needs Python 3.11 or newer: PYTHON={old} is 3.9.18;")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_packages_of_a_release_pass_their_checks() -> None:
    """tools/release builds, checks and installs sdist and wheel, and names the tag and the uploads."""
    # Without the repository, whose tags change what is to be done next.
    done = run_tool("tools/release", "--quick", GIT_DIR="/nonexistent")
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [line for line in done.stdout.splitlines() if line.startswith("-- ")]
    assert len(steps) == 4
    *_, tag, push, upload = done.stdout.splitlines()
    assert re.fullmatch(r" +git tag -a v\S+ -m 'hansard \S+'", tag)
    assert push.split() == ["git", "push", "origin", tag.split()[3]]
    files = upload.split()[4:]
    assert all((CHECKOUT / file).is_file() for file in files)
    assert [file.removeprefix("dist/hansard-")[5:] for file in files] == [
        "-py3-none-any.whl",
        ".tar.gz",
    ]
    assert run_tool("tools/release", "--fast").returncode == 2


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    """No file names a directory of one machine, or a server of packages."""
    # Put together here, so that this file does not find itself.
    folders = "work|root"
    hosts = "|".join(("py" + "pi[.-]", "python" + "hosted", "index" + "-url", "trusted" + "-host"))
    forbidden = re.compile(rf"(?<![\w.])/(?:{folders})/|{hosts}".encode())
    found = [
        f"{path.relative_to(CHECKOUT)}:{number}: {match.group().decode()}"
        for path in kept_files()
        for number, line in enumerate(path.read_bytes().split(b"\n"), start=1)
        for match in forbidden.finditer(line)
    ]
    assert found == []
