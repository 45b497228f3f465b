"""Claims about importing that hold for every kind; shown with workspace session files, the simplest."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import hansard
from hansard import importers
from hansard.importers import source
from tests.crashlab import faults
from tests.importers.sources import (
    KEY,
    chat,
    contents,
    import_new,
    outcomes,
    problems,
    session_file,
    texts,
    write,
)

KINDS = ("a3s-code", "openclaw", "praisonai", "workspace")
FIRST = "0a1b2c3d_20260102_030405"
SECOND = "0a1b2c3d_20260203_040506"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a source with two sessions."""
    root = tmp_path / "source"
    session_file(root, FIRST, "one", "two", title="First", cwd="/home/me/a")
    session_file(root, SECOND, "three")
    return root


# -- once, and again ----------------------------------------------------------------------------


def test_an_import_brings_all_once(store: hansard.Store, folder: Path, tmp_path: Path) -> None:
    """N-84, N-88: what is in a source becomes sessions, with its times.

    A second run does nothing and says so; the source is not touched.
    """
    before = contents(folder)
    told: list[tuple[int, int]] = []
    report = importers.import_sessions(
        store, "workspace", folder, progress=lambda done, of: told.append((done, of))
    )
    assert outcomes(report) == {FIRST: ("imported", 2), SECOND: ("imported", 1)}
    assert report.skipped == []
    assert told == [(1, 2), (2, 2)]
    first = store.session(FIRST)
    assert first.messages() == chat("one", "two")
    assert first.title == "First"
    assert first.metadata["workspace"] == "/home/me/a"
    assert first.state().created == "2026-01-02T03:04:05.000000Z"
    stood = contents(tmp_path / "store")
    again = importers.import_sessions(store, "workspace", folder)
    assert outcomes(again) == {FIRST: ("present", 0), SECOND: ("present", 0)}
    assert not again.imported
    assert contents(tmp_path / "store") == stood
    assert contents(folder) == before
    assert store.verify().ok


def test_a_source_that_grew_is_continued(store: hansard.Store, folder: Path) -> None:
    """N-84: what came since the last import is appended behind it, in one append.

    A title that a person gave here stays; and again nothing is done.
    """
    importers.import_sessions(store, "workspace", folder)
    store.session(FIRST).set_title("Mine")
    session_file(folder, FIRST, "one", "two", "three", "four", title="Theirs")
    report = importers.import_sessions(store, "workspace", folder)
    assert outcomes(report) == {FIRST: ("continued", 2), SECOND: ("present", 0)}
    assert texts(store, FIRST) == ["one", "two", "three", "four"]
    assert store.session(FIRST).title == "Mine"
    assert outcomes(importers.import_sessions(store, "workspace", folder))[FIRST] == ("present", 0)
    session_file(folder, FIRST, "one", "two", "three", "four", "five")
    assert outcomes(importers.import_sessions(store, "workspace", folder))[FIRST] == (
        "continued",
        1,
    )
    assert texts(store, FIRST)[-1] == "five"


def test_what_went_on_in_both_places_is_reported(store: hansard.Store, folder: Path) -> None:
    """N-88: a session that was continued here is present; if its source goes on too, nothing is mixed."""
    importers.import_sessions(store, "workspace", folder)
    store.session(FIRST).add_message({"role": "user", "content": "said here"})
    assert not importers.import_sessions(store, "workspace", folder).skipped
    session_file(folder, FIRST, "one", "two", "said there")
    report = importers.import_sessions(store, "workspace", folder)
    assert problems(report) == [f"{FIRST}.json"]
    assert "both here and in its source" in report.skipped[0].what
    assert texts(store, FIRST) == ["one", "two", "said here"]


@pytest.mark.parametrize("changed", [("one",), ("one", "2"), ("1", "two", "three")])
def test_a_source_that_changed_is_reported(
    store: hansard.Store, folder: Path, changed: tuple[str, ...]
) -> None:
    """N-88: if what was imported is no longer the beginning of its source, the session is left as it is.

    With a prefix, both can be had.
    """
    importers.import_sessions(store, "workspace", folder)
    session_file(folder, FIRST, *changed)
    report = importers.import_sessions(store, "workspace", folder)
    assert "has changed since" in report.skipped[0].what
    assert texts(store, FIRST) == ["one", "two"]
    importers.import_sessions(store, "workspace", folder, prefix="new/")
    assert texts(store, f"new/{FIRST}") == list(changed)


def test_an_existing_session_is_never_overwritten(store: hansard.Store, folder: Path) -> None:
    """N-88: a session that is there and no import, and one that was deleted, are reported and left alone."""
    store.session(FIRST).add_message({"role": "user", "content": "mine"})
    report = importers.import_sessions(store, "workspace", folder)
    assert outcomes(report) == {SECOND: ("imported", 1)}
    assert "not from this source" in report.skipped[0].what
    assert texts(store, FIRST) == ["mine"]
    store.delete(FIRST)
    deleted = importers.import_sessions(store, "workspace", folder)
    assert FIRST in deleted.skipped[0].what
    assert store.trash() == [FIRST]
    assert not store.exists(FIRST)


def test_the_same_id_from_another_kind_is_reported(store: hansard.Store, folder: Path) -> None:
    """N-88: a session that was imported from another kind of source is another one, and left as it is."""
    other = folder.parent / "other"
    write(other / "x.json", {"session_id": FIRST, "messages": chat("one")})
    importers.import_sessions(store, "praisonai", other)
    report = importers.import_sessions(store, "workspace", folder)
    assert "not from this source" in report.skipped[0].what
    assert texts(store, FIRST) == ["one"]


def test_what_was_redacted_and_compacted_here_is_known_again(
    store: hansard.Store, folder: Path
) -> None:
    """N-84: an imported session is known by what the import wrote down, also after its bytes have changed."""
    importers.import_sessions(store, "workspace", folder)
    session = store.session(FIRST)
    session.redact(2)
    session.compact()
    assert outcomes(importers.import_sessions(store, "workspace", folder))[FIRST] == ("present", 0)
    session_file(folder, FIRST, "one", "two", "three")
    assert outcomes(importers.import_sessions(store, "workspace", folder))[FIRST] == (
        "continued",
        1,
    )
    assert texts(store, FIRST) == ["two", "three"]


def test_a_dry_run_says_what_a_run_does(tmp_path: Path) -> None:
    """N-87: a dry run writes nothing, and its report is the real one's, forks and problems included."""
    fixtures = Path(__file__).parent / "fixtures" / "praisonai"
    with hansard.open(tmp_path / "store", durability="os") as store:
        planned = importers.import_sessions(store, "praisonai", fixtures, dry_run=True)
        assert store.count() == 0
        done = importers.import_sessions(store, "praisonai", fixtures)
    assert planned.sessions == done.sessions
    assert [one.parent for one in done.sessions if one.parent]


# -- what cannot be imported --------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("content", [b'{"k": null}', b"{}", b"[]", b"null", b"", b"\xff\xfe", b"{"])
def test_a_source_with_nothing_in_it_is_an_error(
    store: hansard.Store, tmp_path: Path, kind: str, content: bytes
) -> None:
    """N-80, N-81: from a file that says nothing, nothing is imported.

    That is an error that says where and why, and the file is left as it is.
    """
    root = tmp_path / "source" / "sessions"
    root.mkdir(parents=True)
    path = root / ("sessions.json" if kind == "openclaw" else f"{FIRST}.json")
    path.write_bytes(content)
    before = contents(root)
    for given in (root, path):
        with pytest.raises(importers.NothingToImport, match="nothing can be imported") as caught:
            importers.import_sessions(store, kind, given)
        assert [problem.where for problem in caught.value.report.skipped] == [path.name]
    assert store.count() == 0
    assert contents(root) == before


#: By the name of a file that an importer reads: its kind, and what is not a session in it.
EMPTY = {
    "project/x.jsonl": ("claude-code", ['null\n{}\n[]\n{"k": null}\n']),
    "rollout-2026-01-02T03-04-05-0b0b0b0b-0b0b-0b0b-0b0b-0b0b0b0b0b0b.jsonl": (
        "codex",
        ["", "{}\n", "null\n", '{"type": "event_msg", "payload": {}}\n'],
    ),
    "rollout-2026-01-02T03-04-05-0b0b0b0b-0b0b-0b0b-0b0b-0b0b0b0b0b0b.jsonl.zst": (
        "codex",
        ["\x28\xb5\x2f\xfdno"],
    ),
    "items.json": ("openai-agents", ["{}", "[]", '{"k": null}', "null", "no JSON"]),
    "messages.json": ("pydantic-ai", ["{}", "[]", '{"k": null}', "null", '[{"role": "user"}]']),
}


@pytest.mark.parametrize("name", EMPTY)
def test_a_file_without_a_session_is_an_error(tmp_path: Path, name: str) -> None:
    """N-80: a file without anything valid is refused, each line of a transcript is reported, and it stays."""
    kind, told = EMPTY[name]
    path = tmp_path / "source" / name
    path.parent.mkdir(parents=True)
    for content in told:
        path.write_bytes(content.encode("latin-1"))
        with pytest.raises(importers.NothingToImport) as caught:
            import_new(kind, path)
        assert kind != "claude-code" or len(caught.value.report.skipped) >= 4


@pytest.mark.parametrize("kind", sorted(importers.KINDS))
def test_an_empty_folder_is_an_error(store: hansard.Store, tmp_path: Path, kind: str) -> None:
    """N-80: a folder without sessions, or no folder, is an error and no empty success, for every kind."""
    (tmp_path / "source").mkdir()
    for name in ("source", "nobody"):
        with pytest.raises(importers.NothingToImport):
            importers.import_sessions(store, kind, tmp_path / name)
    assert store.count() == 0


def test_what_cannot_be_read_is_reported_and_stops_nothing(
    store: hansard.Store, folder: Path
) -> None:
    """N-81: unparsable files, and messages that are none, are reported with their place.

    The rest comes in.
    """
    (folder / "0a1b2c3d_20260303_040506.json").write_bytes(b'{"messages": [')
    write(folder / "0a1b2c3d_20260404_040506.json", {"messages": [*chat("good"), None, 7, {}]})
    (folder / "0a1b2c3d_20260505_040506.json").write_bytes(b"[" * 100_000)
    (folder / "0a1b2c3d_20260606_040506.json").write_bytes(b'[{"role": "user", "content": NaN}]')
    report = importers.import_sessions(store, "workspace", folder)
    assert len(report.imported) == 3
    assert [problem.where.split("_")[1][:6] for problem in report.skipped] == [
        "202603",
        "202604",
        "202604",
        "202604",
        "202605",
        "202606",
    ]
    assert texts(store, "0a1b2c3d_20260404_040506") == ["good"]


def test_links_are_not_followed(store: hansard.Store, folder: Path, tmp_path: Path) -> None:
    """N-14: a link to a file or a folder is skipped and reported, and what it leads to is not read.

    A source that is itself a link is refused; a pipe keeps nobody waiting.
    """
    outside = tmp_path / "outside"
    session_file(outside, "0a1b2c3d_20260707_040506", "secret")
    (folder / "0a1b2c3d_20260707_040506.json").symlink_to(outside / "0a1b2c3d_20260707_040506.json")
    (folder / "linked").symlink_to(outside)
    os.mkfifo(folder / "0a1b2c3d_20260808_040506.json")
    report = importers.import_sessions(store, "workspace", folder)
    assert len(report.imported) == 2
    assert sorted(problems(report)) == [
        "0a1b2c3d_20260707_040506.json",
        "linked",
    ]
    assert all("symbolic link" in problem.what for problem in report.skipped)
    assert not store.search("secret")
    (tmp_path / "way").symlink_to(folder)
    with pytest.raises(importers.NothingToImport, match="symbolic link"):
        importers.import_sessions(store, "workspace", tmp_path / "way")


def test_paths_out_of_the_root_and_large_files_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-14, N-88: whoever names a path outside of the source, or over a link, gets nothing but a report.

    And neither does a file above the cap.
    """
    session_file(tmp_path, "outside", "secret")
    session_file(tmp_path / "root", "inside", "fine")
    (tmp_path / "root" / "up").symlink_to(tmp_path)
    files = source.Files(tmp_path / "root")
    assert files.read(tmp_path / "outside.json") is None
    assert files.read(tmp_path / "root" / "up" / "outside.json") is None
    assert len(files.problems) == 2
    assert files.read(tmp_path / "root" / "inside.json")
    monkeypatch.setattr(source, "LARGEST", 10)
    assert files.read(tmp_path / "root" / "inside.json") is None
    assert "larger than 10 bytes" in files.problems[-1].what


def test_credentials_stay_outside_and_what_was_said_is_kept(
    store: hansard.Store, tmp_path: Path
) -> None:
    """N-65: what looks like a credential among a source's settings is taken out.

    What was said is word for word.
    """
    root = tmp_path / "source"
    said = chat(f"my key is {KEY[::-1]}")
    write(root / f"{FIRST}.json", {"messages": said, "config": {"api_key": KEY, "name": "x"}})
    importers.import_sessions(store, "workspace", root)
    assert store.session(FIRST).messages() == said
    assert "redacted" in store.session(FIRST).metadata["workspace_file"]["config"]["api_key"]
    store.close()
    assert KEY.encode() not in b"".join(one[-1] for one in contents(tmp_path / "store").values())


def test_what_cannot_be_stored_as_it_is_is_mended_or_noted(
    store: hansard.Store, tmp_path: Path
) -> None:
    """N-81: half characters are replaced, and what no record can hold leaves a note in its place.

    Both are reported, and the others keep their places.
    """
    root = tmp_path / "source"
    root.mkdir()
    deep = "[" * 200 + "]" * 200
    (root / f"{FIRST}.json").write_text(
        f'[{{"role": "user", "content": "cut \\ud83d"}}, {{"role": "user", "content": {deep}}}, '
        '{"role": "user", "content": "whole"}]'
    )
    report = importers.import_sessions(store, "workspace", root)
    assert [problem.what.split(":")[1] for problem in report.skipped] == [" item 1", " item 2"]
    assert texts(store, FIRST) == ["cut \ufffd", "whole"]
    assert [event.kind for event in store.session(FIRST).events()][2] == "x.import.lost"


def test_ids_that_are_none_are_reported(store: hansard.Store, tmp_path: Path) -> None:
    """N-1, N-7, N-88: an id that no session can have is reported; ones that look like paths stay ids.

    Two files of one id are reported.
    """
    root = tmp_path / "source"
    for name, session_id in {"a": "../../x", "b": "x" * 5_000, "c": "same"}.items():
        write(root / f"{name}.json", {"session_id": session_id, "messages": chat(name)})
    write(root / "d.json", {"session_id": "same", "messages": chat("c", "more")})
    report = importers.import_sessions(store, "praisonai", root)
    assert sorted(outcomes(report)) == ["../../x", "same"]
    assert problems(report) == ["b.json", "d.json"]
    assert texts(store, "same") == ["c"]


# -- forks --------------------------------------------------------------------------------------


def fork_of(root: Path, name: str, parent: str | None, *said: str) -> None:
    """Write a session of PraisonAI's that was forked from another."""
    messages = [
        {**one, "timestamp": 1_700_000_000 + n, "metadata": {}} for n, one in enumerate(chat(*said))
    ]
    write(root / f"{name}.json", {"session_id": name, "messages": messages, "parent_id": parent})


def test_forks_share_what_they_inherit(store: hansard.Store, tmp_path: Path) -> None:
    """N-84: a fork comes after its parent, in whatever order they are found, and is a fork here.

    One whose parent is missing, or shares nothing, is a session by itself, which says whose child it is.
    """
    root = tmp_path / "source"
    fork_of(root, "a", "b", "1", "2", "3", "x")
    fork_of(root, "b", "c", "1", "2", "3", "4")
    fork_of(root, "c", None, "1", "2", "5")
    fork_of(root, "d", "nobody", "1")
    fork_of(root, "e", "c", "other")
    report = importers.import_sessions(store, "praisonai", root)
    assert report.skipped == []
    assert {one.session: (one.parent, one.new) for one in report.sessions} == {
        "a": ("b", 1),
        "b": ("c", 2),
        "c": (None, 3),
        "d": (None, 1),
        "e": (None, 1),
    }
    assert texts(store, "a") == ["1", "2", "3", "x"]
    assert texts(store, "b") == ["1", "2", "3", "4"]
    assert store.session("d").metadata["forked_from"] == "nobody"
    assert store.session("a").metadata["imported"]["from"] == "a"
    assert store.verify().ok
    fork_of(root, "a", "b", "1", "2", "3", "x", "y")
    grown = importers.import_sessions(store, "praisonai", root)
    assert outcomes(grown)["a"] == ("continued", 1)
    assert texts(store, "a") == ["1", "2", "3", "x", "y"]


def test_a_fork_of_what_is_not_here_as_it_was_is_whole(
    store: hansard.Store, tmp_path: Path
) -> None:
    """N-88: if the parent that is here says something else, a fork of it has all that it inherits itself."""
    fork_of(tmp_path / "one", "c", None, "1", "2")
    importers.import_sessions(store, "praisonai", tmp_path / "one")
    fork_of(tmp_path / "two", "c", None, "a", "b")
    fork_of(tmp_path / "two", "d", "c", "a", "b", "x")
    report = importers.import_sessions(store, "praisonai", tmp_path / "two")
    assert problems(report) == ["c.json"]
    assert [(one.session, one.parent, one.new) for one in report.sessions] == [("d", None, 3)]
    assert texts(store, "d") == ["a", "b", "x"]
    assert texts(store, "c") == ["1", "2"]


# -- kills, and others at the same time ---------------------------------------------------------


def import_upto(path: Path, root: Path) -> importers.Report:
    """Import with a store of its own, as a process would."""
    with hansard.open(path, durability="os", auto_compact=False, search_index=False) as store:
        return importers.import_sessions(store, "praisonai", root)


def seen(path: Path) -> dict[str, list[str]]:
    """Return what was said in each session of a store."""
    with hansard.open(path, durability="os", read_only=True) as store:
        return {one: texts(store, one) for one in ("parent", "child") if store.exists(one)}


@pytest.mark.slow
def test_a_kill_at_each_disk_call_leaves_whole_sessions(tmp_path: Path) -> None:
    """N-84, N-88, N-89: killed at any call that changes the disk, an import leaves whole sessions or none.

    And the next run makes what one run would have made: also where a source has grown.
    """
    root = tmp_path / "source"
    wholes: list[dict[str, list[str]]] = []
    for grown in (False, True):
        fork_of(root, "parent", None, "1", "2", *(["3"] if grown else []))
        fork_of(root, "child", "parent", "1", "x", *(["y"] if grown else []))
        import_upto(tmp_path / "model", root)
        wholes.append(seen(tmp_path / "model"))
    at = 0
    fired = True
    while fired:
        at += 1
        path = tmp_path / f"store-{at}"
        hansard.open(path).close()
        fired = False
        for step, whole in enumerate(wholes):
            grown = step > 0
            fork_of(root, "parent", None, "1", "2", *(["3"] if grown else []))
            fork_of(root, "child", "parent", "1", "x", *(["y"] if grown else []))
            with faults.kill(at=at) as fault, suppress(faults.Killed):
                import_upto(path, root)
            fired = fired or fault.fired
            left = seen(path)
            earlier = wholes[0] if grown else {}
            for session_id, said in left.items():
                assert said in (whole[session_id], earlier.get(session_id))
            report = import_upto(path, root)
            assert report.skipped == []
            assert seen(path) == whole
    assert at > 10


CHILD = """
import sys
import hansard
from hansard import importers

def told(done, of):
    print(done, flush=True)
    sys.stdin.readline()

with hansard.open(sys.argv[1], durability="os") as store:
    importers.import_sessions(store, "workspace", sys.argv[2], progress=told)
"""


def test_a_killed_import_goes_on(tmp_path: Path) -> None:
    """N-84: an import that is killed with -9 in the middle is finished by the next one."""
    root = tmp_path / "source"
    for number in range(10):
        session_file(root, f"0a1b2c3d_202601{number + 10}_030405", *("said",) * (number + 1))
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, tmp_path / "store", root],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdin is not None
        for number in range(1, 5):
            assert child.stdout.readline() == f"{number}\n"
            if number < 4:
                child.stdin.write("\n")
                child.stdin.flush()
        child.send_signal(signal.SIGKILL)
        child.wait(60)
    finally:
        child.kill()
        child.communicate(timeout=60)
    with hansard.open(tmp_path / "store") as store:
        assert store.count() == 4
        report = importers.import_sessions(store, "workspace", root)
        assert (len(report.present), len(report.imported), report.skipped) == (4, 6, [])
        found = sorted(len(texts(store, one.id)) for one in store.sessions().items)
        assert found == list(range(1, 11))
        assert store.verify().ok


def both_import(store: Path, root: Path) -> list[str]:
    """Let two processes import a source at the same time, and return what became of the sessions."""
    words = ["import", "workspace", str(root), "--json"]
    command = [sys.executable, "-m", "hansard", "-s", str(store), *words]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)
    ]
    try:
        outs = [one.communicate(timeout=60) for one in both]
    finally:
        for one in both:
            one.kill()
    assert [one.returncode for one in both] == [0, 0], outs
    reports = [json.loads(out) for out, _ in outs]
    return sorted(one["outcome"] for report in reports for one in report["sessions"])


@pytest.mark.slow
def test_two_imports_at_once_bring_all_once(tmp_path: Path) -> None:
    """N-88: two processes that import one source at the same time bring each session once, and no less."""
    root = tmp_path / "source"
    names = [f"0a1b2c3d_{1_700_000_000 + number}" for number in range(40)]
    for name in names[::2]:
        session_file(root, name, "one", "two")
    with hansard.open(tmp_path / "store", durability="os") as store:
        importers.import_sessions(store, "workspace", root)
    for name in names:
        session_file(root, name, "one", "two", "three")
    became = both_import(tmp_path / "store", root)
    assert became == ["continued"] * 20 + ["imported"] * 20 + ["present"] * 40
    with hansard.open(tmp_path / "store") as store:
        assert [texts(store, name) for name in names] == [["one", "two", "three"]] * 40
