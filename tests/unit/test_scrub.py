"""Scrubbing: secrets leave what is stored, for good, and nothing else changes."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import hansard
from hansard import Store
from hansard.upkeep import scrub

#: In pieces, so that no scanner takes this file for a leak.
KEY = "sk-" + "proj-" + "Ab1" * 16


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Yield an empty store."""
    where = "memory:" if request.param == "memory" else tmp_path / "s"
    with hansard.open(where, durability="os") as opened:
        yield opened


def shown(session: hansard.Session) -> str:
    """Return everything that can be read of a session, at every time."""
    everything = [
        *(session.messages(at=seq, view="history") for seq in range(session.seq + 1)),
        [event.data for event in session.events()],
        session.metadata,
        msgspec.to_builtins(session.state()),
        list(session.share(redact=False)),
    ]
    return msgspec.json.encode(everything).decode()


def texts(session: hansard.Session) -> list[str]:
    """Return what is said, in order."""
    return [message["content"] for message in session.messages()]


def test_secrets_are_gone_everywhere_at_all_times(store: Store) -> None:
    """N-66: after `scrub` no view, event, state or export of any time shows the secret."""
    session = store.session("a")
    session.add_message({"role": "user", "content": f"use {KEY} please", "n": 1})
    session.add_message(
        {"role": "assistant", "content": "Done.", "args": '{"token": "' + KEY + '"}'}
    )
    session.append("x.call", {"header": f"Bearer {KEY}", "code": 200})
    session.summarize(upto=1, message={"role": "system", "content": f"The key is {KEY}."})
    with session.stream() as answer:
        answer.write("it is " + KEY[:9])
        answer.write(KEY[9:])
    child = session.fork("b")
    child.add_message({"n": 2})
    assert KEY in shown(session)
    done = session.scrub()
    assert len(done) >= 5
    assert all(event.kind == "message.redacted" for event in done)
    for read in (session, child, store.session("a")):
        assert KEY not in shown(read)
        assert KEY[9:] not in shown(read)
    first = session.messages(view="history")[0]
    assert (first["role"], first["n"]) == ("user", 1)
    assert first["content"].startswith("use [redacted")
    assert session.messages(view="history")[1]["content"] == "Done."
    assert next(event.data for event in session.events() if event.kind == "x.call")["code"] == 200
    assert session.scrub() == [], "nothing is left to take out"


def test_texts_can_be_named(store: Store) -> None:
    """What no pattern knows is taken out by name, wherever it stands, and nothing happens without it."""
    session = store.session("a")
    session.add_message({"role": "user", "content": "my dog is called Rex, good Rex"})
    session.set_metadata(pet={"Rex": "Rex"})
    assert session.scrub() == []
    before = session.seq
    session.scrub("Rex", reason="asked for")
    assert session.messages()[0]["content"] == "my dog is called [redacted], good [redacted]"
    assert "Rex" not in shown(session)
    assert session.seq > before
    with pytest.raises(hansard.InvalidEvent, match="not empty"):
        session.scrub("")


def test_a_fork_keeps_its_parent_whatever_is_taken_out(store: Store) -> None:
    """N-48, N-66: a text that is also in the parent's name, and in every time, breaks no lineage, ever."""
    parent = store.session("rex/2")
    parent.add_message({"role": "user", "content": "rex, 2"})
    child = parent.fork("child")
    child.add_message({"role": "user", "content": "good rex"})
    done = child.scrub("rex", "2", "0", "seq", "message", "parent")
    assert {event.data["kind"] for event in done} == {"message.added"}
    store.compact()
    for session in (child, store.session("child")):
        assert session.parent == "rex/2"
        assert texts(session) == ["[redacted], [redacted]", "good [redacted]"]
    assert texts(parent) == ["rex, 2"]
    assert store.verify().ok


def test_what_an_earlier_scrub_took_out_of_a_fork_s_origin_stands(store: Store) -> None:
    """N-48: a log that says that something else stands there keeps its parent all the same."""
    store.session("parent").add_message({"content": "first"})
    child = store.session("parent").fork("child")
    fork = next(event for event in child.events() if event.kind == "session.forked")
    wrong = {"parent": "[redacted]", "seq": 1, "created": "[redacted]"}
    child._append([scrub.redaction(fork, "scrubbed", wrong)])
    child.compact()
    assert store.session("child").parent == "parent"
    assert texts(store.session("child")) == ["first"]


def test_the_words_of_the_format_stay(store: Store) -> None:
    """N-66: names of members and of streams are not what was said; what was said in them is gone."""
    session = store.session("a")
    with session.stream() as answer:
        answer.write("the message")
    stream = next(event.data["stream"] for event in session.events() if "stream" in event.data)
    session.snapshot("a label")
    session.add_message({"message": "seq", "seq 1": 1, "seq 2": 2})
    session.revert(session.seq - 1)
    session.scrub("message", "seq", "label", "stream", stream[:2], "1", "2")
    store.compact()
    session = store.session("a")
    assert texts(session) == ["the [redacted]"]
    added = [event.data for event in session.events() if event.kind == "message.added"]
    assert added[0]["stream"] == stream
    assert list(session.snapshots) == ["a [redacted]"]
    (other,) = (
        event.data["message"]
        for event in session.events()
        if event.kind == "message.added" and "content" not in event.data["message"]
    )
    assert other == {
        "[redacted]": "[redacted]",
        "[redacted] [redacted]": 1,
        "[redacted] [redacted] (2)": 2,
    }
    assert store.verify().ok


def test_a_key_across_two_parts_is_found(store: Store) -> None:
    """A secret that a stream broke in two is taken out of its parts, finished or not."""
    session = store.session("a")
    stream = session.stream()
    stream.write("the key: " + KEY[:12])
    stream.write(KEY[12:] + " ok")
    assert KEY in shown(session)
    session.scrub()
    assert KEY[:12] not in shown(session)
    assert KEY[12:] not in shown(session)


def test_the_whole_message_outlives_its_parts(store: Store) -> None:
    """Parts with a secret that the whole message has not are taken out; the message stays."""
    session = store.session("a")
    with session.stream() as answer:
        answer.write(f"key {KEY}")
        answer.finish({"role": "assistant", "content": "I will not repeat the key."})
    session.scrub()
    assert session.messages() == [{"role": "assistant", "content": "I will not repeat the key."}]
    assert KEY not in shown(session)


def test_what_is_redacted_while_it_is_streamed_stays_away(store: Store) -> None:
    """A message redacted by one of its parts does not come back when its stream is finished."""
    session = store.session("a")
    stream = session.stream()
    stream.write("some")
    session.redact(session.seq)
    assert session.messages() == []
    stream.write("thing")
    stream.finish()
    session.add_message({"n": 1})
    assert session.messages() == session.messages(last=5) == [{"n": 1}]
    assert "thing" not in shown(session)
