"""A session as JSON bytes is the same session, whether its messages can be joined where they stand or not."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard
from hansard.backend.local import LocalBackend
from hansard.log import reader
from tests.format.handwritten_log import HandwrittenLog


def _say(session: hansard.Session, rng: random.Random) -> None:
    number = rng.randrange(1_000_000)
    session.add_message({"role": "user", "content": f"said {number}"})


def _say_more(session: hansard.Session, rng: random.Random) -> None:
    nested = {"a": {"b": [1, {"c": None}]}, "text": 'no end: }},"crc":"00000000"}'}
    session.add_messages([nested, {"role": "tool", "content": "x" * rng.randrange(300)}, {}])


def _say_large(session: hansard.Session, rng: random.Random) -> None:
    session.add_message({"image": "y" * rng.randrange(600, 900)})


def _stream(session: hansard.Session, rng: random.Random) -> None:
    stream = session.stream()
    stream.write("half a ")
    stream.write("sentence")
    if rng.random() < 0.5:
        stream.finish()


def _redact(session: hansard.Session, rng: random.Random) -> None:
    said = [event.seq for event in session.events() if event.kind == "message.added"]
    if said:
        session.redact(rng.choice(said))


def _go_back(session: hansard.Session, rng: random.Random) -> None:
    session.revert(rng.randrange(session.seq + 1))


def _summarize(session: hansard.Session, rng: random.Random) -> None:
    session.summarize(upto=rng.randrange(session.seq + 1), message={"content": "in short"})


def _add_other(session: hansard.Session, rng: random.Random) -> None:
    session.append("x.note", {"message": {"n": rng.random()}})


_STEPS: list[Callable[[hansard.Session, random.Random], None]] = [
    *[_say] * 12,
    *[_say_more] * 4,
    _say_large,
    _stream,
    _redact,
    _go_back,
    _summarize,
    _add_other,
]


def test_json_and_dicts_say_the_same(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-77, F-17: at any time, in any view, from any seq on, the JSON bytes decode to the dicts."""
    monkeypatch.setattr(reader, "PIECE", 1 << 10)
    with hansard.open(tmp_path / "s", durability="os") as store:
        session = store.session("s")
        for _ in range(60):
            rng.choice(_STEPS)(session, rng)
            options: dict[str, Any] = {
                "view": rng.choice(["model", "history"]),
                "after": rng.choice([0, 0, rng.randrange(session.seq + 1)]),
                "at": rng.choice([None, None, rng.randrange(session.seq + 1)]),
            }
            told = msgspec.json.decode(session.messages_json(**options))
            assert told == session.messages(**options), options


def test_only_whole_messages_are_joined_where_they_stand(tmp_path: Path) -> None:
    """F-17: a piece with anything else in it is taken message by message."""
    with hansard.open(tmp_path / "s", durability="os") as store:
        store.session("plain").add_messages([{"n": 1}, {"n": {"m": 2}}])
        store.session("other").add_message({"n": 1})
        store.session("other").append("x.other", {})
        store.session("streamed").stream().write("word")
    backend = LocalBackend(str(tmp_path / "s"), read_only=True)

    def joined(name: str, **bounds: int) -> list[bytes | None]:
        return [chunk.messages_joined() for chunk in backend.log(name).read(**bounds)]

    assert joined("plain") == [b'{"n":1},{"n":{"m":2}}']
    assert joined("plain", after=1) == [None]
    assert joined("plain", upto=1) == [None]
    assert joined("other") == joined("streamed") == [None]
    backend.close()


@pytest.mark.parametrize("wrong", ["null", "[1]", '"text"', "1"])
def test_what_is_no_object_is_no_message(tmp_path: Path, wrong: str) -> None:
    """F-17: what somebody has put in the place of a message is left out of the JSON too."""
    hansard.open(tmp_path / "s").session("s").add_message({"n": 0})
    log = HandwrittenLog().message({"n": 1})
    log.seq += 1
    time = "2026-01-01T12:00:00.000000Z"
    log.line(f'{{"seq":2,"time":"{time}","kind":"message.added","data":{{"message":{wrong}}}')
    # Further members of the data are not the message's.
    log.record({"message": {"n": 3}, "more": {"n": 4}}, "message.added")
    (tmp_path / "s/sessions/s/log.jsonl").write_bytes(log.data)
    with hansard.open(tmp_path / "s", read_only=True) as store:
        session = store.session("s")
        assert session.messages_json() == b'[{"n":1},{"n":3}]'
        assert session.messages() == [{"n": 1}, {"n": 3}]
        assert session.messages_json(after=3) == b"[]"
