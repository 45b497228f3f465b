"""The measurements of tools/bench run, with little to measure: what they find is not looked at here."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tools.bench import beside, compaction, main
from tools.bench.conversation import conversation
from tools.bench.result import Result, table


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let there be little to measure."""
    lines = [
        json.dumps(message).encode() for number in range(4) for message in conversation(number, 50)
    ]
    sessions = [lines[begin : begin + 50] for begin in range(0, 200, 50)]
    monkeypatch.setattr(compaction, "_sessions", lambda: sessions)
    monkeypatch.setattr(compaction, "_lines", lambda: lines)
    monkeypatch.setattr(compaction, "_reference", lambda: (0.24, 2.0))
    monkeypatch.setattr(compaction, "MILLION", 1_200)
    monkeypatch.setattr(compaction, "GROWN", 600)
    monkeypatch.setattr(compaction, "LOADED", 400)
    monkeypatch.setattr(compaction, "TIMES", (2, 4))
    monkeypatch.setattr(compaction, "ROUNDS", 2)
    monkeypatch.setattr(beside, "MESSAGES", 8_000)
    monkeypatch.setattr(beside, "ALONE", 0.3)
    monkeypatch.setattr(beside, "BEHIND", 0.1)


def test_every_measurement_has_a_name_of_its_own_and_a_claim() -> None:
    """Measurements are named once, in one group, and their docstrings are the lines of the report."""
    names = Counter(function.__name__ for group in main.GROUPS.values() for function in group)
    assert set(names.values()) == {1}
    assert {"append_os", "small_sessions", "beside_own_sync"} <= set(names)
    for group in main.GROUPS.values():
        assert all(function.__doc__ for function in group)


@pytest.mark.parametrize("name", ["small_sessions", "long_session", "load_compacted"])
def test_measurements_of_compaction_run(name: str, tmp_path: Path) -> None:
    """With a few sessions, each measurement comes to an end and has something to say."""
    known = {function.__name__: function for function in main.GROUPS["compaction"]}
    found = known[name](tmp_path)
    assert isinstance(found, Result)
    assert found.name == name
    assert f"| {found.claim} |" in table([found])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["last_cold", "linear", "beside_other_os", "beside_own_sync"])
def test_measurements_with_other_processes_run(name: str, tmp_path: Path) -> None:
    """The same of those that take longer."""
    test_measurements_of_compaction_run(name, tmp_path)
