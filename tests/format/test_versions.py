"""Unknown content: kept if the version is known, refused if it is not."""

from pathlib import Path
from typing import Any

import pytest

import hansard
from tests.format.handwritten_log import HandwrittenLog

ID = "s"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a store with one session."""
    with hansard.open(tmp_path / "store") as store:
        store.session(ID).add_message({"n": 1})
    return tmp_path / "store"


def put(path: Path, log: HandwrittenLog) -> None:
    """Replace the session's log."""
    (path / "sessions" / ID / "log.jsonl").write_bytes(log.data)


def contents(path: Path) -> dict[str, bytes]:
    """Return every file of a store, but for what is derived."""
    return {
        str(file): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file() and "marks" not in file.parts and not file.name.startswith("index")
    }


def test_a_log_written_by_hand_from_the_page_is_read(path: Path) -> None:
    """F-12 to F-30: a log written from the format page alone is read as intended."""
    log = (
        HandwrittenLog()
        .message({"n": 1})
        .message({"n": 2}, ',"key":"k","more":1')
        .message({"n": 3})
    )
    control = len(log.data)
    log.record({"metadata": {"title": "T"}}, "metadata.set", extra=',"control":true')
    log.torn(b'{"seq":5,"ti')
    log.message({"n": 4}, f',"ctl":{control}')
    put(path, log)
    with hansard.open(path) as store:
        session = store.session(ID)
        assert session.messages() == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]
        assert session.metadata == {"title": "T"}
        assert [found.severity for found in session.verify().findings] == ["note"]
        again = session.add_messages([{"n": 0}, {"n": 0}], key="k")
        assert [event.seq for event in again] == [2, 3]


def test_unknown_members_of_a_line_are_passed_over_and_stay(path: Path) -> None:
    """N-43, F-14, F-46: a newer minor version's members change nothing for us, and are kept."""
    extra = ',"trace":{"span":"7","list":[1,{}]},"flag":null'
    log = HandwrittenLog(generator="newer").message({"n": 1}, extra).message({"n": 2}, extra)
    log.note("verified", {"by": "newer"}, extra)
    log.message({"n": 3}, ',"more":1,"new":"é"').message({"n": 4, "extra": True}, extra)
    put(path, log)
    with hansard.open(path) as store:
        session = store.session(ID)
        seen: list[dict[str, Any]] = [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4, "extra": True}]
        assert session.messages() == seen
        assert session.messages(last=3) == seen[1:]
        assert session.verify().findings == []
        session.add_message({"n": 5})
        assert session.messages() == [*seen, {"n": 5}]
    assert contents(path)[str(path / "sessions" / ID / "log.jsonl")].startswith(log.data)


@pytest.mark.parametrize(
    "data", [{}, {"offset": "text", "bytes": [1]}, {"shut": []}, {"deep": {"shut": ["x"]}}], ids=str
)
@pytest.mark.parametrize("last", [False, True], ids=["inside", "last"])
def test_unknown_notes_are_passed_over_and_stay(
    path: Path, data: dict[str, Any], last: bool
) -> None:
    """N-43, F-33, F-46: a note with a word of a newer minor version is kept at any place."""
    log = HandwrittenLog().message({"n": 1})
    log.note("indexed", data)
    if not last:
        log.message({"n": 2})
    put(path, log)
    with hansard.open(path) as store:
        session = store.session(ID)
        before = session.messages()
        assert before == [{"n": 1}, {"n": 2}][: 1 if last else 2]
        assert session.seq == len(before)
        assert session.verify().findings == []
        session.add_message({"n": 3})
        assert session.messages() == [*before, {"n": 3}]
        assert session.verify().findings == []


def test_a_note_may_shut_the_log_for_a_reason_that_is_not_known(path: Path) -> None:
    """F-34, F-46: a reason that this version does not know keeps it from appending all the same."""
    put(path, HandwrittenLog().message({"n": 1}).note("quarantined", {"shut": ["quarantine"]}))
    before = contents(path)
    with hansard.open(path) as store:
        assert store.session(ID).messages() == [{"n": 1}]
        with pytest.raises(hansard.HansardError):
            store.session(ID).add_message({"n": 2})
    assert contents(path) == before


def test_unknown_kinds_are_kept_shown_and_counted(path: Path) -> None:
    """N-43, F-46: events of kinds that this version does not know are read like any other."""
    log = HandwrittenLog().message({"n": 1})
    log.record({"message": {"not": "ours"}, "x": [1]}, "message.translated")
    control = len(log.data)
    log.record({"to": 1}, "session.starred", extra=',"control":true')
    log.message({"n": 2}, f',"ctl":{control}')
    put(path, log)
    with hansard.open(path) as store:
        session = store.session(ID)
        assert session.messages() == [{"n": 1}, {"n": 2}]
        kinds = [event.kind for event in session.events()]
        assert kinds == ["message.added", "message.translated", "session.starred", "message.added"]
        assert list(session.events())[1].data == {"message": {"not": "ours"}, "x": [1]}
        assert session.state().kinds["message.translated"] == 1
        assert session.metadata == {}
        session.set_metadata(title="T")
        assert session.metadata == {"title": "T"}
        assert session.verify().findings == []


@pytest.mark.parametrize("text", [
    '{"hansard":"store","version":999}',
    '{"hansard":"store","version":0}',
    '{"hansard":"store","version":2,"new":true}',
    '{"hansard":"store","version":"1"}',
    '{"hansard":"store"}',
    '{"hansard":"shop","version":1}',
    '{"version":1}',
    "null",
    "[]",
    "",
    "\x00\x01",
])  # fmt: skip
@pytest.mark.parametrize("read_only", [False, True], ids=["to write", "to read"])
def test_a_store_of_another_version_is_refused_and_left_alone(
    path: Path, text: str, read_only: bool
) -> None:
    """N-44, F-1, F-45: a marker with another version, or without one, is refused; no file changes."""
    (path / "hansard.json").write_text(text, encoding="utf-8")
    before = contents(path)
    with pytest.raises(hansard.UnknownFormat, match=r"hansard\.json"):
        hansard.open(path, read_only=read_only)
    assert contents(path) == before


def test_unknown_members_of_the_marker_are_kept(path: Path) -> None:
    """F-1, F-46: a marker with more members than we know is a store of ours."""
    text = '{"hansard":"store","version":1,"made":{"by":"newer"}}\n'
    (path / "hansard.json").write_text(text, encoding="utf-8")
    with hansard.open(path) as store:
        store.session(ID).add_message({"n": 2})
        assert len(store.session(ID).messages()) == 2
    assert (path / "hansard.json").read_text(encoding="utf-8") == text


@pytest.mark.parametrize("version", [999, 2, 0, -1])
def test_a_log_of_another_version_is_refused_and_left_alone(path: Path, version: int) -> None:
    """N-44, F-45: a header with another version is refused by readers and writers; no file changes."""
    log = HandwrittenLog(version=version).message({"n": 1})
    put(path, log)
    with hansard.open(path) as store:
        store.session("other").add_message({"n": 1})
    before = contents(path)
    with hansard.open(path) as store:
        session = store.session(ID)
        for call in (
            session.messages,
            lambda: session.messages(last=1),
            lambda: list(session.events()),
            lambda: session.metadata,
            lambda: session.seq,
            session.state,
            session.verify,
            lambda: session.add_message({"n": 2}),
            lambda: session.set_metadata(title="T"),
            lambda: store.create(ID),
            lambda: store.delete(ID),
        ):
            with pytest.raises(hansard.UnknownFormat, match=f"version {version}"):
                call()
        assert store.exists(ID)
        assert [(info.id, bool(info.damaged)) for info in store.sessions().items] == [
            ("other", False),
            (ID, True),
        ]
        assert not store.verify().ok
    assert contents(path) == before
