"""A session as JSON bytes is the same session, whether its messages can be joined where they stand or not."""

from pathlib import Path

import pytest

import hansard
from hansard.backend.local.backend import LocalBackend
from tests.format.handwritten_log import HandwrittenLog


def test_only_whole_messages_are_joined_where_they_stand(tmp_path: Path) -> None:
    """F-17: a piece with anything else in it is taken message by message."""
    with hansard.open(tmp_path / "s", durability="os") as store:
        store.session("plain").add_messages([{"n": 1}, {"n": {"m": 2}}])
        store.session("other").add_message({"n": 1})
        store.session("other").append("x.other", {})
        store.session("streamed").stream(gather=0).write("word")
    backend = LocalBackend(str(tmp_path / "s"), read_only=True)

    def joined(name: str, **bounds: int) -> list[bytes | None]:
        return [chunk.messages_joined() for chunk in backend.log(name).reader().read(**bounds)]

    assert joined("plain") == [b'{"n":1},{"n":{"m":2}}']
    assert joined("plain", after=1) == [None]
    assert joined("plain", upto=1) == [None]
    assert joined("other") == joined("streamed") == [None]
    backend.close()


@pytest.mark.parametrize("wrong", ["null", "[1]", '"text"', "1"])
def test_what_is_no_object_is_no_message(tmp_path: Path, wrong: str) -> None:
    """F-17: data that replace a message are left out of the JSON too."""
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
