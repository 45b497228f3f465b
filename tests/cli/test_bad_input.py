"""What no command may do, whatever it meets: show a trace, say nothing, or exit with the wrong code.

Each claim is about every command: `calls.EXAMPLES` has one call of each.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.cli.app import COMMANDS
from tests.cli import calls, samples
from tests.cli.batch import batch
from tests.cli.running import Done

#: It shows what hansard does in a folder of its own, takes long, and is tested in test_demo.
LONG = "demo"

#: Commands, each with the directory of its store.
Asked = list[tuple[str, Path]]

LOG = "store/sessions/agent+1/log.jsonl"


def complaint(name: str, done: Done, code: int = 1) -> str:
    """Return the one line in which a call says what is wrong; its exit code must be right."""
    assert done.code == code, (name, done)
    lines = done.err.splitlines()
    assert len(lines) == 1, (name, done)
    assert lines[0].startswith("hansard: "), (name, done)
    return lines[0]


def quiet(name: str, done: Done) -> None:
    """See that a call said nothing beside its output, and did what it is for."""
    assert done.err == "", (name, done)
    assert done.code == calls.EXAMPLES[name].code, (name, done)


def answers(asked: Asked, *more: str, **how: Any) -> Iterator[tuple[str, Path, Done]]:
    """Call each command and yield its name, its directory and what came of it."""
    found = batch([calls.call(name, path, *more, **how) for name, path in asked])
    for (name, path), done in zip(asked, found, strict=True):
        yield name, path, done


def test_there_is_an_example_of_every_command() -> None:
    """No command is left out of the claims of this module."""
    assert set(calls.EXAMPLES) == set(COMMANDS)


def test_json_is_json(tmp_path: Path) -> None:
    """Every command takes --json and prints one document, or one value per line, and nothing else."""
    asked = calls.each(tmp_path, LONG)
    for name, _, done in answers(asked, "--json"):
        quiet(name, done)
        values = [json.loads(line) for line in done.out.splitlines()]
        assert values, name
        assert calls.EXAMPLES[name].lines or len(values) == 1, (name, done.out)


def test_no_store(tmp_path: Path) -> None:
    """N-31: where there is no store, no command but those that begin one takes that for an empty one."""
    asked = [(n, p) for n, p in calls.each(tmp_path, LONG) if not calls.EXAMPLES[n].makes]
    for path in calls.folders(asked):
        shutil.rmtree(path / "store")
    for name, path, done in answers(asked):
        line = complaint(name, done)
        assert f"{path / 'store'}: no hansard store here" in line, name
        assert "-s PATH" in line or name == "copy", name
        assert not (path / "store").exists(), name
        assert not (path / "target").exists(), name


def test_a_file_where_a_store_should_be(tmp_path: Path) -> None:
    """A file in the store's place is named, refused, and left as it is."""
    asked = calls.each(tmp_path, LONG)
    for path in calls.folders(asked):
        shutil.rmtree(path / "store")
        (path / "store").write_text("mine")
    (demo,) = batch([{"words": ["-s", tmp_path / "first" / "store", "demo"]}])
    assert str(tmp_path / "first" / "store") in complaint("demo", demo)
    for name, path, done in answers(asked):
        assert str(path / "store") in complaint(name, done), name
        assert (path / "store").read_text() == "mine"


def test_a_folder_that_is_no_store(tmp_path: Path) -> None:
    """A folder with other files in it is not made a store of, and nothing in it changes."""
    asked = calls.each(tmp_path, LONG)
    for path in calls.folders(asked):
        shutil.rmtree(path / "store")
        (path / "store").mkdir()
        (path / "store" / "notes.txt").write_text("mine")
    for name, path, done in answers(asked):
        assert str(path / "store") in complaint(name, done), name
        assert os.listdir(path / "store") == ["notes.txt"], name


def test_a_store_of_a_newer_version(tmp_path: Path) -> None:
    """N-44: a store of a version that is not known is refused by every command, and left as it is."""
    newer = '{"hansard":"store","version":999}'
    asked = calls.each(tmp_path, LONG)
    before = {}
    for path in calls.folders(asked):
        (path / "store" / "hansard.json").write_text(newer)
        before[path] = {p: p.read_bytes() for p in (path / "store").rglob("*") if p.is_file()}
    for name, path, done in answers(asked):
        line = complaint(name, done)
        assert "version 999" in line, name
        assert "Upgrade hansard" in line, name
        after = {p: p.read_bytes() for p in (path / "store").rglob("*") if p.is_file()}
        assert after == before[path], name


def test_an_unknown_id(tmp_path: Path) -> None:
    """A mistyped id gets the id that may have been meant, wherever a command takes one; none is made."""
    asked = [(n, p) for n, p in calls.each(tmp_path, LONG) if calls.EXAMPLES[n].id_at is not None]
    mistyped = []
    for name, path in asked:
        words = calls.words(name, path)
        place = 3 + (calls.EXAMPLES[name].id_at or 0)
        right = words[place]
        words[place] = right[:-1] + "x" if name == "restore" else right.replace("agent", "agnet")
        mistyped.append({"words": words, "right": right})
    for (name, path), done, wrong in zip(asked, batch(mistyped), mistyped, strict=True):
        line = complaint(name, done)
        assert f"did you mean {wrong['right']!r}" in line, name
        assert "in this store; did" in line or name == "restore", name
        assert len(list((path / "store" / "sessions").iterdir())) <= 3, name


#: These go on with the sessions that are whole, and say which are not.
MANY = {"ls", "tree", "search", "copy"}


def test_a_damaged_log(tmp_path: Path) -> None:
    """N-34, N-35: a damaged log is never read past in silence, and ends no command with a trace."""
    asked = calls.each(tmp_path, LONG)
    for path in calls.folders(asked):
        samples.damage(path / "store")
    damaged = (asked[0][1] / LOG).read_bytes()
    (fork,) = batch([{"words": ["-s", asked[0][1] / "store", "replay", "agent/1-b"]}])
    assert "log.jsonl at byte" in complaint("replay", fork)
    for name, path, done in answers(asked):
        assert "Traceback" not in done.err, name
        assert "should not happen" not in done.err, (name, done)
        assert done.code in {0, 1}, (name, done)
        # One line for each session that could not be listed or copied; one for what was not searched, too.
        assert len(done.err.splitlines()) <= (2 if name in MANY else 1), (
            name,
            done,
        )
        if name in {"replay", "show", "diff", "export", "fork", "compact"}:
            assert "log.jsonl at byte" in complaint(name, done), name
            assert "verify" in done.err, name
        if name in {"verify", "dump"}:
            assert done.code == 1, name
        if name != "repair":
            assert (path / LOG).read_bytes() == damaged, name


def test_a_full_disk(tmp_path: Path) -> None:
    """N-29, N-89: where no file can grow, a command that writes fails in one line, and the store is whole."""
    asked = [(n, p) for n, p in calls.each(tmp_path, LONG) if calls.EXAMPLES[n].writes]
    with hansard.open(tmp_path / "first" / "store", read_only=True) as store:
        messages = store.session("agent/1").messages()
    limited = []
    for name, path in asked:
        # As large as the log is now; and where another file is written, none.
        log = path / "store" / "sessions" / "agent+1" / "log.jsonl"
        small = name in {"fork", "rm", "restore", "import", "prune"}
        limited.append(calls.call(name, path, largest=10 if small else log.stat().st_size))
    for (name, path), done in zip(asked, batch(limited), strict=True):
        if name == "repair":  # nothing is damaged, so nothing is written
            quiet(name, done)
        else:
            assert "File too large" in complaint(name, done), name
        with hansard.open(path / "store", read_only=True) as store:
            assert store.verify().ok, name
            assert store.session("agent/1").messages() == messages, name


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """N-29, N-89: on a disk without room a command is done, or fails in one line; the store is whole."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", place], check=False
    ).returncode:
        pytest.skip("this machine lets nobody mount")
    try:
        calls.fill(place)
        with suppress(OSError), (place / "ballast").open("wb", buffering=0) as ballast:
            while ballast.write(bytes(4096)):
                pass
        asked = [name for name in COMMANDS if name not in {LONG, "copy", "prune", "rm"}]
        refused = set()
        for name, done in zip(asked, batch([calls.call(n, place) for n in asked]), strict=True):
            # What one of them has done, another may find done.
            if done.code == 1 and done.err:
                refused.add(name)
                assert "No space left on device" in complaint(name, done), name
            else:
                assert done.err == "", (name, done)
        assert {"fork", "compact", "import"} <= refused
        with hansard.open(place / "store", read_only=True) as store:
            assert store.verify().ok
            assert len(store.session("agent/1").messages(view="history")) >= 4
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_no_permission(tmp_path: Path) -> None:
    """N-32: what somebody else may not look into is not absent to them, and is not made anew."""
    asked = calls.each(tmp_path, LONG)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == "root" and folder.stat().st_mode & 0o777 == 0o700:
            folder.chmod(0o711)  # the way to the store is free; the store is not
    for path in calls.folders(asked):
        path.chmod(0o755)
    for name, path, done in answers(asked, nobody=True):
        line = complaint(name, done)
        assert "ermission denied" in line, name
        assert str(path) in line, name


@pytest.mark.slow
def test_a_reader_that_has_seen_enough(tmp_path: Path) -> None:
    """A pipe that is closed after the first line is no error of any command."""
    asked = calls.each(tmp_path, LONG)
    for path in calls.folders(asked):
        with hansard.open(path / "store", durability="os") as store:
            store.session("agent/1").add_messages(
                [{"role": "user", "content": f"refund {n} " + "x" * 500} for n in range(400)]
            )
    early = [
        calls.call(name, path, *more, stdout="closed early")
        for name, path in asked
        for more in ((), ("--json",))
        if not (more and calls.EXAMPLES[name].writes)
    ]
    for call, done in zip(early, batch(early), strict=True):
        name = next(word for word in call["words"] if word in COMMANDS)
        assert done.err == "", call
        assert done.code in {0, calls.EXAMPLES[name].code}, call


@pytest.mark.slow
def test_outputs_that_are_closed_or_full(tmp_path: Path) -> None:
    """N-89: an output that takes nothing ends every command in one line; one that is closed is no error."""
    asked = calls.each(tmp_path, LONG)
    for name, _, done in answers(asked, stdout="full"):
        assert complaint(name, done) == "hansard: the output: No space left on device", name
    again = [(n, p) for n, p in asked if not calls.EXAMPLES[n].writes]
    for name, _, done in answers(again, stdout="closed"):
        quiet(name, done)


def test_no_stdin(tmp_path: Path) -> None:
    """A command whose stdin is closed does what it does with one; who must ask says that nobody answers."""
    asked = calls.each(tmp_path, LONG)
    for name, _, done in answers(asked, stdin="closed"):
        quiet(name, done)
    path = asked[0][1]
    samples.damage(path / "store")
    damaged = (path / LOG).read_bytes()
    questions = [
        ("redact", "agent/1", "3"),
        ("rm", "agent/1-b", "--purge"),
        ("repair", "agent/1"),
    ]
    for words, done in zip(
        questions,
        batch([{"words": ["-s", path / "store", *q], "stdin": "closed"} for q in questions]),
        strict=True,
    ):
        assert "pass --yes" in complaint(words[0], done, 2), words
        assert (path / LOG).read_bytes() == damaged, words


@pytest.mark.slow
@pytest.mark.parametrize(
    "variables",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "TERM": "dumb"},
        {"PYTHONIOENCODING": "latin-1", "NO_COLOR": "1", "COLUMNS": "5"},
    ],
    ids=lambda variables: next(iter(variables)),
)
def test_odd_surroundings(variables: dict[str, str], tmp_path: Path) -> None:
    """No encoding, terminal or width of the caller's makes a command fail, or colours a pipe."""
    asked = calls.each(tmp_path, LONG)
    for path in calls.folders(asked):
        with hansard.open(path / "store", durability="os") as store:
            store.session("agent/1").add_message({"role": "user", "content": "refund é→😀"})
    found = batch([calls.call(name, path) for name, path in asked], **variables)
    for (name, _), done in zip(asked, found, strict=True):
        quiet(name, done)
        assert "\x1b" not in done.out, name


@pytest.mark.slow
def test_ctrl_c(tmp_path: Path) -> None:
    """Ctrl-C at any of the first reads of the disk ends a command with 130 in one line, or it was done."""
    asked = calls.each(tmp_path, LONG)
    numbers = (2, 8)
    interrupted = []
    for name, path in asked:
        for number in numbers:
            shutil.copytree(path, path.parent / f"{name}-{number}")
            place = path.parent / f"{name}-{number}"
            interrupted.append((name, place, calls.call(name, place, interrupted_at=number)))
    stopped = 0
    for (name, path, call), done in zip(
        interrupted, batch([call for _, _, call in interrupted]), strict=True
    ):
        if done.code == 130:
            stopped += 1
            assert "interrupted" in complaint(name, done, 130), call
        else:
            quiet(name, done)
        with hansard.open(path / "store", read_only=True) as store:
            assert store.verify().ok, call
    assert stopped > len(asked)
