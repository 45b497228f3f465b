"""Build the sdist and the wheel, check them as a user would install them, and print what to do next.

    release.py [--quick]

Called by tools/release. Each step prints a line; the first one that fails ends the run.
"""

import datetime as dt
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
DIST = CHECKOUT / "dist"

# What must be importable after `pip install hansard[EXTRA]`.
EXTRAS = {
    "claude-agent": "hansard.adapters.claude_agent",
    "google-adk": "hansard.adapters.adk",
    "langchain": "hansard.adapters.langchain",
    "langgraph": "hansard.adapters.langgraph",
    "mcp": "hansard.viewer.mcp",
    "openai-agents": "hansard.adapters.openai_agents",
    "parquet": "pyarrow",
    "postgres": "hansard.backend.postgres.backend",
    "prices": "genai_prices",
    "pydantic-ai": "hansard.adapters.pydantic_ai, hansard.adapters.pydantic_ai_steps",
    "strands": "hansard.adapters.strands",
    "web": "hansard.viewer.web",
}


class ReleaseError(Exception):
    """A check failed; the message says which, and what to do."""


def main(*, quick: bool) -> int:
    """Run all steps; return the exit code."""
    try:
        with tempfile.TemporaryDirectory(prefix="hansard-release-") as scratch:
            release(Path(scratch), quick=quick)
    except ReleaseError as error:
        print(f"tools/release: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def release(scratch: Path, *, quick: bool) -> None:
    """Check the version, build, check the packages, and print what to do next."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]
    version, extras = project["version"], project["optional-dependencies"]
    if extras.keys() != EXTRAS.keys():
        raise ReleaseError(f"EXTRAS in {__file__} must name {sorted(extras)}")

    say(f"version {version}: CHANGELOG.md and tags")
    todo = before_tagging(version)

    say("build the sdist, and from it the wheel")
    run("-m", "build", "--outdir", str(scratch / "dist"), str(CHECKOUT))
    packages = sorted((scratch / "dist").iterdir())
    wheel = next(path for path in packages if path.suffix == ".whl")

    say("twine check")
    run("-m", "twine", "check", "--strict", *map(str, packages))

    say("install the wheel, and run the demo")
    python = install(scratch / "plain", str(wheel))
    if (found := run("-m", "hansard", "--version", python=python).strip()) != f"hansard {version}":
        raise ReleaseError(f"the installed command is {found!r}, not version {version}")
    run("-m", "hansard", "demo", str(scratch / "demo"), python=python)

    for extra, modules in {} if quick else EXTRAS.items():
        say(f"install the extra {extra}, and import {modules}")
        python = install(scratch / extra, f"{wheel}[{extra}]")
        run("-c", f"import {modules}", python=python)
        shutil.rmtree(scratch / extra)

    DIST.mkdir(exist_ok=True)
    for path in packages:
        shutil.copy(path, DIST)
    names = " ".join(f"dist/{path.name}" for path in packages)
    print("All checks passed. Next:\n")
    for line in [*todo, f"git push origin v{version}", f"python -m twine upload {names}"]:
        print(f"    {line}")


def before_tagging(version: str) -> list[str]:
    """Return what to do up to the tag; raise ReleaseError if versions contradict each other."""
    changelog = (CHECKOUT / "CHANGELOG.md").read_text("utf-8")
    (heading,) = re.findall(r"^## (.+)$", changelog, re.MULTILINE)[:1]
    todo = []
    if heading == f"Unreleased: {version}":
        date = dt.datetime.now(dt.UTC).date()
        todo.append(f"edit CHANGELOG.md: replace '{heading}' by '{version} - {date}', and commit")
    elif not re.fullmatch(rf"{re.escape(version)} - \d{{4}}-\d\d-\d\d", heading):
        raise ReleaseError(
            f"pyproject.toml has version {version}, and CHANGELOG.md begins with '{heading}'; "
            f"write '{version} - DATE' or 'Unreleased: {version}'"
        )
    if git("status", "--porcelain"):
        todo.append("git commit    # the packages contain changes that are not committed")
    if todo:
        todo.append("tools/release")
    tagged = git("rev-list", "-n", "1", f"v{version}")
    if not tagged:
        todo.append(f"git tag -a v{version} -m 'hansard {version}'")
    elif tagged != git("rev-parse", "HEAD"):
        raise ReleaseError(f"v{version} is the tag of another commit; raise the version")
    return todo


def git(*arguments: str) -> str:
    """Return what git prints; nothing if it fails, as for a missing tag or a copy without repository."""
    command = ["git", "-C", str(CHECKOUT), *arguments]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return "" if done.returncode else done.stdout.strip()


def install(place: Path, requirement: str) -> str:
    """Install a requirement into a new environment; return its Python."""
    # Without its own pip: Debian has ensurepip in a separate package.
    run("-m", "venv", "--without-pip", str(place))
    python = str(place / "bin" / "python")
    run("-m", "pip", "--python", python, "--no-input", "install", requirement)
    run("-m", "pip", "--python", python, "check")
    return python


def run(*arguments: str, python: str = sys.executable) -> str:
    """Run a Python, outside of the checkout; return its output, or raise ReleaseError with it."""
    done = subprocess.run(
        [python, "-P", *arguments],
        cwd="/",
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise ReleaseError(
            f"failed with exit code {done.returncode}: {' '.join(arguments)}\n{done.stdout}"
        )
    return done.stdout


def say(message: str) -> None:
    """Print a line of progress."""
    print(f"-- {message}", flush=True)


if __name__ == "__main__":
    sys.exit(main(quick="--quick" in sys.argv[1:]))
