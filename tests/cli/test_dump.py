"""`hansard dump`: the records of the files, valid or damaged."""

from pathlib import Path

import pytest

from tests.cli import samples
from tests.cli.running import hansard


def lines_of(path: Path) -> list[tuple[int, int]]:
    """Return offset and length of each line of a file."""
    found, offset = [], 0
    for line in path.read_bytes().splitlines(keepends=True):
        found.append((offset, len(line)))
        offset += len(line)
    return found


def test_every_line_of_a_log_with_its_place(store: Path) -> None:
    """F-12: each line of the active segment comes once, with its offset, its length and its text."""
    log = store / "sessions" / "agent+1" / "log.jsonl"
    done = hansard("dump", "agent/1", "--json", store=store)
    assert done.code == 0
    assert [(r["offset"], r["length"]) for r in done.lines] == lines_of(log)
    assert [r["text"] for r in done.lines] == log.read_text().splitlines()
    told = hansard("dump", "agent/1", store=store).out
    assert told.startswith("log.jsonl        0 +")


@pytest.mark.parametrize("place", ["middle", "header", "tail"])
def test_what_is_wrong_is_shown_in_its_place(place: str, store: Path) -> None:
    """N-34: every line of a damaged log is shown, damaged ones with a reason; the exit code is 1."""
    log = store / "sessions" / "agent+1" / "log.jsonl"
    count = len(lines_of(log))
    if place == "middle":
        samples.damage(store)
    elif place == "header":
        log.write_bytes(b"X" + log.read_bytes()[1:])
    else:
        with log.open("ab") as file:
            file.write(b'{"seq":13,"ti')
        count += 1
    done = hansard("dump", "agent/1", "--json", store=store)
    assert done.code == 1
    assert len(done.lines) == count
    bad = [record for record in done.lines if record["problem"]]
    assert bad
    shown = hansard("dump", "agent/1", store=store)
    assert shown.code == 1
    assert shown.out.count("  ← ") == len(bad)
