"""The documentation site builds."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def build(checkout: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build the site as `tools/docs` does; not with --quiet, which hides warnings from a strict build."""
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    config = str(checkout / "tools" / "mkdocs.yml")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", config]
    return subprocess.run(
        [*command, "--site-dir", str(site)],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_site_builds_without_a_broken_link(tmp_path: Path) -> None:
    """`tools/docs` builds every page of docs/, with search and examples, and no link is broken."""
    done = build(ROOT, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    assert "excluded" not in done.stderr
    assert (tmp_path / "index.html").exists()
    assert (tmp_path / "search" / "search_index.json").exists()
    assert (tmp_path / "examples" / "agent.py").exists()


@pytest.mark.parametrize("link", ["missing.md", "concepts.md#missing", "../CHANGELOG.md"])
def test_a_broken_link_fails_the_build(link: str, tmp_path: Path) -> None:
    """A link to a missing page, a missing heading or a file outside of docs/ fails the build."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "mkdocs.yml", tmp_path / "tools")
    with (tmp_path / "docs" / "guarantees.md").open("a") as page:
        page.write(f"\n[broken]({link})\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode == 1
    assert link.rpartition("#")[2] in done.stderr
