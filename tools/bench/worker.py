"""Run workloads of one system in this process, and print the figures as the last line, in JSON.

python -m tools.bench.worker '{"system": …, "workloads": […], "scale": …, "directory": …}'
"""

import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from tools.bench import workloads, writers
from tools.bench.scale import Scale


def main(arguments: list[str]) -> int:
    """Run the workloads of the arguments."""
    if arguments[0] == "--echo":
        workloads.echo(arguments[1], Path(arguments[2]), sys.stdin.buffer)
        return 0
    if arguments[0] == "--write":
        system, directory, number, many, budget = json.loads(arguments[1])
        writers.one_of_many(system, Path(directory), number, many, budget)
        return 0
    order = json.loads(arguments[0])
    print("\n" + json.dumps(obey(order)), flush=True)
    return 0


def obey(order: dict[str, Any]) -> dict[str, Any]:
    """Run the workloads of an order, each in a separate directory; return figures by name."""
    scale = Scale(*order["scale"])
    root = Path(order["directory"])
    found: dict[str, Any] = {}
    for name in order["workloads"]:
        # `read` reads the session of `filled`; all others begin in a new directory.
        directory = root / ("filled" if name in {"filled", "read"} else name.replace(":", "-"))
        directory.mkdir(parents=True, exist_ok=True)
        begin = time.perf_counter()
        try:
            found |= _run(name, order, scale, directory)
        except Exception as error:  # noqa: BLE001 - one workload that fails does not hide the others
            traceback.print_exc()
            found[f"failed:{name}"] = f"{type(error).__name__}: {error}"
        found[f"seconds:{name}"] = time.perf_counter() - begin
    return found


def _run(name: str, order: dict[str, Any], scale: Scale, directory: Path) -> dict[str, Any]:
    system = order["system"]
    if name.startswith("everyday:"):
        from tools.bench import everyday

        everyday.LONG = order.get("long", scale.long)
        known = {function.__name__: function for function in everyday.ALL}
        result = known[name.removeprefix("everyday:")](directory)
        claim = result.claim.replace("100,000", f"{everyday.LONG:,}")
        return {name: result._replace(claim=claim)._asdict()}
    if name == "limits":
        from tools.bench import limits

        return limits.measure(directory)
    if name.startswith("writers:"):
        _, kind, count, where = name.split(":")
        figures = writers.writers(system, scale, directory, kind, int(count), where == "many")
        return {name: figures} if figures else {}
    if name == "disk":
        return workloads.disk(system, scale, directory, Path(order["material"]))
    return workloads.ALL[name](system, scale, directory)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
