"""Everything above the backend works on PostgreSQL as it does on files."""

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import hansard
import hansard.aio
from tests.postgres.server import PATIENCE, Server


def message(text: str, role: str = "user") -> dict[str, str]:
    """Return a message."""
    return {"role": role, "content": text}


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


def test_finding_works_as_on_files(url: str, tmp_path: Path) -> None:
    """Listing, filters, search, latest, children, stats, a part of a store, trash: the same as on files."""

    def look(store: hansard.Store) -> list[object]:
        fill(store)
        store.session("gone").add_message(message("refund"))
        store.delete("gone")
        found: list[object] = [
            [(i.id, i.title, i.seq, i.message_count, i.parent) for i in store.sessions().items],
            [i.id for i in store.sessions(where={"user": "u7"}, order="-updated").items],
            [i.id for i in store.sessions(prefix="one/").items],
            sorted((hit.session, hit.seq) for hit in store.search("child")),
            len(store.search("refund")),
            store.session("one").children(),
            store.stats().messages,
            [i.id for i in store.scoped("one/").sessions().items],
            store.trash(),
            store.count(),
        ]
        latest = store.latest()
        return [*found, latest and latest.id]

    with (
        hansard.open(url) as there,
        hansard.open(tmp_path / "a", durability="os") as here,
    ):
        assert look(there) == look(here)


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


@pytest.mark.slow
def test_nothing_is_lost_when_the_server_is_killed() -> None:
    """N-39, N-56: the server is killed under 6 threads and started again: what was acknowledged is there.

    Once, in its place, and no append failed: whoever waited went on.
    """
    with Server(18) as server:
        store = hansard.open(f"{server.database()}?patience={PATIENCE:g}")
        told: dict[int, list[tuple[int, str]]] = {name: [] for name in range(6)}
        stop = threading.Event()
        errors: list[BaseException] = []

        def write(name: int) -> None:
            session = store.session(f"s{name % 2}")
            try:
                while not stop.is_set():
                    text = f"{name} {len(told[name])}"
                    told[name].append((session.add_message(message(text)).seq, text))
            except BaseException as error:  # noqa: BLE001 - shown below
                errors.append(error)

        threads = [threading.Thread(target=write, args=(name,)) for name in told]
        for thread in threads:
            thread.start()
        _wait_for(lambda: all(len(mine) > 5 for mine in told.values()))
        server.kill()
        before = sum(map(len, told.values()))
        server.start()
        _wait_for(lambda: sum(map(len, told.values())) > before + 60)
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)
        assert errors == []
        for place in range(2):
            found = {
                event.seq: str((event.message or {})["content"])
                for event in store.session(f"s{place}").events()
            }
            assert sorted(found) == list(range(1, len(found) + 1))
            assert max(Counter(found.values()).values()) == 1
            for name in range(place, 6, 2):
                assert all(found[seq] == text for seq, text in told[name])
        store.close()


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)


def test_a_child_process_reads_what_its_parent_wrote(url: str) -> None:
    """After a fork a child that was handed a store lists, reads and closes it; the parent's goes on."""
    with hansard.open(url) as store:
        fill(store)
        expected = len(store.session("one").messages())
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                same = len(store.session("one").messages()) == expected
                code = 0 if same and store.count() == 3 else 2
                store.close()
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert len(store.session("one").messages()) == expected
