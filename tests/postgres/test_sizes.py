"""Sizes around the limits of a log, on PostgreSQL: what was acknowledged is read, compacted and moved."""

from pathlib import Path

import pytest

import hansard
from tests.postgres.server import Server
from tests.unit.test_sizes import append, batches, check, small, travel

__all__ = ["small"]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(4))
def test_what_was_acknowledged_survives_every_size(
    server: Server, tmp_path: Path, seed: int
) -> None:
    """F-27: a batch that files take, PostgreSQL takes, and moves to files and to another database."""
    with (
        hansard.open(server.database()) as store,
        hansard.open(tmp_path / "s", durability="os", auto_compact=False) as files,
        hansard.open(server.database()) as other,
    ):
        said = append(store, batches(seed))
        check(store, said)
        travel(store, (files, other))
