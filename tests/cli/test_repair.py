"""`hansard repair`: asks, saves valid events, keeps the damaged files."""

from pathlib import Path

from tests.cli import samples
from tests.cli.conftest import OpenTerminal
from tests.cli.running import hansard


def test_it_saves_valid_events_and_keeps_the_damaged_file(store: Path) -> None:
    """N-46: --yes repairs; it names the lost events and the file that keeps the bytes, which it does."""
    samples.damage(store)
    damaged = (store / "sessions" / "agent+1" / "log.jsonl").read_bytes()
    done = hansard("repair", "agent/1", "--yes", "--json", store=store)
    assert done.code == 0
    (report,) = done.json["repaired"]
    assert report["lost"]
    assert report["salvaged"] >= 10
    (kept,) = report["kept"]
    assert (store / "sessions" / "agent+1" / kept).read_bytes() == damaged
    assert hansard("verify", store=store).code == 0
    assert hansard("repair", "--all", store=store).out == "no damage; nothing was written\n"


def test_it_asks_and_takes_no_for_an_answer(store: Path, terminal: OpenTerminal) -> None:
    """On a terminal it shows the damage and asks; `n` leaves every byte and exits with 1, `y` repairs."""
    samples.damage(store)
    log = store / "sessions" / "agent+1" / "log.jsonl"
    before = log.read_bytes()
    asked = terminal("repair", "--all", store=store, columns=200)
    # The fork is as damaged as its parent, and needs no separate repair.
    asked.wait_for("Repair 2 sessions? [y/N]")
    assert "checksum mismatch" in asked.text
    asked.type("n\n")
    assert asked.wait() == 1
    assert log.read_bytes() == before
    again = terminal("repair", "--all", store=store, columns=200)
    again.wait_for("[y/N]")
    again.type("y\n")
    assert again.wait() == 0
    assert "1 lost" in again.text
    assert "kept as" in again.text
    assert hansard("verify", store=store).code == 0
