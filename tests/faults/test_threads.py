"""Claims about threads that share a store: writers, readers beside them, listings, and open files."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import hansard
from tests.faults.workers import PATIENCE, Crew, Wire, open_store, until

# ------------------------------------------------------------------ readers beside writers


def append_messages(wire: Wire, path: str, count: int) -> None:
    """Append messages until there are enough."""
    with open_store(path, "os") as store:
        for _ in range(count):
            store.session("s").add_messages([{"by": "another process"}] * 2)


class Reading(threading.Thread):
    """A thread that makes every read call over and over, and never wants to see less than before."""

    def __init__(self, store: hansard.Store) -> None:
        super().__init__(daemon=True)
        self._store = store
        self._session = store.session("s")
        self._done = threading.Event()
        #: The most that was seen so far, of seqs, messages and changes of metadata.
        self._seen = {"seq": 0, "messages": 0, "changes": 0}
        self.rounds = 0
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Read until told to stop, or until something is older than it was."""
        try:
            while not self._done.is_set():
                for call, facts in self._look():
                    for fact, found in facts.items():
                        seen = self._seen[fact]
                        assert found >= seen, f"{call}: {fact} {found}, and {seen} before"
                        self._seen[fact] = found
                self.rounds += 1
        except BaseException as error:  # noqa: BLE001 - kept, and looked at by the test
            self.error = error

    def _look(self) -> Iterator[tuple[str, dict[str, int]]]:
        session = self._session
        yield "seq", {"seq": session.seq}
        yield "messages", {"messages": len(session.messages())}
        yield "events", {"seq": list(session.events())[-1].seq}
        yield "metadata", {"changes": session.metadata["changes"]}
        yield "messages_json", {"messages": session.messages_json().count(b'{"by"')}
        state = session.state()
        yield "state", {"seq": state.seq, "messages": state.message_count}
        yield "state", {"changes": state.metadata["changes"]}
        after = self._seen["seq"] - 1
        yield "events(after)", {"seq": list(session.events(after=after))[-1].seq}
        yield "messages(last)", {"messages": len(session.messages(last=10_000))}
        item = self._store.sessions().items[0]
        yield "sessions", {"seq": item.seq, "changes": item.metadata["changes"]}
        fresh = self._store.session("s")
        yield "messages(at)", {"messages": len(fresh.messages(at=fresh.seq))}
        yield "verify", {"seq": self._store.verify().sessions[0].seq}

    def end(self) -> None:
        """Stop reading; raise what went wrong."""
        self._done.set()
        self.join(PATIENCE)
        assert not self.is_alive()
        if self.error is not None:
            raise self.error


@pytest.mark.slow
def test_a_reader_never_sees_less_than_it_saw_before(tmp_path: Path) -> None:
    """N-20: whichever read call comes next, it shows at least what all those before it showed."""
    path = str(tmp_path / "store")
    with (
        open_store(path, "os") as store,
        hansard.open(path, read_only=True) as apart,
        Crew() as crew,
    ):
        session = store.session("s")
        session.set_metadata(changes=0)
        session.add_message({"by": "this process"})
        readers = [Reading(store), Reading(store), Reading(apart)]
        other = crew.start(append_messages, path, 100)
        for number in range(1, 101):
            session.add_message({"by": "this process"})
            session.set_metadata(changes=number)
        other.result()
        until(lambda: all(reader.rounds or reader.error for reader in readers))
        for reader in readers:
            reader.end()
        assert session.seq == 402


def test_threads_that_list_at_the_same_time_all_see_every_session(tmp_path: Path) -> None:
    """N-3, N-20: a listing does not lose sessions to another that reads the same directory."""
    ids = [f"session-{number}" for number in range(40)]
    with open_store(str(tmp_path / "store"), "os") as store:
        for id in ids:
            store.session(id).append("x.begun", {})
        wanted = sorted(ids)
        found: list[list[str]] = []
        barrier = threading.Barrier(4)

        def list_often() -> None:
            barrier.wait(PATIENCE)
            found.extend([item.id for item in store.sessions().items] for _ in range(10))

        threads = [threading.Thread(target=list_often) for _ in range(4)]
        for thread in threads:
            thread.start()
        # And one listing in the middle of another.
        outer = store._backend.ids()
        begun = next(outer)
        assert sorted(store._backend.ids()) == wanted
        assert sorted([begun, *outer]) == wanted
        for thread in threads:
            thread.join(PATIENCE)
        assert found == [wanted] * 40


# ------------------------------------------------------------------ more sessions than files


def descriptors() -> int:
    """Return how many files this process has open."""
    return len(os.listdir("/dev/fd"))
