"""`hansard tail`: the last events, and those to come."""

import json
import select
import signal
from pathlib import Path

import hansard as library
from tests.cli.conftest import OpenTerminal
from tests.cli.running import PATIENCE, hansard, start


def test_the_last_events_of_a_session(store: Path) -> None:
    """`tail -n` prints the last events of a session, also of a fork, whose they are with --json."""
    done = hansard("tail", "agent/1", "-n", "2", "--json", store=store)
    assert [(event["session"], event["seq"]) for event in done.lines] == [
        ("agent/1", 11),
        ("agent/1", 12),
    ]
    fork = hansard("tail", "agent/1-b", "-n", "3", "--json", store=store)
    assert [event["seq"] for event in fork.lines] == [5, 6, 7]
    assert "Another way." in hansard("tail", "agent/1-b", store=store).out


def test_the_last_events_of_all_sessions(store: Path) -> None:
    """`tail` without an id prints the newest events of all sessions by time, inherited ones once."""
    with library.open(store, durability="os") as opened:
        opened.session("b").add_message({"role": "user", "content": "later"})
        opened.session("agent/1").add_message({"role": "user", "content": "last"})
    done = hansard("tail", "-n", "3", "--json", store=store)
    assert [(event["session"], event["seq"]) for event in done.lines] == [
        ("agent/1-b", 7),
        ("b", 1),
        ("agent/1", 13),
    ]
    everything = hansard("tail", "-n", "100", "--json", store=store).lines
    assert len(everything) == len({(event["session"], event["seq"]) for event in everything}) == 16
    assert "agent/1  user" in hansard("tail", "-n", "1", store=store).out


def test_all_sessions_are_followed(store: Path) -> None:
    """`tail -f` without an id prints what comes in any session, also in new ones, each with its session."""
    process = start("tail", "-f", "--prefix", "new/", "--json", store=store)
    try:
        assert process.stdout is not None
        with library.open(store) as opened:
            # The start of the follower is not visible from outside: append until an event arrives.
            seen = None
            number = 0
            while seen is None and number < 600:
                opened.session("new/1").add_message({"n": number})
                opened.session("other").add_message({"n": number})
                number += 1
                if select.select([process.stdout], [], [], 0.1)[0]:
                    seen = json.loads(process.stdout.readline())
            assert seen is not None
            assert seen["session"] == "new/1"
            opened.session("new/2").add_message({"role": "user", "content": "last"})
        for line in process.stdout:
            event = json.loads(line)
            assert event["session"].startswith("new/")
            if event["session"] == "new/2":
                break
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 130
    finally:
        process.kill()
        process.communicate()


def test_following_on_a_terminal_ends_with_ctrl_c(store: Path, terminal: OpenTerminal) -> None:
    """`tail -f ID` on a terminal shows what comes, as it comes; Ctrl-C ends it with 130."""
    shown = terminal("tail", "-f", "agent/1", "-n", "1", store=store)
    shown.wait_for("metadata: user = u8")
    with library.open(store) as opened:
        opened.session("agent/1").add_message({"role": "user", "content": "still there?"})
    shown.wait_for("still there?")
    shown.type("\x03")
    assert shown.wait() == 130
    assert b"Traceback" not in shown.raw
