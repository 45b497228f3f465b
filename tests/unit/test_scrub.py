"""Scrubbing: secrets leave what is stored, for good, and nothing else changes."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import hansard
from hansard import Store
from hansard.maintenance import redact
from tests.unit.sample_messages import said

#: In pieces, so that no scanner takes this file for a leak.
KEY = "sk-" + "proj-" + "Ab1" * 16


def shown(session: hansard.Session) -> str:
    """Return everything that can be read of a session, at every time."""
    return repr((said(session), list(session.share(redact=False))))


def texts(session: hansard.Session) -> list[str]:
    """Return the messages, in order."""
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
    with session.stream(gather=0) as answer:
        answer.write("it is " + KEY[:9])
        answer.write(KEY[9:])
    child = session.fork("b")
    child.add_message({"n": 2})
    assert KEY in shown(session)
    done = session.scrub()
    assert len(done.events) >= 5
    assert done.credentials >= 5
    assert all(event.kind == "message.redacted" for event in done.events)
    for read in (session, child, store.session("a")):
        assert KEY not in shown(read)
        assert KEY[9:] not in shown(read)
    first = session.messages(view="history")[0]
    assert (first["role"], first["n"]) == ("user", 1)
    assert first["content"].startswith("use [redacted")
    assert session.messages(view="history")[1]["content"] == "Done."
    assert next(event.data for event in session.events() if event.kind == "x.call")["code"] == 200
    assert session.scrub().events == [], "nothing is left to remove"


def test_texts_can_be_named(store: Store) -> None:
    """Given texts are removed wherever they are; without them nothing happens."""
    session = store.session("a")
    session.add_message({"role": "user", "content": "my dog is called Rex, good Rex"})
    session.set_metadata(pet={"Rex": "Rex"})
    assert session.scrub().events == []
    before = session.seq
    report = session.scrub("Rex", "Rover", reason="requested")
    assert (report.places, report.credentials) == ((4, 0), 0)
    assert "Rex" not in repr(report)
    assert session.messages()[0]["content"] == "my dog is called [redacted], good [redacted]"
    assert "Rex" not in shown(session)
    assert session.seq > before
    with pytest.raises(hansard.InvalidEvent, match="non-empty"):
        session.scrub("")


#: Quotes, a backslash, a line break, letters beyond ASCII and beyond 16 bits, and what some encoders escape.
ODD = 'He said "no" \\ to\nMüller/日本 <🙂>'


def _compact(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _escaped(value: object) -> str:
    """Encode as an encoder does that escapes more than it must."""
    text = json.dumps(value).replace("/", "\\/").replace("<", "\\u003C").replace(">", "\\u003e")
    return text.replace("\\u00fc", "\\u00FC")


@pytest.mark.parametrize("encode", [json.dumps, _compact, _escaped])
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_texts_in_json_inside_a_string_are_removed(
    store: Store, encode: Callable[[object], str], depth: int
) -> None:
    """N-66: a text is found however JSON in a string encodes it, and the result stays JSON."""
    arguments: object = {"before": 1, "q": [f"a {ODD} b"], "after": "x\ny"}
    for _ in range(depth):
        arguments = encode({"deep": arguments})
    session = store.session("a")
    session.add_message({"role": "assistant", "tool_calls": [{"arguments": arguments}]})
    session.add_message({"role": "user", "content": f"log: {arguments}"[:-1]})
    report = session.scrub(ODD)
    assert report.places == (2,)
    assert len(report.events) == 2
    left: Any = session.messages()[0]["tool_calls"][0]["arguments"]
    for _ in range(depth):
        left = json.loads(left)["deep"]
    assert left == {"before": 1, "q": ["a [redacted] b"], "after": "x\ny"}
    for piece in ("said", "ller", "日本", "u65e5"):
        assert piece not in shown(session)
    assert session.scrub(ODD).places == (0,)


def test_numbers_that_hold_a_text_are_replaced(store: Store) -> None:
    """N-66: a card number is removed as a number, in metadata, in a message and in a tool's arguments."""
    card = 4111_1111_1111_1111
    session = store.session("a")
    session.add_message({"role": "user", "card": card, "amount": 41.5, "n": [1, True]})
    session.add_message({"role": "assistant", "arguments": json.dumps({"card": card, "n": 1})})
    session.set_metadata(customer={"card": card})
    report = session.scrub("1111111111")
    assert report.places == (3,)
    assert "1111111111" not in shown(session)
    assert session.messages()[0] == {
        "role": "user", "card": "[redacted]", "amount": 41.5, "n": [1, True]
    }  # fmt: skip
    assert json.loads(session.messages()[1]["arguments"]) == {"card": "[redacted]", "n": 1}


def test_a_text_that_is_also_syntax_leaves_json(store: Store) -> None:
    """N-66: removing a text that is also JSON syntax leaves the arguments of a tool valid JSON."""
    session = store.session("a")
    for text in ("name", "00e9", '"', "{", "true", "u00e9"):
        arguments = json.dumps({"a": "x\name", "é": True, "c": 'C:\\name, a "quote", u00e9, {'})
        session.add_message({"role": "assistant", "arguments": arguments})
        session.scrub(text)
        (*_, last) = session.messages()
        assert text not in _strings(last["arguments"])


def _strings(text: str) -> list[str]:
    """Return the strings in JSON; a text that is not JSON fails, unless nothing is left of it."""
    return [] if text == "[redacted]" else [str(value) for value in json.loads(text).values()]


def test_a_fork_keeps_its_parent_whatever_is_taken_out(store: Store) -> None:
    """N-48, N-66: scrubbing a text that is also in the parent's id and in every time keeps the lineage."""
    parent = store.session("rex/2")
    parent.add_message({"role": "user", "content": "rex, 2"})
    child = parent.fork("child")
    child.add_message({"role": "user", "content": "good rex"})
    done = child.scrub("rex", "2", "0", "seq", "message", "parent")
    assert {event.data["kind"] for event in done.events} == {"message.added"}
    store.compact()
    for session in (child, store.session("child")):
        assert session.parent == "rex/2"
        assert texts(session) == ["[redacted], [redacted]", "good [redacted]"]
    assert texts(parent) == ["rex, 2"]
    assert store.verify().ok


def test_what_an_earlier_scrub_took_out_of_a_fork_s_origin_stands(store: Store) -> None:
    """N-48: a redaction of a fork's first event does not remove its parent."""
    store.session("parent").add_message({"content": "first"})
    child = store.session("parent").fork("child")
    fork = next(event for event in child.events() if event.kind == "session.forked")
    wrong = {"parent": "[redacted]", "seq": 1, "created": "[redacted]"}
    child._append([redact.redaction(fork, "scrubbed", wrong)])
    child.compact()
    assert store.session("child").parent == "parent"
    assert texts(store.session("child")) == ["first"]


def test_the_words_of_the_format_stay(store: Store) -> None:
    """N-66: names of members and streams stay; content in them is removed."""
    session = store.session("a")
    with session.stream(gather=0) as answer:
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
        "[redacted] [redacted]": "[redacted]",
        "[redacted] [redacted] (2)": "[redacted]",
    }
    assert store.verify().ok


def test_texts_are_not_found_in_what_replaced_others(store: Store) -> None:
    """A text that is a part of the mark does not change a mark, of this scrub or an earlier one."""
    session = store.session("a")
    session.add_message({"role": "user", "content": "my name is Anna, act now"})
    assert session.scrub("Anna", "act", "red").places == (1, 1, 0)
    assert session.scrub("act").places == (0,)
    assert texts(session) == ["my name is [redacted], [redacted] now"]


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("member", ["note", "id", "name"])
def test_secrets_leave_every_member_of_a_streamed_message(
    store: Store, member: str, *, ends: bool
) -> None:
    """N-66: a part also holds the fields of its message, and ids and names of calls."""
    session = store.session("a")
    place = dict.fromkeys(("note", "id", "name"), "") | {member: "hunter2"}
    stream = session.stream(gather=0, note={"is": place["note"]})
    stream.write_call("{}", id=place["id"], name=place["name"])
    if ends:
        stream.finish()
    assert "hunter2" in shown(session)
    assert session.scrub("hunter2").places == (1 + ends,)
    assert "hunter2" not in shown(session)
