"""Measure hansard against the bare calls it stands on, as ratios within one run.

Absolute times mean little on a shared machine; ratios of neighbours mean something.
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

from tools.bench import beside, compaction, everyday, postgres
from tools.bench.result import Result, table

#: What is measured together: the first group if none is named.
GROUPS: dict[str, list[Callable[[Path], Result]]] = {
    "everyday": everyday.ALL,
    "compaction": [*compaction.ALL, *beside.ALL],
    "postgres": postgres.ALL,
}


def main() -> int:
    """Run the measurements that were asked for, and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--group",
        choices=GROUPS,
        default="everyday",
        help="what to measure; all but the first take minutes",
    )
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="only this one, of any group (repeatable)"
    )
    parser.add_argument("--json", metavar="FILE", help="write the report as JSON too")
    parser.add_argument("--check", action="store_true", help="exit 1 if a target is missed")
    options = parser.parse_args()
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
        folder = Path(tempfile.mkdtemp(prefix="hansard-bench-"))
        try:
            results.append(function(folder))
            print(f"  {results[-1].ratio:.3f}", file=sys.stderr, flush=True)
        finally:
            shutil.rmtree(folder)
    machine = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "python": platform.python_version(),
        "msgspec": msgspec.__version__,
        "system": f"{platform.system()} {platform.release()}",
        "cores": os.cpu_count(),
    }
    print(", ".join(f"{key} {value}" for key, value in machine.items()) + "\n")
    print(table(results))
    if options.json:
        report = {"machine": machine, "results": [r._asdict() | {"met": r.met} for r in results]}
        Path(options.json).write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    return int(options.check and not all(result.met for result in results))


if __name__ == "__main__":
    sys.exit(main())
