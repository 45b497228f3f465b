"""Claims about large content in a store: kept once, read whole, checked, collected. F-70 to F-78."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hansard
from hansard.backend.contract import Log
from hansard.event.envelope import Draft
from hansard.log.vault import Vault
from tests.crashlab import faults
from tests.format.grammar import PAGE, grammar, pattern

LIMIT = 1000
IMAGE = "iVBORw0KGgo" * 400
TEXT = "Ein längerer Text. " * 200


def picture(image: str = IMAGE, **more: Any) -> dict[str, Any]:
    """Return a message with an image, as providers have them."""
    return {
        "role": "user",
        **more,
        "content": [{"type": "text", "text": "What is this?"}, {"type": "image", "data": image}],
    }


SHORT = {"role": "assistant", "content": "A cat."}


@pytest.fixture(params=["files", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[hansard.Store]:
    """Return a store that keeps large content once, of either kind."""
    path = "memory:" if request.param == "memory" else tmp_path / "store"
    with hansard.open(path, durability="os", large_content=LIMIT) as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where a store on files is to be."""
    return tmp_path / "store"


def opened(path: Path, large_content: int | None = LIMIT) -> hansard.Store:
    """Open a store on files."""
    return hansard.open(path, durability="os", large_content=large_content)


def kept(path: Path) -> list[Path]:
    """Return the files of large content."""
    return sorted(file for file in path.glob("large/??/*") if len(file.name) == 64)


def size(path: Path) -> int:
    """Return the bytes of all files of a store."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def contents(store: hansard.Store) -> int:
    """Return how many texts a store keeps."""
    return len(store._backend.contents())


class Reads:
    """How many files of large content are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        real = Vault.read

        def read(vault: Vault, sha256: str, size: int) -> bytes:
            self.count += 1
            return real(vault, sha256, size)

        monkeypatch.setattr(Vault, "read", read)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Return a counter of reads."""
    return Reads(monkeypatch)


# -- reading --------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
BIG = st.builds(lambda text, times: (text or "x") * times, TEXTS, st.integers(1, 600))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | TEXTS | BIG,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
MESSAGES = st.lists(st.dictionaries(TEXTS, VALUES, max_size=4), min_size=1, max_size=4)


@pytest.fixture(scope="module", params=["files", "memory"])
def busy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> hansard.Store:
    """Return one store for all examples, each of which has a session of its own."""
    memory = request.param == "memory"
    path = "memory:" if memory else tmp_path_factory.mktemp("large") / "store"
    return hansard.open(path, durability="os", large_content=256)


@given(messages=MESSAGES, batch=st.booleans(), last=st.integers(1, 4))
def test_whatever_is_said_comes_back_whichever_way(
    busy: hansard.Store, messages: list[dict[str, Any]], batch: bool, last: int
) -> None:
    """F-72, N-64: in every view and form, what comes out is what went in, key order and all."""
    session = busy.session()
    if batch:
        added = session.add_messages(messages, key="k")
        assert session.add_messages(messages, key="k") == added
    else:
        added = [session.add_message(message) for message in messages]
    as_json = [json.dumps(message) for message in messages]
    for view in ("model", "history"):
        assert [json.dumps(found) for found in session.messages(view=view)] == as_json
    assert [json.dumps(found) for found in session.messages(last=last)] == as_json[-last:]
    assert [json.dumps(found) for found in session.window(messages=last)] == as_json[-last:]
    assert [json.dumps(found) for found in json.loads(session.messages_json())] == as_json
    assert session.messages_json(last=last) == (
        b"[" + b",".join(event.raw[len(b'{"message":') : -1] for event in added[-last:]) + b"]"
    )
    events = list(session.events())
    assert events == added
    assert {type(event) for event in events} == {hansard.Event}
    assert [json.dumps(event.message) for event in events] == as_json
    assert session.state().message_count == len(messages)
    child = session.fork()
    assert [json.dumps(found) for found in child.messages()] == as_json


def test_a_store_that_keeps_no_large_content_reads_it_all_the_same(path: Path) -> None:
    """F-70: the option is for writing; without it, read-only, and in a copy of the files, all is there."""
    with opened(path) as store:
        store.session("s").add_message(picture())
    with opened(path, None) as store:
        session = store.session("s")
        assert session.messages() == [picture()]
        session.add_message(picture("other" * 1000))
    assert len(kept(path)) == 1
    with hansard.open(path, read_only=True) as store:
        assert store.session("s").messages() == [picture(), picture("other" * 1000)]
        assert store.verify().ok
        with pytest.raises(hansard.ReadOnly):
            store.collect_large()
        assert store.collect_large(dry_run=True).removed == 0


def test_by_default_nothing_is_taken_out(path: Path) -> None:
    """F-70: without the option a message is one line of its log, and there is no directory for content."""
    with hansard.open(path, durability="os") as store:
        store.session("s").add_message(picture())
        assert store.collect_large().kept == 0
    assert not (path / "large").exists()


@pytest.mark.parametrize("bad", [0, -1, 255, 1.5, "64k", True])
def test_a_threshold_that_is_none_is_refused(bad: Any) -> None:
    """The option is a number of bytes, and not so few that a reference would take more."""
    with pytest.raises(ValueError, match="large_content"):
        hansard.open("memory:", large_content=bad)


def test_only_what_is_returned_is_fetched(path: Path, reads: Reads) -> None:
    """F-74, N-77: the last message costs one content, state and a fork none, an iterator its steps."""
    with opened(path) as store:
        session = store.session("s")
        for number in range(20):
            session.add_message(picture(f"{number:04}" * 500))
        for ask, cost in (
            (lambda: session.messages(last=1), 1),
            (lambda: session.messages(last=3, after=18), 2),
            (lambda: session.messages_json(last=2), 2),
            (lambda: session.messages(after=15, at=17), 2),
            (session.state, 0),
            (lambda: session.metadata, 0),
            (lambda: session.fork().seq, 0),
            (lambda: next(session.events(after=4)), 1),
            (lambda: session.window(messages=1, keep_first=True), 20),
        ):
            reads.count = 0
            ask()
            assert reads.count <= cost, (ask, reads.count)


def test_streamed_messages_and_those_of_a_summary_are_whole(store: hansard.Store) -> None:
    """F-70: a message that was streamed is whole, and so is a summary, never taken apart."""
    session = store.session("s")
    with session.stream() as stream:
        for _ in range(10):
            stream.write(TEXT)
    assert session.messages() == [{"role": "assistant", "content": TEXT * 10}]
    assert contents(store) == 1
    assert session.state().streams == {}
    summary = {"role": "system", "content": "short " * 1000}
    session.summarize(upto=session.seq, message=summary)
    assert session.messages() == [summary]
    assert session.messages(view="history") == [{"role": "assistant", "content": TEXT * 10}]


def test_followers_get_whole_events_and_no_redacted_content(path: Path) -> None:
    """F-74, F-75: who follows a store is handed plain, whole events; what was collected comes redacted."""
    with opened(path) as store:
        session = store.session("s")
        session.add_messages([picture(), picture(TEXT)])
        session.redact(1)
        assert store.collect_large().removed == 1
        with closing(iter(store.follow())) as followed:
            events = [next(followed).event for _ in range(2)]
    assert {type(event) for event in events} == {hansard.Event}
    assert [event.message for event in events] == [None, picture(TEXT)]


def test_what_is_handed_out_is_the_callers(store: hansard.Store) -> None:
    """N-63: changing what went in or came out changes nothing in the store."""
    session = store.session("s")
    message = picture()
    session.add_message(message)
    message["content"][1]["data"] = "changed"
    session.messages()[0]["content"][1]["data"] = "changed"
    assert session.messages() == [picture()]


def test_events_of_one_store_can_be_appended_to_another(path: Path, tmp_path: Path) -> None:
    """F-70: the raw of an event is all of it, so a copy needs nothing of the store that it came from."""
    with opened(path) as store, opened(tmp_path / "copy", None) as copy:
        store.session("s").add_message(picture())
        drafts = [
            Draft(event.kind, event.raw, control=False) for event in store.session("s").events()
        ]
        copy.session("s")._log.append(drafts)
        assert copy.session("s").messages() == [picture()]
    assert not (tmp_path / "copy" / "large").exists()


def test_many_appends_together_keep_their_content(store: hansard.Store) -> None:
    """F-73: appends that are handed over together come back whole, each for itself."""
    from hansard.backend.contract import Append

    log: Log = store._backend.log("s")

    def draft(image: str) -> Draft:
        return Draft("message.added", b'{"message":{"data":"%b"}}' % image.encode(), control=False)

    done = log.append_all(
        [Append([draft(IMAGE)]), Append([draft("x")], expected_seq=9), Append([draft("y" * 2000)])]
    )
    assert [type(one) for one in done] == [list, hansard.SeqConflict, list]
    assert store.session("s").messages() == [{"data": IMAGE}, {"data": "y" * 2000}]
    assert contents(store) == 2


# -- sharing --------------------------------------------------------------------------------------


def test_the_same_image_in_50_messages_of_10_sessions_takes_its_bytes_once(path: Path) -> None:
    """F-73: 1 MB that is said fifty times takes 1 MB, and a fork of it nothing more."""
    megabyte = "0123456789abcdef" * 65536
    with opened(path, 65536) as store:
        for number in range(10):
            session = store.session(f"s{number}")
            for turn in range(5):
                session.add_message(picture(megabyte, turn=turn))
        child = store.session("s3").fork("child")
        child.add_message(picture(megabyte))
        assert size(path) < len(megabyte) + 100_000
        assert child.messages() == [
            *(picture(megabyte, turn=turn) for turn in range(5)),
            picture(megabyte),
        ]
        assert store.collect_large().kept == 1


def test_a_fork_needs_what_its_parent_said(store: hansard.Store) -> None:
    """F-75, N-50: content stays while a fork, or its parent in the trash, refers to it."""
    parent = store.session("parent")
    parent.add_message(picture())
    child = parent.fork("child")
    store.delete("parent")
    assert store.collect_large().removed == 0
    assert child.messages() == [picture()]
    store.restore("parent")
    assert store.collect_large().removed == 0
    assert store.session("parent").messages() == [picture()]


# -- collecting -----------------------------------------------------------------------------------


def test_delete_purge_and_collect_free_the_bytes(store: hansard.Store) -> None:
    """F-75: content of a deleted session stays while it is in the trash, and goes when it is purged."""
    store.session("a").add_message(picture())
    store.session("a").add_message(picture(TEXT))
    store.session("b").add_message(picture(TEXT))
    store.delete("a")
    assert store.collect_large().removed == 0
    store._backend.purge("a")
    report = store.collect_large(dry_run=True)
    assert (report.removed, report.bytes, report.kept, report.dry_run) == (1, len(IMAGE), 1, True)
    assert contents(store) == 2
    report = store.collect_large()
    assert (report.removed, report.bytes, report.kept, report.dry_run) == (1, len(IMAGE), 1, False)
    assert store.session("b").messages() == [picture(TEXT)]
    assert store.collect_large().removed == 0


def test_what_was_redacted_is_not_referred_to(store: hansard.Store) -> None:
    """F-75: the content of a redacted message goes, in every view and for all who inherited it."""
    session = store.session("s")
    session.add_message(picture())
    session.add_message(SHORT)
    child = session.fork("child")
    session.redact(1)
    assert store.collect_large().removed == 1
    assert contents(store) == 0
    for reader in (session, child, store.session("s"), store.session("child")):
        assert reader.messages() == [SHORT]
        assert reader.messages(last=5) == [SHORT]
        assert reader.messages(view="history", at=2) == [SHORT]
        assert json.loads(reader.messages_json()) == [SHORT]
        assert reader.window(messages=2) == [SHORT]
        assert next(reader.events()).data == {"message": None, "redacted": True}
        assert reader.state().message_count == 2
    assert store.verify().ok
    assert list(session.share())


def test_what_a_fork_redacts_its_parent_still_shows(store: hansard.Store) -> None:
    """F-75: a child's redaction hides the message in the child, and the parent's content stays."""
    parent = store.session("parent")
    parent.add_message(picture())
    child = parent.fork("child")
    child.redact(1)
    assert child.messages() == []
    assert store.collect_large().removed == 0
    assert parent.messages() == [picture()]


def test_what_was_scrubbed_is_not_referred_to(store: hansard.Store) -> None:
    """F-75: a message rid of a secret stands on its own; its old content goes."""
    session = store.session("s")
    session.add_message(picture(TEXT + " the secret word"))
    session.scrub("the secret word")
    assert store.collect_large().removed == 1
    (shown,) = session.messages()
    assert shown["content"][1]["data"].startswith(TEXT)
    assert "secret word" not in json.dumps(shown)
    assert store.verify().ok


def test_what_stands_in_the_place_of_a_redacted_message_is_not_filled(store: hansard.Store) -> None:
    """F-75: where a redaction leaves an empty text, no view puts the old one back, collected or not."""
    session = store.session("s")
    session.add_message(picture())
    instead = {"message": picture("")}
    raw = json.dumps({"seq": 1, "data": instead}).encode()
    session._log.append([Draft("message.redacted", raw, control=True)])
    for _ in range(2):
        assert session.messages() == [picture("")]
        assert session.messages(last=1) == [picture("")]
        assert json.loads(session.messages_json()) == [picture("")]
        assert next(session.events()).message == picture("")
        store.collect_large()


def test_a_refused_append_leaves_only_what_can_be_collected(store: hansard.Store) -> None:
    """F-75: content of an append that was refused is referred to by nothing."""
    session = store.session("s")
    session.add_message(SHORT)
    with pytest.raises(hansard.SeqConflict):
        session.add_message(picture(), expected_seq=7)
    assert session.messages() == [SHORT]
    assert store.collect_large().removed == contents(store) + 1 == 1


def test_a_session_that_cannot_be_read_keeps_everything(path: Path) -> None:
    """F-77, N-87: while one session is damaged, nothing is removed: it may refer to anything."""
    with opened(path) as store:
        store.session("a").add_message(picture())
        store.session("b").add_message(picture(TEXT))
        store.delete("b")
        store._backend.purge("b")
    log = path / "sessions" / "a" / "log.jsonl"
    log.write_bytes(log.read_bytes().replace(b"What", b"Wha7"))
    with opened(path) as store:
        for dry_run in (True, False):
            with pytest.raises(hansard.Damaged):
                store.collect_large(dry_run=dry_run)
    assert len(kept(path)) == 2


def test_a_part_of_a_store_collects_for_all(store: hansard.Store) -> None:
    """N-69, F-75: whoever collects, the sessions of all tenants count."""
    store.session("a/1").add_message(picture())
    scoped = store.scoped("b/")
    scoped.session("b/1").add_message(picture(TEXT))
    assert scoped.collect_large().removed == 0
    assert scoped.session("b/1").messages() == [picture(TEXT)]
    assert store.session("a/1").messages() == [picture()]


def test_a_message_redacted_and_collected_under_a_readers_eyes_is_redacted(path: Path) -> None:
    """F-74: a reader that began before a message was redacted gets the redacted one, not damage."""
    with opened(path) as store:
        session = store.session("s")
        session.add_message(SHORT)
        session.add_message(picture())
        events = session.events()
        assert next(events).message == SHORT
        session.redact(2)
        assert store.collect_large().removed == 1
        assert next(events).data == {"message": None, "redacted": True}
        assert list(events) == []


@pytest.mark.parametrize("last", [None, 2], ids=["all", "last"])
def test_a_view_that_loses_a_message_on_the_way_shows_it_redacted(
    path: Path, last: int | None
) -> None:
    """F-74: a message that is redacted and collected between the log and its content is left out."""
    with opened(path) as store:
        session = store.session("s")
        session.add_messages([SHORT, picture()])
        done: list[str] = []

        def interfere(call: faults.Call, arguments: object, result: object) -> None:
            del arguments, result
            if call.operation == "open_directory" and Path(call.place).name == "large" and not done:
                done.append("redacted")
                with opened(path) as other:
                    other.session("s").redact(2)
                    assert other.collect_large().removed == 1

        with faults.record(watch=interfere):
            assert session.messages(last=last) == [SHORT]
        assert done


# -- damage ---------------------------------------------------------------------------------------

Damage = Callable[[Path], object]


def _in_the_way(file: Path) -> None:
    file.unlink()
    file.mkdir()


DAMAGES: dict[str, Damage] = {
    "missing": Path.unlink,
    "empty": lambda file: file.write_bytes(b""),
    "shorter": lambda file: file.write_bytes(file.read_bytes()[:-1]),
    "longer": lambda file: file.write_bytes(file.read_bytes() + b" "),
    "a flipped byte": lambda file: file.write_bytes(b"~" + file.read_bytes()[1:]),
    "no file": _in_the_way,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_content_that_is_damaged_is_reported_by_reading_and_by_verify(
    path: Path, damage: Damage
) -> None:
    """F-74, N-31, N-34: no reader gets an empty text, and `verify` names file, session and seq."""
    with opened(path) as store:
        session = store.session("s/1")
        session.add_messages([SHORT, picture(), SHORT])
        session.fork("child")
        (file,) = kept(path)
        damage(file)
        error = hansard.UnsafePath if file.is_dir() else hansard.Damaged
        readings: list[Callable[[], object]] = [
            session.messages,
            session.messages_json,
            lambda: session.messages(last=2),
            lambda: session.window(messages=3),
            lambda: list(session.events()),
            lambda: list(session.share()),
            store.session("child").messages,
        ]
        for read in readings:
            with pytest.raises(error, match=file.name):
                read()
        assert session.messages(last=1) == [SHORT]
        assert session.state().message_count == 3
        report = session.verify()
        assert not report.ok
        (finding,) = report.findings
        assert (finding.severity, finding.where) == ("damage", str(file))
        assert "session 's/1', seq 2: " in finding.reason
        assert [len(one.findings) for one in store.verify().sessions] == [0, 1]
        # Whoever cannot get it back can let go of it.
        session.redact(2)
        assert session.messages() == [SHORT, SHORT]
        assert store.verify().ok


def test_a_lost_directory_of_content_is_damage_and_not_an_empty_text(path: Path) -> None:
    """F-74, N-31: without the directory every message that refers to it raises, and is found by `verify`."""
    with opened(path) as store:
        store.session("s").add_messages([picture(), picture(TEXT)])
    (path / "large").rename(path / "away")
    with opened(path) as store:
        with pytest.raises(hansard.Damaged, match="missing"):
            store.session("s").messages()
        assert len(store.session("s").verify().findings) == 2


def test_verify_reads_each_content_once(path: Path, reads: Reads) -> None:
    """F-74: however many messages share a content, checking the store checks it once."""
    with opened(path) as store:
        for number in range(5):
            store.session(f"s{number}").add_messages([picture()] * 3)
        reads.count = 0
        assert store.verify().ok
        assert reads.count == 1


def test_reading_large_content_writes_and_locks_nothing(path: Path) -> None:
    """N-62, F-76: every way to read leaves the files as they are, and asks for no lock."""
    with opened(path) as store:
        store.session("s").add_messages([picture(), SHORT])
    with hansard.open(path, read_only=True) as store, faults.record() as seen:
        session = store.session("s")
        assert session.messages() == [picture(), SHORT]
        assert list(session.events())
        assert store.verify().ok
    changing = set(faults.MUTATING) - {"open_file"}
    assert [call for call in seen.calls if call.operation in changing] == []
    assert [call for call in seen.calls if Path(call.place).name in {"lock", "gate"}] == []


# -- the page -------------------------------------------------------------------------------------


def test_the_example_of_the_format_is_a_log_with_large_content(path: Path) -> None:
    """F-70 to F-73: the lines on the page, with the content it names, are the message it describes."""
    page = PAGE.read_text("utf-8")
    section = page[page.index("## 16. Large content") :]
    lines = section[section.index("```jsonl") + len("```jsonl\n") :].split("```")[0].encode()
    with opened(path) as store:
        store.session("demo").add_message(picture("A" * 70_000))
    log = path / "sessions" / "demo" / "log.jsonl"
    written = json.loads(log.read_bytes().splitlines()[1])
    log.write_bytes(lines)
    (file,) = kept(path)
    assert f"`{file.name}`" in section
    assert f"`large/{file.parent.name}`" in section
    with opened(path) as store:
        assert store.session("demo").messages() == [picture("A" * 70_000)]
        assert store.verify().findings == []
    on_the_page = json.loads(lines.splitlines()[1])
    assert (written["large"], written["data"]) == (on_the_page["large"], on_the_page["data"])
    record = re.compile(pattern("record", grammar()))
    assert record.fullmatch(lines.splitlines(keepends=True)[1])
