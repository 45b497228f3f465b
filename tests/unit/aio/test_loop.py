"""Claims about `hansard.aio`: no call waits on the event loop."""

import asyncio
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

import hansard
from hansard import aio
from hansard.log import disk
from tests.faults.test_group_commit import Stay
from tests.unit.aio.thread_probe import come_round, reached, watching
from tests.unit.disk_probe import flip, log_of

MESSAGE = {"role": "user", "content": "hello"}


@pytest.fixture(params=["memory", "os", "sync"])
def opening(request: pytest.FixtureRequest, tmp_path: Path) -> aio.Opening:
    """Return a store of each kind, to be opened."""
    if request.param == "memory":
        return aio.open("memory:")
    return aio.open(tmp_path / "store", durability=request.param)


async def use_everything(store: aio.Store) -> set[str]:  # noqa: PLR0915 - one line for each name
    """Call every public name of a store, a session, a stream and a follower; return the names."""
    used = set()

    class Used:
        """A twin that notes which of its names are used."""

        def __init__(self, twin: object) -> None:
            self._twin = twin

        def __getattr__(self, name: str) -> Any:
            used.add(f"{type(self._twin).__name__}.{name}")
            return getattr(self._twin, name)

    used_store: Any = Used(store)
    session: Any = Used(used_store.session("s~0123"))
    assert await session.seq == 0
    await session.add_message(MESSAGE)
    await session.add_messages([MESSAGE, MESSAGE], key="k")
    await session.append("x.todo", {"do": "it"})
    await session.set_metadata(user="u7")
    await session.patch_metadata({"with space": 1})
    await session.append_all([("x.todo", {"do": "more"})])
    await session.set_title("A title")
    await session.set_workspace()
    await session.record_usage(model="m", input_tokens=3)
    await session.snapshot("here")
    async with session.stream(gather=0) as begun:
        stream: Any = Used(begun)
        await stream.write("par")
        await stream.write("tial")
        await stream.flush()
        assert (stream.text, stream.event, bool(stream.id)) == ("partial", None, True)
        await stream.finish()
    calling: Any = Used(session.stream(role="user"))
    await calling.write_call("{}", id="c", name="f")
    assert calling.message["tool_calls"][0]["id"] == "c"
    await calling.discard()
    other: Any = Used(session.stream(gather=0, role="user"))
    await other.write("never mind")
    await other.discard()
    await session.summarize(upto=2, message=MESSAGE)
    await session.redact(3)
    await session.hold("for a moment")
    await session.release()
    await session.scrub("nothing of the kind")
    await session.drop_history(2)
    await session.clear()
    await session.revert("here")
    await session.archive()
    await session.unarchive()
    await session.close()
    await session.reopen()
    assert await session.messages(last=1) == [MESSAGE]
    assert [message for _, message in await session.numbered(last=1)] == [MESSAGE]
    assert (await session.messages_json(last=1)).startswith(b"[{")
    assert await session.window(messages=1) == [MESSAGE]
    assert await session.pairing() == []
    assert (await session.transcript(1)).entries
    assert await session.restore_into([]) > 0
    assert await session.metadata == {**await session.metadata, "user": "u7"}
    assert await session.title == "A title"
    assert (await session.usage)["m"].input_tokens == 3
    assert set(await session.snapshots) == {"here"}
    assert (await session.state()).seq == await session.seq
    assert await session.parent is None
    child = await session.fork("child", at="here")
    assert await child.parent == session.id
    assert await session.children() == ["child"]
    assert (await session.compare(child, at=1, other_at=1)).equal
    assert [event.seq async for event in session.events()][-1] == await session.seq
    assert [shared async for shared in session.share()]
    exported = [piece async for piece in session.export()]
    async with aio.open("memory:") as target:
        assert not (await used_store.copy_to(target)).failed
        imported: Any = Used(target)
        assert not (await imported.import_session(exported, id="imported")).already
    assert not [record async for record in session.dump() if record.problem]
    assert (await session.verify()).ok
    assert (await session.repair()).ok
    await session.compact()

    await used_store.create("made", metadata={"a": 1})
    assert await used_store.exists("made")
    assert (await used_store.latest()).id
    await used_store.delete("made")
    assert await used_store.trash() == ["made"]
    await used_store.restore("made")
    await used_store.delete("made")
    await used_store.purge("made")
    assert [event async for event in used_store.audit()]
    assert len((await used_store.sessions()).items) == await used_store.count() == 2
    assert (await used_store.stats()).sessions == 2
    assert (await used_store.search("title"))[0].title == "A title"
    part: aio.Store = used_store.scoped("chi")
    assert [info.id for info in (await part.sessions()).items] == ["child"]
    async with used_store.follow(cursor="mine") as opened:
        follower: Any = Used(opened)
        found = await follower.take(0.0)
        assert found is not None
        async for again in opened:
            assert again.session == found.session
            break
        await follower.commit()
        await follower.close()
    assert await used_store.cursors() == ["mine"]
    assert await used_store.drop_cursor("mine")
    await used_store.set_retention(max_size=10**12)
    await used_store.retention()
    await used_store.prune(older_than=3600.0, dry_run=True, all_workspaces=True)
    assert (await used_store.verify()).ok
    assert (await used_store.compact()).failed == {}
    assert (await used_store.diagnose()).sessions == 2
    assert (await used_store.health()).writable
    assert (await used_store.metrics()).appends
    await used_store.close()
    return used


def test_no_call_waits_on_the_loop(opening: aio.Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-75: no public call touches the disk, waits for a lock or syncs in the loop's thread."""
    with watching(monkeypatch) as watch:

        async def main() -> tuple[set[str], str]:
            async with opening as store:
                return await use_everything(store), repr(store)

        used, where = asyncio.run(main())
    public = {
        f"{cls.__name__}.{name}"
        for cls in (aio.Store, aio.Session, aio.Stream, aio.Follower)
        for name in dir(cls)
        if not name.startswith("_")
    }
    assert public - used <= {"Session.id", "Store.create"}
    assert watch.by("MainThread") == []
    assert {"write", "sync"} <= set(watch.by("hansard-aio-")) or "memory" in where


#: The threads that were there before a test: stores of other tests may not be collected yet.
OTHERS: set[threading.Thread] = set()


def ours() -> list[threading.Thread]:
    """Return the threads that the stores of this test have started."""
    started = set(threading.enumerate()) - OTHERS
    return [thread for thread in started if thread.name.startswith("hansard")]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Check that the stores of a test leave no thread."""
    OTHERS.clear()
    OTHERS.update(threading.enumerate())
    yield
    for thread in ours():
        thread.join(60.0)
    assert ours() == []


async def test_threads_are_bounded_and_end_with_the_store(tmp_path: Path) -> None:
    """N-79: a store has no thread before its first call, at most 16, and none after it is closed."""
    opening = aio.open(tmp_path / "store")
    assert ours() == []
    store = await opening
    assert len(ours()) == 1
    await asyncio.gather(*(store.session(f"s{n}").add_message(MESSAGE) for n in range(100)))
    assert len(ours()) <= 16
    await store.close()


async def test_a_store_that_is_not_closed_leaves_no_thread(tmp_path: Path) -> None:
    """N-79: the threads of a store end when nothing refers to it any more; the fixture waits for them."""
    store = await aio.open(tmp_path / "store")
    await store.session("s").add_message(MESSAGE)
    assert ours() != []


def test_one_store_serves_several_loops(tmp_path: Path) -> None:
    """N-75: a store works in consecutive loops, and in threads that each have a loop."""
    store = asyncio.run(_open(tmp_path))
    session = store.session("s")

    async def append(count: int) -> list[int]:
        events = await asyncio.gather(*(session.add_message(MESSAGE) for _ in range(count)))
        return [event.seq for event in events]

    seqs = asyncio.run(append(10)) + asyncio.run(append(10))
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.extend(asyncio.run(append(50)))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
        assert not thread.is_alive()
    assert sorted(seqs + found) == list(range(1, 221))
    asyncio.run(store.close())
    with pytest.raises(hansard.Closed):
        asyncio.run(append(1))


def test_a_closed_loop_harms_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N-75: an append whose loop is closed is completed, and the store continues to work."""
    store = asyncio.run(_open(tmp_path, "sync"))
    session = store.session("s")
    asyncio.run(_append(session))
    sync = Stay(disk.sync)
    monkeypatch.setattr(disk, "sync", sync)
    loop = asyncio.new_event_loop()
    task = loop.create_task(_append(session))
    loop.run_until_complete(reached(sync))
    loop.close()
    sync.go()
    assert asyncio.run(_append(session)) == 3
    assert not task.done()
    asyncio.run(store.close())


async def _append(session: aio.Session) -> int:
    return (await session.add_message(MESSAGE)).seq


async def _open(path: Path, durability: Literal["sync", "os"] = "os") -> aio.Store:
    return await aio.open(path / "store", durability=durability)


async def test_calls_before_close_are_completed(tmp_path: Path) -> None:
    """N-28: appends requested before `close` are completed; later ones raise `Closed`."""
    store = await aio.open(tmp_path / "store")
    sessions = [store.session(f"s{n}") for n in range(10)]
    part = store.scoped("s")
    under_way = [asyncio.create_task(session.add_message(MESSAGE)) for session in sessions * 3]
    await asyncio.sleep(0)
    await asyncio.gather(store.close(), store.close())
    assert {event.seq for event in await asyncio.gather(*under_way)} == {1, 2, 3}
    await store.close()
    await part.close()
    for late in (sessions[0].add_message(MESSAGE), sessions[0].messages(), store.exists("s0")):
        with pytest.raises(hansard.Closed, match="open it again"):
            await late


async def test_a_system_without_threads_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-29: if no thread can be started, the call raises and has no effect; one thread is enough."""
    store = await aio.open(tmp_path / "store")
    await store.close()
    store = await aio.open(tmp_path / "store")
    sessions = [store.session(f"s{n}") for n in range(20)]

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    # The thread that opened the store serves them all, one after the other.
    events = await asyncio.gather(*(session.add_message(MESSAGE) for session in sessions))
    assert [event.seq for event in events] == [1] * 20
    with pytest.raises(RuntimeError, match="start new thread"):
        await aio.open(tmp_path / "other")
    assert not (tmp_path / "other").exists()
    await store.close()
    # A store without a thread: the append is refused, and has no later effect.
    monkeypatch.undo()
    with hansard.open("memory:") as plain:
        session = aio.over(plain).session("s")
        monkeypatch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="start new thread"):
            await session.add_message({"refused": True})
        monkeypatch.undo()
        assert (await session.add_message(MESSAGE)).seq == 1
        await aio.over(plain).close()


async def test_errors_are_those_of_the_sync_api(tmp_path: Path) -> None:
    """N-29: a refused call raises the error of the sync API, each append of a group its own."""
    async with aio.open(tmp_path / "store") as store:
        session = store.session("s")
        with pytest.raises(hansard.InvalidSessionId):
            store.session("")
        with pytest.raises(hansard.InvalidSessionId):
            store.scoped("a/").session("b")
        outcomes = await asyncio.gather(
            session.add_message(MESSAGE),
            session.add_message({"nan": float("nan")}),
            session.add_message(MESSAGE, expected_seq=7),
            session.add_message(MESSAGE, key=""),
            session.add_messages([]),
            session.add_message(MESSAGE, key="k"),
            session.add_message(MESSAGE, key="k"),
            session.append("no.kind", {}),
            return_exceptions=True,
        )
        assert [
            type(outcome).__name__ if isinstance(outcome, Exception) else outcome
            for outcome in outcomes
            if not isinstance(outcome, hansard.Event)
        ] == ["InvalidEvent", "SeqConflict", "InvalidEvent", [], "InvalidEvent"]
        seqs = [outcome.seq for outcome in outcomes if isinstance(outcome, hansard.Event)]
        assert seqs == [1, 2, 2]
    with pytest.raises(hansard.StoreNotFound):
        await aio.open(tmp_path / "none", create=False)


async def test_stop_iteration_from_a_callback_ends_the_call(tmp_path: Path) -> None:
    """N-29: `StopIteration`, which futures refuse, becomes a `RuntimeError`; the call does not hang."""
    async with aio.open(tmp_path / "store") as store:
        session = store.session("s")
        await session.add_message(MESSAGE)
        with pytest.raises(RuntimeError, match="StopIteration"):
            await session.window(tokens=5, counter=lambda _: next(iter([])))


async def test_events_before_damage_are_yielded_before_the_error(tmp_path: Path) -> None:
    """N-34: like the sync API, an iteration yields all events before the damaged one, and then raises."""
    with hansard.open(tmp_path / "store", durability="os") as store:
        session = store.session("s")
        for number in range(3000):
            session.add_message({"n": number, "content": "x" * 500})
    log = log_of(tmp_path / "store", "s")
    flip(log, log.stat().st_size * 9 // 10)

    wanted: list[int] = []
    found: list[int] = []
    with (
        hansard.open(tmp_path / "store", read_only=True) as plain,
        pytest.raises(hansard.Damaged) as error,
    ):
        wanted.extend(event.seq for event in plain.session("s").events())
    assert len(wanted) > 256
    async with aio.open(tmp_path / "store", read_only=True) as awaited:
        with pytest.raises(hansard.Damaged, match=re.escape(str(error.value))):  # noqa: PT012 - a loop
            async for event in awaited.session("s").events():
                found.append(event.seq)  # noqa: PERF401 - kept when it raises
    assert found == wanted


async def test_64_tasks_share_one_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F-31, N-75: 63 appends that arrive during a sync take one more write and one more sync."""
    async with aio.open(tmp_path / "store") as store:
        await store.session("s").add_message({"by": "the beginning"})
        sync, write = Stay(disk.sync), Stay(disk.write)
        write.go()
        monkeypatch.setattr(disk, "sync", sync)
        tasks = [asyncio.create_task(store.session("s").add_message({"by": 0}))]
        await reached(sync)
        monkeypatch.setattr(disk, "write", write)
        # Through separate handles: the queue is the session's.
        tasks += [
            asyncio.create_task(store.session("s").add_message({"by": number}))
            for number in range(1, 64)
        ]
        await come_round()
        sync.go()
        events = await asyncio.gather(*tasks)
        assert (sync.count, write.count) == (2, 1)
        assert [event.seq for event in events] == list(range(2, 66))
        messages = await store.session("s").messages(after=1)
        assert [message["by"] for message in messages] == list(range(64))
