"""Run the fault campaign: rows of cases, counted, with the command that repeats each failure.

python -m tools.crash.campaign --rows 1,5 --scale on-demand --report DIR
"""

import argparse
import importlib
import itertools
import pkgutil
import random
import secrets
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tools.crash import rows
from tools.crash.report import LEFT_OVER, Report, Tally, machine
from tools.crash.row import Case, Row
from tools.crash.worker import run_all


class Source(NamedTuple):
    """A row, and the module that has its cases."""

    row: Row
    module: ModuleType

    def cases(self, count: int, seed: int) -> Iterator[Case]:
        """Yield about `count` cases; the same ones for the same seed."""
        # Each row draws from its own stream: its cases do not depend on which others are run.
        rng = random.Random(f"{seed} {self.row.number} {self.module.__name__}")
        if hasattr(self.module, "ROWS"):
            return cast("Iterator[Case]", self.module.cases(count, rng, row=self.row.number))
        return cast("Iterator[Case]", self.module.cases(count, rng))


def sources(broken: list[str] | None = None) -> list[Source]:
    """Return all rows, by number; a module that cannot be imported is added to `broken`, if there is one."""
    found = []
    for info in pkgutil.iter_modules(rows.__path__, f"{rows.__name__}."):
        if info.name.rpartition(".")[2].startswith("_"):
            continue  # what rows share
        try:
            module = importlib.import_module(info.name)
        except Exception as error:
            if broken is None:
                raise
            broken.append(f"{info.name}: {error!r}")
            continue
        # A module with several rows yields the cases of one at a time.
        own = getattr(module, "ROWS", None) or (module.ROW,)
        found += [Source(row, module) for row in own]
    return sorted(found, key=lambda source: (source.row.number, source.module.__name__))


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """Parse the arguments."""
    parser = argparse.ArgumentParser(
        prog="tools/crash/campaign", description="Break hansard on purpose, and count."
    )
    parser.add_argument("--rows", "--row", help="numbers of rows, such as 1,5,8; all if left out")
    parser.add_argument("--scale", choices=["per-run", "on-demand"], default="per-run")
    parser.add_argument("--count", type=int, help="cases of each row, at any scale")
    parser.add_argument("--seconds", type=float, help="start no more cases of a row after so long")
    parser.add_argument("--case", action="append", help="only the case with this label")
    parser.add_argument("--seed", type=int, help="the same cases again; a new one if left out")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes (2)")
    parser.add_argument("--report", type=Path, help="write report.md and report.json there")
    parser.add_argument("--list", action="store_true", help="list the rows, and run nothing")
    return parser.parse_args(given)


def chosen(asked: str | None) -> list[Source]:
    """Return the requested rows."""
    if asked is None:
        return sources()
    # A row that was not requested may be broken.
    broken: list[str] = []
    every = sources(broken)
    numbers = {int(number) for number in asked.split(",")} - {LEFT_OVER.number}
    unknown = numbers - {source.row.number for source in every}
    if unknown:
        known = ", ".join(sorted({str(source.row.number) for source in every}, key=int))
        told = [f"no row {', '.join(map(str, sorted(unknown)))}; there are {known}", *broken]
        raise SystemExit("\n".join(told))
    return [source for source in every if source.row.number in numbers]


def run(options: argparse.Namespace, report: Report, console: Console, place: str) -> None:
    """Run the rows, one after the other, and count into the report."""
    columns = (
        TextColumn("{task.description:44}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        for source in chosen(options.rows):
            row = source.row
            count = row.on_demand if options.scale == "on-demand" else row.per_run
            count = options.count or count
            tally = Tally(row, count)
            report.tallies.append(tally)
            title = f"{row.number:2} {row.title}"[:44]
            task = progress.add_task(title, total=len(options.case or ()) or count, failed="")
            begun = time.monotonic()
            cases = source.cases(count, report.seed)
            if options.case:
                # Create all cases, so that the chosen one is the same as in the first run.
                cases = (case for case in cases if case.label in options.case)
            if options.seconds:
                until = begun + options.seconds
                cases = itertools.takewhile(lambda _, until=until: time.monotonic() < until, cases)  # type: ignore[misc]
            every = run_all(cases, jobs=options.jobs, modules=[source.module.__name__], place=place)
            try:
                with closing(every):
                    for done in every:
                        tally.count(done)
                        tally.seconds = time.monotonic() - begun
                        failed = f"[red]{len(tally.failures)} failed[/]" if tally.failures else ""
                        progress.update(task, advance=1, failed=failed)
                progress.update(task, total=max(tally.done + sum(tally.skipped.values()), 1))
                if options.case and not tally.done and not tally.skipped:
                    tally.failures.append((options.case[0], "no case has this label"))
            except Exception:  # noqa: BLE001 - a row that cannot be run has failed; the others can
                tally.failures.append(("cases", traceback.format_exc(limit=-6)))
            finally:
                tally.seconds = time.monotonic() - begun


def main(given: Sequence[str] | None = None) -> int:
    """Run the campaign; return 0 if every promise was kept, 1 if not, 130 if it was interrupted."""
    options = arguments(given)
    if options.list:
        for source in sources():
            row = source.row
            print(f"{row.number:3}  {row.per_run:6,} {row.on_demand:7,}  {row.title}")
        return 0
    seed = secrets.randbelow(2**32) if options.seed is None else options.seed
    scale = f"{options.count} of each row" if options.count else options.scale
    console = Console(stderr=True)
    # Report what was done if another program, such as `timeout`, ends the run.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="hansard-campaign-") as place:
        report = Report(seed, scale, machine=machine(place))
        # The children remove the stores that were created here to choose cases.
        before, tempfile.tempdir = tempfile.tempdir, place
        try:
            run(options, report, console, place)
        except KeyboardInterrupt:
            report.interrupted = True
        finally:
            tempfile.tempdir = before
    if options.report:
        report.write(options.report)
    print(report.to_markdown())
    if report.interrupted:
        return 130
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
