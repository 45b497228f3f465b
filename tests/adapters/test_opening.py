"""An adapter accepts a store, an async store, or a path."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

import hansard
from hansard.adapters import opening
from tests.programs import python

HELLO = {"role": "user", "content": "hello"}


def test_a_path_is_opened_once(tmp_path: Path) -> None:
    """One path, in any spelling, is one store in a process, for all threads and loops."""
    path = tmp_path / "data"
    store = opening.opened(path)
    found: list[hansard.Store] = []
    threads = [
        threading.Thread(target=lambda: found.append(opening.opened(f"{tmp_path}/./data")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(one is store for one in found)
    assert len(found) == 4
    first = asyncio.run(opening.aopened(path))
    assert asyncio.run(opening.aopened(str(path))) is first
    assert hansard.aio.under(first) is store


def test_memory_is_a_new_store_each_time() -> None:
    """`memory:` is a new store each time, as for `hansard.open`."""
    one, other = opening.opened("memory:"), opening.opened("memory:")
    one.session("s").add_message(HELLO)
    assert not other.exists("s")


def test_a_relative_path_is_settled_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-90: a relative path is relative to the directory in which the adapter was created."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    place = opening.settled("data")
    assert not (tmp_path / "data").exists()
    monkeypatch.chdir(tmp_path / "elsewhere")
    opening.opened(place).session("s").add_message(HELLO)
    assert sorted(os.listdir(tmp_path)) == ["data", "elsewhere"]
    assert not os.listdir(tmp_path / "elsewhere")


def test_other_values_are_refused() -> None:
    """A value that is neither a store nor a path is refused, with an error that names what is accepted."""
    with pytest.raises(
        TypeError, match=r"a hansard\.Store, a hansard\.aio\.Store or a path, not int"
    ):
        opening.settled(3)  # type: ignore[arg-type]


def test_a_process_that_ends_leaves_nothing_open(tmp_path: Path) -> None:
    """A store that was opened by its path is closed when the process ends."""
    code = (
        "import asyncio, sys\n"
        "from hansard.adapters import opening\n"
        "async def main():\n"
        "    store = await opening.aopened(sys.argv[1])\n"
        "    await store.session('s').add_message({'role': 'user', 'content': 'hello'})\n"
        "asyncio.run(main())\n"
    )
    done = python("-W", "error", "-c", code, tmp_path / "data", timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    with hansard.open(tmp_path / "data") as store:
        assert store.session("s").messages() == [HELLO]


async def test_work_is_over_before_any_cancellation_is_raised() -> None:
    """A task that is cancelled twice, by a timeout and a shutdown, still waits for what it has begun."""
    go_on = asyncio.Event()
    done = []

    async def work() -> None:
        await go_on.wait()
        done.append("work")

    task = asyncio.ensure_future(opening.finished(work()))
    for _ in range(2):
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["work"]
