"""`hansard verify`: damage, and its place."""

from pathlib import Path

from tests.cli import samples
from tests.cli.running import hansard


def test_a_valid_store(store: Path) -> None:
    """A store without damage exits with 0; with --json there are no findings."""
    assert hansard("verify", store=store) == (0, "2 sessions, no damage\n", "")
    done = hansard("verify", "agent/1", "--json", store=store)
    assert (done.code, done.json) == (0, {"ok": True, "sessions": 1, "findings": []})


def test_damage_is_found_and_located(store: Path) -> None:
    """N-34: damage exits with 1, with session, file and offset for people and for programs."""
    samples.damage(store)
    log = store / "sessions" / "agent+1" / "log.jsonl"
    bytes_before = log.read_bytes()
    done = hansard("verify", "--json", store=store)
    assert done.code == 1
    (finding, *_) = done.json["findings"]
    assert (finding["session"], finding["severity"]) == ("agent/1", "damage")
    assert finding["where"].endswith("log.jsonl")
    middle = len(bytes_before) // 2
    assert finding["offset"] <= middle < finding["offset"] + finding["length"]
    told = hansard("verify", "agent/1", "agent/1-b", store=store)
    assert told.code == 1
    assert f"byte {finding['offset']}" in told.out
    assert "`hansard repair`" in told.out
    assert log.read_bytes() == bytes_before
