"""Make what an attacker would: logs whose checksums fit, exports, frames of zstd that lie, small memories."""

import hashlib
import json
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import hansard
from tests.programs import python

TIME = "2026-01-01T12:00:00.000000Z"
HELLO = '{"message":{"role":"user","content":"hello"}}'

#: A child that hangs fails its own test.
PATIENCE = 60.0


def checkpoint_head(members: dict[str, Any]) -> bytes:
    """Return the first line of a checkpoint, with a checksum that fits."""
    members = {name: value for name, value in members.items() if name != "crc"}
    body = json.dumps(members).encode()[:-1]
    return body + b',"crc":"%08x"}\n' % zlib.crc32(body)


def checkpoint(head: bytes, controls: bytes, state: bytes, /, **members: Any) -> bytes:
    """Return a checkpoint with the head of another one and these sections; the checksums fit."""
    lengths = {"controls": len(controls), "state": len(state)}
    said = {**json.loads(head.partition(b"\n")[0]), **lengths}
    said |= {"sections": zlib.crc32(controls + state), **members}
    return checkpoint_head(said) + controls + state


class Forged:
    """A forged log: every checksum is right, for any lines."""

    def __init__(self, *, seq: int = 0, **said: object) -> None:
        self._seq = seq
        self._said = said
        self._bodies: list[str] = []

    def log_of(self, session_id: str) -> bytes:
        """Return the log, as that of a session."""
        said = json.dumps({"version": 1, "session": session_id, **self._said})
        header = f'{{"log":"header","seq":{self._seq},"time":"{TIME}","data":{said}'
        log = b""
        for text in (header, *self._bodies):
            body = text.encode(errors="surrogateescape")
            log += body + b',"crc":"%08x"}\n' % zlib.crc32(log + body)
        return log

    def line(self, body: str) -> "Forged":
        """Add a line: its text up to the trailer (F-20); a lone surrogate is a byte that is not UTF-8."""
        self._bodies.append(body)
        return self

    def record(
        self,
        seq: int,
        data: str = HELLO,
        kind: str = "message.added",
        *,
        time: str = TIME,
        extra: str = "",
    ) -> "Forged":
        """Add a record; `extra` is placed between `kind` and `data`."""
        head = f'{{"seq":{seq},"time":"{time}","kind":"{kind}"{extra}'
        return self.line(f'{head},"data":{data}')

    def control(self, seq: int, kind: str, data: str) -> "Forged":
        """Add a control record."""
        return self.record(seq, data, kind, extra=',"control":true')


def plant(store: Path, log: Forged | bytes, name: str = "evil") -> None:
    """Put a log into a store, as a session."""
    directory = store / "sessions" / name
    directory.mkdir(mode=0o700)
    (directory / "log.jsonl").write_bytes(log if isinstance(log, bytes) else log.log_of(name))
    (directory / "lock").touch()


def with_a_good_session(store: Path) -> Path:
    """Make a store in which there is one session that must not suffer."""
    with hansard.open(store, durability="os") as opened:
        opened.session("good").add_message({"role": "user", "content": "zebra"})
    return store


def exported(events: list[tuple[str, Any]], session: str = "evil") -> bytes:
    """Return an export file with a valid checksum; data are JSON strings, or values."""
    first = {"hansard": "export", "version": 1, "session": session}
    lines = [json.dumps(first, separators=(",", ":"))]
    for seq, (kind, data) in enumerate(events, 1):
        text = data if isinstance(data, str) else json.dumps(data)
        lines.append(f'{{"seq":{seq},"time":"{TIME}","kind":"{kind}","data":{text}}}')
    body = "\n".join(lines) + f'\n{{"hansard":"end","events":{len(events)},"redactions":0'
    digest = hashlib.sha256(body.encode()).hexdigest()
    return f'{body},"sha256":"{digest}"}}\n'.encode()


def nested(depth: int) -> str:
    """Return JSON that is so deep."""
    return "[" * depth + "]" * depth


def questions(session: hansard.Session) -> dict[str, Callable[[], object]]:
    """Return everything that can be asked of a session, and done to it."""
    return {
        "messages": session.messages,
        "history": lambda: session.messages(view="history"),
        "json": session.messages_json,
        "last": lambda: session.messages(last=2),
        "window": lambda: session.window(messages=2),
        "state": session.state,
        "metadata": lambda: (session.metadata, session.title, session.snapshots, session.usage),
        "events": lambda: [(e.data, e.time, e.message) for e in session.events()],
        "verify": session.verify,
        "share": lambda: list(session.share()),
        "html": lambda: list(session.export("html")),
        "parent": lambda: session.parent,
        "append": lambda: session.add_message({"role": "user", "content": "x"}, key="k"),
        "again": lambda: session.messages(last=1),
        "fork": lambda: session.fork(f"{session.id}-fork").messages(),
    }


def ask_everything(path: Path, session_ids: Iterable[str]) -> list[str]:
    """Make all calls on sessions and their store: each answers, or raises an error of hansard.

    Valid sessions must be unaffected. Returns the refusals.
    """
    refused = []
    with hansard.open(path, durability="os", auto_compact=False) as store:
        for session_id in session_ids:
            for name, ask in questions(store.session(session_id)).items():
                try:
                    ask()
                except hansard.HansardError as error:
                    refused.append(f"{session_id}: {name}: {error}")
                except Exception as error:
                    raise AssertionError(f"{session_id}: {name} raised {error!r}") from error
        assert {*session_ids, "good"} <= {info.id for info in store.sessions().items}
        assert [hit.session for hit in store.search("zebra")] == ["good"]
        assert store.stats().sessions >= 1
        assert store.session("good").messages() == [{"role": "user", "content": "zebra"}]
        assert store.session("good").verify().ok
        assert [entry.session for entry in store.verify().sessions if entry.session == "good"]
        store.diagnose()
        store.compact()
        assert store.latest(skip_damaged=True) is not None
    return refused


def frame_that_lies(claimed: int, blocks: int) -> bytes:
    """Return a zstd frame with its content size, which has 128 KiB of content for each four bytes."""
    # A window of 128 KiB, the size in four bytes; then blocks of one byte each, to be repeated.
    head = b"\x28\xb5\x2f\xfd\x80\x38" + claimed.to_bytes(4, "little")
    block = ((1 << 17) << 3 | 1 << 1).to_bytes(3, "little") + b"\n"
    return head + block * blocks


def confined(program: str, *words: object, memory: int = 600 << 20) -> str:
    """Run a program with little memory; return its output."""
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))\n"
    done = python("-c", limit + program, *words, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout
