"""`hansard add`: from arguments, from stdin, all or none."""

import json
from pathlib import Path

import pytest

import hansard as library
from tests.cli.running import hansard


def messages(path: Path, name: str = "s") -> list[dict[str, object]]:
    """Return what a session holds."""
    with library.open(path, read_only=True) as store:
        return store.session(name).messages()


def test_a_message_makes_the_session_and_the_store(tmp_path: Path) -> None:
    """The first `add` in an empty directory creates store and session, and prints the event's seq."""
    done = hansard("add", "s", "hello", cwd=tmp_path)
    assert done == (0, "s: 1 event, seq 1\n", "")
    assert messages(tmp_path / ".hansard") == [{"role": "user", "content": "hello"}]


def test_texts_and_messages_from_stdin(tmp_path: Path) -> None:
    """`-` is the text on stdin; --jsonl is one message per line, split on line feeds only."""
    assert hansard("add", "s", "-", "--role", "assistant", store=tmp_path, input="a\nb").code == 0
    lines = [{"role": "user", "content": "x\u2028y"}, {"any": [1, 2.5, None]}]
    text = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + "\n\n"
    done = hansard("add", "s", "--jsonl", "--json", store=tmp_path, input=text)
    assert [event["seq"] for event in done.json["events"]] == [2, 3]
    assert messages(tmp_path) == [{"role": "assistant", "content": "a\nb"}, *lines]


@pytest.mark.parametrize("bad", [b"{", b"[1]", b'"text"', b"\xff"])
def test_a_bad_line_adds_nothing(bad: bytes, tmp_path: Path) -> None:
    """N-88: a line that is not a JSON object is named by its number, and no line is added."""
    done = hansard("add", "s", "--jsonl", store=tmp_path / "s", input=b'{"a":1}\n' + bad)
    assert done.code == 2
    assert "line 2 of stdin" in done.err
    assert not (tmp_path / "s").exists()


def test_metadata_events_keys_and_expectations(tmp_path: Path) -> None:
    """N-56: title, metadata and own events are appended; a key counts once; a wrong seq is refused."""
    words = ["add", "s", "hi", "--title", "T", "--meta", "n=3", "--meta", "u=x", "--new"]
    assert hansard(*words, store=tmp_path).code == 0
    assert hansard("add", "s", '{"do": "it"}', "--kind", "x.todo", store=tmp_path).code == 0
    for _ in range(2):
        done = hansard("add", "s", "once", "--key", "k", "--json", store=tmp_path)
        assert [event["seq"] for event in done.json["events"]] == [5]
    with library.open(tmp_path, read_only=True) as store:
        session = store.session("s")
        assert session.metadata == {"title": "T", "n": 3, "u": "x"}
        assert session.seq == 5
    late = hansard("add", "s", "late", "--expected-seq", "4", store=tmp_path)
    assert late.code == 1
    assert "not at the expected 4" in late.err
    exists = hansard("add", "s", "again", "--new", store=tmp_path)
    assert exists.code == 1
    assert "'s'" in exists.err
    secret = ("add", "s", "with a message", "--meta", "api_key=sk-ant-REDACTED")
    assert hansard(*secret, store=tmp_path).code == 1
    assert hansard("add", "s", "--title", "U", "--key", "t", store=tmp_path).code == 2
    with library.open(tmp_path, read_only=True) as store:
        assert store.session("s").seq == 5
