"""Prepare the virtual environment that the tools run in, and print the path of its Python.

    environment.py [GROUP]    with GROUP, the packages of that dependency group as well

Called by lib/environment.sh with a Python that is new enough. Nothing but the standard library is
used, since nothing else is there yet. There is one environment for each Python, in
`.venv/<its tag>`, and a stamp in it records what it was created from: while that stays the same, a run
starts at once.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
ENVIRONMENT = CHECKOUT / ".venv" / str(sys.implementation.cache_tag)
PYTHON = ENVIRONMENT / "bin" / "python"
STAMP = ENVIRONMENT / "made-from.json"

# These variables would make pip install to a place outside the environment.
MISLEADING = ("PIP_PREFIX", "PIP_REQUIRE_VIRTUALENV", "PIP_TARGET", "PIP_USER")

Stamp = dict[str, Any]


class SetupError(Exception):
    """The environment cannot be created; the message has the reason and the remedy."""


def main(groups: Sequence[str]) -> int:
    """Prepare an environment if necessary, and print its Python."""
    try:
        lock = wait_for_turn()
        prepare(groups, lock)
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"cannot make {ENVIRONMENT}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(PYTHON)
    return 0


def prepare(groups: Sequence[str], lock: int) -> None:
    """Do what `missing` names, and stamp the environment when all of it is done."""
    found, wanted = read_stamp(), wanted_stamp(groups)
    todo = missing(found, wanted)
    if todo == "nothing":
        return
    # An environment without a stamp is recreated, so this is what an interrupted run leaves.
    STAMP.unlink(missing_ok=True)
    if todo == "all":
        create(lock)
    else:
        say(f"bringing {ENVIRONMENT.relative_to(CHECKOUT)} up to date")
    # The package is reinstalled only if necessary: another tool may be running from it.
    install = [] if todo == "groups" else ["--editable", str(CHECKOUT)]
    # A run with fewer groups keeps what an earlier one installed, and keeps it up to date.
    kept = found["groups"] if found and todo != "all" else []
    groups = sorted({*wanted["groups"], *kept})
    for group in groups:
        install += requirements(group)
    pip([str(PYTHON)], ["install", *install], lock)
    write_stamp({**wanted, "groups": groups})


def wanted_stamp(groups: Sequence[str]) -> Stamp:
    """Return what an environment for this run depends on."""
    return {
        # Scripts and the editable install contain absolute paths: a moved checkout needs a new one.
        "checkout": str(CHECKOUT),
        "python": f"{sys.base_prefix} {sys.version}",
        "pyproject": hashlib.sha256((CHECKOUT / "pyproject.toml").read_bytes()).hexdigest(),
        "groups": sorted(groups),
    }


def missing(found: Stamp | None, wanted: Stamp) -> str:
    """Return what an environment needs: "nothing", "groups", "packages" or "all"."""
    if found is None or any(found.get(name) != wanted[name] for name in ("checkout", "python")):
        return "all"
    if found.get("pyproject") != wanted["pyproject"]:
        return "packages"
    return "nothing" if {*wanted["groups"]} <= {*found["groups"]} else "groups"


def read_stamp() -> Stamp | None:
    """Return what the environment was created from; None if it is unfinished or does not run."""
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
        # Its Python may have been removed since, or replaced by one that lacks a library.
        subprocess.run([PYTHON, "-c", ""], check=True, capture_output=True)
    except (OSError, ValueError, subprocess.CalledProcessError):
        return None
    return stamp if isinstance(stamp, dict) and isinstance(stamp.get("groups"), list) else None


def write_stamp(stamp: Stamp) -> None:
    """Record what the environment was created from, in one atomic step."""
    unfinished = STAMP.with_suffix(".new")
    unfinished.write_text(json.dumps(stamp, indent=2) + "\n", encoding="utf-8")
    unfinished.replace(STAMP)


def requirements(group: str) -> list[str]:
    """Return the requirements that pyproject.toml lists for a dependency group."""
    pyproject = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
    return list(pyproject["dependency-groups"][group])


def create(lock: int) -> None:
    """Replace the environment by a new one."""
    # This Python may belong to the environment that is removed: use its base Python.
    python = getattr(sys, "_base_executable", "") or sys.executable
    say(
        f"making {ENVIRONMENT.relative_to(CHECKOUT)} with Python {sys.version.split()[0]}; "
        "this happens once and takes a minute or less"
    )
    if ENVIRONMENT.exists():
        shutil.rmtree(ENVIRONMENT)
    if has_ensurepip(python) or (not has_pip(python) and install_debian_package(python, lock)):
        run([python, "-m", "venv", str(ENVIRONMENT)], lock)
    elif has_pip(python):
        # Debian has ensurepip in a separate package; an installed pip can replace it.
        run([python, "-m", "venv", "--without-pip", str(ENVIRONMENT)], lock)
        pip([python], ["--python", str(PYTHON), "install", "pip"], lock)
    else:
        raise SetupError(
            f"{python} has neither pip nor ensurepip: install the one or the other "
            f"(Debian, Ubuntu: apt-get install {debian_package()}) and run this again"
        )


def has_ensurepip(python: str) -> bool:
    """Return whether this Python can install pip into an environment."""
    return succeeds([python, "-m", "ensurepip", "--version"])


def has_pip(python: str) -> bool:
    """Return whether this Python has a pip that can install into another environment."""
    return succeeds([python, "-m", "pip", "--python", python, "--version"])


def debian_package() -> str:
    """Return the name of the Debian package that holds this Python's ensurepip."""
    return f"python{sys.version_info.major}.{sys.version_info.minor}-venv"


def install_debian_package(python: str, lock: int) -> bool:
    """Install ensurepip with apt-get where the user may; return whether it exists now."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    say(f"installing the Debian package {debian_package()}")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "--yes", debian_package()]):
        done = subprocess.run(
            ["apt-get", *command], env=quiet, capture_output=True, check=False, pass_fds=(lock,)
        )
        if done.returncode:
            return False
    return has_ensurepip(python)


def succeeds(command: Sequence[str]) -> bool:
    """Return whether a command runs and exits with 0."""
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def pip(python: Sequence[str], arguments: Sequence[str], lock: int) -> None:
    """Run pip, which needs no terminal and asks nothing."""
    common = ["--disable-pip-version-check", "--no-input"]
    run([*python, "-m", "pip", *common, *arguments], lock)


def run(command: Sequence[str], lock: int) -> None:
    """Run a command without output; if it fails, show its output."""
    clean = {name: value for name, value in os.environ.items() if name not in MISLEADING}
    # The command inherits the lock: if this process is killed, the next waits for its pip.
    done = subprocess.run(
        command,
        check=False,
        env=clean,
        pass_fds=(lock,),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode:
        raise SetupError(f"{done.stdout}\nfailed with exit code {done.returncode}: {command}")


def wait_for_turn() -> int:
    """Lock the environment against other runs until this process ends; return the descriptor."""
    ENVIRONMENT.parent.mkdir(exist_ok=True)
    lock = os.open(f"{ENVIRONMENT}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("waiting for another run to finish its set-up")
        fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def say(message: str) -> None:
    """Print progress."""
    print(f"hansard: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
