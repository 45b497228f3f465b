"""Measure hansard against bare system calls and other systems, as ratios within one run.

Absolute times vary on a shared machine; ratios of adjacent measurements vary less.
"""

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from tools.bench import (
    compaction,
    contention,
    during_compaction,
    everyday,
    goals,
    index,
    pages,
    postgres,
    processes,
)
from tools.bench.installed import CHECKOUT
from tools.bench.peers import KNOWN
from tools.bench.peers_report import Report
from tools.bench.peers_run import Run, machine
from tools.bench.result import Result, table
from tools.bench.scale import SCALES

#: Groups of measurements; the first is the default.
GROUPS: dict[str, list[Callable[[Path], Result]]] = {
    "everyday": everyday.ALL,
    "processes": processes.ALL,
    "contention": contention.ALL,
    "compaction": [*compaction.ALL, *during_compaction.ALL],
    "index": index.ALL,
    "pages": pages.ALL,
    "postgres": postgres.ALL,
    "goals": goals.ALL,
}


def main() -> int:
    """Run the requested measurements, and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--group",
        choices=[*GROUPS, "peers"],
        default="everyday",
        help="what to measure; all but the first take minutes",
    )
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="only this one, of any group (repeatable)"
    )
    parser.add_argument("--json", metavar="FILE", help="write the report as JSON too")
    parser.add_argument("--check", action="store_true", help="exit 1 if a target is missed")
    parser.add_argument(
        "--write", action="store_true", help="of goals and peers: write the tables into docs/"
    )
    peers = parser.add_argument_group("of --group peers")
    peers.add_argument("--quick", action="store_true", help="small sizes, once: under 3 minutes")
    peers.add_argument(
        "--system", action="append", choices=KNOWN, help="only this one (repeatable)"
    )
    peers.add_argument(
        "--report", type=Path, metavar="DIR", help="write report.md, .json and plots"
    )
    options = parser.parse_args()
    if options.group == "peers":
        return _peers(options)
    known = {function.__name__: function for group in GROUPS.values() for function in group}
    unknown = set(options.only or ()) - set(known)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    wanted = options.only or [function.__name__ for function in GROUPS[options.group]]
    results = []
    for name, function in known.items():
        if name not in wanted:
            continue
        print(f"{name} …", file=sys.stderr, flush=True)
        directory = Path(tempfile.mkdtemp(prefix="hansard-bench-"))
        try:
            results.append(function(directory))
            print(f"  {results[-1].ratio:.3f}", file=sys.stderr, flush=True)
        finally:
            shutil.rmtree(directory)
    machine = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "python": platform.python_version(),
        "msgspec": msgspec.__version__,
        "system": f"{platform.system()} {platform.release()}",
        "cores": os.cpu_count(),
    }
    about = ", ".join(f"{key} {value}" for key, value in machine.items())
    print(f"{about}\n\n{table(results)}")
    if options.write and options.group == "goals":
        goals.write(results, about)
    if options.json:
        report = {"machine": machine, "results": [r._asdict() | {"met": r.met} for r in results]}
        Path(options.json).write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    return int(options.check and not all(result.met for result in results))


def _peers(options: argparse.Namespace) -> int:
    """Run the measurements of all systems, and report."""
    scale = SCALES["quick" if options.quick else "full"]
    about = machine({}) | {"sizes": "quick" if options.quick else "full"}
    run = Run(scale, options.system or list(KNOWN))
    begin = time.monotonic()
    rows = run.everything()
    about |= run.versions | {"took": f"{(time.monotonic() - begin) / 60:.1f} min"}
    report = Report(run.figures, rows, about, scale, run.left_out, run.failures)
    print(report.markdown("."))
    if options.json:
        Path(options.json).write_text(report.json(), encoding="utf-8")
    if options.report:
        report.write_plots(options.report)
        (options.report / "report.md").write_text(report.markdown(".") + "\n", encoding="utf-8")
        (options.report / "report.json").write_text(report.json(), encoding="utf-8")
    if options.write:
        report.write(CHECKOUT / "docs" / "reports" / "peers.md")
    return int(options.check and not all(row.met for row in rows))


if __name__ == "__main__":
    sys.exit(main())
