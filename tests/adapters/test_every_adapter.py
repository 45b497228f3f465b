"""Promises of every adapter, each with a row of the table."""

import asyncio
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import hansard
from tests.adapters.processes import race
from tests.adapters.table import ADAPTERS, TURNS, calls, ours
from tests.programs import python
from tests.unit.aio.thread_probe import watching
from tools.crash.rows import erasure

# The kit warns that some of its features are experimental.
pytestmark = pytest.mark.filterwarnings("ignore:.*EXPERIMENTAL.*:UserWarning")

#: Strands' calls are not awaited.
AWAITED = [name for name in ADAPTERS if name != "strands"]
#: A checkpoint of LangGraph replaces the one before, and is not reverted.
APPENDING = [name for name in ADAPTERS if name != "langgraph"]
#: Strands' messages and the harness' snapshots have no usage.
ANSWERING = [name for name in ADAPTERS if name not in {"strands", "pydantic_ai_steps"}]
#: The others have no call that lists conversations.
LISTING = ["adk", "claude_agent", "langgraph"]

ODD_NAMES = ["a", "a/b", "a%2Fb", "../../a", "~", "~61", "A", "é" * 400]


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_missing_framework_is_named(name: str) -> None:
    """The adapter of a framework that is not installed names the extra to install."""
    imports, absent, package, extra = calls(name).needs
    module, _, imported = imports.partition(".")
    code = f"import sys; sys.modules[{absent!r}] = None; from hansard.adapters.{module} import {imported}"
    done = python("-c", code, timeout=60)
    wanted = f"hansard.adapters.{module} needs {package}: pip install '/path/to/hansard[{extra}]'"
    assert f"ImportError: {wanted}" in done.stderr


def test_the_capability_does_without_the_harness() -> None:
    """Pydantic AI's capability needs only the framework; its step store needs the harness."""
    code = (
        "import sys; sys.modules['pydantic_ai_harness'] = None; import hansard.adapters.pydantic_ai"
    )
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_erased_texts_leave_no_byte(adapter: str) -> None:
    """N-45, N-66: after redact or scrub, and compaction, no byte of a text is left, also in a fork."""
    ways = ["scrub"] if adapter == "langgraph" else ["redact", "scrub"]
    for way in ways:
        outcome = erasure.Case("files", way, adapter, "inherited by a fork", 1).run()
        assert (outcome.ok, outcome.detail, outcome.skipped) == (True, "", "")


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize(
    "form", [Path, hansard.open, lambda path: hansard.aio.over(hansard.open(path))]
)
def test_a_store_is_accepted_in_every_form(name: str, form: Any, tmp_path: Path) -> None:
    """A path, a store and an async store work alike, and conversations are separate."""
    store = form(tmp_path / "data")

    async def run() -> None:
        one = ours(name, store)
        words = ("ann", "bob", "cy")

        async def talk(word: str) -> None:
            for number in range(3):
                await one.say(word, f"{word} {number}")

        await asyncio.gather(*map(talk, words))
        for word in words:
            assert await one.read(word) == [f"{word} {number}" for number in range(3)]

    asyncio.run(run())
    if isinstance(store, hansard.Store):
        store.close()
    elif isinstance(store, hansard.aio.Store):
        asyncio.run(store.close())


@pytest.mark.parametrize("name", AWAITED)
def test_nothing_waits_on_the_event_loop(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-75: the event loop's thread makes no disk call, and none that may wait."""
    one = ours(name, tmp_path / "data")

    async def use() -> None:
        await one.say("s", "hello")
        assert await one.read("s") == ["hello"]
        await one.change()

    with watching(monkeypatch) as watch:
        asyncio.run(use())
    assert watch.seen
    assert not watch.by("MainThread")


@pytest.mark.parametrize("name", AWAITED)
def test_a_cancelled_call_is_stored_once_or_not_at_all(
    name: str, store: hansard.Store, rng: random.Random
) -> None:
    """A cancelled call stores all of its texts or none; what was acknowledged is stored."""
    one = ours(name, store)

    async def cancel_some() -> tuple[set[int], list[str]]:
        done = {0}
        await one.say("s", "0", "0, too")
        for number in range(1, 40):
            task = asyncio.create_task(one.say("s", f"{number}", f"{number}, too"))
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
            if number % 3:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await task
                done.add(number)
        return done, await one.read("s")

    done, texts = asyncio.run(cancel_some())
    numbers = [int(text) for text in texts[::2]]
    assert texts[1::2] == [f"{number}, too" for number in numbers]
    assert numbers == sorted(set(numbers))
    assert done <= set(numbers)


@pytest.mark.slow
@pytest.mark.parametrize("name", APPENDING)
def test_two_processes_lose_nothing(name: str, tmp_path: Path) -> None:
    """N-16, N-17, N-22: each call of two processes on one session is stored once, and in order."""
    path = str(tmp_path / "data")
    race("from tests.adapters.table import run; run()", *[[name, path, word] for word in "ab"])
    with hansard.open(path, durability="os") as store:
        texts = asyncio.run(ours(name, store).read("s"))
        assert texts[1::2] == [f"{text}, too" for text in texts[::2]]
        for word in "ab":
            own = [text for text in texts[::2] if text.startswith(word)]
            assert own == [f"{word} {number}" for number in range(TURNS)]
        assert len(texts) == 4 * TURNS
        assert store.verify().ok


@pytest.mark.parametrize("name", APPENDING)
async def test_a_revert_a_fork_and_a_redaction_are_seen(name: str, store: hansard.Store) -> None:
    """N-49, N-50: the framework sees reverts and redactions; a fork is separate but shares redactions."""
    one = ours(name, store)
    session = store.session(f"{one.prefix}s")
    await one.say("s", "0")
    first = next(event for event in session.events() if event.kind == "message.added")
    for number in range(1, 30):
        await one.say("s", f"{number}")
        if number == 10:
            session.snapshot("here")
    last = session.seq
    session.fork(f"{one.prefix}t")
    session.revert("here")
    assert await one.read("s") == [f"{number}" for number in range(11)]
    await one.say("s", "another way")
    assert await one.read("s") == [*(f"{number}" for number in range(11)), "another way"]
    session.revert(last)
    for place in "st":
        assert await one.read(place) == [f"{number}" for number in range(30)]
    await one.say("t", "of the fork")
    session.redact(first.seq)
    assert await one.read("s") == [f"{number}" for number in range(1, 30)]
    assert await one.read("t") == [*(f"{number}" for number in range(1, 30)), "of the fork"]


@pytest.mark.parametrize("name", ANSWERING)
async def test_usage_is_recorded_once(name: str, store: hansard.Store) -> None:
    """The usage of each answer is recorded with it, by model: once, even if the answer is stored again."""
    for number in (1, 1, 2, 2):
        await ours(name, store).answer(number)
    usage = store.session(f"{ours(name, store).prefix}s").usage["m"]
    assert usage.cached_tokens == 8
    assert (usage.calls, usage.input_tokens, usage.output_tokens) == (2, 20, 6)


@pytest.mark.parametrize("name", ADAPTERS)
async def test_conversations_with_odd_names_are_separate(name: str, store: hansard.Store) -> None:
    """N-1, N-2, N-3, N-7, N-68: names that look like paths, alike or long are separate conversations."""
    one = ours(name, store)
    for word in ODD_NAMES:
        await one.say(word, f"said in {word[:9]}")
    for word in ODD_NAMES:
        assert await one.read(word) == [f"said in {word[:9]}"]
    assert all(info.id.startswith(one.prefix) for info in store.sessions().items)
    if name in LISTING:
        assert sorted(await one.names()) == sorted(ODD_NAMES)


@pytest.mark.parametrize("name", ["adk", "claude_agent"])
def test_a_damaged_conversation_is_listed(name: str, tmp_path: Path) -> None:
    """N-31, N-35: a damaged conversation is listed; reading it raises `Damaged`, and others are read."""

    async def say(store: hansard.Store) -> None:
        one = ours(name, store)
        for word in "xyz":
            await one.say("bad", word * 50)
        await one.say("good", "hello")

    async def read(store: hansard.Store) -> None:
        one = ours(name, store)
        assert sorted(await one.names()) == ["bad", "good"]
        assert await one.read("good") == ["hello"]
        with pytest.raises(hansard.Damaged):
            await one.read("bad")

    with hansard.open(tmp_path / "data", durability="os") as store:
        asyncio.run(say(store))
    (log,) = [path for path in (tmp_path / "data").rglob("log.jsonl") if "bad" in str(path)]
    log.write_bytes(log.read_bytes().replace(b"y" * 50, b"n" * 50))
    with hansard.open(tmp_path / "data", durability="os") as store:
        asyncio.run(read(store))
