"""Smoke tests of tools/bench, with small inputs; the figures are not checked."""

import json
from pathlib import Path

import pytest

from tests.programs import python
from tools.bench import compaction, contention, during_compaction, goals, index, main
from tools.bench.conversation import conversation
from tools.bench.installed import CHECKOUT
from tools.bench.result import Result, claim_of, table


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the inputs by small ones."""
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
    monkeypatch.setattr(compaction, "READ", 400)
    monkeypatch.setattr(compaction, "TIMES", (2, 4))
    monkeypatch.setattr(compaction, "ROUNDS", 2)
    monkeypatch.setattr(during_compaction, "MESSAGES", 8_000)
    monkeypatch.setattr(during_compaction, "ALONE", 0.3)
    monkeypatch.setattr(during_compaction, "AFTER", 0.1)
    monkeypatch.setattr(contention, "ROUNDS", 1)
    monkeypatch.setattr(contention, "SECONDS", 0.1)
    monkeypatch.setattr(contention, "COMPACTED", 8_000)
    for constant in ("SESSIONS", "MANY_SESSIONS"):
        monkeypatch.setattr(index, constant, 20)
    for constant in ("MEGABYTES", "LARGE"):
        monkeypatch.setattr(index, constant, 1)
    monkeypatch.setattr(index, "ROUNDS", 1)


@pytest.mark.parametrize(
    "name",
    [
        "small_sessions",
        "long_session",
        "load_compacted",
        "read_sealed",
        "processes_4_sync",
        "new_session",
        "own_compaction_read",
        *(function.__name__ for function in index.ALL),
    ],
)
def test_measurements_run(name: str, tmp_path: Path) -> None:
    """Each measurement ends and is a row of the table."""
    known = {function.__name__: function for group in main.GROUPS.values() for function in group}
    found = known[name](tmp_path)
    assert isinstance(found, Result)
    assert found.name == name
    assert f"| {found.claim} |" in table([found])


def test_each_group_needs_its_own_packages_only() -> None:
    """Without the packages of other groups, the tool starts."""
    missing = ["lmdb", "playwright", "psutil", "psycopg", "pytest"]
    code = f"import sys; sys.modules.update(dict.fromkeys({missing})); import tools.bench.main"
    done = python("-c", code, cwd=CHECKOUT)
    assert done.returncode == 0, done.stderr


def test_goals_are_written_into_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table has a line for each measurement, and a cause where it misses; others keep their line."""
    page, plot = tmp_path / "benchmarks.md", tmp_path / "plot.svg"
    page.write_text(f"before\n{goals.BEGIN}\nold\n<!-- to here -->\nafter\n")
    monkeypatch.setattr(goals, "PAGE", page)
    monkeypatch.setattr(goals, "PLOT", plot)
    claims = [claim_of(goal.measure) for goal in goals.GOALS]
    results = [
        Result(goal.measure.__name__, claim, "1", "2", 1.0 + place % 2, 1.5, note=f"note {place}")
        for place, (goal, claim) in enumerate(zip(goals.GOALS, claims, strict=True))
    ]
    goals.write(results, "a machine")
    first = page.read_text()
    lines = first.splitlines()
    assert lines[0] == "before"
    assert lines[-1] == "after"
    for place, (goal, claim) in enumerate(zip(goals.GOALS, claims, strict=True)):
        (line,) = [line for line in lines if f"| {claim} |" in line]
        assert line.startswith(f"| {goal.row} |")
        assert line.endswith(f"| {goal.cause or 'not known'} |" if place % 2 else "|  |")
        assert f"- {claim}: note {place}." in lines
        assert f">{goal.label}" in plot.read_text().replace("&quot;", '"')
    goals.write([], "a machine")
    assert page.read_text() == first
    goals.write([results[0]._replace(ratio=1.25)], "another")
    changed = {line for line in page.read_text().splitlines() if line not in lines}
    assert changed == {lines[7].replace("1.00", "1.25"), "The last run: another."}
