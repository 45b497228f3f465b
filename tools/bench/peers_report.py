"""Report the results of all systems: as Markdown, as JSON, and as plots."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tools.bench import svg
from tools.bench.figures import Figures
from tools.bench.peers import KNOWN
from tools.bench.scale import Scale
from tools.bench.syncs import durability
from tools.bench.verdicts import Verdict

BEGIN: Final = "<!-- tools/bench/run --group peers --write: from here -->"
END: Final = "<!-- to here -->"


class Report:
    """All results of one run."""

    def __init__(
        self,
        figures: Figures,
        rows: Sequence[Verdict],
        machine: Mapping[str, Any],
        scale: Scale,
        left_out: Mapping[str, str],
        failures: Mapping[str, str],
    ) -> None:
        self.figures = figures
        self.rows = rows
        self.machine = machine
        self.scale = scale
        self.left_out = left_out
        self.failures = failures

    def markdown(self, images: str = "images") -> str:
        """Return the report as Markdown."""
        where = ", ".join(f"{name} {value}" for name, value in self.machine.items())
        parts = [f"One run: {where}.", self._targets()]
        parts += [f"![{alt}]({images}/{name}.svg)" for name, (alt, _) in self.plots().items()]
        parts += [self._systems(), self._growth(), self._writers(), self._limits(), self._notes()]
        return "\n\n".join(part for part in parts if part)

    def json(self) -> str:
        """Return the report as JSON."""
        report = {
            "machine": dict(self.machine),
            "scale": self.scale._asdict(),
            "targets": [row._asdict() | {"met": row.met} for row in self.rows],
            "figures": {system: dict(found) for system, found in self.figures.values.items()},
            "left out": dict(self.left_out),
            "failures": dict(self.failures),
        }
        return json.dumps(report, indent=1, ensure_ascii=False) + "\n"

    def plots(self) -> dict[str, tuple[str, str]]:
        """Return the plots by name: title and SVG."""
        title = {name: entry.title for name, entry in KNOWN.items()}
        growth = {
            title[name]: [(float(length), us) for length, us in found.items()]
            for name in KNOWN
            if (found := self.figures.one(name, "growth_us"))
        }
        writers = {}
        for name in KNOWN:
            line = [
                (float(count), rate)
                for count in (1, 4, 16)
                if (rate := self.figures.rate(name, f"writers:processes:{count}:one"))
            ]
            if len(line) > 1:
                writers[title[name]] = line
        made = {
            "bench-growth": (
                "Microseconds for one append, by the length of the session",
                svg.lines("One append, by the length of the session", growth, x="messages", y="µs"),
            ),
            "bench-writers": (
                "Appends a second, by the number of processes on one session",
                svg.lines(
                    "Appends a second on one session", writers, x="processes", y="appends a second"
                ),
            ),
        }
        for name, figure, what, unit in (
            ("bench-load", "load_us_each", "Loading a session, for each message", "µs"),
            ("bench-last", "last_us", "The last 50 messages, cold", "µs"),
            ("bench-list", "list_us_each", "Listing sessions, for each session", "µs"),
            ("bench-disk", "disk_ratio", "Bytes on disk for each byte of JSON", ""),
        ):
            rows = [
                (title[system], value, f"{value:.3g} {unit}".rstrip())
                for system in KNOWN
                if (value := self._figure(system, figure))
            ]
            logarithmic = figure != "disk_ratio"
            made[name] = (what, svg.bars(what, rows, logarithmic=logarithmic))
        return made

    def write(self, page: Path) -> None:
        """Put the tables between the marks of a page of docs/reports, and the plots into docs/images."""
        text = page.read_text(encoding="utf-8")
        page.write_text(between_marks(text, self.markdown("../images")), encoding="utf-8")
        self.write_plots(page.parents[1] / "images")

    def write_plots(self, directory: Path) -> None:
        """Write the plots into a directory."""
        directory.mkdir(parents=True, exist_ok=True)
        for name, (_, drawn) in self.plots().items():
            (directory / f"{name}.svg").write_text(drawn, encoding="utf-8")

    def _figure(self, system: str, name: str) -> float | None:
        if name == "list_us_each":
            taken, listed = self.figures.get(system, "list_ms"), self.figures.get(system, "listed")
            return taken * 1000 / listed if taken and listed else None
        return self.figures.get(system, name)

    def _targets(self) -> str:
        rows = []
        for row in self.rows:
            sign = "≥" if row.more else "≤"
            met = {True: "yes", False: "NO", None: "–"}[row.met]
            ratio = "–" if row.ratio is None else f"{row.ratio:.3g}"
            rows.append(
                [row.workload, row.against, row.found, ratio, f"{sign} {row.target:g}", met]
            )
        return _table(["what", "against", "found", "ratio", "target", "met"], rows)

    def _systems(self) -> str:
        columns = {
            "append, µs": "append_us",
            "in batches of 100, µs each": "batch_us",
            "load, µs each": "load_us_each",
            "of": "loaded",
            "last 50, cold, µs": "last_us",
            "seen, µs": "seen_us",
            "all again, ms": "again_ms",
            "fork, ms": "fork_ms",
            "fork, bytes": "fork_bytes",
            "list, ms": "list_ms",
            "listed": "listed",
            "search, ms": "search_ms",
            "disk / JSON": "disk_ratio",
            "memory loaded, MB": "memory_mb",
            "start, ms": "start_ms",
        }
        rows = []
        for system, entry in KNOWN.items():
            if system not in self.figures.values:
                continue
            count = self.figures.get(system, "syncs")
            counted = "–" if count is None else f"{count:.2g}"
            row = [entry.title, f"{counted}: {durability(count)}"]
            row += [_number(self._figure(system, figure)) for figure in columns.values()]
            rows.append(row)
        return _table(["system", "syncs for each append", *columns], rows)

    def _growth(self) -> str:
        lengths = [str(length) for length in self.scale.lengths]
        rows = []
        for system, entry in KNOWN.items():
            found = self.figures.one(system, "growth_us")
            if found:
                rows.append([entry.title, *(_number(found.get(length)) for length in lengths)])
        heads = [f"{int(length):,}" for length in lengths]
        return _table(["one append, in µs, at a number of messages", *heads], rows)

    def _writers(self) -> str:
        names = sorted(
            {
                name
                for found in self.figures.values.values()
                for name in found
                if name[:8] == "writers:"
            },
            key=lambda name: (
                name.split(":")[1],
                name.split(":")[3] == "many",
                int(name.split(":")[2]),
            ),
        )
        heads = []
        for name in names:
            _, kind, count, where = name.split(":")
            heads.append(f"{count} {kind}, {where}")
        rows = []
        for system, entry in KNOWN.items():
            row = [entry.title]
            for name in names:
                rate = self.figures.rate(system, name)
                harm = [
                    f"{number} {part}"
                    for part in ("lost", "duplicated", "refused")
                    if (number := self.figures.total(system, name, part))
                ]
                row.append("–" if rate is None else ", ".join([f"{rate:,.0f}", *harm]))
            if set(row[1:]) - {"–"}:
                rows.append(row)
        return _table(["appends a second, on one session and on many", *heads], rows)

    def _limits(self) -> str:
        found = self.figures.values.get("limits", {})
        rows = [
            [name, _number(values[0])]
            for name, values in found.items()
            if not name.startswith("everyday")
        ]
        return _table(["limit", "found"], rows)

    def _notes(self) -> str:
        notes = [
            f"- Left out, since it did not install: {name}: {why}"
            for name, why in self.left_out.items()
        ]
        notes += [f"- Failed: {name}: {why}" for name, why in self.failures.items()]
        notes += [
            f"- {KNOWN[system].title}: a warm handle did not see what another process had appended."
            for system in KNOWN
            if self.figures.one(system, "unseen")
        ]
        return "\n".join(notes)


def between_marks(text: str, new: str, begin: str = BEGIN) -> str:
    """Return a page with the text between its marks replaced."""
    pattern = re.compile(re.escape(begin) + r".*?" + re.escape(END), re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"the page has no marks; put these two lines into it: {begin} {END}")
    return pattern.sub(lambda _: f"{begin}\n\n{new}\n\n{END}", text)


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits count


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
