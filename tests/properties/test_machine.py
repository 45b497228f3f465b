"""Any calls, such as forks, reverts, redactions and streams, give the same result as plain lists."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant

import hansard
from hansard import Store
from hansard.log import names
from tests.properties.comparing import lines, same
from tests.properties.histories import check_machine
from tests.properties.machine import Streaming
from tests.properties.machine_steps import PLACES, action


class InMemory(Streaming):
    """Both handles are one store, which exists while it is open."""

    @initialize()
    def begin(self) -> None:
        """Open one store, and hold it twice."""
        self.stores = [hansard.open("memory:")] * 2


class InFiles(Streaming):
    """Both handles are separate stores on one directory."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="hansard-machine-"))
        self.copied = hansard.open("memory:")

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

    @action(2, when=lambda self: self.plain.live())
    def copy(self) -> None:
        """Copy everything to a store that has an earlier copy, or none."""
        live = self.plain.live()
        if self.draw(st.booleans()):
            self.copied = hansard.open("memory:")
        # A parent that was in the trash is there in the copy, until it is restored there, too.
        for name in {*live} & {*self.copied.trash()}:
            self.copied.restore(name)
        assert self.stores[0].copy_to(self.copied).failed == {}
        assert self.stores[0].copy_to(self.copied).events == 0
        for name in live:
            one, other = self.stores[0].session(name), self.copied.session(name)
            for view in ("model", "history"):
                assert same(other.messages(view=view)) == same(one.messages(view=view))
            assert (other.state(), other.parent) == (one.state(), one.parent)
            assert lines(other) == lines(one)

    @invariant()
    def both_say_the_same(self) -> None:
        """Every view is equal, also in a store that is opened now."""
        if self.stores:
            self.comparison.run(self.stores, self.handle, self.look)


class InSmallFrames(InFiles):
    """The same with frames and pieces so small that every read crosses many."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()

    @initialize(frame=st.sampled_from([64, 300, 2000]), piece=st.sampled_from([128, 1000, 1 << 20]))
    def shrink(self, frame: int, piece: int) -> None:
        """Set the sizes of this history."""
        self.patch.setattr("hansard.log.sealed_writer.FRAME", frame)
        self.patch.setattr("hansard.log.segment_reader.PIECE", piece)

    def teardown(self) -> None:
        """Restore the sizes."""
        self.patch.undo()
        super().teardown()

    @action(8, place=PLACES, count=st.integers(1, 40))
    def say_much(self, place: int, name: str, count: int) -> None:
        """Append a batch of messages of many lengths."""
        messages = [{"content": "x" * (7 * number % 70)} for number in range(count)]
        self.append(place, name, [("message.added", {"message": m}) for m in messages], None, None)

    @action(8, when=lambda self: self.plain.live(), place=PLACES)
    def compact_often(self, place: int) -> None:
        """Compact."""
        self.compact(place)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("machine", "histories", "shrink"),
    [(InFiles, 24, True), (InSmallFrames, 8, False), (InMemory, 20, True)],
)
def test_any_history_is_that_of_the_lists(
    machine: type[Streaming], histories: int, shrink: bool
) -> None:
    """N-2, N-18, N-19, N-21, N-33, N-42, N-45, N-47 to N-51, N-54 to N-57, N-63, N-72, N-84: as the model."""
    check_machine(machine, histories, shrink=shrink)
