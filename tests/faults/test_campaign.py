"""The campaign counts cases that fail, are killed, hang, or leave something."""

import json
import os
import random
import re
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.crash import campaign, checker, worker
from tools.crash.report import Report, Tally
from tools.crash.row import Outcome, Row

_KEPT: list[int] = []


@dataclass
class Trial:
    """A case that behaves as its label demands."""

    label: str

    def run(self) -> Outcome:
        """Do it."""
        match self.label.split()[0]:
            case "fails":
                return Outcome(ok=False, label=self.label, detail="a promise was broken")
            case "raises":
                raise ZeroDivisionError
            case "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hangs":
                threading.Event().wait()
            case "leaks":
                _KEPT.append(os.open(os.devnull, os.O_RDONLY))
            case "threads":
                threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
            case "skips":
                return Outcome(ok=True, label=self.label, skipped="not on this machine")
        return Outcome(ok=True, label=self.label)


def trial(*labels: str, place: Path, jobs: int = 2) -> Report:
    """Run cases as a campaign does, and count them."""
    tally = Tally(Row(99, "trials", 1, 1), len(labels))
    cases = map(Trial, labels)
    for done in worker.run_all(cases, jobs=jobs, modules=[Trial.__module__], place=str(place)):
        tally.count(done)
    return Report(7, "per-run", [tally])


def test_all_failures_are_counted_and_other_cases_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-17: a case that fails, raises, kills its process or hangs is one failure, and stops no other."""
    monkeypatch.setattr(worker, "PATIENCE", 15.0)
    labels = ["works 1", "fails", "raises", "dies", "works 2", "hangs", "skips", "works 3"]
    report = trial(*labels, place=tmp_path)
    (tally,) = report.tallies
    assert not report.ok
    assert sorted(label for label, _ in tally.failures) == ["dies", "fails", "hangs", "raises"]
    assert tally.done == 7
    assert tally.skipped == {"not on this machine": 1}
    told = dict(tally.failures)
    assert "ZeroDivisionError" in told["raises"]
    assert "exit code -9" in told["dies"]
    text = report.to_markdown()
    assert "| 99 | trials | 8 | 7 | 4 | 1 |" in text
    assert "--rows 99 --case 'fails' --seed 7 --count 8" in text
    assert json.loads(report.to_json())["ok"] is False


def test_every_row_of_the_table_is_there() -> None:
    """N-17: rows 1 to 14 and 16 to 18 have cases, and the same number of them for the same seed."""
    numbers = {source.row.number for source in campaign.sources()}
    assert numbers >= {*range(1, 15), 16, 17, 18}
    rng = random.Random(1)
    for source in campaign.chosen("11,14,18"):
        assert len(list(source.module.cases(3, rng))) == 3


def test_the_page_has_the_rows_and_counts_of_the_campaign() -> None:
    """docs/testing.md and `tools/crash/campaign --list` agree, row by row."""
    counts: dict[str, tuple[list[str], list[str]]] = {}
    for row, _ in campaign.sources():
        per_run, on_demand = counts.setdefault(str(row.number), ([], []))
        per_run.append(f"{row.per_run:,}")
        on_demand.append(f"{row.on_demand:,}")
    expected = [(number, *map(" + ".join, pair)) for number, pair in counts.items()]
    page = Path(__file__).parents[2] / "docs" / "testing.md"
    table = re.findall(
        r"^\| (\d+) \|.*\| (\S.*) \| (\S.*) \|$", page.read_text(encoding="utf-8"), re.MULTILINE
    )
    # Row 15 is counted after each case of the others.
    assert [row for row in table if row[0] != "15"] == expected


#: The messages of a session, its batches with whether each was acknowledged, whether it was repaired, and
#: whether all is well.
COMPARED: dict[str, tuple[str, dict[str, bool], bool, bool]] = {
    "not acknowledged": ("a b", {"a b": False}, False, True),
    "in part without a repair": ("a", {"a b": False}, False, False),
    "in part after a repair": ("a", {"a b": False}, True, True),
    "acknowledged, in part after a repair": ("a", {"a b": True}, True, False),
    "the end of a batch": ("b", {"a b": False}, True, False),
    "out of order": ("b a", {"a b c": False}, True, False),
    "torn apart": ("a x b", {"a b c": False, "x": True}, True, False),
}


@pytest.mark.parametrize("name", COMPARED)
def test_only_the_first_part_of_an_unacknowledged_batch_may_be_there_after_a_repair(
    name: str,
) -> None:
    """Decision 0027: only after a repair, only a prefix, only of what was not acknowledged."""
    ids, batches, repaired, well = COMPARED[name]
    said = [
        (f"w{n}", tuple(batch.split()), done) for n, (batch, done) in enumerate(batches.items())
    ]
    what = checker.Expected(may_be=True, may_lack=False, batches=said, repaired=repaired)
    found = list(checker.compare_ids(ids.split(), what))
    assert (not found) is well, found
