"""`hansard search`: hits, their places, and how to read their context."""

from pathlib import Path

import pytest

import hansard as library
from tests.cli import samples
from tests.cli.batch import batch
from tests.cli.conftest import OpenTerminal
from tests.cli.running import hansard


def test_hits_are_those_of_the_library(store: Path) -> None:
    """`search --json` prints the library's hits, the best first, one per line; a pipe gets ID:SEQ: text."""
    with library.open(store) as opened:
        hits = opened.search("refund")
    lines = hansard("search", "refund", "--json", store=store).lines
    assert [(line["session"], line["seq"]) for line in lines] == [(h.session, h.seq) for h in hits]
    assert lines[0]["matches"]
    told = hansard("search", "refund", store=store)
    assert (told.code, told.err) == (0, "")
    assert "agent/1:3: user: Where is my refund? I asked twice." in told.out.splitlines()
    assert "agent/1:title: Refund" in told.out.splitlines()


def test_it_can_be_narrowed_down(store: Path) -> None:
    """Words are joined; session, prefix, role, times and a limit leave what they name."""
    narrowed = {
        ("my", "refund"): [("agent/1", 3)],
        ("refund", "--session", "agent/1-b", "--role", "user"): [("agent/1-b", 3)],
        ("way", "--prefix", "agent/1-", "--since", "1h"): [("agent/1-b", 7)],
        ("way", "--until", "1h"): [],
        ("refund -twice", "--role", "user"): [],
        ("sent", "--role", "tool", "--limit", "1"): [("agent/1", 5)],
    }
    done = batch([{"words": ["-s", store, "search", "--json", *words]} for words in narrowed])
    for one, (words, expected) in zip(done, narrowed.items(), strict=True):
        assert [(line["session"], line["seq"]) for line in one.lines] == expected, words
        assert one.code == (0 if expected else 1)


def test_no_hit_is_exit_1(store: Path) -> None:
    """Without a hit, the exit code is 1, stdout is empty, and one line has a hint."""
    done = hansard("search", "refun", store=store)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("hansard: nothing found for 'refun'; only complete words match")
    assert hansard("search", "refun*", store=store).code == 0
    wordless = hansard("search", "???", store=store)
    assert (wordless.code, wordless.out) == (1, "")
    assert "no word in it" in wordless.err


@pytest.mark.parametrize("width", [40, 80, 200])
def test_what_was_found_stands_out(width: int, store: Path, terminal: OpenTerminal) -> None:
    """On a terminal the found words are marked, also without colors, and a hint names the next command."""
    shown = terminal("search", "refund", "--role", "user", store=store, columns=width, NO_COLOR="1")
    assert shown.wait() == 0
    assert b"\x1b[1;7mrefund\x1b[0m" in shown.raw
    text = " ".join(shown.text.split())
    assert "agent/1:3: user: Where is my refund? I asked twice." in text
    # In one piece, to be copied: where it is too long, it is the terminal that wraps it.
    assert b"1 hit. To read on: hansard replay agent/1 --from 3\x1b[0m\r\n" in shown.raw


def test_a_damaged_session_is_passed_over_and_named(store: Path) -> None:
    """N-35: a session that cannot be read hides no hit in another, and is not passed over in silence."""
    with library.open(store, durability="os") as opened:
        opened.session("good").add_message({"role": "user", "content": "refund"})
    samples.damage(store)
    done = hansard("search", "refund", "--json", store=store)
    assert [line["session"] for line in done.lines] == ["good"]
    assert "sessions are damaged, and not searched; `hansard ls --damaged` lists them" in done.err
