"""`hansard compact`: what is rewritten, sizes before and after, progress."""

import random
from pathlib import Path

import pytest

import hansard as library
from tests.cli import samples
from tests.cli.conftest import OpenTerminal
from tests.cli.running import hansard


def grow(path: Path, names: list[str], *, messages: int = 200, seed: int = 1) -> None:
    """Fill sessions with text that does not compress to nothing."""
    rng = random.Random(seed)
    with library.open(path, durability="os", auto_compact=False) as store:
        for name in names:
            for _ in range(messages // 50):
                store.session(name).add_messages(
                    [{"role": "user", "content": rng.randbytes(300).hex()} for _ in range(50)]
                )


def everything(path: Path) -> dict[str, list[tuple[int, str, bytes]]]:
    """Return all events of all sessions."""
    with library.open(path, read_only=True) as store:
        return {
            info.id: [(e.seq, e.stamp, e.raw) for e in store.session(info.id).events()]
            for info in store.sessions().items
        }


def test_sessions_get_smaller_and_say_the_same(tmp_path: Path) -> None:
    """N-45: named sessions are compacted, with their bytes before and after; no event changes."""
    grow(tmp_path, ["a", "b"])
    before = everything(tmp_path)
    done = hansard("compact", "a", "--json", store=tmp_path)
    assert done.code == 0
    assert done.json["rewritten"] == 1
    (line,) = done.json["sessions"]
    assert line["id"] == "a"
    assert line["after"] < 0.8 * line["before"]
    told = hansard("compact", "--all", store=tmp_path)
    assert told.code == 0
    header, row, total = told.out.splitlines()
    assert header.split() == ["SESSION", "BEFORE", "AFTER"]
    assert row.startswith("b ")
    assert total.startswith("1 session rewritten: ")
    # Only the rewritten session is counted.
    assert total.split(": ")[1].split(" before")[0] in row
    assert everything(tmp_path) == before
    with library.open(tmp_path, read_only=True) as store:
        assert store.verify().ok


def test_vacuum_needs_all_and_does_nothing_to_files(tmp_path: Path) -> None:
    """`--vacuum` is for all tables of a store in PostgreSQL: with ids it is refused, files do not need it."""
    grow(tmp_path, ["a"])
    refused = hansard("compact", "a", "--vacuum", store=tmp_path)
    assert (refused.code, "--vacuum needs --all" in refused.err) == (2, True)
    done = hansard("compact", "--all", "--vacuum", "--json", store=tmp_path)
    assert (done.code, done.json["rewritten"], done.json["vacuumed"]) == (0, 1, False)


def test_one_that_cannot_be_compacted_stops_no_other(store: Path) -> None:
    """N-35: a damaged session is named on stderr with exit 1, and the others are compacted."""
    samples.damage(store, "agent+1")
    grow(store, ["good"])
    done = hansard("compact", "--all", "--json", store=store)
    assert done.code == 1
    assert list(done.json["failed"]) == ["agent/1"]
    assert any(
        line["id"] == "good" and line["after"] < line["before"] for line in done.json["sessions"]
    )


@pytest.mark.slow
def test_a_progress_bar_on_a_terminal_and_nowhere_else(
    tmp_path: Path, terminal: OpenTerminal
) -> None:
    """A terminal sees a bar with bytes and rate, which leaves no trace; a pipe gets no such thing."""
    grow(tmp_path, ["a"], messages=3_000)
    shown = terminal("compact", "a", store=tmp_path, columns=100)
    assert shown.wait() == 0
    assert b"compacting" in shown.raw
    assert b"MiB" in shown.raw
    assert b"/s" in shown.raw
    assert "compacting" not in shown.text
    assert "1 session rewritten" in shown.text
    grow(tmp_path, ["b"])
    piped = hansard("compact", "b", store=tmp_path)
    assert piped.err == ""
    assert "compacting" not in piped.out
