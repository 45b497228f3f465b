"""The run beside the peers: it comes to an end, and counts what is lost."""

import json
from pathlib import Path
from typing import Any

import pytest

from tools.bench import worker
from tools.bench.peers.peer import Message, Peer
from tools.bench.scale import QUICK

SMALL = QUICK._replace(
    appends=5, budget=0.02, filling=2.0, lengths=(10, 20), common=60, loaded=80, listed=3, kept=2
)


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
