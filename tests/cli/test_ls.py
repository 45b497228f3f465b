"""`hansard ls`: which sessions, in which order, page by page, in terminals of any width."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import hansard as library
from hansard.cli import arguments
from tests.cli import samples
from tests.cli.batch import batch
from tests.cli.conftest import OpenTerminal
from tests.cli.running import hansard
from tests.unit.disk_probe import index_of, tree


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """Return a store with six sessions of several kinds."""
    path = tmp_path / "many"
    with library.open(path, durability="os") as store:
        for number in range(1, 5):
            session = store.create(
                f"support/{number}",
                metadata={"title": f"Ticket {number}", "user": f"u{number % 2}", "n": number},
                workspace=tmp_path if number == 4 else None,
            )
            session.add_messages([{"role": "user", "content": "x" * 100}] * (5 - number))
            session.record_usage(model="m", input_tokens=number, output_tokens=1, cost=number / 8)
        store.session("support/3").archive()
        fork = store.session("support/1").fork("support/1-b", at=3)
        fork.add_message({"role": "user", "content": "Another way."})
        store.session("a lone one").add_message({"role": "user", "content": "hi"})
    return path


#: The words of a call, and the ids that it lists.
LISTINGS = {
    "": "a lone one|support/1-b|support/4|support/2|support/1",
    "-a --sort id": "a lone one|support/1|support/1-b|support/2|support/3|support/4",
    "--sort id -r --prefix support/1": "support/1-b|support/1",
    "--archived": "support/3",
    "--where user=u1 --sort id": "support/1|support/1-b",
    "--where n=2 --where user=u0": "support/2",
    "--where user=null": "a lone one",
    "--title TICKET --sort messages -a": "support/1|support/2|support/1-b|support/3|support/4",
    "--parent support/1": "support/1-b",
    "--sort cost --limit 2": "support/4|support/2",
    "--sort created -r -n 1": "support/1",
    "--since 1h --until 2000-01-01": "",
    "--since 2d --prefix a": "a lone one",
    "--until 2d": "",
    "--damaged": "",
}


def test_filters_and_orders(many: Path) -> None:
    """Each filter keeps matching sessions; times and amounts are sorted in descending order."""
    done = batch([{"words": ["-s", many, "ls", "--json", *words.split()]} for words in LISTINGS])
    found = ["|".join(line["id"] for line in one.lines) for one in done]
    assert dict(zip(LISTINGS, found, strict=True)) == LISTINGS
    assert {one.code for one in done} == {0}


def test_a_line_says_what_the_library_does(many: Path, tmp_path: Path) -> None:
    """`ls --json` has every member of what the library lists, also those that are empty."""
    line = hansard("ls", "--json", "--workspace", tmp_path, store=many).lines[0]
    with library.open(many, read_only=True) as store:
        (info,) = store.sessions(prefix="support/4").items
    members = {f: getattr(info, f) for f in info.__struct_fields__}
    assert line == {**members, "cost": str(info.cost), "depth": 0}


def test_pages_say_how_to_go_on(many: Path) -> None:
    """Pages by --limit and --cursor have each session once; the hint for the next is not on stdout."""
    seen: list[str] = []
    cursor: tuple[str, ...] = ()
    for _ in range(3):
        done = hansard("ls", "--json", "--limit", "2", "--sort", "size", *cursor, store=many)
        seen += [line["id"] for line in done.lines]
        found = re.search(r"--cursor (\S+)$", done.err)
        if found is None:
            break
        cursor = ("--cursor", found[1])
    assert len(seen) == len(set(seen)) == 5
    assert done.err == ""
    wrong = hansard("ls", *cursor, store=many)
    assert (wrong.code, wrong.out) == (1, "")
    assert "cursor" in wrong.err


def test_pipes_get_every_value_in_full(many: Path) -> None:
    """In a pipe nothing is cut or relative: bytes are a number, times RFC 3339, and nothing is `-`."""
    title = "A title that is " + "very " * 40 + "long"
    with library.open(many, durability="os") as store:
        store.session("support/2").set_metadata(title=title)
    done = hansard("ls", "--prefix", "support/2", store=many, COLUMNS="40")
    header, row = done.out.splitlines()
    assert header.split() == ["ID", "TITLE", "MESSAGES", "UPDATED", "SIZE", "PARENT", "IS"]
    assert title in row
    assert re.search(r"  3  \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z +\d+  -       -$", row)
    sorted_ = hansard("ls", "--sort", "cost", store=many).out.splitlines()
    assert (sorted_[0].split()[-2:], sorted_[-1].split()[-1]) == (["IS", "COST"], "0")
    assert hansard("ls", "--prefix", "none", store=many) == (0, "", "")


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_no_line_is_wrapped_on_a_terminal(width: int, many: Path, terminal: OpenTerminal) -> None:
    """However narrow a terminal is, a session takes one line, and begins with its id.

    One id that is longer than the others is shortened; the other ids and the titles are not.
    """
    with library.open(many, durability="os") as store:
        store.session("support/2").set_metadata(title="退款请求 " + "long " * 50)
        store.session("support/4").set_metadata(title="A refund of order 7")
        store.session("support/" + "x" * 90).add_message({"role": "user", "content": "hi"})
    shown = terminal("ls", "--sort", "id", "--all", store=many, columns=width)
    assert shown.wait() == 0
    lines = shown.text.splitlines()
    assert len(lines) == 8
    assert lines[0].split()[0] == "id"
    assert lines[4].startswith("support/2")
    assert lines[7].startswith("support/")
    if width >= 80:
        assert "A refund of order 7" in lines[6]
        assert "退款" in lines[4]
        assert "…" in lines[4]
    if width <= 80:
        assert "…xxx" in lines[7]
    if width == 200:
        assert lines[0].split() == ["id", "title", "messages", "updated", "size", "parent", "is"]
        assert "just now" in lines[2]
        assert lines[3].rstrip().endswith("support/1")
        assert "archived" in lines[5]


def test_a_damaged_session_is_flagged_and_hides_no_other(
    store: Path, terminal: OpenTerminal
) -> None:
    """N-35, N-31: what cannot be read is listed, flagged and explained; exit 1; the others are there."""
    samples.damage(store, "agent+1-b")
    done = hansard("ls", "--sort", "id", store=store)
    assert done.code == 1
    assert [line.split()[0] for line in done.out.splitlines()] == ["ID", "agent/1", "agent/1-b"]
    # Of what cannot be read nothing is known: neither 0 messages nor 0 bytes.
    assert done.out.splitlines()[2].split()[1:] == ["-", "-", "-", "-", "-", "damaged"]
    assert done.err.startswith("hansard: agent/1-b is damaged: ")
    assert "log.jsonl" in done.err
    found = hansard("ls", "--damaged", "--json", store=store)
    assert found.code == 1
    assert [line["id"] for line in found.lines] == ["agent/1-b"]
    assert found.lines[0]["damaged"]
    shown = terminal("ls", store=store, columns=120)
    assert shown.wait() == 1
    assert b"\x1b[1;31magent/1-b" in shown.raw


@pytest.mark.parametrize("words", [("ls",), ("search", "refund")])
def test_the_index_is_kept_and_no_log_changed(words: tuple[str, ...], store: Path) -> None:
    """N-62, N-76: `ls` and `search` write the index, for the next time, and not one byte of a session."""
    before = tree(store / "sessions")
    assert hansard(*words, store=store).code == 0
    assert index_of(store).exists()
    assert tree(store / "sessions") == before


def test_times_are_told_as_people_say_them() -> None:
    """A time is shown as an age, after two weeks as a date, and never as `-3 min ago`."""
    now = datetime(2026, 11, 16, 12, tzinfo=UTC)

    def told(**before: float) -> str:
        return arguments.ago(now - timedelta(**before), now)

    assert told(seconds=59) == told(seconds=-59) == "just now"
    assert told(seconds=60) == "1 min ago"
    assert told(minutes=59.9) == "59 min ago"
    assert told(hours=23.9) == "23 h ago"
    assert told(days=1) == "1 d ago"
    assert told(days=14) == "14 d ago"
    assert told(days=15).startswith("2026-11-01")
    assert told(days=-2).startswith("2026-11-18 ")
    assert arguments.ago(None, now) == ""
