"""`hansard diff`: what two sessions share, and where they differ."""

from pathlib import Path

import hansard as library
from tests.cli.conftest import OpenTerminal
from tests.cli.running import hansard


def test_a_fork_and_what_it_was_forked_from(store: Path) -> None:
    """Base, first difference, messages, metadata and usage are printed, with exit 1."""
    done = hansard("diff", "agent/1", "agent/1-b", store=store)
    assert (done.code, done.err) == (1, "")
    assert done.out.splitlines()[:7] == [
        "- agent/1@12",
        "+ agent/1-b@7",
        "common up to seq 5 of agent/1",
        "messages: 4 in both, 1 only in -, 1 only in +",
        "they differ after 4 messages: at seq 9 of -, at seq 7 of +",
        "  -    9  assistant: It was sent.",
        "  +    7  user: Another way.",
    ]
    assert "  - user = u8\n  + user = u7\n" in done.out
    assert "  - m = " in done.out


def test_the_same_is_exit_0(store: Path) -> None:
    """A session is the same as itself, and as its fork where that begins; points are named with @."""
    for words in (("agent/1", "agent/1"), ("agent/1@looked", "agent/1-b@6")):
        done = hansard("diff", *words, store=store)
        assert (done.code, done.err) == (0, "")
        assert "equal: " in done.out
    done = hansard("diff", "agent/1@3", "agent/1@2026-01-01", "--json", store=store)
    assert (done.code, done.json["b"]["seq"]) == (1, 0)


def test_ids_and_labels_with_the_sign_in_them(tmp_path: Path) -> None:
    """The longest existing id is the session; the rest is the point, even if it contains an @."""
    with library.open(tmp_path / "s", durability="os") as store:
        session = store.session("me@example.com")
        session.add_message({"role": "user", "content": "1"})
        session.snapshot("a@b")
        session.add_message({"role": "user", "content": "2"})
    at = tmp_path / "s"
    assert hansard("diff", "me@example.com", "me@example.com", store=at).code == 0
    one = hansard("diff", "me@example.com@a@b", "me@example.com@1", "--json", store=at)
    assert (one.code, one.json["a"]["seq"], one.json["equal"]) == (0, 1, True)


def test_every_row_of_a_difference_has_its_sign(tmp_path: Path, terminal: OpenTerminal) -> None:
    """Rows that a terminal wraps, and the lines of a message with --full, begin with the sign."""
    with library.open(tmp_path / "s", durability="os") as store:
        store.session("a").add_message({"role": "user", "content": "first words " * 8})
        store.session("b").add_message({"role": "user", "content": "one\ntwo"})
    shown = terminal("diff", "a", "b", store=tmp_path / "s", columns=60)
    shown.wait()
    rows = [line for line in shown.lines if "first" in line or "words" in line]
    assert len(rows) == 3
    assert all(row.startswith("  - ") for row in rows)
    full = hansard("diff", "a", "b", "--full", store=tmp_path / "s").out.splitlines()
    assert full[-4:] == ["  + 1", "  + user", "  +     one", "  +     two"]
