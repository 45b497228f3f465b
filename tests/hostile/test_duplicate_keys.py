"""JSON with a key twice: parsers disagree about it, so one of the values is hidden from redaction."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import hansard
from hansard import importers
from hansard.errors import InvalidEvent
from hansard.event import codec
from tests.cli.running import hansard as command
from tests.hostile.forge_files import Forged, plant, with_a_good_session
from tests.importers.sources import KEY

#: An object in which the first of two values is one that redaction would find.
HIDING = f'{{"message":{{"role":"user","content":"{KEY}","content":"hi"}}}}'

TWICE = {
    "at the top": '{"a":1,"a":2}',
    "inside": '{"a":[1,{"b":{"c":null,"c":null}}]}',
    "escaped": '{"a":1,"\\u0061":2}',
    "apart": '{"a":1,"b":{"a":1},"a":1}',
    "empty": '{"":1,"":2}',
    "next to a long number": '{"n":%s,"a":1,"a":1}' % ("9" * 4000),
}
ONCE = {
    "the same key at two depths": '{"a":{"a":{"a":1}}}',
    "spaces and escapes": '{ "a" : "\\u0061" , "b" : 1e5 }',
    "cases": '{"a":1,"A":2}',
    "two forms of one letter": '{"\\u00e9":1,"e\\u0301":2}',
}


@pytest.mark.parametrize("text", TWICE.values(), ids=TWICE)
def test_a_duplicate_key_is_found_at_any_depth_and_in_any_spelling(text: str) -> None:
    """Two equal keys in one object are refused wherever the object is, and however they are escaped."""
    with pytest.raises(InvalidEvent, match="duplicate key"):
        codec.check_keys(text.encode())


@pytest.mark.parametrize("text", ONCE.values(), ids=ONCE)
def test_different_keys_are_accepted(text: str) -> None:
    """Keys of two objects, or that only look alike, are not duplicates."""
    codec.check_keys(text.encode())


def test_keys_that_python_tells_apart_and_json_does_not_are_refused() -> None:
    """A dict whose keys differ in Python and are one key in JSON is not stored."""

    class Apart(str):
        __slots__ = ()
        __hash__ = object.__hash__

        def __eq__(self, other: object) -> bool:
            return self is other

    with pytest.raises(InvalidEvent, match="duplicate key 'a'"):
        codec.encode({Apart("a"): 1, "a": 2})


#: Logs in which a value is hidden: in the data of an event, and in a record.
FORGED = {
    "in an event": Forged().record(1).record(2, HIDING).record(3),
    "in a record": Forged().record(1).record(2, extra=f',"data":{{"x":"{KEY}"}}').record(3),
    "in a control event": Forged()
    .record(1)
    .control(2, "metadata.set", f'{{"metadata":{{"a":"{KEY}","a":"b"}}}}'),
}


@pytest.mark.parametrize("name", FORGED)
@pytest.mark.parametrize("sealed", [False, True])
def test_verify_reports_a_log_that_holds_a_key_twice(
    name: str, sealed: bool, tmp_path: Path
) -> None:
    """F-13: a record with a duplicate key, in a plain or a compressed segment, is damage to `verify`."""
    plant(with_a_good_session(tmp_path / "s"), FORGED[name])
    with hansard.open(tmp_path / "s", durability="os", auto_compact=False) as store:
        session = store.session("evil")
        if sealed:
            session.compact()
        (finding,) = session.verify().damage
        assert "duplicate key" in finding.reason
        assert store.session("good").verify().ok


def test_what_a_duplicate_key_hides_is_not_shared_and_scrub_removes_it(tmp_path: Path) -> None:
    """N-66, N-67: neither `share` nor a redacted export shows the value; after scrub it is not on disk."""
    plant(with_a_good_session(tmp_path / "s"), FORGED["in an event"])
    with hansard.open(tmp_path / "s", durability="os", auto_compact=False) as store:
        session = store.session("evil")
        assert KEY.encode() in session.messages_json()
        assert KEY not in json.dumps(list(session.share()))
        for kind in ("jsonl", "markdown", "html"):
            assert KEY.encode() not in b"".join(session.export(kind))
        assert len(session.scrub().events) == 1
        session.compact()
        assert session.messages()[1]["content"] == "hi"
        assert KEY.encode() not in session.messages_json()
        assert session.verify().ok
    files = [path for path in (tmp_path / "s").rglob("*") if path.is_file()]
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


def test_a_copy_does_not_take_a_duplicate_key_along(tmp_path: Path) -> None:
    """N-88: the session of another store that holds one is refused, and the others are copied."""
    plant(with_a_good_session(tmp_path / "s"), FORGED["in an event"])
    with hansard.open(tmp_path / "s", read_only=True) as source, hansard.open("memory:") as target:
        report = source.copy_to(target)
        assert "event 2: duplicate key 'content'" in report.failed["evil"]
        assert target.session("good").messages() == source.session("good").messages()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--jsonl",), '{"role":"user","content":"a","content":"b"}\n'),
        (("--kind", "x.a", '{"a":{"b":1,"b":2}}'), ""),
        (("hi", "--meta", 'a={"b":1,"b":2}'), ""),
    ],
)
def test_the_command_add_refuses_a_duplicate_key(
    words: tuple[str, ...], text: str, tmp_path: Path
) -> None:
    """N-88: messages, an event's data and metadata that hold one are an error, and nothing is added."""
    done = command("add", "s", *words, store=tmp_path / "s", input=text)
    assert done.code == 2
    assert "duplicate key" in done.err
    assert not (tmp_path / "s").exists()


def test_importers_report_a_duplicate_key_and_import_the_rest(tmp_path: Path) -> None:
    """N-81: a line, a file and a row with a duplicate key are each reported, and nothing else is lost."""
    entry = '{"type":"user","uuid":"%s","message":{"role":"user","content":"%s"%s}}\n'
    transcript = tmp_path / "claude" / "p" / "s.jsonl"
    transcript.parent.mkdir(parents=True)
    transcript.write_text(
        entry % ("1", "a", "") + entry % ("2", KEY, ',"content":"b"') + entry % ("3", "c", "")
    )
    files = tmp_path / "files"
    files.mkdir()
    (files / "abcd_1700000000.json").write_text('[{"role":"user","role":"user"}]')
    (files / "abcd_1700000001.json").write_text('[{"role":"user"}]')
    database = tmp_path / "agents.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE agent_messages (id, session_id, message_data, created_at)")
        rows = [(1, "s", '{"role":"user","role":"user"}', 1), (2, "s", '{"role":"user"}', 2)]
        connection.executemany("INSERT INTO agent_messages VALUES (?, ?, ?, ?)", rows)
        connection.commit()
    sources = {"claude-code": tmp_path / "claude", "workspace": files, "openai-agents": database}
    wanted = {"claude-code": 2, "workspace": 1, "openai-agents": 1}
    for kind, path in sources.items():
        with hansard.open("memory:") as store:
            report = importers.import_sessions(store, kind, path)
            (one,) = report.imported
            assert len(store.session(one.session).messages(view="history")) == wanted[kind]
            (problem,) = report.skipped
            assert "duplicate key" in problem.what
