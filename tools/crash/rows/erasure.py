"""Row 18: after each way to erase, no byte of the erased text is in any file or table.

A case stores a random text in one kind of content, in one situation, and erases it in one way. It then
compacts the store, and searches every file and every decompressed frame, or every row and file of the
tables. Adapters store content in their own shapes and under their own ids: these are tried too.
"""

import asyncio
import contextlib
import itertools
import random
import string
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import hansard
from tests.adapters.table import ADAPTERS, ours
from tools.crash import erasure
from tools.crash.row import Outcome, Row

if TYPE_CHECKING:
    from hansard import Session, Store

ROW = Row(18, "erasure: every byte searched after each way to forget", 60, 600)

#: Seconds to wait for the background compactor.
_PATIENCE: Final = 30.0
#: More than a session may grow before it is compacted in the background.
_GROWN: Final = 9 << 20


# -- content ------------------------------------------------------------------------


def _message(session: "Session", needle: str) -> int:
    return session.add_message({"role": "user", "content": f"it is {needle}, you know"}).seq


def _arguments(session: "Session", needle: str) -> int:
    call = {"id": "c", "function": {"name": "f", "arguments": f'{{"q": "a \\"{needle}\\""}}'}}
    return session.add_message({"role": "assistant", "content": None, "tool_calls": [call]}).seq


def _batch(session: "Session", needle: str) -> int:
    said = [{"role": "user", "content": f"{number} {needle}"} for number in range(3)]
    return session.add_messages(said)[-1].seq


def _streamed(session: "Session", needle: str) -> int:
    with session.stream(gather=0) as answer:
        answer.write(f"it is {needle[:7]}")
        answer.write(f"{needle[7:]} indeed")
    return session.seq


def _unfinished(session: "Session", needle: str) -> int:
    answer = session.stream(gather=0)
    answer.write(f"it is {needle}")
    answer.write(" and")
    return session.seq


def _summary(session: "Session", needle: str) -> int:
    upto = session.add_message({"role": "user", "content": "long"}).seq
    said = {"role": "system", "content": f"In short: {needle}."}
    return session.summarize(upto=upto, message=said).seq


def _title(session: "Session", needle: str) -> int:
    session.set_metadata(title=f"about {needle}")
    session.set_metadata(title="about nothing")
    return session.seq


def _metadata(session: "Session", needle: str) -> int:
    session.set_metadata(customer={"name": needle, "city": "X"})
    return session.seq


def _application(session: "Session", needle: str) -> int:
    return session.append("x.note", {"text": [needle], needle: 1}).seq


CONTENTS: Final[dict[str, Callable[["Session", str], int]]] = {
    "a message": _message,
    "a tool's arguments": _arguments,
    "a batch": _batch,
    "a stream": _streamed,
    "an unfinished stream": _unfinished,
    "a summary": _summary,
    "a title": _title,
    "metadata": _metadata,
    "an application's event": _application,
}

#: Messages that an adapter stores after the erased one, so that derived data of it is replaced.
_TURNS: Final = 40


def _adapted(name: str, store: "Store", needle: str) -> str:
    """Store a text with an adapter, and return the id of its session."""
    adapter = ours(name, store)

    async def run() -> None:
        for text in (needle, *map(str, range(_TURNS))):
            await adapter.say("s", text)

    asyncio.run(run())
    return f"{adapter.prefix}s"


# -- ways to erase ---------------------------------------------------------------------------------


def _redact(store: "Store", session: "Session", needle: str, seq: int) -> None:
    del store, seq
    for event in list(session.events()):
        if event.kind in {"message.added", "summary.added"} and needle.encode() in event.raw:
            session.redact(event.seq)
    parts = [event.seq for event in session.events() if event.kind == "message.part"]
    if parts:
        session.redact(parts[0])


def _scrub(store: "Store", session: "Session", needle: str, seq: int) -> None:
    del store, seq
    report = session.scrub(needle)
    assert report.places[0] > 0, "the report says that nothing was found"


def _drop(store: "Store", session: "Session", needle: str, seq: int) -> None:
    del store, needle
    session.add_message({"role": "user", "content": "after"})
    session.drop_history(seq + 1)


def _purge(store: "Store", session: "Session", needle: str, seq: int) -> None:
    del needle, seq
    for session_id in ("child", session.id):
        if store.exists(session_id):
            store.delete(session_id)
            store.purge(session_id)


WAYS: Final[dict[str, Callable[["Store", "Session", str, int], None]]] = {
    "redact": _redact,
    "scrub": _scrub,
    "drop_history": _drop,
    "delete and purge": _purge,
}
#: What a way cannot erase: a redaction removes messages, a drop keeps the state. A graph's checkpoints are
#: an application's events; adapters' messages are dropped as others are.
_SPARED: Final = {
    "redact": {"a title", "metadata", "an application's event", "langgraph"},
    "drop_history": {"a title", "metadata", "an unfinished stream", *ADAPTERS},
}


# -- situations -------------------------------------------------------------------------------------

#: What was done with the store before the erasure.
SITUATIONS: Final = (
    "new",
    "searched",
    "compacted",
    "searched and compacted",
    "searched, compacted in the background",
    "inherited by a fork",
    "inherited by a fork, searched and compacted",
)


class Case(NamedTuple):
    """A text that is stored and erased."""

    place: str
    way: str
    content: str
    situation: str
    seed: int

    @property
    def label(self) -> str:
        """Which one."""
        return f"{self.place}: {self.way}: {self.content}, {self.situation} ({self.seed})"

    def run(self) -> Outcome:
        """Store it, erase it, compact, and search every byte."""
        # A random text: no pair of letters is as in English, or in another text here.
        needle = "zq" + "".join(random.Random(self.seed).choices(string.ascii_lowercase, k=20))
        try:
            with _place(self.place) as where:
                found = self._found(where, needle)
        except ImportError as error:
            return Outcome(ok=True, label=self.label, skipped=f"not installed: {error}")
        return Outcome(not found, self.label, ", ".join(found))

    def _found(self, where: str, needle: str) -> list[str]:
        with hansard.open(where, durability="os", auto_compact=False) as store:
            session = store.session("s")
            session.add_message({"role": "user", "content": "before"})
            seq = 0
            if self.way == "torn append":
                _tear(Path(where), needle)
            elif self.content in ADAPTERS:
                session = store.session(_adapted(self.content, store, needle))
            else:
                seq = CONTENTS[self.content](session, needle)
            session.add_message({"role": "user", "content": "after"})
            self._prepare(store, session, needle)
        self._grow(where)
        with hansard.open(where, durability="os", auto_compact=False) as store:
            if self.way != "torn append":
                if not erasure.leaks(where, needle):
                    return ["it was not found before it was forgotten"]
                WAYS[self.way](store, store.session(session.id), needle, seq)
            store.compact(vacuum=True)
            found = [f"open: {leak}" for leak in erasure.leaks(where, needle)]
            if "searched" in self.situation:
                store.search("before")
                found += [f"searched again: {leak}" for leak in erasure.leaks(where, needle)]
            if not store.verify().ok:
                found.append("the store is damaged")
        found += [f"closed: {leak}" for leak in erasure.leaks(where, needle)]
        return list(dict.fromkeys(found))

    def _prepare(self, store: "Store", session: "Session", needle: str) -> None:
        if "fork" in self.situation:
            child = session.fork("child")
            child.add_message({"role": "user", "content": "of the child"})
        if "searched" in self.situation:
            store.sessions()
            store.search(needle)
        if self.situation.endswith("compacted"):
            store.compact()

    def _grow(self, where: str) -> None:
        """Let the background compactor seal the messages."""
        if "background" not in self.situation or self.place != "files":
            return
        with hansard.open(where, durability="os") as store:
            store.session("s").add_message({"role": "user", "content": "y" * _GROWN})
            deadline = time.monotonic() + _PATIENCE
            while not list(Path(where).rglob("*.zst")):
                if time.monotonic() > deadline:
                    raise TimeoutError("the background compactor has sealed nothing")
                time.sleep(0.01)


def _tear(root: Path, needle: str) -> None:
    """Leave the state of a writer that was killed during an append."""
    log = next(root.rglob("log.jsonl"))
    line = log.read_bytes().splitlines(keepends=True)[-1]
    with log.open("ab") as file:
        file.write(line.replace(b"before", needle.encode())[:-12])


@contextlib.contextmanager
def _place(place: str) -> Iterator[str]:
    """Yield a place for a store, and remove it afterwards."""
    if place == "files":
        with tempfile.TemporaryDirectory() as directory:
            yield str(Path(directory) / "store")
        return
    from tests.postgres.server import Server

    # The server may run as another user, who cannot enter the campaign's directory.
    campaign, tempfile.tempdir = tempfile.tempdir, "/tmp"  # noqa: S108 - it makes its own in there
    try:
        server = Server()
    finally:
        tempfile.tempdir = campaign
    with server:
        yield server.database()


def cases(count: int, rng: random.Random) -> Iterator[Case]:
    """Yield that many cases: each way, content and situation in turn, one of twenty in PostgreSQL."""
    every = [
        (way, content, situation)
        for way, content, situation in itertools.product(WAYS, (*CONTENTS, *ADAPTERS), SITUATIONS)
        if content not in _SPARED.get(way, ())
        and not ("fork" in situation and way == "drop_history")
    ]
    torn = [("torn append", "a message", each) for each in SITUATIONS if "fork" not in each]
    rng.shuffle(every)
    for number, (way, content, situation) in enumerate(
        itertools.islice(itertools.cycle([*torn, *every]), count)
    ):
        server = number % 20 == 19 and way != "torn append" and "background" not in situation  # noqa: PLR2004
        yield Case(
            "PostgreSQL" if server else "files", way, content, situation, rng.getrandbits(32)
        )
