"""Make a frozen sample store of the format's version 1.

    python -m tests.format.make_samples --list
    python -m tests.format.make_samples --write NAME

A sample is a store as this version of hansard leaves it, with `expected.json` next to it: what was
put in, and the SHA-256 of every file. It is made once. Later versions must read it, so an old sample is never
touched: if a sample of this name is there, the tool refuses.
"""

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hansard
from tests.crashlab import faults

PLACE = Path(__file__).resolve().parent / "v1"


class Sample:
    """A store in the making, and what was put in."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sessions: dict[str, dict[str, Any]] = {}
        self.trash: list[str] = []
        self.cursors: dict[str, dict[str, int]] = {}
        hansard.open(path).close()

    def _expected(self, session_id: str) -> dict[str, Any]:
        empty: dict[str, Any] = {
            "events": [],
            "messages": [],
            "metadata": {},
            "torn": 0,
            "shut": False,
        }
        return self.sessions.setdefault(session_id, empty)

    def _note(self, session_id: str, *events: hansard.Event | None) -> None:
        expected = self._expected(session_id)
        for event in events:
            assert event is not None
            shown = {"seq": event.seq, "time": event.stamp, "kind": event.kind, "key": event.key}
            expected["events"].append({**shown, "data": event.data})
            if event.message is not None:
                expected["messages"].append(event.message)

    def create(self, session_id: str, **metadata: Any) -> None:
        """Create a session on purpose."""
        with hansard.open(self.path) as store:
            self._note(session_id, *store.create(session_id, metadata=metadata).events())
        self._expected(session_id)["metadata"].update(metadata)

    def add(self, session_id: str, *messages: dict[str, Any], key: str | None = None) -> None:
        """Append messages, all in one."""
        with hansard.open(self.path) as store:
            self._note(session_id, *store.session(session_id).add_messages(messages, key=key))

    def append(self, session_id: str, kind: str, data: dict[str, Any]) -> None:
        """Append an event of the application's own."""
        with hansard.open(self.path) as store:
            self._note(session_id, store.session(session_id).append(kind, data))

    def set(self, session_id: str, **metadata: Any) -> None:
        """Change metadata."""
        with hansard.open(self.path) as store:
            self._note(session_id, store.session(session_id).set_metadata(**metadata))
        kept = self._expected(session_id)["metadata"]
        kept.update(metadata)
        for key in [key for key, value in kept.items() if value is None]:
            del kept[key]

    def tear(self, session_id: str, fragment: bytes) -> None:
        """Leave an unfinished append at the end of a log."""
        with self.log(session_id).open("ab") as file:
            file.write(fragment)
        self._expected(session_id)["torn"] = len(fragment)

    def unfinished_batch(self, session_id: str, cut: int) -> None:
        """Leave a batch that lacks its last bytes."""
        log = self.log(session_id)
        size = log.stat().st_size
        with hansard.open(self.path) as store:
            store.session(session_id).add_messages([{"lost": 1}, {"lost": 2}])
        os.truncate(log, log.stat().st_size - cut)
        self._expected(session_id)["torn"] = log.stat().st_size - size

    def recover(self, session_id: str, message: dict[str, Any]) -> None:
        """Append after what was left unfinished."""
        self.add(session_id, message)
        self._expected(session_id)["torn"] = 0

    def fail_sync(self, session_id: str, message: dict[str, Any]) -> None:
        """Let the sync of an append fail: it is there, and the session is shut."""
        with hansard.open(self.path) as store:
            session = store.session(session_id)
            seq = session.seq
            with faults.fail_sync(lost=None):
                try:
                    session.add_message(message)
                except hansard.SyncFailed:
                    self._note(session_id, *session.events(after=seq))
        self._expected(session_id)["shut"] = True

    def verify(self, session_id: str) -> None:
        """Open a session again whose sync failed."""
        with hansard.open(self.path) as store:
            assert store.session(session_id).verify().ok
        self._expected(session_id)["shut"] = False

    def delete(self, session_id: str) -> None:
        """Move a session to the trash."""
        with hansard.open(self.path) as store:
            store.delete(session_id)
        self.trash.append(session_id)

    def restore(self, session_id: str) -> None:
        """Bring a session back from the trash."""
        with hansard.open(self.path) as store:
            store.restore(session_id)
        self.trash.remove(session_id)

    def settle(
        self,
        session_id: str,
        *,
        history: list[dict[str, Any]],
        model: list[dict[str, Any]],
        **metadata: Any,
    ) -> None:
        """Note all events of a session, and what its views must show."""
        with hansard.open(self.path) as store:
            self._note(session_id, *store.session(session_id).events())
        self._expected(session_id).update(messages=history, model=model, metadata=metadata)

    def log(self, session_id: str) -> Path:
        """Return the log of a session with a plain name."""
        return self.path / "sessions" / session_id / "log.jsonl"


def ordinary(sample: Sample) -> None:
    """Two sessions with every kind of record that a program of this version writes."""
    sample.create("made", user="u7", tags=["a", "b"])
    sample.add("made", {"role": "user", "content": "héllo \u2028 wörld \U0001f600"})
    sample.add(
        "made", {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "args": "{}"}]}
    )
    sample.set("made", title="Refund", user=None)
    sample.append("made", "x.todo", {"done": False, "n": 12345678901234567, "ratio": 0.1})
    sample.set("made", title="Refunds", nested={"a": {"b": 1}})
    sample.add("made", {"role": "user", "content": 'quoted ","crc":"00000000"} and \\ and \n'})
    sample.add("begun", {"role": "user", "content": "no metadata here"})


def batches(sample: Sample) -> None:
    """Batches, keys, and control records between them."""
    sample.add("s", {"n": 1}, {"n": 2}, {"n": 3}, key="turn-1")
    for turn in range(2, 6):
        sample.set("s", turn=turn)
        sample.add("s", {"n": turn * 10}, {"n": turn * 10 + 1}, key=f"türn {turn}")
        sample.add("s", {"n": turn * 10 + 2}, key=f"single-{turn}")
    sample.append("s", "x.end", {})


def recovered(sample: Sample) -> None:
    """Torn tails of each sort, closed by recoveries, and one at the end that is not closed yet."""
    sample.add("s", {"n": 1})
    sample.tear("s", b'{"seq":2,"time":"2026-01-01T')
    sample.recover("s", {"n": 2})
    sample.tear("s", bytes(700))
    sample.recover("s", {"n": 3})
    sample.set("s", title="T")
    sample.unfinished_batch("s", cut=40)
    sample.recover("s", {"n": 4})
    sample.unfinished_batch("s", cut=1)


def trash(sample: Sample) -> None:
    """A session in the trash, one that came back, and one that never left."""
    for session_id in ("gone", "back", "stays"):
        sample.add(session_id, {"in": session_id}, {"in": session_id})
        sample.set(session_id, title=session_id)
    sample.delete("gone")
    sample.delete("back")
    sample.restore("back")
    sample.add("back", {"in": "back", "again": True})


def notes(sample: Sample) -> None:
    """A sync that failed and was verified, and one that failed and is still shut."""
    for session_id in ("verified", "shut"):
        sample.add(session_id, {"n": 1})
        sample.set(session_id, title="T")
        sample.fail_sync(session_id, {"n": 2})
    sample.verify("verified")
    sample.add("verified", {"n": 3})


def names(sample: Sample) -> None:
    """Ids of every sort: the directories' names tell them, or the headers do."""
    ids = [
        "plain", "Foo", "foo", "support/42", "a_b", "a/b", "../x", "..", ".hidden", "x.lock", "con.txt",
        "caf\u00e9", "cafe\u0301", "100%", "two words", "\U0001f600", "a" * 200, "a" * 201, "é" * 1024,
    ]  # fmt: skip
    for session_id in ids:
        sample.add(session_id, {"id": session_id})


def meanings(sample: Sample) -> None:
    """Everything that events can say: reverts, summaries, redactions, streams, forks; a cursor."""
    with hansard.open(sample.path) as store:
        parent = store.create("parent", metadata={"title": "T"})
        for number in range(6):
            parent.add_message({"n": number})
        parent.snapshot("six")
        parent.add_message({"n": 6})
        parent.revert("six")
        parent.summarize(upto=3, message={"summary": "0 and 1"})
        parent.record_usage(model="m", input_tokens=1, output_tokens=2, cost=0.5)
        with parent.stream(role="assistant") as whole:
            whole.write("par")
            whole.write("ts")
        parent.stream(role="assistant", name="n").write("never finished")
        child = parent.fork("child")
        parent.redact(5, reason="private")
        child.add_message({"n": "child"})
        child.set_title("guess", automatic=True)
        parent.clear()
        parent.add_message({"n": "after"})
        parent.close()
        with store.follow(cursor="consumer", session="child") as follower:
            follower.take(0.0)
            sample.cursors["consumer"] = {"child": child.state().forked_at + 1}
    whole_message = {"role": "assistant", "content": "parts"}
    partial = {"role": "assistant", "name": "n", "content": "never finished", "partial": True}
    said: list[dict[str, Any]] = [{"n": 0}, {"n": 1}, {"n": 2}, {"n": 4}, {"n": 5}]
    before: list[dict[str, Any]] = [
        {"summary": "0 and 1"},
        {"n": 2},
        {"n": 4},
        {"n": 5},
        whole_message,
        partial,
    ]
    sample.settle(
        "parent",
        history=[*said, {"n": 6}, whole_message, partial, {"n": "after"}],
        model=[{"n": "after"}],
        title="T",
    )
    sample.settle(
        "child",
        history=[*said, {"n": 6}, whole_message, partial, {"n": "child"}],
        model=[*before, {"n": "child"}],
        title="T",
    )


def compacted(sample: Sample) -> None:
    """Sealed segments with keys, a batch, control records, a blank and emptied parts; and an active one."""
    said: list[dict[str, Any]] = [
        {"n": number, "text": f"message {number}"} for number in range(40)
    ]
    with hansard.open(sample.path) as store:
        session = store.create("s", metadata={"title": "T"})
        for place, message in enumerate(said[:20]):
            session.add_message(message, key=f"key {place}")
        with session.stream(role="assistant") as whole:
            whole.write("par")
            whole.write("ts")
        session.redact(5)
        session.compact()
        session.add_messages(said[20:30], key="batch")
        session.snapshot("thirty")
        session.compact()
        for message in said[30:39]:
            session.add_message(message)
        session.compact()
        session.fork("f", at="thirty").add_message({"n": "fork"})
        session.add_message(said[39])
    first = [message for message in said[:20] if message["n"] != 3]  # event 5
    first.append({"role": "assistant", "content": "parts"})
    sample.settle("s", history=first + said[20:], model=first + said[20:], title="T")
    inherited = [*first, *said[20:30], {"n": "fork"}]
    sample.settle("f", history=inherited, model=inherited, title="T")


def dropped(sample: Sample) -> None:
    """Sealed segments whose beginning was dropped, a later bound that waits, and a fork with its own."""
    said: list[dict[str, Any]] = [{"n": number} for number in range(30)]
    with hansard.open(sample.path) as store:
        session = store.create("s", metadata={"title": "T"})
        for place, message in enumerate(said[:20]):
            session.add_message(message, key=f"key {place}" if place < 9 else None)
        session.redact(20)
        session.summarize(upto=5, message={"n": "summary"})
        session.compact()
        session.drop_history(11, reason="old")
        session.compact()
        session.add_messages(said[20:])
        session.drop_history(14)
        fork = session.fork("f")
        fork.add_message({"n": "fork"})
        fork.drop_history(19)
    left = [message for message in said if message["n"] > 11 and message["n"] != 18]  # event 20
    sample.settle("s", history=left, model=[{"n": "summary"}, *left], title="T")
    left = [*(message for message in left if message["n"] > 16), {"n": "fork"}]
    sample.settle("f", history=left, model=[{"n": "summary"}, *left], title="T")


SAMPLES: dict[str, Callable[[Sample], None]] = {
    made.__name__: made
    for made in (
        ordinary,
        batches,
        recovered,
        trash,
        notes,
        names,
        meanings,
        compacted,
        dropped,
    )
}


def checksums(store: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a store."""
    files = sorted(found for found in store.rglob("*") if found.is_file())
    return {
        file.relative_to(store).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
    }


def write(name: str, place: Path = PLACE) -> Path:
    """Make a sample, which must not be there."""
    target = place / name
    if target.exists():
        raise FileExistsError(
            f"{target}: a frozen sample is never touched; give the new one a new name"
        )
    target.mkdir(parents=True)
    sample = Sample(target / "store")
    SAMPLES[name](sample)
    expected: dict[str, Any] = {
        "files": checksums(target / "store"),
        "sessions": sample.sessions,
        "trash": sample.trash,
    }
    if sample.cursors:
        expected["cursors"] = sample.cursors
    text = json.dumps(expected, ensure_ascii=False, indent=1, sort_keys=True)
    (target / "expected.json").write_text(text + "\n", encoding="utf-8")
    return target


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--list", action="store_true", help="say which samples there are")
    what.add_argument("--write", metavar="NAME", choices=sorted(SAMPLES), help="make a sample")
    asked = parser.parse_args()
    if asked.list:
        for name, make in SAMPLES.items():
            state = "frozen" if (PLACE / name).exists() else "not made yet"
            sys.stdout.write(f"{name:10} {state:13} {make.__doc__}\n")
        return 0
    try:
        sys.stdout.write(f"{write(asked.write)}\n")
    except FileExistsError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
