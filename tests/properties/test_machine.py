"""Any calls, forks, reverts, redactions and streams among them, add up to what plain lists say."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, run_state_machine_as_test

import hansard
from hansard import Store
from hansard.log import names
from tests.properties.histories import settings
from tests.properties.machine import Streaming
from tests.properties.machine_steps import PLACES, action


class InMemory(Streaming):
    """Both handles are one store, which lives as long as it is held."""

    drops_parts = False

    @initialize()
    def begin(self) -> None:
        """Open one store, and hold it twice."""
        self.stores = [hansard.open("memory:")] * 2


class InFiles(Streaming):
    """Both handles are stores of their own on one directory."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="hansard-machine-"))

    def open(self) -> Store:
        """Open the directory."""
        return hansard.open(self.root / "store", durability="os")

    def look(self) -> Store:
        """Open the directory to read, knowing nothing."""
        return hansard.open(self.root / "store", read_only=True)

    def teardown(self) -> None:
        """Close and delete everything."""
        super().teardown()
        shutil.rmtree(self.root)

    @action(1, place=PLACES)
    def reopen(self, place: int) -> None:
        """Forget all that a handle knows; messages that it was streaming stay as they are."""
        self.stores[place].close()
        self.stores[place] = self.open()
        self.handles = {key: kept for key, kept in self.handles.items() if key[0] != place}
        self.running = [running for running in self.running if running.place != place]

    @action(1)
    def verify(self) -> None:
        """Nothing is ever damaged."""
        assert self.stores[0].verify().ok

    @action(
        1,
        when=lambda self: self.plain.live(),
        garbage=st.binary(min_size=1, max_size=60) | st.integers(1, 400).map(lambda n: b"\0" * n),
        kept=st.none() | st.integers(1, 200),
    )
    def tear(self, garbage: bytes, kept: int | None) -> None:
        """Leave bytes without a newline at the end of a log, as a crash does: any, or part of a record."""
        name = self.draw(st.sampled_from(self.plain.live()))
        log = self.root / "store" / "sessions" / names.encode(name) / "log.jsonl"
        record = log.read_bytes().split(b"\n")[-2][:kept]
        with log.open("ab") as file:
            file.write(garbage.replace(b"\n", b"\r") if kept is None else record)

    @invariant()
    def both_say_the_same(self) -> None:
        """Every view is equal, also in a store that is opened now."""
        if self.stores:
            self.comparison.run(self.stores, self.handle, self.look)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_forks_streams_and_views_in_files_are_those_of_lists() -> None:
    """N-2, N-18, N-19, N-21, N-33, N-42, N-48 to N-51, N-54, N-55, N-57, N-72: as the model."""
    run_state_machine_as_test(InFiles, settings=settings(24))


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_forks_streams_and_views_in_memory_are_those_of_lists() -> None:
    """N-21, N-42, N-48 to N-51, N-54, N-55, N-57, N-63, N-72: as the model."""
    run_state_machine_as_test(InMemory, settings=settings(20))
