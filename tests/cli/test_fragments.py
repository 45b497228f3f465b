"""Discarded fragments of unfinished appends: `verify` and `doctor` report them, and `dump --json` is JSON."""

import json
from pathlib import Path

import pytest

import hansard as library
from tests.cli.running import hansard

#: What a crash may leave of an append: half a record, bytes that are not UTF-8, half a note about another.
FRAGMENTS = (
    b'{"seq":2,"time":"2026',
    b"\xff\xfe\x00\x80\xed\xa0\x80",
    b'{"log":"recovered","seq":1',
)


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    """Return a store whose log has an event after each fragment."""
    path = tmp_path / "torn"
    log = path / "sessions" / "s" / "log.jsonl"
    for fragment in (b"", *FRAGMENTS):
        with library.open(path, durability="os", auto_compact=False) as store:
            # The content of a message is not a bookkeeping record.
            store.session("s").add_message({"content": '\n{"log":"recovered",'})
        if fragment is not FRAGMENTS[-1]:
            following = FRAGMENTS[FRAGMENTS.index(fragment) + 1 if fragment else 0]
            with log.open("ab") as file:
                file.write(following)
    return path


def _places(path: Path) -> list[tuple[int, int]]:
    data = (path / "sessions" / "s" / "log.jsonl").read_bytes()
    closed = [fragment + b"~torn\n" for fragment in FRAGMENTS]
    return [(data.index(line), len(line)) for line in closed]


def test_fragments_are_notes(torn: Path) -> None:
    """F-29, N-33: `verify` locates each, `doctor` counts them and their bytes; the exit code is 0."""
    places = _places(torn)
    done = hansard("verify", store=torn)
    assert (done.code, done.err) == (0, "")
    assert done.out.count("a discarded fragment of an unfinished append") == len(FRAGMENTS)
    document = hansard("verify", "--json", store=torn).json
    assert document["ok"] is True
    found = document["findings"]
    assert [(one["offset"], one["length"]) for one in found] == places
    assert {one["severity"] for one in found} == {"note"}
    size = sum(length for _, length in places)
    done = hansard("doctor", store=torn)
    assert (done.code, done.err) == (0, "")
    assert "sessions/s/log.jsonl (and 2 more): crashes have left fragments" in done.out
    assert f"{size} bytes in all" in done.out
    [diagnostic] = hansard("doctor", "--json", store=torn).json["diagnostics"]
    assert (diagnostic["code"], diagnostic["severity"]) == ("discarded-fragment", "note")
    assert (diagnostic["count"], f"{size} bytes" in diagnostic["reason"]) == (3, True)


def test_dump_prints_valid_json(torn: Path) -> None:
    """N-36: every line that `dump --json` prints is JSON, for any bytes of a fragment."""
    out = hansard("dump", "s", "--json", store=torn).out
    records = [json.loads(line) for line in out.splitlines()]
    assert sum(bool(record["problem"]) for record in records) == len(FRAGMENTS)
    assert (
        sum(record["length"] for record in records)
        == (torn / "sessions" / "s" / "log.jsonl").stat().st_size
    )
