"""Claims about kill -9 in the middle of a message: what was written of it is there, and marked."""

import itertools
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hansard
from tests.crashlab.faults import APPENDING, Death
from tests.faults.workers import Crew, Wire, Worker, open_store


def parts_of(turn: int) -> list[str]:
    """Return what a message is written in, by the number of its turn."""
    return [f"{turn}.{number}\u2028 " for number in range(3 + turn % 9)]


def stream_until_killed(
    wire: Wire, path: str, turn: int, *, durability: str, death: Death | None
) -> None:
    """Stream one message after the other, and tell of each part when it has been written."""
    wire.narrow()
    with open_store(path, durability) as store:
        session = store.session("s")
        session.append("x.begun", {"turn": turn})
        if death is not None:
            death.arm()
        for number in itertools.count(turn):
            with session.stream(role="assistant", turn=number) as stream:
                for place, text in enumerate(parts_of(number), 1):
                    stream.write(text)
                    wire.tell((number, place))
            wire.tell((number, "finished"))


def last_words(worker: Worker) -> list[tuple[int, Any]]:
    """Return all that a worker has told by its death."""
    told = []
    try:
        while True:
            told.append(worker.hear())
    except (EOFError, ConnectionResetError):
        return told


def kill_at_some_moment(worker: Worker, rng: random.Random) -> list[tuple[int, Any]]:
    """Let a worker come to work, kill it, and return what it told."""
    told = [worker.hear() for _ in range(rng.randrange(1, 20))]
    moment = time.perf_counter() + rng.random() * rng.choice([0.0001, 0.002])
    while time.perf_counter() < moment:
        pass
    worker.signal(signal.SIGKILL)
    return told + last_words(worker)


def check(session: hansard.Session, told: list[tuple[int, Any]]) -> Iterator[str]:
    """Check that all is there that was written, and in which state; yield how each message ended."""
    found = [message for message in session.messages(view="history") if "turn" in message]
    assert len({message["turn"] for message in found}) == len(found)
    by_turn = {message["turn"]: message for message in found}
    for turn in {turn for turn, _ in told}:
        written = [what for number, what in told if number == turn]
        parts = parts_of(turn)
        message = by_turn[turn]
        assert list(message)[:3] == ["role", "turn", "content"]
        if "finished" in written or "partial" not in message:
            assert message == {"role": "assistant", "turn": turn, "content": "".join(parts)}
            yield "finished" if "finished" in written else "not told"
            continue
        assert message["partial"] is True
        # All that was acknowledged, and at most the one part that was under way.
        known = max(written)
        prefixes = ["".join(parts[:count]) for count in (known, known + 1)]
        assert message["content"] in prefixes
        yield "partial"


@pytest.mark.slow
def test_30_killed_streams_leave_what_was_written(tmp_path: Path, rng: random.Random) -> None:
    """N-39, N-59: after a kill -9 the written part of a message is there, and the next turn continues."""
    path = str(tmp_path / "store")
    deaths = itertools.cycle(APPENDING)
    ends: list[str] = []
    partial: dict[int, dict[str, Any]] = {}
    turn = 0
    with Crew() as crew, open_store(path, "os") as store:
        session = store.session("s")
        for kill in range(30):
            death = None
            if kill % 2:
                call, moment = next(deaths)
                death = Death(call, rng.randrange(2, 25 if call == "write" else 4), moment)
            durability = "sync" if death else rng.choice(["os", "sync"])
            worker = crew.start(stream_until_killed, path, turn, durability=durability, death=death)
            told = last_words(worker) if death else kill_at_some_moment(worker, rng)
            assert worker.wait() == -signal.SIGKILL
            crew.discard(worker)
            ends += check(session, told)
            with hansard.open(path, read_only=True) as cold:
                assert cold.session("s").messages() == session.messages()
                assert cold.session("s").messages(last=3) == session.messages(last=3)
                assert cold.verify().ok
            # The next turn continues, and the partial message does not change.
            session.add_message({"role": "user", "content": f"after kill {kill}"})
            shown = {m["turn"]: m for m in session.messages(view="history") if "partial" in m}
            assert partial.items() <= shown.items()
            partial = shown
            turn = max((number for number, _ in told), default=turn) + 2
        assert len(partial) >= 10
        assert session.state().message_count == sum(
            "partial" not in message for message in session.messages(view="history")
        )
        assert len(session.state().streams) == len(partial)
    assert {"finished", "partial"} <= set(ends)


def stream_and_wait(wire: Wire, path: str, texts: list[str]) -> None:
    """Write parts, say so, and stay in the middle of the message."""
    with open_store(path, "sync") as store:
        stream = store.session("s").stream(role="assistant")
        for text in texts:
            stream.write(text)
        wire.tell("written")
        wire.wait()
        stream.write("!")
        stream.finish()
        wire.tell("finished")


def test_others_see_the_parts_while_they_come(tmp_path: Path) -> None:
    """N-19: another process sees each part as partial immediately, and then the complete message."""
    path = str(tmp_path / "store")
    with Crew() as crew, open_store(path, "os") as store:
        session = store.session("s")
        worker = crew.start(stream_and_wait, path, ["a", "b"])
        assert worker.hear() == "written"
        partial = {"role": "assistant", "content": "ab", "partial": True}
        assert session.messages() == session.messages(last=1) == [partial]
        child = session.fork("c")
        worker.go()
        assert worker.hear() == "finished"
        assert session.messages() == [{"role": "assistant", "content": "ab!"}]
        # A fork in the middle of the message has its parts, and is never finished there.
        assert child.messages() == [partial]
