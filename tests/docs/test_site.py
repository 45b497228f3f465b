"""The documentation site builds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_site_builds_without_a_broken_link(tmp_path: Path) -> None:
    """`tools/docs` builds every page of docs/, with search, and fails on a broken link."""
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"]
    done = subprocess.run(
        [
            *command,
            "--config-file",
            str(ROOT / "tools" / "mkdocs.yml"),
            "--site-dir",
            str(tmp_path),
        ],
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "index.html").exists()
    assert (tmp_path / "search" / "search_index.json").exists()
