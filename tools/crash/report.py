"""The results of a campaign, as Markdown and as JSON."""

import json
import os
import platform
import subprocess
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from tools.crash.row import Row
from tools.crash.worker import Done

#: Every case checks this; it has no module.
LEFT_OVER = Row(15, "descriptors, temporary files, threads and processes left over", 0, 0)

#: Packages and settings that can change how a store behaves.
_PACKAGES = ("hansard", "msgspec", "portalocker", "zstandard", "hypothesis")


@dataclass
class Tally:
    """The results of the cases of one row."""

    row: Row
    asked: int
    done: int = 0
    seconds: float = 0.0
    failures: list[tuple[str, str]] = field(default_factory=list)
    #: Reason → how many were skipped for it.
    skipped: dict[str, int] = field(default_factory=dict)
    #: What cases left: (label, what).
    left: list[tuple[str, str]] = field(default_factory=list)
    #: Notes of cases, such as which test caught a mutant.
    notes: list[tuple[str, str]] = field(default_factory=list)

    def count(self, done: Done) -> None:
        """Add a case."""
        outcome = done.outcome
        if done.left:
            self.left.append((outcome.label, done.left))
        if outcome.skipped:
            self.skipped[outcome.skipped] = self.skipped.get(outcome.skipped, 0) + 1
            return
        self.done += 1
        if not outcome.ok:
            self.failures.append((outcome.label, outcome.detail))
        elif outcome.detail:
            self.notes.append((outcome.label, outcome.detail))


@dataclass
class Report:
    """All rows of a campaign, and its options."""

    seed: int
    scale: str
    tallies: list[Tally] = field(default_factory=list)
    interrupted: bool = False
    machine: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every promise was kept in every case."""
        return not any(tally.failures or tally.left for tally in self.tallies)

    def to_markdown(self) -> str:
        """Return the report as a page."""
        lines = ["# A campaign of faults", ""]
        lines += [f"- {name}: {value}" for name, value in self.machine.items()]
        lines += [f"- seed: {self.seed}; scale: {self.scale}", ""]
        if self.interrupted:
            lines += ["**Interrupted**: this is what was done until then.", ""]
        lines += [
            "| # | fault | asked | done | failed | skipped | seconds |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        for tally in self.tallies:
            row = tally.row
            lines.append(
                f"| {row.number} | {row.title} | {tally.asked:,} | {tally.done:,} | "
                f"{len(tally.failures):,} | {sum(tally.skipped.values()):,} | {tally.seconds:.1f} |"
            )
        left = [(tally, *found) for tally in self.tallies for found in tally.left]
        done = sum(tally.done for tally in self.tallies)
        lines.append(
            f"| {LEFT_OVER.number} | {LEFT_OVER.title} | – | {done:,} | {len(left):,} | 0 | – |"
        )
        lines += self._section(
            "Failed", [(t, *found) for t in self.tallies for found in t.failures]
        )
        lines += self._section("Left over", left)
        skipped = [
            f"- row {t.row.number}: {n:,}: {why}"
            for t in self.tallies
            for why, n in t.skipped.items()
        ]
        if skipped:
            lines += ["", "## Skipped", "", *skipped]
        notes = [
            f"- row {t.row.number}: {label}: {told}"
            for t in self.tallies
            for label, told in t.notes
        ]
        if notes:
            lines += ["", "## Found", "", *notes[:200]]
        return "\n".join(lines) + "\n"

    def _section(self, title: str, found: list[tuple[Tally, str, str]]) -> list[str]:
        if not found:
            return []
        lines = ["", f"## {title}", ""]
        for tally, label, detail in found[:100]:
            lines.append(f"- row {tally.row.number}: {label}")
            lines += ["", f"      {self.repeat(tally, label)}", ""]
            lines += [f"      {line[:400]}" for line in detail.splitlines()[-12:]]
            lines.append("")
        if len(found) > 100:  # noqa: PLR2004 - a page has an end; the JSON has all
            lines.append(f"- and {len(found) - 100:,} more")
        return lines

    def repeat(self, tally: Tally, label: str) -> str:
        """Return the command that runs one case again."""
        return (
            f"tools/crash/campaign --rows {tally.row.number} --case '{label}' "
            f"--seed {self.seed} --count {tally.asked}"
        )

    def to_json(self) -> str:
        """Return the report as JSON."""
        rows: list[dict[str, Any]] = [
            {
                "number": tally.row.number,
                "title": tally.row.title,
                "asked": tally.asked,
                "done": tally.done,
                "seconds": round(tally.seconds, 3),
                "failures": [
                    {"case": label, "detail": detail, "repeat": self.repeat(tally, label)}
                    for label, detail in tally.failures
                ],
                "left": [{"case": label, "what": what} for label, what in tally.left],
                "skipped": tally.skipped,
                "notes": dict(tally.notes),
            }
            for tally in self.tallies
        ]
        report = {
            "ok": self.ok,
            "interrupted": self.interrupted,
            "seed": self.seed,
            "scale": self.scale,
            "machine": self.machine,
            "rows": rows,
        }
        return json.dumps(report, indent=2, ensure_ascii=False) + "\n"

    def write(self, directory: Path) -> None:
        """Write both files, each completely or not at all."""
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in (("report.md", self.to_markdown()), ("report.json", self.to_json())):
            unfinished = directory / f"{name}.new"
            unfinished.write_text(text, encoding="utf-8")
            unfinished.replace(directory / name)


def machine(place: str) -> dict[str, str]:
    """Describe the machine, which the figures depend on."""
    versions = []
    for package in _PACKAGES:
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            versions.append(f"{package} from source")
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "processors": str(os.cpu_count()),
        "file system": file_system(place),
        "Python": platform.python_version(),
        "versions": ", ".join(versions) + (f"; commit {commit}" if commit else ""),
        "root": "yes" if os.geteuid() == 0 else "no",
    }


def file_system(place: str) -> str:
    """Return the file system of a directory, if the system reports it."""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    real = os.path.realpath(place)
    found = [
        (len(fields[1]), fields[2])
        for fields in (line.split() for line in mounts)
        if os.path.commonpath([real, fields[1]]) == fields[1]
    ]
    return max(found)[1] if found else "unknown"
