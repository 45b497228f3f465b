"""Whatever is wrong with one item of a source is reported, and the others come in."""

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import hansard
from hansard import importers
from hansard.importers import claude_code, source
from tests.importers import hostile
from tests.importers import test_codex as codex
from tests.importers.sources import entry, write_lines

#: Cases of each kind, and each way of changing it.
CASES = 40


@pytest.mark.parametrize("kind", hostile.KINDS)
def test_a_source_with_something_wrong_in_it_stops_nothing_else(
    kind: str, tmp_path: Path, rng: random.Random
) -> None:
    """N-31, N-35, N-81: values and bytes are changed at random: no error, and the good sessions come in."""
    make = hostile.KINDS[kind]
    with hansard.open("memory:") as store:
        root = tmp_path / "good"
        hostile.written(root, make(hostile.GOOD))
        report = importers.import_sessions(store, kind, root)
        assert not report.skipped
        wanted = {one.session: one.items for one in report.imported}
    for number in range(CASES):
        root = tmp_path / str(number)
        hostile.written(root, make(hostile.GOOD))
        evil = make(hostile.EVIL)
        if number % 2:
            hostile.written(root, evil)
            hostile.torn(root, [*evil], rng)
        else:
            hostile.written(root, hostile.changed(evil, rng))
        with hansard.open("memory:") as store:
            report = importers.import_sessions(store, kind, root)
            found = {one.session: one.items for one in report.imported}
            assert wanted.items() <= found.items(), (number, report.skipped)


def test_folders_and_values_that_are_nested_without_end_stop_nothing(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """N-52, N-74: 1,100 folders in each other, and JSON that is 600 deep, are reported; the rest comes in."""
    root = tmp_path / "source"
    hostile.written(root, hostile.workspace(hostile.GOOD))
    at = root
    for _ in range(1_100):
        at /= "d"
        at.mkdir()
    # What removes old folders of tests does not go down so far.
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
    """Write rollouts of Codex, each of which goes on from another."""
    for number, name in enumerate(names):
        base = {"thread_id": names[parent_of(number)]}
        lines = [codex.head(name, history_base=base), codex.said(1, "user", f"said by {number}")]
        write_lines(codex.path_of(root, name), *lines)
    return root


def test_rollouts_that_go_on_from_each_other_are_sessions(tmp_path: Path) -> None:
    """N-52: two rollouts name each other, a third itself: each comes in, and two are reported."""
    names = [f"{n:08x}-0000-0000-0000-000000000000" for n in range(3)]
    root = rollouts(tmp_path / "source", names, lambda number: (1, 0, 2)[number])
    with hansard.open("memory:") as store:
        report = importers.import_sessions(store, "codex", root)
        assert {one.session for one in report.imported} == set(names)
        for number, name in enumerate(names):
            assert f"said by {number}" in str(store.session(name).messages(view="history"))
        assert all("only what it adds" in problem.what for problem in report.skipped)
        assert report.skipped


class Counted:
    """How often files were read, and how many bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads = self.bytes = 0
        read = source.Files.read

        def counted(files: source.Files, path: Path, **options: Any) -> bytes | None:
            found = read(files, path, **options)
            self.reads += 1
            self.bytes += len(found or b"")
            return found

        monkeypatch.setattr(source.Files, "read", counted)


def test_forks_that_stand_before_their_parents_are_read_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-73: a chain of forks in the reverse order is brought parent first; each file is read few times."""
    count = 60
    for number in range(count):
        lines = [{"type": "session", "id": str(number)}]
        if number:
            lines[0]["parentSession"] = f"{count - number:03}.jsonl"
        lines += [entry(str(n), None, message={"role": "user"}) for n in range(number + 1)]
        write_lines(tmp_path / "source" / f"{count - number - 1:03}.jsonl", *lines)
    counted = Counted(monkeypatch)
    with hansard.open("memory:") as store:
        report = importers.import_sessions(store, "openclaw", tmp_path / "source")
        assert len(report.imported) == count
        assert sum(one.parent is not None for one in report.imported) == count - 1
    # Each is read when it is found, and when its parent is there; and its parent with it, both times.
    assert counted.reads <= 4 * count


def test_a_parent_of_many_forks_is_read_once_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-73: what is read for 200 forks of one large session is in proportion to what is there."""
    message = {"role": "user", "content": "x" * 500}
    lines = [entry(str(n), None, message=message) for n in range(500)]
    first = {"type": "session", "id": "p"}
    size = write_lines(tmp_path / "source" / "0.jsonl", first, *lines).stat().st_size
    for number in range(200):
        told = [{**first, "parentSession": "0.jsonl"}, lines[0]]
        size += write_lines(tmp_path / "source" / f"{number + 1}.jsonl", *told).stat().st_size
    counted = Counted(monkeypatch)
    with hansard.open("memory:") as store:
        assert (
            len(importers.import_sessions(store, "openclaw", tmp_path / "source").imported) == 201
        )
    assert counted.bytes <= 3 * size


def test_a_source_is_not_read_over_and_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-74: forks of two large sessions by turns are read up to a bound, and then reported."""
    monkeypatch.setattr(source, "SMALL", 10_000)
    monkeypatch.setattr(source, "AGAIN", 4)
    lines = [entry(str(n), None, message={"role": "user"}) for n in range(200)]
    for name in ("a", "b"):
        write_lines(tmp_path / "source" / f"0{name}.jsonl", {"type": "session"}, *lines)
    for number in range(100):
        head = {"type": "session", "parentSession": f"0{'ab'[number % 2]}.jsonl"}
        write_lines(tmp_path / "source" / f"{number + 1:03}.jsonl", head, lines[0])
    counted = Counted(monkeypatch)
    with hansard.open("memory:") as store:
        report = importers.import_sessions(store, "openclaw", tmp_path / "source")
    size = sum(path.stat().st_size for path in (tmp_path / "source").iterdir())
    assert counted.bytes <= 5 * size + 10_000
    assert len(report.imported) >= 2


def steps(make: Callable[[int], Iterator[claude_code.Entry]], count: int) -> int:
    """Return how many lines of Python a tree takes for so many entries."""
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
        for place, one in enumerate(make(count)):
            if "message" in one:
                tree.branch(one)
                tree.add(one, place)
            else:
                tree.skip(one)
    finally:
        sys.settrace(before)
    return taken


def said(name: int, parent: int | None, message: dict[str, Any]) -> claude_code.Entry:
    """Return an entry that is said."""
    above = None if parent is None else str(parent)
    return {"type": "assistant", "uuid": str(name), "parentUuid": above, "message": message}


def one_answer(count: int) -> Iterator[claude_code.Entry]:
    """Yield an answer of many blocks, all of which go on from the first."""
    for number in range(count):
        yield said(number, 0 if number else None, {"id": "a"})


def another_answer(count: int) -> Iterator[claude_code.Entry]:
    """Yield a prompt, and an answer of many blocks, all of which go on from the prompt."""
    for number in range(count):
        yield said(number, 0 if number else None, {"id": "a"} if number else {})


def passed_by(count: int) -> Iterator[claude_code.Entry]:
    """Yield many entries that are not said, and then many that go on from the last of them."""
    yield said(0, None, {})
    for number in range(1, count // 2):
        yield {"uuid": str(number), "parentUuid": str(number - 1)}
    for number in range(count // 2, count):
        yield said(number, count // 2 - 1, {})


def back_and_forth(count: int) -> Iterator[claude_code.Entry]:
    """Yield a long branch, and then go on from its beginning and its end by turns."""
    for number in range(count):
        far = 0 if number % 2 else count // 2 - 1
        yield said(number, (number - 1 if number else None) if number < count // 2 else far, {})


@pytest.mark.parametrize("make", [one_answer, another_answer, passed_by, back_and_forth])
def test_the_branches_of_a_transcript_are_found_in_linear_time(
    make: Callable[[int], Iterator[claude_code.Entry]],
) -> None:
    """N-73: a transcript of twice the length takes twice the steps, whatever its shape."""
    assert steps(make, 2_000) < 2.5 * steps(make, 1_000)
