"""The run beside the peers: what it counts, how it judges, and how it is written down."""

import json
import os
import shutil
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from tools.bench import guard, installed, syncs, worker, writers
from tools.bench.figures import Figures
from tools.bench.guard import Bound, Finding
from tools.bench.peers import KNOWN
from tools.bench.peers.peer import Message, Peer
from tools.bench.peers_report import BEGIN, END, Report, between_marks
from tools.bench.scale import QUICK
from tools.bench.verdicts import verdicts

CHECKOUT = Path(__file__).resolve().parents[2]
SMALL = QUICK._replace(
    appends=5, budget=0.02, filling=2.0, lengths=(10, 20), common=60, loaded=80, listed=3, kept=2
)
TRACE = """\
7 fsync(3) = 0
7 fsync(987654321) = -1 EBADF (Bad file descriptor)
7 fdatasync(4) = 0
7 fdatasync(4 <unfinished ...>
8 fsync(5) = -1 EIO (Input/output error)
7 <... fdatasync resumed>) = 0
7 msync(0x7f0000000000, 4096, MS_SYNC) = 0
7 fsync(987654321) = -1 EBADF (Bad file descriptor)
7 fsync(3) = 0
"""


def figures() -> Figures:
    """Return made-up figures: hansard, one peer by hand, and one that loses messages."""
    found = Figures()
    crowd = {"lost": 0, "duplicated": 0, "refused": 0, "acknowledged": 9}
    for system, slower in (("hansard_os", 1.0), ("sqlite_normal", 3.0), ("lmdb_os", 2.0)):
        for _ in range(3):
            found.add(system, {"append_us": 15 * slower, "last_us": 700 * slower})
            found.add(system, {"load_ms": 300 * slower, "load_us_each": 3 * slower})
            rate = {"rate": 60_000 / slower, **crowd}
            found.add(system, {"writers:processes:4:one": rate, "writers:processes:16:one": rate})
        found.add(system, {"growth_us": {"100": 15 * slower, "1000": 16 * slower}, "syncs": 0.0})
        found.add(system, {"disk_ratio": 0.27 * slower, "list_ms": 20.0, "listed": 1_000})
    lost = {"rate": 90.0, "lost": 4, "duplicated": 1, "refused": 0, "acknowledged": 40}
    found.add("langgraph", {"writers:processes:4:one": lost, "syncs": 1.0})
    result = {"claim": 'One `"os"` append, and a bare one', "ours": "15 µs", "limit": "5 µs"}
    found.add("limits", {"bare write, µs": 1.5, "everyday:append_os": {**result, "ratio": 3.0}})
    return found


def report(found: Figures) -> Report:
    """Return the report of made-up figures."""
    machine = {"date": "2026-11-16", "cores": 2}
    return Report(found, verdicts(found, QUICK), machine, QUICK, {"nope>=1": "no such thing"}, {})


def test_syncs_are_counted_between_the_marks() -> None:
    """Whole calls and resumed ones count once; failed ones, and those outside the marks, do not."""
    assert syncs.between_marks(TRACE) == 3
    assert syncs.between_marks("7 fsync(3) = 0\n") is None
    assert [syncs.durability(count) for count in (None, 0.0, 1.0)] == ["not counted", "os", "sync"]


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize(
    ("system", "least", "most"), [("hansard_os", 0, 0), ("hansard_sync", 40, 60)]
)
def test_what_a_store_asks_of_the_disk_is_counted(
    system: str, least: int, most: int, tmp_path: Path
) -> None:
    """An append that promises to survive a power cut syncs, and one that does not, does not."""
    order = {"system": system, "workloads": ["syncs"], "scale": SMALL, "folder": str(tmp_path)}
    command = [sys.executable, "-m", "tools.bench.worker", json.dumps(order)]
    path = os.pathsep.join([str(CHECKOUT / "src"), str(CHECKOUT)])
    found = syncs.traced(command, {**os.environ, "PYTHONPATH": path}, 60)
    if found is None:
        pytest.skip("strace may not trace here")
    assert least <= found <= most


def test_the_guard_fails_only_when_every_try_is_beyond_the_bound() -> None:
    """The best of several tries counts, and no more tries are made than it takes."""
    quick, slow = iter([9.0, 1.5, 7.0]), iter([9.0, 8.0, 7.0])
    bounds = [Bound("quick", lambda: next(quick), 2.0), Bound("slow", lambda: next(slow), 2.0)]
    found = guard.judge(bounds, tries=3)
    assert found == [Finding("quick", 1.5, 2.0, 2), Finding("slow", 7.0, 2.0, 3)]
    assert [finding.kept for finding in found] == [True, False]
    assert guard.say(found[1]).startswith("SLOW")


def test_every_row_has_a_target_and_a_verdict() -> None:
    """What was measured is judged by its ratio; what was not is neither met nor missed."""
    rows = {(row.workload, row.against): row for row in verdicts(figures(), QUICK)}
    append = rows['One `"os"` append', "LMDB, no sync"]
    assert (append.ratio, append.met) == (0.5, True)
    assert rows['One `"os"` append', "a bare one"].met is False
    crowd = rows[
        'Appends a second of 4 processes on one session, `"os"`', "sqlite3 by hand, NORMAL"
    ]
    assert crowd.ratio == pytest.approx(3.0)
    assert crowd.met
    assert rows["append_sync", ""].met is None
    assert len(rows) >= 25


def test_a_lost_message_is_a_missed_target() -> None:
    """However fast it is, a store that loses an acknowledged message has not met its target."""
    found = figures()
    lost = {"rate": 1e6, "lost": 1, "duplicated": 0, "refused": 0, "acknowledged": 9}
    found.values["hansard_os"]["writers:processes:4:one"] = [lost]
    rows = [row for row in verdicts(found, QUICK) if "4 processes on one session" in row.workload]
    assert [row.met for row in rows[:2]] == [False, False]


def test_a_report_says_all_of_it() -> None:
    """Tables name systems, targets, lost messages, and what was left out; JSON says the same."""
    made = report(figures())
    text = made.markdown()
    assert '| hansard "os" | 0: os | 15 |' in text
    assert "90, 4 lost, 1 duplicated" in text
    assert "nope>=1: no such thing" in text
    assert "| 0.5 | ≤ 1 | yes |" in text
    assert json.loads(made.json())["left out"] == {"nope>=1": "no such thing"}


def test_plots_are_drawings_with_every_system_in_them() -> None:
    """Each plot is well-formed, names what it shows, and is linked from the report."""
    made = report(figures())
    text = made.markdown("pictures")
    for name, (_, drawn) in made.plots().items():
        assert ET.fromstring(drawn).tag.endswith("svg")  # noqa: S314 - drawn just now
        assert "hansard" in drawn
        assert f"(pictures/{name}.svg)" in text


def test_plots_of_nothing_say_so() -> None:
    """A run that measured nothing draws no axes."""
    assert all("nothing was measured" in drawn for _, drawn in report(Figures()).plots().values())


def test_the_page_keeps_what_is_outside_the_marks(tmp_path: Path) -> None:
    """Writing replaces the tables, twice as well as once; a page without marks is refused."""
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nwhat was there\n{END}\nafter\n")
    report(figures()).write(page)
    report(figures()).write(page)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "what was there" not in text
    assert text.count(BEGIN) == text.count(END) == 1
    assert (tmp_path / "images" / "bench-growth.svg").exists()
    with pytest.raises(ValueError, match="no marks"):
        between_marks("nothing", "new")


def test_the_docs_have_the_marks() -> None:
    """The page that `--write` fills is ready for it."""
    text = (CHECKOUT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert text.count(BEGIN) == text.count(END) == 1


def test_every_peer_that_is_not_ours_is_in_the_group() -> None:
    """What a class needs is what the environment of the peers installs."""
    wanted = " ".join(installed.requirements())
    assert all(entry.package in wanted for entry in KNOWN.values())


@pytest.mark.parametrize("system", ["hansard_os", "sqlite_normal"])
def test_workloads_run(system: str, tmp_path: Path) -> None:
    """With little to do, every workload of one process comes to an end and has figures."""
    material = tmp_path / "material.jsonl"
    said = [{"role": "user", "content": f"message {number}"} for number in range(3)]
    material.write_text(f"{json.dumps(said)}\n" * 2)
    names = ["append", "growth", "batch", "filled", "read", "fork", "listing", "disk"]
    names += ["writers:threads:2:one", "writers:threads:2:many"]
    order = {"system": system, "workloads": names, "scale": SMALL, "material": str(material)}
    found = worker.obey({**order, "folder": str(tmp_path / "work")})
    assert not [name for name in found if name.startswith("failed:")]
    assert {"append_us", "growth_us", "load_ms", "last_us", "fork_ms", "disk_ratio"} <= set(found)
    assert found["loaded"] == 80
    assert found["writers:threads:2:one"]["lost"] == 0
    assert found["writers:threads:2:one"]["acknowledged"] > 0


class Careless(Peer):
    """A store that forgets every second message, and says every third twice."""

    kept: list[str]

    def append(self, session: str, message: Message) -> None:
        """Acknowledge, whatever happens."""
        names = Careless.kept
        names.append(message["content"] if len(names) % 2 else "nothing at all")
        if len(names) % 3 == 0:
            names.append(message["content"])

    def load(self, session: str) -> list[Any]:
        """Return what there is."""
        return [{"content": text} for text in Careless.kept]


def test_lost_and_duplicated_messages_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that loses and doubles messages does not pass for a fast one."""
    Careless.kept = []
    monkeypatch.setattr(writers, "class_of", lambda _: Careless)
    found = writers.writers("careless", SMALL, tmp_path, "threads", 2, many=False)
    assert found["lost"] > 0
    assert found["duplicated"] > 0
