"""`hansard demo`: what the first command of the README shows is true, and the store stays to be explored."""

import shlex
from pathlib import Path

import pytest

import hansard as library
from hansard.cli.commands.demo import EACH, WRITERS
from tests.cli.running import hansard


@pytest.mark.slow
def test_it_shows_what_it_says_and_leaves_the_store(tmp_path: Path) -> None:
    """N-16: eight writers lose nothing, a secret is erased, and the suggested commands work."""
    path = tmp_path / "look here"
    done = hansard("demo", path)
    assert (done.code, done.err) == (0, "")
    assert (
        "nothing acknowledged lost, nothing duplicated, each writer's order kept: True" in done.out
    )
    assert "'swordfish' is in a file of the store: False" in done.out
    assert "3 sessions, all valid" in done.out
    with library.open(path, read_only=True) as store:
        assert store.session("meeting").seq > (WRITERS - 1) * EACH
    suggested = done.out.partition("Explore the store:")[2].strip().splitlines()
    assert suggested[0].strip() == f"export HANSARD_STORE='{path}'"
    assert " serve " in suggested[-1]
    for line in suggested[1:]:
        words = line.split(" -m hansard ")[-1].strip().rpartition("hansard ")[2]
        # `--step` needs a terminal, and `serve` runs until an interrupt: tests/viewer starts it.
        if "--step" not in words and not words.startswith("serve "):
            assert hansard(*shlex.split(words), store=path).code == 0, words
    figures = hansard("-s", tmp_path / "s", "demo", "--json").json
    assert figures["stored"] >= figures["acknowledged"] > (WRITERS - 1) * EACH
    assert (figures["ok"], figures["secret_left"], figures["sessions"]) == (True, False, 3)
    assert figures["bytes_after"] < figures["bytes_before"]
    again = hansard("demo", path)
    assert again.code == 2
    assert "is not empty" in again.err
