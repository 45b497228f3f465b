"""`hansard replay`: events as they came, a message as a person reads it, points, differences, keys."""

from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

import hansard as library
from tests.cli.conftest import OpenTerminal
from tests.cli.running import hansard, python


def test_it_tells_what_happened_in_order(store: Path) -> None:
    """Each event is told once, in order: roles, texts, folded calls, shortened results, and the rest."""
    done = hansard("replay", "agent/1", store=store)
    assert (done.code, done.err) == (0, "")
    lines = [line.partition("Z")[0] for line in done.out.splitlines()]
    told = [line[27:] if line[:4].strip().isdecimal() else line for line in lines]
    assert told == [
        "· created: title = Refund, user = u7",
        "system",
        "    You are **helpful**.",
        "user",
        "    Where is my refund?",
        "    I asked twice.",
        "assistant",
        '    → lookup({"order": 42, "deep": true})',
        "tool ← lookup " + "sent " * 100,
        "· snapshot “looked” of seq 5",
        "assistant, streamed",
        "    It was sent.",
        "end of the message that began at 7",
        "· usage: m, 1,000 tokens in, 20 out, cost 0.5",
        '· x.todo {"task": "call back"}',
        "· metadata: user = u8",
    ]


def test_a_streamed_message_is_told_once(tmp_path: Path) -> None:
    """Text that never was a part continues the message; one with tool calls is told completely."""
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    with library.open(tmp_path) as opened:
        session = opened.session("s")
        with session.stream(gather=1) as message:
            for text in ("It was ", "sent.\n", "On Monday."):
                message.write(text)
        with session.stream() as message:
            message.write("Let me look.")
            message.finish({"role": "assistant", "content": "Let me look.", "tool_calls": [call]})
    done = hansard("replay", "s", store=tmp_path)
    assert [line[27:] if line[:4].strip() else line for line in done.out.splitlines()] == [
        "assistant, streamed",
        "    It was sent.",
        "    On Monday.",
        "end of the message that began at 1",
        "assistant, streamed",
        "    Let me look.",
        "assistant",
        "    Let me look.",
        "    → look({})",
    ]


def test_emptied_stream_parts_are_not_called_discarded(tmp_path: Path) -> None:
    """After a compaction, parts of a complete message are not printed; only a discarded one is called so."""
    with library.open(tmp_path) as opened:
        session = opened.session("s")
        with session.stream(gather=0, role="assistant") as message:
            message.write("It was ")
            message.write("sent.")
        with session.stream(gather=0, role="assistant") as message:
            message.write("No")
            message.discard()
        session.compact()
    done = hansard("replay", "s", store=tmp_path)
    assert [line[27:] if line[:4].strip() else line for line in done.out.splitlines()] == [
        "assistant",
        "    It was sent.",
        "· the streamed message was discarded",
    ]


def test_an_answer_that_was_cut_off_is_marked(tmp_path: Path) -> None:
    """A stream that never ended is marked at the seq that search and views give it."""
    with library.open(tmp_path) as opened:
        session = opened.session("s")
        with suppress(KeyboardInterrupt), session.stream(gather=0, role="assistant") as message:
            message.write("It was ")
            message.write("sent on")
            raise KeyboardInterrupt
        session.add_message({"role": "user", "content": "And?"})
        (seq,) = session.state().streams.values()
    for command in ("replay", "tail"):
        lines = hansard(command, "s", store=tmp_path).out.splitlines()
        assert lines[1] == "    It was sent on"
        assert lines[2].split()[0] == str(seq)
        assert lines[2].endswith("the message that began at 1 is unfinished")


def test_json_prints_the_events_as_they_are_stored(store: Path) -> None:
    """`--json` prints one event per line, with the data digit for digit as they were stored."""
    with library.open(store) as opened:
        session = opened.session("exact")
        session.add_message({"n": 12345678901234567890, "f": 1e300, "é": "\u2028"}, key="k")
        expected = [
            {"seq": e.seq, "time": e.stamp, "kind": e.kind, "data": e.data, "key": e.key}
            for e in session.events()
        ]
    done = hansard("replay", "exact", "--json", store=store)
    assert done.lines == expected
    assert '{"n":12345678901234567890,"f":1e300,' in done.out


@pytest.mark.parametrize(
    ("words", "seqs"),
    [
        (("--from", "11"), [11, 12]),
        (("--to", "2"), [1, 2]),
        (("--from", "3", "--to", "looked"), [3, 4, 5]),
        (("--from", "looked", "--to", "6"), [5, 6]),
        (("--kind", "message.added"), [2, 3, 4, 5, 9]),
        (("--kind", "session.*", "--kind", "x.*"), [1, 6, 11]),
        (("--kind", "message.*", "--from", "8"), [8, 9]),
        (("--to", "0"), []),
    ],
)
def test_a_part_is_played(words: tuple[str, ...], seqs: list[int], store: Path) -> None:
    """--from and --to take seqs and labels, --kind takes patterns, and they go together."""
    done = hansard("replay", "agent/1", *words, "--json", store=store)
    assert [event["seq"] for event in done.lines] == seqs


def test_times_are_points_too(store: Path) -> None:
    """--from, --to and --at take a time; an event at that very time is in."""
    events = hansard("replay", "agent/1", "--json", store=store).lines
    stamps = [event["time"] for event in events]
    done = hansard(
        "replay", "agent/1", "--json", "--from", stamps[3], "--to", stamps[5], store=store
    )
    played = [event["seq"] for event in done.lines]
    assert played[0] <= 4
    assert played[-1] >= 6
    assert all(stamps[3] <= event["time"] <= stamps[5] for event in done.lines)
    state = hansard("replay", "agent/1", "--at", stamps[4], "--json", store=store).json
    assert stamps[state["at"] - 1] == stamps[4]
    assert hansard("replay", "agent/1", "--at", "1999-01-01", "--json", store=store).json["at"] == 0


def test_at_shows_state_and_view_of_that_point(store: Path) -> None:
    """`--at` gives what the library gives at that seq, or at that label: state and model view."""
    with library.open(store, read_only=True) as opened:
        messages = opened.session("agent/1").messages(at=5)
    for place in ("5", "looked"):
        shown = hansard("replay", "agent/1", "--at", place, "--json", store=store).json
        assert shown["at"] == 5
        assert shown["messages"] == messages
        assert shown["state"]["metadata"] == {"title": "Refund", "user": "u7"}
        assert shown["state"]["snapshots"] == {}
    told = hansard("replay", "agent/1", "--at", "looked", store=store).out
    assert "agent/1 “Refund”" in told
    assert "model view at seq 5:" in told
    assert '→ lookup({"order": 42, "deep": true})' in told
    assert "It was sent" not in told


def test_diff_compares_two_points(store: Path) -> None:
    """`replay ID --diff A B` prints what `diff ID@A ID@B` prints, and exits with 0."""
    for extra in ((), ("--json",)):
        done = hansard("replay", "agent/1", "--diff", "3", "12", *extra, store=store)
        compared = hansard("diff", "agent/1@3", "agent/1@12", *extra, store=store)
        assert done == compared._replace(code=0)
        assert compared.code == 1


def test_speed_pauses_as_it_was(store: Path) -> None:
    """With --speed, the pauses are those between the events divided by N, and none is longer than allowed."""
    with library.open(store, read_only=True) as opened:
        times = [event.time for event in opened.session("agent/1").events()]
    gaps = [(b - a).total_seconds() for a, b in pairwise(times)]

    def pauses(*words: str) -> list[float]:
        # What it asks the clock for, instead of what the clock makes of it.
        program = (
            "import sys, time; time.sleep = lambda pause: print(pause, file=sys.stderr)\n"
            f"sys.argv = ['hansard', 'replay', 'agent/1', *{words!r}]\n"
            "from hansard.cli.__main__ import main; sys.exit(main())"
        )
        return [float(line) for line in python(program, store).err.splitlines()]

    assert pauses() == []
    assert pauses("--speed", "4") == [gap / 4 for gap in gaps if gap]
    slow = min(gap for gap in gaps if gap) / 20
    assert pauses("--speed", f"{slow:.12f}") == [10.0] * sum(gap > 0 for gap in gaps)


@pytest.mark.parametrize("words", [("replay", "--to", "2"), ("show",), ("tail", "-n", "12")])
def test_markdown_is_rendered_on_request(
    words: tuple[str, ...], store: Path, terminal: OpenTerminal
) -> None:
    """--markdown renders it on a terminal, and not in a pipe; without it every character is shown."""
    shown = terminal(*words, "agent/1", "--markdown", store=store, rows=50)
    assert shown.wait() == 0
    assert "    You are helpful." in shown.lines
    assert b"\x1b[1mhelpful" in shown.raw
    plain = terminal(*words, "agent/1", store=store, rows=50)
    assert plain.wait() == 0
    assert "    You are **helpful**." in plain.lines
    assert "    You are **helpful**.\n" in hansard(*words, "agent/1", "--markdown", store=store).out


def test_stepping_by_key(store: Path, terminal: OpenTerminal) -> None:
    """--step goes forward and back by key, to the ends, to a number; resizes; and leaves with q."""
    shown = terminal("replay", "agent/1", "--step", store=store)
    shown.wait_for("event 1, 1 of 12")
    for keys, wanted in (
        ("n", "event 2,"),
        (" ", "event 3,"),
        ("\x1b[C", "event 4,"),
        ("p", "event 3,"),
        ("\x1b[D", "event 2,"),
        ("G", "event 12, 12 of 12"),
        ("n", "event 12,"),
        ("g", "event 1,"),
        ("p", "event 1,"),
        ("11\r", "event 11,"),
        ("nnpp5\r", "event 5,"),
    ):
        shown.type(keys)
        shown.wait_for(wanted)
    shown.wait_for("← c1")
    shown.resize(50, 12)
    shown.wait_for(lambda text: "q quit" in text.splitlines()[-1] or "…" in text.splitlines()[-1])
    assert all(len(line) <= 50 for line in shown.lines)
    shown.type("3\r")
    shown.wait_for("I asked twice.")
    shown.type("q")
    assert shown.wait() == 0
    # The terminal is what it was: the other screen is left, and the cursor shown.
    assert shown.raw.rstrip().endswith((b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1049l\x1b[?25h"))


def test_stepping_is_left_by_ctrl_c(store: Path, terminal: OpenTerminal) -> None:
    """Ctrl-C leaves --step with 130 and the terminal as it was."""
    shown = terminal("replay", "agent/1", "--step", "--kind", "message.added", store=store)
    shown.wait_for("event 2, 1 of 5")
    shown.type("\x03")
    assert shown.wait() == 130
    assert b"\x1b[?1049l" in shown.raw
