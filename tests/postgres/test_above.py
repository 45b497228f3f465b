"""Everything above the backend works on PostgreSQL as it does on files."""

import asyncio
import os
from pathlib import Path

import hypothesis
import pytest
from hypothesis.stateful import run_state_machine_as_test

import hansard
import hansard.aio
from tests.postgres.helpers import message
from tests.postgres.server import Server
from tests.properties.test_machine import InFiles
from tests.unit.test_sizes import append, batches, check, small, travel

__all__ = ["small"]


def fill(store: hansard.Store) -> None:
    """Make sessions with something of every kind."""
    one = store.session("one")
    one.add_messages([message("zero \0 and \u2028"), message("refund")], key="k")
    one.set_metadata(title="Refund", user="u7")
    with one.stream(role="assistant") as stream:
        stream.write("streamed ")
        stream.write("in parts")
    one.record_usage(model="m", input_tokens=3, output_tokens=4)
    one.snapshot("here")
    child = one.fork("one/child", at=3)
    child.add_message(message("only the child says so"))
    one.revert("here")
    one.add_message(message("x" * 5000), key="large")
    store.session("two").append("x.todo", {"done": False})
    one.redact(2, reason="test")


def everything(store: hansard.Store) -> dict[str, object]:
    """Return all that can be read of the sessions of a store."""
    return {
        info.id: (
            list(store.session(info.id).events()),
            store.session(info.id).messages(),
            store.session(info.id).messages(view="history"),
            store.session(info.id).metadata,
            store.session(info.id).parent,
            list(store.session(info.id).snapshots),
            store.session(info.id).usage,
        )
        for info in store.sessions().items
    }


def test_sessions_move_both_ways_event_for_event(url: str, tmp_path: Path) -> None:
    """A copy to PostgreSQL and back has every event, seq, time, key, fork and label; again, nothing moves."""
    with (
        hansard.open(tmp_path / "a", durability="os") as here,
        hansard.open(url) as there,
        hansard.open(tmp_path / "b", durability="os") as back,
    ):
        fill(here)
        assert here.copy_to(there).sessions == 3
        assert everything(there) == everything(here)
        assert there.copy_to(back).sessions == 3
        assert everything(back) == everything(here)
        assert here.copy_to(there).events == 0
        here.session("two").add_message(message("later"))
        assert here.copy_to(there).events == 1
        assert everything(there) == everything(here)
        assert there.session("one").add_messages([message("again")], key="k")[0].seq == 1
        for store in (there, back):
            assert store.verify().ok


def test_the_loop_goes_on_while_the_server_is_waited_for(url: str) -> None:
    """N-75: 64 tasks append and read, and another one of the loop has its turn all the while."""

    async def run() -> tuple[int, int, list[int]]:
        turns = 0
        over = False

        async def beat() -> None:
            nonlocal turns
            while not over:
                turns += 1
                await asyncio.sleep(0)

        async with hansard.aio.open(url) as store:
            beating = asyncio.create_task(beat())
            session = store.session("s")
            events = await asyncio.gather(
                *[session.add_message(message(str(number))) for number in range(64)]
            )
            messages = await session.messages()
            over = True
            await beating
            return turns, len(messages), sorted(event.seq for event in events)

    turns, count, seqs = asyncio.run(run())
    assert (count, seqs) == (64, list(range(1, 65)))
    assert turns > 64


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


@pytest.mark.usefixtures("small")
def test_a_batch_above_the_limit_is_refused_whole(server: Server) -> None:
    """F-27: PostgreSQL stores a batch of the largest size, and nothing of one that is larger."""
    message = {"role": "user", "content": "x" * 12_000}
    with hansard.open(server.database()) as store:
        session = store.session("a")
        session.add_messages([message] * 5)
        with pytest.raises(hansard.InvalidEvent, match="a batch of"):
            session.add_messages([message] * 6)
        check(store, [message] * 5)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_forks_streams_and_views_in_postgresql_are_those_of_lists(server: Server) -> None:
    """N-18, N-21, N-42, N-48 to N-51, N-54, N-55, N-57: any calls, through two stores, some opened anew."""

    class InPostgres(InFiles):
        def __init__(self) -> None:
            super().__init__()
            self.url = server.database()

        def open(self) -> hansard.Store:
            return hansard.open(self.url, durability="os")

        def look(self) -> hansard.Store:
            return hansard.open(self.url, read_only=True)

    examples = int(os.environ.get("HANSARD_TEST_EXAMPLES", "3"))
    settings = hypothesis.settings(
        max_examples=examples,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    run_state_machine_as_test(InPostgres, settings=settings)
