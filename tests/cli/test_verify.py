"""`hansard verify`, `repair` and `dump`: damage and its place, what is saved, and every record."""

from pathlib import Path

import pytest

import hansard as library
from tests.cli import samples
from tests.cli.conftest import OpenTerminal
from tests.cli.running import hansard

LOG = Path("sessions", "agent+1", "log.jsonl")

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
    for fragment in (*FRAGMENTS, b""):
        with library.open(path, durability="os", auto_compact=False) as store:
            # The content of a message is not a bookkeeping record.
            store.session("agent/1").add_message({"content": '\n{"log":"recovered",'})
        with (path / LOG).open("ab") as file:
            file.write(fragment)
    return path


def places(log: Path) -> list[tuple[int, int]]:
    """Return offset and length of each line of a file."""
    lines = log.read_bytes().splitlines(keepends=True)
    return [(sum(map(len, lines[:number])), len(line)) for number, line in enumerate(lines)]


def test_a_valid_store(store: Path) -> None:
    """A store without damage exits with 0; with --json there are no findings."""
    assert hansard("verify", store=store) == (0, "2 sessions, no damage\n", "")
    done = hansard("verify", "agent/1", "--json", store=store)
    assert (done.code, done.json) == (0, {"ok": True, "sessions": 1, "findings": []})


def test_damage_is_found_and_located(store: Path) -> None:
    """N-34: damage exits with 1, with session, file and offset for people and for programs."""
    samples.damage(store)
    before = (store / LOG).read_bytes()
    done = hansard("verify", "--json", store=store)
    assert done.code == 1
    (finding, *_) = done.json["findings"]
    assert (finding["session"], finding["severity"]) == ("agent/1", "damage")
    assert finding["where"].endswith("log.jsonl")
    assert finding["offset"] <= len(before) // 2 < finding["offset"] + finding["length"]
    told = hansard("verify", "agent/1", "agent/1-b", store=store)
    assert told.code == 1
    assert f"byte {finding['offset']}" in told.out
    assert "`hansard repair`" in told.out
    assert (store / LOG).read_bytes() == before


def test_fragments_are_notes(torn: Path) -> None:
    """F-29, N-33: `verify` locates each, `doctor` counts them and their bytes; the exit code is 0."""
    done = hansard("verify", store=torn)
    assert (done.code, done.err) == (0, "")
    assert done.out.count("a discarded fragment of an unfinished append") == len(FRAGMENTS)
    document = hansard("verify", "--json", store=torn).json
    assert document["ok"] is True
    found = [(one["offset"], one["length"]) for one in document["findings"]]
    closed = [fragment + b"~torn\n" for fragment in FRAGMENTS]
    data = (torn / LOG).read_bytes()
    assert found == [(data.index(line), len(line)) for line in closed]
    assert {one["severity"] for one in document["findings"]} == {"note"}
    done = hansard("doctor", store=torn)
    assert (done.code, done.err) == (0, "")
    assert f"{LOG} (and 2 more): crashes have left fragments" in done.out
    assert f"{sum(map(len, closed))} bytes in all" in done.out
    [one] = hansard("doctor", "--json", store=torn).json["diagnostics"]
    assert (one["code"], one["severity"], one["count"]) == ("discarded-fragment", "note", 3)


def test_a_repair_saves_valid_events_and_keeps_the_damaged_file(store: Path) -> None:
    """N-46: --yes repairs; it names the lost events and the file that keeps the bytes, which it does."""
    samples.damage(store)
    damaged = (store / LOG).read_bytes()
    done = hansard("repair", "agent/1", "--yes", "--json", store=store)
    assert done.code == 0
    (report,) = done.json["repaired"]
    assert report["lost"]
    assert report["salvaged"] >= 10
    (kept,) = report["kept"]
    assert (store / LOG).with_name(kept).read_bytes() == damaged
    assert hansard("verify", store=store).code == 0
    assert hansard("repair", "--all", store=store).out == "no damage; nothing was written\n"


def test_a_repair_asks_and_takes_no_for_an_answer(store: Path, terminal: OpenTerminal) -> None:
    """On a terminal it shows the damage and asks; `n` leaves every byte and exits with 1, `y` repairs."""
    samples.damage(store)
    before = (store / LOG).read_bytes()
    for answer, code in (("n", 1), ("y", 0)):
        assert (store / LOG).read_bytes() == before
        asked = terminal("repair", "--all", store=store, columns=200)
        # The fork is as damaged as its parent, and needs no separate repair.
        asked.wait_for("Repair 2 sessions? [y/N]")
        assert "checksum mismatch" in asked.text
        asked.type(f"{answer}\n")
        assert asked.wait() == code
    assert "1 lost" in asked.text
    assert "kept as" in asked.text
    assert hansard("verify", store=store).code == 0


def test_a_dump_has_every_line_with_its_place(store: Path) -> None:
    """F-12: each line of the active segment comes once, with its offset, its length and its text."""
    done = hansard("dump", "agent/1", "--json", store=store)
    assert done.code == 0
    assert [(r["offset"], r["length"]) for r in done.lines] == places(store / LOG)
    assert [r["text"] for r in done.lines] == (store / LOG).read_text().splitlines()
    assert hansard("dump", "agent/1", store=store).out.startswith("log.jsonl        0 +")


@pytest.mark.parametrize("what", ["middle", "header", "fragments"])
def test_a_dump_shows_what_is_wrong_in_its_place(what: str, store: Path, torn: Path) -> None:
    """N-34, N-36: every line of a damaged log is printed, as JSON too, with a reason; the exit code is 1."""
    path = torn if what == "fragments" else store
    if what == "middle":
        samples.damage(path)
    elif what == "header":
        (path / LOG).write_bytes(b"X" + (path / LOG).read_bytes()[1:])
    done = hansard("dump", "agent/1", "--json", store=path)
    assert done.code == 1
    assert [(r["offset"], r["length"]) for r in done.lines] == places(path / LOG)
    bad = [record for record in done.lines if record["problem"]]
    assert len(bad) >= (len(FRAGMENTS) if what == "fragments" else 1)
    shown = hansard("dump", "agent/1", store=path)
    assert (shown.code, shown.out.count("  ← ")) == (1, len(bad))
