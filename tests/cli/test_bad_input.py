"""No command prints a traceback, fails in silence, or exits with the wrong code.

Each claim is about every command: `calls.EXAMPLES` has one call of each.
"""

import json
import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.cli.app import COMMANDS
from tests.cli import calls, samples
from tests.cli.batch import batch
from tests.cli.conftest import OpenTerminal
from tests.cli.running import Done
from tests.unit.disk_probe import tree

#: It takes long, and is tested in test_demo.
LONG = "demo"

#: Commands, each with the directory of its store.
Asked = list[tuple[str, Path]]

LOG = "store/sessions/agent+1/log.jsonl"


def complaint(name: str, done: Done, code: int = 1) -> str:
    """Return the one line of an error; its exit code must be right."""
    assert done.code == code, (name, done)
    lines = done.err.splitlines()
    assert len(lines) == 1, (name, done)
    assert lines[0].startswith("hansard: "), (name, done)
    return lines[0]


def quiet(name: str, done: Done) -> None:
    """Check that a call printed nothing on stderr, and succeeded."""
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


#: Replacements of the store, and the error of each command.
NOT_A_STORE = {
    "nothing": "no hansard store here",
    "a file": "",
    "other files": "",
    "a newer version": "version 999",
}


@pytest.mark.parametrize("what", NOT_A_STORE)
def test_what_is_not_a_store_is_refused_and_left(what: str, tmp_path: Path) -> None:
    """N-31, N-44: no command takes other files for an empty store; they are named, and unchanged."""
    requested = calls.each(tmp_path, LONG)
    if what == "nothing":
        requested = [(name, path) for name, path in requested if not calls.EXAMPLES[name].makes]
    for path in calls.directories(requested):
        store = path / "store"
        if what == "a newer version":
            (store / "hansard.json").write_text('{"hansard":"store","version":999}')
            continue
        shutil.rmtree(store)
        if what == "a file":
            store.write_text("mine")
        elif what == "other files":
            store.mkdir()
            (store / "notes.txt").write_text("mine")
    before = {path: tree(path) for path in calls.directories(requested)}
    for name, path, done in answers(requested):
        line = complaint(name, done)
        assert NOT_A_STORE[what] in line, name
        assert str(path / "store") in line or what == "a newer version", name
        assert tree(path) == before[path], name


#: Calls that are refused: the arguments, the exit code, and a part of the one line on stderr.
REFUSED: list[tuple[str, int, str]] = [
    ("relpay x", 2, "no such command: relpay (did you mean `hansard replay`?); see `hansard --help`"),
    ("replay", 2, "missing argument 'ID'; see `hansard replay --help`"),
    ("replay agent/1 --sped 3", 2, "--sped"),
    ("replay agent/1 --speed 0", 2, "--speed"),
    ("replay agent/1 --speed fast", 2, "'fast' is not a number"),
    ("replay agent/1 --at 1 --step", 2, "--at excludes --from, --to, --kind and --step"),
    ("replay agent/1 --step", 2, "--step needs a terminal"),
    ("replay agent/1 --at 99", 1, "has no event 99; the last is 12"),
    ("replay agent/1 --at nowhere", 1, "no such snapshot; it has 'looked'"),
    ("diff agent/1 agnet/1@3", 1, "did you mean 'agent/1'?"),
    ("diff agent/1@nowhere agent/1", 1, "no such snapshot; it has 'looked'"),
    ("diff agent/1@99 agent/1", 1, "99"),
    ("compact", 2, "name the sessions to compact, or pass --all; see `hansard compact --help`"),
    ("tree", 2, "name the sessions to show, or pass --all"),
    ("tree agent/1 --all", 2, "or pass --all, not both"),
    ("snapshot agent/1 ''", 2, "the name must not be empty"),
    ("add new", 2, "nothing to add"),
    ("fork agent/1 agent/1-b", 1, "'agent/1-b'"),
    ("redact agent/1 6 --yes", 1, "no message at seq 6"),
    ("prune", 2, "--older-than"),
    ("prune --older-than soon", 2, "must be a duration such as 30d"),
    ("prune --older-than 0s", 2, "--older-than must be greater than 0"),
    ("prune --max-size 0 --set-policy", 2, "--max-size must be greater than 0"),
    ("prune --purge-trash 0d", 2, "--purge-trash must be greater than 0"),
    ("prune --max-size ten", 2, "must be a size such as 10GB"),
    ("prune --archived", 2, "--purge-trash or --policy"),
    ("prune --policy --max-size 1", 2, "--policy excludes all other options but --dry-run"),
    ("prune --max-size 1 --set-policy --dry-run", 2, "--set-policy"),
    ("hold agent/1 --release --reason x", 2, "--release and --reason exclude each other"),
    ("compact agent/1 --vacuum", 2, "--vacuum needs --all"),
    ("show ''", 1, "session id is empty; pass one, such as support/42"),
    ("add new hi --key ''", 1, "key must be a string of 1 to 1,024 characters without NUL, got ''"),
    ("export agent/1 agent/1-b", 2, "several sessions need a directory"),
    ("export agent/1 agent/1-b -o FILE", 2, "file.jsonl; pass -o DIRECTORY/"),
    ("export agent/1 -o", 2, "option '-o' requires an argument; see `hansard export --help`"),
    ("export agent/1 --as html --json", 2, "--json with html needs -o FILE"),
    ("import STORE", 1, "is a directory; name its program: hansard import KIND PATH"),
    ("import a b --id x", 2, "--id is for one file"),
    ("copy STORE TARGET agent/2", 1, "did you mean 'agent/1"),
    ("copy STORE TARGET -s STORE", 2, "takes both stores as arguments"),
    ("copy STORE STORE", 1, "itself"),
    ("search x --session agnt/1", 1, "did you mean 'agent/1'?"),
    ("ls --parent agnt/1", 1, "did you mean 'agent/1'?"),
    ("ls --sort sizes", 2, "sizes"),
    ("ls --since 2-days", 2, "must be a time such as 2026-11-16"),
    (f"ls --since {'9' * 400}d", 2, "must be a time such as"),
    ("ls --until 0001-01-01T00:00+14:00", 2, "must be a time such as"),
    ("ls --where user", 2, "invalid value for '--where': must be KEY=VALUE, got 'user'"),
    ("ls --tree --limit 3", 2, "--tree excludes --limit"),
    ("ls --limit -1", 2, "--limit': must be >= 0, got -1"),
    ("ls --cursor x", 1, "invalid cursor 'x'; pass the one that `hansard ls` printed"),
    ("serve --port 65536", 2, "'--port'"),
    ("add agent/1 --kind message.added {}", 1, "is not an application event"),
    ("tail --lines x", 2, "'x' is not an integer"),
    ("prune --policy", 1, "set one with --set-policy"),
]  # fmt: skip


def test_a_refused_call_says_why_and_changes_nothing(tmp_path: Path) -> None:
    """N-90: a call with wrong arguments is one line, exit 1 or 2, and no change in the store."""
    store = calls.fill(tmp_path)
    paths = {"STORE": store, "TARGET": tmp_path / "target", "FILE": tmp_path / "file.jsonl"}
    before = tree(store / "sessions")
    words = [[paths.get(word, word) for word in shlex.split(text)] for text, _, _ in REFUSED]
    done = batch([{"words": one if one[0] == "copy" else ["-s", store, *one]} for one in words])
    for (text, code, reason), one in zip(REFUSED, done, strict=True):
        assert reason in complaint(text, one, code), text
        assert one.out == "", text
        assert code == 1 or "--help`" in one.err, text
    assert tree(store / "sessions") == before
    assert not paths["TARGET"].exists()
    assert not paths["FILE"].exists()


#: Calls that may create a store, and are refused.
CREATING = (
    "add '' hi", "add new hi --key ''", "add new --kind message.added {}", "add @latest hi",
    "add new --meta api_key=sk-ant-REDACTED hi", "import mistyped", "import codex mistyped",
)  # fmt: skip


def test_a_refused_call_creates_no_store(tmp_path: Path) -> None:
    """Arguments and sources are checked before a store is created."""
    store = tmp_path / "none"
    done = batch([{"words": ["-s", store, *shlex.split(text)]} for text in CREATING])
    for text, one in zip(CREATING, done, strict=True):
        complaint(text, one)
    assert not store.exists()


#: Commands that print what is stored.
PRINTING = (
    "replay evil", "show evil", "tail evil", "diff evil tame", "search refund", "dump evil", "ls",
    "stats", "tree --all", "export evil", "export evil --as markdown", "export evil --as html",
)  # fmt: skip


@pytest.mark.parametrize("call", PRINTING)
def test_control_characters_never_reach_a_terminal(
    call: str, tmp_path: Path, terminal: OpenTerminal
) -> None:
    """Stored text cannot act on a terminal: it is shown as escapes; a pipe of JSON has it unchanged."""
    bad = ("\x1b[31m", "\x1b[2J", "\x1b]0;", "\x07", "\x9b", "\u202e")
    with hansard.open(tmp_path / "s", durability="os") as store:
        session = store.create("evil", metadata={"title": samples.HOSTILE})
        session.add_message({"role": "user", "content": "refund " + samples.HOSTILE})
        session.add_message({"role": samples.HOSTILE, "content": [{"type": "text", "text": "ok"}]})
        session.snapshot(samples.HOSTILE)
        session.append("x.own", {"hostile": samples.HOSTILE})
        store.create("other\x1b[2J", metadata={"title": "two\nlines\t."})
        store.session("tame").add_message({"role": "user", "content": "tame " * 60})
    words = ["-s", str(tmp_path / "s"), *call.split()]
    plain, machine = batch([{"words": words}, {"words": [*words, "--json"]}])
    if not call.startswith("export"):  # which writes what is stored
        assert not [c for c in bad if c in plain.out + machine.out]
    shown = terminal(*words, columns=200, rows=60)
    assert shown.wait() == plain.code
    # Differences are red: that is not stored text.
    assert not [c for c in (bad[1:] if "diff" in words else bad) if c in shown.raw.decode()]
    if call.startswith(("replay", "show", "tail", "diff", "ls")):
        assert "\\x1b[31mred" in shown.text
    if call.startswith("ls"):
        assert "two↵lines ." in shown.text
        assert len(shown.text.splitlines()) == 4


def test_an_unknown_id(tmp_path: Path) -> None:
    """A mistyped id gets a suggestion from each command, and creates no session."""
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


#: These continue with the valid sessions, and name the damaged ones.
MANY = {"ls", "tree", "search", "copy"}


def test_a_damaged_log(tmp_path: Path) -> None:
    """N-34, N-35: a damaged log is never read past in silence, and ends no command with a trace."""
    asked = calls.each(tmp_path, LONG)
    for path in calls.directories(asked):
        samples.damage(path / "store")
    damaged = (asked[0][1] / LOG).read_bytes()
    (fork,) = batch([{"words": ["-s", asked[0][1] / "store", "replay", "agent/1-b"]}])
    assert "log.jsonl at byte" in complaint("replay", fork)
    for name, path, done in answers(asked):
        assert "Traceback" not in done.err, name
        assert "should not happen" not in done.err, (name, done)
        assert done.code in {0, 1}, (name, done)
        # One line for each session that could not be listed or copied; one for what was not searched, too.
        assert len(done.err.splitlines()) <= (2 if name in MANY else 1), (name, done)
        if name in {"replay", "show", "diff", "export", "fork", "compact"}:
            assert "log.jsonl at byte" in complaint(name, done), name
            assert "verify" in done.err, name
        if name in {"verify", "dump"}:
            assert done.code == 1, name
        if name != "repair":
            assert (path / LOG).read_bytes() == damaged, name


def test_a_full_disk(tmp_path: Path) -> None:
    """N-29, N-89: where no file can grow, a command that writes fails in one line; the store stays valid."""
    asked = [(n, p) for n, p in calls.each(tmp_path, LONG) if calls.EXAMPLES[n].writes]
    for path in calls.directories(asked):
        with hansard.open(path / "store", durability="os") as store:
            # A compaction leaves short logs alone.
            store.session("agent/1").add_message({"role": "user", "content": "long " * 1_000})
            messages = store.session("agent/1").messages()
    limited = []
    for name, path in asked:
        # As large as the log is now; and where another file is written, none.
        log = path / "store" / "sessions" / "agent+1" / "log.jsonl"
        small = name in {"fork", "rm", "restore", "import", "prune", "compact"}
        limited.append(calls.call(name, path, largest=10 if small else log.stat().st_size))
    for (name, path), done in zip(asked, batch(limited), strict=True):
        if name == "repair":  # nothing is damaged, so nothing is written
            quiet(name, done)
        else:
            assert "File too large" in complaint(name, done), name
        with hansard.open(path / "store", read_only=True) as store:
            assert store.verify().ok, name
            assert store.session("agent/1").messages() == messages, name


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_no_permission(tmp_path: Path) -> None:
    """N-32: a store that the user may not read is not taken for a missing one, and is not recreated."""
    asked = calls.each(tmp_path, LONG)
    for directory in (tmp_path, *tmp_path.parents):
        if directory.owner() == "root" and directory.stat().st_mode & 0o777 == 0o700:
            directory.chmod(0o711)  # the path to the store is open; the store is not
    for path in calls.directories(asked):
        path.chmod(0o755)
    for name, path, done in answers(asked, other_user=True):
        line = complaint(name, done)
        assert "ermission denied" in line, name
        assert str(path) in line, name


@pytest.mark.slow
def test_a_reader_that_has_seen_enough(tmp_path: Path) -> None:
    """A pipe that is closed after the first line is not an error."""
    asked = calls.each(tmp_path, LONG)
    for path in calls.directories(asked):
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
    """N-89: a full output ends every command in one line; a closed one is not an error."""
    # Without a request on stdin, `hansard mcp` writes nothing.
    asked = calls.each(tmp_path, LONG, "mcp")
    for name, _, done in answers(asked, stdout="full"):
        assert complaint(name, done) == "hansard: the output: No space left on device", name
    again = [(n, p) for n, p in asked if not calls.EXAMPLES[n].writes]
    for name, _, done in answers(again, stdout="closed"):
        quiet(name, done)


def test_no_stdin(tmp_path: Path) -> None:
    """A closed stdin changes nothing, except that a confirmation needs --yes."""
    asked = calls.each(tmp_path, LONG)
    for name, _, done in answers(asked, stdin="closed"):
        quiet(name, done)
    path = asked[0][1]
    samples.damage(path / "store")
    damaged = (path / LOG).read_bytes()
    questions = [("redact", "agent/1", "3"), ("rm", "agent/1-b", "--purge"), ("repair", "agent/1")]
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
    for path in calls.directories(asked):
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
