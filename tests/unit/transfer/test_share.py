"""A shared session has no credential and no redacted data; the stored one is unchanged."""

import json
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import Session, Store
from hansard.errors import InvalidEvent
from tests.unit.disk_probe import tree
from tests.unit.event.keys import KEYS, telltale


def shared(session: Session, **options: Any) -> list[dict[str, Any]]:
    """Return all that is shared of a session."""
    return list(session.share(**options))


def written(session: Session, **options: Any) -> str:
    """Return it as it would be written to a file."""
    return "".join(json.dumps(line) + "\n" for line in session.share(**options))


def fill(store: Store, key: str) -> Session:
    """Put a key wherever a session can hold one, and return the session."""
    _, text = KEYS[key]
    arguments = json.dumps({"header": text, "nested": json.dumps({"again": [text]})})
    name = f"chat about {text}"[:200].replace("\n", " ")
    session = store.session(name)
    session.add_message({"role": "user", "content": f"My key: {text} thanks"})
    session.add_message(
        {
            "role": "assistant",
            "content": [{"type": "text", "text": text}, {"type": "tool_use", "input": {"k": text}}],
            "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": arguments}}],
        },
        key=f"key {text}"[:1000],
    )
    session.add_message({"role": "tool", "tool_call_id": "c1", "content": arguments, text: [text]})
    session.append("x.note", {"note": text, text: {"deep": [[text]]}})
    session.summarize(upto=2, message={"role": "system", "content": f"The user said {text}"})
    session.snapshot(f"before {text}")
    session.redact(1, reason=f"it had {text}")
    return session


@pytest.mark.parametrize("key", KEYS)
def test_no_key_gets_out(key: str) -> None:
    """N-66, N-67: a credential anywhere in a session is neither shared nor exported, in any format."""
    with hansard.open("memory:") as store, hansard.open("memory:") as target:
        session = fill(store, key)
        _, text = KEYS[key]
        out = written(session)
        assert telltale(text) not in out
        assert out.count("[redacted: ") >= 10
        lines = [json.loads(line) for line in out.splitlines()]
        assert [line["seq"] for line in lines[1:]] == list(range(1, session.seq + 1))
        assert lines[2]["data"]["message"]["tool_calls"][0]["id"] == "c1"
        # It was there to be found.
        assert telltale(text) in str(shared(session, redact=False))
        with session.stream(gather=0) as stream:
            for at in range(0, len(text), 5):
                stream.write(text[at : at + 5])
        before = list(session.events())
        for format in ("html", "markdown", "jsonl"):
            data = b"".join(session.export(format))
            assert telltale(text) not in data.decode()
        assert list(session.events()) == before
        report = target.import_session(data, id="s")
        assert report.redacted
        assert report.redactions > 0
        assert json.loads(data.splitlines()[-1])["redactions"] == report.redactions


def test_parts_of_every_length_hide_nothing(store: Store) -> None:
    """N-67: however a stream cuts a credential into parts, none of it is shared."""
    from hansard.backend.contract import AppendRequest
    from hansard.event import codec
    from hansard.event.event import NewEvent
    from hansard.event.kinds import MESSAGE_PART

    _, text = KEYS["github"]
    said = f'{{"arguments": "see {text} there"}}'
    session = store.session("s")
    for size in range(1, len(said) + 1):
        pieces = [said[at : at + size] for at in range(0, len(said), size)]
        parts = [{"stream": f"s{size}", "text": piece} for piece in pieces]
        session._log.append(
            AppendRequest(
                [NewEvent(MESSAGE_PART, codec.encode(part), control=False) for part in parts]
            )
        )
    texts: dict[str, str] = {}
    for line in shared(session)[1:]:
        texts.setdefault(line["data"]["stream"], "")
        texts[line["data"]["stream"]] += line["data"]["text"]
    assert len(texts) == len(said)
    assert {json.loads(text)["arguments"] for text in texts.values()} == {
        "see [redacted: GitHub token] there"
    }


def test_a_session_is_shared_as_a_header_and_its_events(store: Store) -> None:
    """The first object is the header; each event follows in order, as stored."""
    session = store.session("support/42")
    session.add_message({"role": "user", "content": "é\n\U0001f600"}, key="turn-1")
    session.append("x.todo", {"done": [1, 2.5, None]})
    head, first, second = shared(session, redact=False)
    assert set(head) == {"hansard", "version", "session", "exported", "redacted"}
    assert (head["hansard"], head["version"], head["session"]) == ("export", 1, "support/42")
    assert head["redacted"] is False
    assert shared(session)[0]["redacted"] is True
    events = list(session.events())
    assert first == {
        "seq": 1,
        "time": events[0].stamp,
        "kind": "message.added",
        "data": {"message": {"role": "user", "content": "é\n\U0001f600"}},
        "key": "turn-1",
    }
    assert second == {
        "seq": 2,
        "time": events[1].stamp,
        "kind": "x.todo",
        "data": {"done": [1, 2.5, None]},
    }
    assert shared(session)[1:] == [first, second]


def test_the_hook_has_the_last_word(store: Store) -> None:
    """N-67: the hook gets each object after redaction, may change it, and drops it with None."""
    _, text = KEYS["stripe"]
    session = store.session("s")
    session.add_message({"role": "user", "content": f"{text}, says Ann"})
    session.append("x.private", {})
    seen: list[str] = []

    def hook(line: dict[str, Any]) -> dict[str, Any] | None:
        seen.append(json.dumps(line))
        if line.get("kind") == "x.private":
            return None
        if "data" in line:
            line["data"]["message"]["content"] = line["data"]["message"]["content"].replace(
                "Ann", "A."
            )
        return line

    lines = shared(session, hook=hook)
    assert len(seen) == 3
    assert len(lines) == 2
    assert text not in "".join(seen)
    assert lines[1]["data"]["message"]["content"] == "[redacted: Stripe key], says A."
    assert session.messages()[0]["content"] == f"{text}, says Ann"
    with pytest.raises(TypeError, match="the hook must return"):
        shared(session, hook=json.dumps)


def test_metadata_with_a_key_are_refused_and_leave_no_trace(tmp_path: Path) -> None:
    """N-65: a refused credential is in no file of the store; earlier metadata stay."""
    path = tmp_path / "data"
    with hansard.open(path) as store:
        session = store.session("s")
        session.set_metadata(title="before")
        for value in (
            {"api_key": "hunter2"},
            {"model": {"base_url": "https://user:hunter2@example.com"}},
            {"model": {"headers": {"Authorization": "Bearer hunter2"}}},
        ):
            with pytest.raises(InvalidEvent):
                session.set_metadata(**value)
            with pytest.raises(InvalidEvent):
                store.create("other", metadata=value)
        with pytest.raises(InvalidEvent):
            session.record_usage(model="m", api_key="hunter2")
        assert session.metadata == {"title": "before"}
        assert not store.exists("other")
    assert not any(b"hunter2" in seen.content for seen in tree(path).values())
