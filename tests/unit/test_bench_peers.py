"""Smoke test of the benchmark that compares hansard with other stores."""

import json
from pathlib import Path

import pytest

from tools.bench import worker
from tools.bench.scale import QUICK

SMALL = QUICK._replace(
    appends=5, budget=0.1, filling=2.0, lengths=(10, 20), common=60, loaded=80, listed=3, kept=2
)


@pytest.mark.parametrize("system", ["hansard_os", "sqlite_normal"])
def test_workloads_run(system: str, tmp_path: Path) -> None:
    """Every workload of one process ends and returns its figures."""
    material = tmp_path / "material.jsonl"
    messages = [{"role": "user", "content": f"message {number}"} for number in range(3)]
    material.write_text(f"{json.dumps(messages)}\n" * 2)
    names = ["append", "growth", "batch", "filled", "read", "fork", "listing", "disk"]
    names += ["writers:threads:2:one", "writers:threads:2:many"]
    order = {"system": system, "workloads": names, "scale": SMALL, "material": str(material)}
    found = worker.obey({**order, "directory": str(tmp_path / "work")})
    assert not [name for name in found if name.startswith("failed:")]
    assert {"append_us", "growth_us", "load_ms", "last_us", "fork_ms", "disk_ratio"} <= set(found)
    assert found["loaded"] == 80
    assert found["writers:threads:2:one"]["lost"] == 0
    assert found["writers:threads:2:one"]["acknowledged"] > 0
