"""The virtual environment of the other systems: created once, next to that of the tools.

All peers are installed together; if that fails, one by one, and one that will not install is left out, with
pip's last line as the reason.
"""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

CHECKOUT: Final = Path(__file__).resolve().parents[2]
ENVIRONMENT: Final = CHECKOUT / ".venv" / f"{sys.implementation.cache_tag}-bench"
_STAMP: Final = ENVIRONMENT / "made-from.json"


def python() -> Path:
    """Return the Python of the peers."""
    return ENVIRONMENT / "bin" / "python"


def prepare() -> dict[str, str]:
    """Create the environment if it is missing or the list of peers changed; return omitted peers and why."""
    wanted = requirements()
    try:
        stamp = json.loads(_STAMP.read_text())
        if stamp["requirements"] == wanted:
            left_out: dict[str, str] = stamp["left out"]
            return left_out
    except (OSError, ValueError, KeyError):
        pass
    print(
        f"hansard: installing the peers into {ENVIRONMENT.relative_to(CHECKOUT)}; this happens once "
        "and takes some minutes",
        file=sys.stderr,
        flush=True,
    )
    base = getattr(sys, "_base_executable", "") or sys.executable
    if not python().exists():
        subprocess.run([base, "-m", "venv", str(ENVIRONMENT)], check=True)
    left_out = {}
    if _pip(wanted) is not None:
        for requirement in wanted:
            reason = _pip([requirement])
            if reason is not None:
                left_out[requirement] = reason
    _STAMP.write_text(json.dumps({"requirements": wanted, "left out": left_out}, indent=1) + "\n")
    return left_out


def requirements() -> list[str]:
    """Return the requirements of hansard and of the group of peers."""
    pyproject = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
    return [*pyproject["project"]["dependencies"], *pyproject["dependency-groups"]["bench"]]


def versions(packages: list[str]) -> dict[str, str]:
    """Return the versions of installed packages, without missing ones."""
    code = (
        "import importlib.metadata as m, json, sys\n"
        "found = {d.metadata['Name'].lower().replace('_', '-'): d.version for d in m.distributions()}\n"
        "print(json.dumps({n: found[n] for n in sys.argv[1:] if n in found}))"
    )
    answer = subprocess.run(
        [python(), "-c", code, *packages], check=True, capture_output=True, text=True
    )
    found: dict[str, str] = json.loads(answer.stdout)
    return found


def _pip(wanted: list[str]) -> str | None:
    """Install; return the reason of a failure, or None."""
    command = [str(python()), "-m", "pip", "install", "--quiet", "--no-input", *wanted]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return (lines or ["pip failed"])[-1].removeprefix("ERROR: ")
