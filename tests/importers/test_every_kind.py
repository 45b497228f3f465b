"""Claims that hold for every kind of source, and limits of what an import reads."""

import itertools
import random
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import hansard
from hansard import importers
from hansard.importers import claude_code
from tests.importers import samples
from tests.importers import test_codex as codex
from tests.importers.sources import import_new, untouched, write_lines

#: Cases of each kind, and each way of changing it.
CASES = 40


@pytest.mark.parametrize("kind", samples.KINDS)
def test_a_second_import_does_nothing(kind: str, tmp_path: Path) -> None:
    """N-84, N-87, N-88: a dry run reports what the import does; another import finds everything present."""
    root = tmp_path / "source"
    samples.written(root, samples.KINDS[kind](samples.GOOD))
    with hansard.open("memory:") as store, untouched(root):
        planned = importers.import_sessions(store, kind, root, dry_run=True)
        assert store.count() == 0
        done = importers.import_sessions(store, kind, root)
        assert (done.sessions, done.skipped) == (planned.sessions, [])
        before = [event for one in done.sessions for event in store.session(one.session).events()]
        again = importers.import_sessions(store, kind, root)
        assert len(again.present) == len(again.sessions) == len(done.imported) > 0
        after = [event for one in done.sessions for event in store.session(one.session).events()]
        assert after == before


@pytest.mark.parametrize("kind", samples.KINDS)
def test_a_source_that_grew_is_continued(kind: str, tmp_path: Path) -> None:
    """N-84, N-88: an import appends what is new; messages and usage are those of one import."""
    sample = samples.KINDS[kind](samples.GOOD)
    samples.written(tmp_path / "then", samples.short(sample))
    samples.written(tmp_path / "now", sample)
    with hansard.open("memory:") as store, hansard.open("memory:") as other:
        importers.import_sessions(store, kind, tmp_path / "then")
        report = importers.import_sessions(store, kind, tmp_path / "now")
        assert report.continued
        assert report.skipped == []
        wanted = importers.import_sessions(other, kind, tmp_path / "now")
        for one in wanted.sessions:
            ours, theirs = store.session(one.session), other.session(one.session)
            assert ours.messages(view="history") == theirs.messages(view="history")
            assert ours.usage == theirs.usage


@pytest.mark.parametrize("kind", samples.KINDS)
def test_links_are_not_followed(kind: str, tmp_path: Path) -> None:
    """N-14: a file or directory that is a symbolic link is reported and not read."""
    make = samples.KINDS[kind]
    root = tmp_path / "source"
    samples.written(root, make(samples.GOOD))
    samples.written(tmp_path / "outside", make(samples.EVIL))
    (root / "linked").symlink_to(tmp_path / "outside")
    for name in make(samples.EVIL):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(tmp_path / "outside" / name)
    with hansard.open("memory:") as store:
        report = importers.import_sessions(store, kind, root)
        found = {one.session for one in report.imported}
        assert found
        assert not any(samples.EVIL in one or "_1700000002" in one for one in found)
        assert "linked" in {problem.where for problem in report.skipped}
        assert sum("symbolic link" in problem.what for problem in report.skipped) > 1


@pytest.mark.parametrize("kind", samples.KINDS)
def test_a_damaged_source_stops_nothing_else(kind: str, tmp_path: Path, rng: random.Random) -> None:
    """N-31, N-35, N-81: with values and bytes changed at random, the other sessions are imported."""
    make = samples.KINDS[kind]
    with hansard.open("memory:") as store:
        root = tmp_path / "good"
        samples.written(root, make(samples.GOOD))
        report = importers.import_sessions(store, kind, root)
        wanted = {one.session: one.items for one in report.imported}
    for number in range(CASES):
        root = tmp_path / str(number)
        samples.written(root, make(samples.GOOD))
        evil = make(samples.EVIL)
        if number % 2:
            samples.written(root, evil)
            samples.torn(root, [*evil], rng)
        else:
            samples.written(root, samples.changed(evil, rng))
        with hansard.open("memory:") as store:
            report = importers.import_sessions(store, kind, root)
            found = {one.session: one.items for one in report.imported}
            assert wanted.items() <= found.items(), (number, report.skipped)


@pytest.mark.parametrize("kind", importers.KINDS)
def test_nothing_to_import_is_an_error(kind: str, tmp_path: Path) -> None:
    """N-80: an empty or missing directory is an error and not an empty success."""
    (tmp_path / "source").mkdir()
    for name in ("source", "missing"):
        with hansard.open("memory:") as store, pytest.raises(importers.NothingToImport):
            importers.import_sessions(store, kind, tmp_path / name)


ROLLOUT = f"rollout-2026-01-02T03-04-05-{samples.GOOD}.jsonl"
with closing(sqlite3.connect(":memory:")) as _connection:
    _connection.execute("CREATE TABLE t (a)")
    OTHER_DATABASE = _connection.serialize().decode("latin-1")
#: The name of a file that an importer reads, its kind, and contents that are not a session.
EMPTY = {
    "a.json": ("a3s-code praisonai", ["{", "{}", "[]", "null", "", "\xff\xfe", '{"k": null}']),
    "ab12_1700000000.json": ("workspace", ["{", "{}", "[]", "null", "", "\xff\xfe", '{"k": null}']),
    "sessions/sessions.json": ("openclaw", ["{", "{}", "[]", "null", "", "\xff\xfe", '{"k": null}']),
    "project/x.jsonl": ("claude-code", ['null\n{}\n[]\n{"k": null}\n']),
    ROLLOUT: ("codex", ["", "{}\n", "null\n", '{"type": "event_msg", "payload": {}}\n']),
    f"{ROLLOUT}.zst": ("codex", ["\x28\xb5\x2f\xfd" + "\xff" * 20]),
    "items.json": ("openai-agents", ["{}", "[]", '{"k": null}', "null", "no JSON"]),
    "other.db": ("langgraph openai-agents pydantic-ai", ["", "no database", OTHER_DATABASE]),
    "messages.json": ("pydantic-ai", ["{}", "[]", '{"k": null}', "null", '[{"role": "user"}]']),
}  # fmt: skip


@pytest.mark.parametrize("name", EMPTY)
def test_a_file_without_a_session_is_an_error(tmp_path: Path, name: str) -> None:
    """N-80, N-81: it is reported where and why nothing is imported, and the file is unchanged."""
    kinds, contents = EMPTY[name]
    path = tmp_path / "source" / name
    path.parent.mkdir(parents=True)
    for kind, content in itertools.product(kinds.split(), contents):
        path.write_bytes(content.encode("latin-1"))
        for root in (path, path.parent):
            with pytest.raises(importers.NothingToImport, match="nothing can be import") as caught:
                import_new(kind, root)
            skipped = caught.value.report.skipped
            wheres = [re.split(r"[:\[]", problem.where)[0] for problem in skipped]
            assert set(wheres) <= {path.name}
            assert wheres or content in {"", "[]"}
            assert kind != "claude-code" or len(wheres) >= 4


def test_deep_directories_and_values_stop_nothing_else(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """N-52, N-74: 1,100 nested directories and JSON 600 levels deep are reported; the rest is imported."""
    root = tmp_path / "source"
    samples.written(root, samples.workspace(samples.GOOD))
    at = root
    for _ in range(1_100):
        at /= "d"
        at.mkdir()
    # What removes old directories of tests does not reach that depth.
    request.addfinalizer(lambda: subprocess.run(["rm", "-r", root / "d"], check=True))
    (at / "abcd_1700000009.json").write_text('[{"role": "user", "content": "far down"}]')
    deep = '{"a":' * 600 + "1" + "}" * 600
    text = '{"messages": [{"role": "user", "content": %s}, {"role": "user"}], "more": %s}'
    (root / "abcd_1700000008.json").write_text(text % (deep, deep))
    with hansard.open("memory:") as store:
        report = importers.import_sessions(store, "workspace", root)
        assert len(report.imported) == 3
        assert store.session("abcd_1700000008").messages() == [{"role": "user"}]
        assert {problem.where for problem in report.skipped} == {
            "abcd_1700000008.json",
            "/".join("d" * 101),
        }


def rollouts(root: Path, names: list[str], parent_of: Callable[[int], int]) -> Path:
    """Write rollouts of Codex, each of which continues another."""
    for number, name in enumerate(names):
        base = {"thread_id": names[parent_of(number)]}
        lines = [codex.head(name, history_base=base), codex.said(1, "user", f"said by {number}")]
        write_lines(codex.path_of(root, name), *lines)
    return root


def test_rollouts_that_continue_each_other_are_sessions(tmp_path: Path) -> None:
    """N-52: two rollouts name each other as parents, a third itself: each is imported, and reported."""
    names = [f"{n:08x}-0000-0000-0000-000000000000" for n in range(3)]
    root = rollouts(tmp_path / "source", names, lambda number: (1, 0, 2)[number])
    with hansard.open("memory:") as store:
        report = importers.import_sessions(store, "codex", root)
        assert {one.session for one in report.imported} == set(names)
        for number, name in enumerate(names):
            assert f"said by {number}" in str(store.session(name).messages(view="history"))
        assert all("only what it adds" in problem.what for problem in report.skipped)
        assert report.skipped


def steps(shape: str, count: int) -> int:
    """Return how many lines of Python a tree of `count` entries takes."""
    taken = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal taken
        if frame.f_code.co_filename != claude_code.__file__:
            return None
        taken += event == "line"
        return trace

    tree = claude_code.Tree()
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for place in range(count):
            parent, message = SHAPES[shape](place, count)
            one: claude_code.Entry = {"type": "assistant", "uuid": str(place)}
            one |= {"parentUuid": None if place == 0 else str(parent)}
            if message is None:
                tree.skip(one)
            else:
                tree.branch({**one, "message": message})
                tree.add({**one, "message": message}, place)
    finally:
        sys.settrace(before)
    return taken


#: The parent of an entry, and its message if it has one, given its number and the number of entries.
SHAPES: dict[str, Callable[[int, int], tuple[int, dict[str, Any] | None]]] = {
    "an answer of many blocks, all of which continue the first": lambda _, __: (0, {"id": "a"}),
    "an answer of many blocks, all of which continue the prompt": (
        lambda n, _: (0, {"id": "a"} if n else {})
    ),
    "many entries without a message, then many that continue the last of them": (
        lambda n, count: (n - 1, None if n else {}) if n < count // 2 else (count // 2 - 1, {})
    ),
    "a long branch, then its beginning and its end continued alternately": (
        lambda n, count: (n - 1 if n < count // 2 else 0 if n % 2 else count // 2 - 1, {})
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_branches_are_found_in_linear_time(shape: str) -> None:
    """N-73: a transcript of twice the length takes twice the steps."""
    assert steps(shape, 2_000) < 2.5 * steps(shape, 1_000)
