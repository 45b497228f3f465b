"""`hansard replay`: events as they came, a message as a person reads it, points, differences, keys."""

import re
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

import hansard as library
from hansard.message import pydantic_items
from tests.cli.batch import batch
from tests.cli.conftest import OpenTerminal
from tests.cli.running import hansard, python


def test_it_tells_what_happened_in_order(store: Path) -> None:
    """Each event is printed once, in order: roles, texts, folded calls, shortened results, and the rest."""
    done = hansard("replay", "agent/1", store=store)
    assert (done.code, done.err) == (0, "")
    lines = [line.partition("Z")[0] for line in done.out.splitlines()]
    told = [line[33:] if line[:4].strip().isdecimal() else line for line in lines]
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


def test_emptied_stream_parts_are_not_called_discarded(tmp_path: Path) -> None:
    """Parts that a redaction has emptied are not printed; only a discarded message is called so."""
    secret = "gh" + "p_x7Kd9mQ2vB5nR8tY1wZ4x7Kd9mQ2vB5nR8tY"
    with library.open("memory:") as source, library.open(tmp_path) as opened:
        session = source.session("s")
        with session.stream(gather=0, role="assistant") as message:
            message.write(f"Use {secret[:9]}")
            message.write(secret[9:])
        with session.stream(gather=0, role="assistant") as message:
            message.write("No")
            message.discard()
        opened.import_session(session.export())
    done = hansard("replay", "s", store=tmp_path)
    assert [line[33:] if line[:4].strip() else line for line in done.out.splitlines()] == [
        "assistant, streamed",
        "    Use [redacted: GitHub token]",
        "end of the message that began at 1",
        "assistant, streamed",
        "    No",
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


#: The words of a call, and the seqs that it plays.
PARTS = {
    "--from 11": [11, 12],
    "--to 2": [1, 2],
    "--from 3 --to looked": [3, 4, 5],
    "--from looked --to 6": [5, 6],
    "--kind message.added": [2, 3, 4, 5, 9],
    "--kind session.* --kind x.*": [1, 6, 11],
    "--kind message.* --from 8": [8, 9],
    "--to 0": [],
}


def test_a_part_is_played(store: Path) -> None:
    """--from and --to take seqs and labels, --kind takes patterns, and they go together."""
    replay = ["-s", store, "replay", "agent/1", "--json"]
    done = batch([{"words": [*replay, *words.split()]} for words in PARTS])
    played = [[event["seq"] for event in one.lines] for one in done]
    assert dict(zip(PARTS, played, strict=True)) == PARTS


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


def test_stepping_by_key(store: Path, terminal: OpenTerminal) -> None:
    """--step goes forward and back by key, to the ends, to a number; resizes; and leaves with q."""
    shown = terminal("replay", "agent/1", "--step", store=store)
    shown.wait_for("event 1, 1 of 12")
    for keys, wanted in (
        ("n", "event 2,"),
        ("\x1b[B", "event 3,"),
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
    shown.wait_for("← lookup")  # the tool, by the call before it
    shown.resize(50, 12)
    shown.wait_for(lambda text: "q quit" in text.splitlines()[-1] or "…" in text.splitlines()[-1])
    assert all(len(line) <= 50 for line in shown.lines)
    shown.type("3\r")
    shown.wait_for("I asked twice.")
    shown.type("q")
    assert shown.wait() == 0
    # The terminal is restored: the alternate screen is left, and the cursor shown.
    assert shown.raw.rstrip().endswith((b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1049l\x1b[?25h"))


def test_stepping_is_left_by_ctrl_c(store: Path, terminal: OpenTerminal) -> None:
    """Ctrl-C ends --step with 130 and restores the terminal."""
    shown = terminal("replay", "agent/1", "--step", "--kind", "message.added", store=store)
    shown.wait_for("event 2, 1 of 5")
    shown.type("\x03")
    assert shown.wait() == 130
    assert b"\x1b[?1049l" in shown.raw


def test_messages_that_a_model_no_longer_sees_are_marked(tmp_path: Path) -> None:
    """Reverted, superseded and redacted messages are marked, and the model view is named."""
    with library.open(tmp_path / "s", durability="os") as store:
        session = store.session("a")
        for number in range(1, 7):
            session.add_message({"role": "user", "content": f"number {number}"})
        session.summarize(upto=2, message={"role": "system", "content": "both"})  # 7
        session.redact(3)  # 8
        session.revert(8)  # 9: nothing is lost by it
        session.add_message({"role": "user", "content": "number 10"})
        session.revert(9)  # 11
        model = {seq for seq, _ in session.numbered()}
    done = hansard("replay", "a", store=tmp_path / "s").out
    marks = dict(
        re.findall(r"^ +(\d+)  \S+ \S+  (?:user|\(redacted message\))(.*)$", done, re.MULTILINE)
    )
    assert marks == {
        "1": " (superseded)",
        "2": " (superseded)",
        "3": "",
        "4": "",
        "5": "",
        "6": "",
        "10": " (reverted)",
    }
    assert model == {7, 4, 5, 6}
    assert re.search(r"^ +3 .*  \(redacted message\)$", done, re.MULTILINE)


PICTURE = "iVBORw0KGgo" + "A" * 1025


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}", "detail": "high"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}},
        {"type": "image", "source_type": "base64", "mime_type": "image/png", "data": PICTURE},
        {"inlineData": {"mimeType": "image/png", "data": PICTURE}},
        # Of an item that an adapter stored: the message has only a name for it.
        {"kind": "binary", "media_type": "image/png", "data": PICTURE},
    ],
)  # fmt: skip
def test_pictures_are_named_and_not_printed(block: dict[str, object], tmp_path: Path) -> None:
    """A picture of any provider is its type and size; --full and --json give it as it is."""
    with library.open(tmp_path / "s", durability="os") as store:
        message: dict[str, object] = {"role": "user", "content": [block]}
        if "kind" in block:
            part = {"part_kind": "user-prompt", "content": [block]}
            message = pydantic_items.message_of({"kind": "request", "parts": [part]})
        store.session("a").add_message(message)
    for words in (("replay", "a"), ("show", "a")):
        told = hansard(*words, store=tmp_path / "s").out
        assert "    [image/png, 777 B]\n" in told
        assert PICTURE not in told
        for more in ("--full", "--json"):
            assert PICTURE in hansard(*words, more, store=tmp_path / "s").out


def test_a_thread_reads_as_a_conversation(tmp_path: Path) -> None:
    """The bookkeeping of frameworks is counted, and shown with --all, --kind or --json."""
    with library.open(tmp_path / "s", durability="os") as store:
        session = store.session("a")
        session.add_message({"role": "user", "content": "hi"})
        session.set_metadata(langgraph=1)  # marks a thread
        session.append("x.langgraph.checkpoint", {"id": "c1"})
        session.append("x.langgraph.writes", {"id": "c1"})
        session.append("x.strands.agent", {"state": {}})
    done = hansard("replay", "a", store=tmp_path / "s")
    assert "langgraph" not in done.out
    assert "4 events of a framework's bookkeeping not shown; pass --all" in done.err
    for words in (["--all"], ["--kind", "x.langgraph.*"], ["--json"]):
        more = hansard("replay", "a", *words, store=tmp_path / "s")
        assert "x.langgraph.writes" in more.out
        assert more.err == ""


def test_stepping_scrolls_searches_and_shows_what_came_before(
    tmp_path: Path, terminal: OpenTerminal
) -> None:
    """--step scrolls a long message line by line and page by page, finds a text, and shows earlier events."""
    with library.open(tmp_path / "s", durability="os") as store:
        session = store.session("a")
        session.add_message({"role": "user", "content": "the beginning"})
        session.add_message(
            {"role": "assistant", "content": "\n".join(f"line {n}." for n in range(40))}
        )
        session.add_message({"role": "user", "content": "A Needle."})
        session.snapshot("here")
        session.revert(2)
    shown = terminal("replay", "a", "--step", store=tmp_path / "s", rows=24)
    shown.wait_for("event 1, 1 of 5")
    for keys, wanted in (
        ("n", ("lines 1 to 20 of 41", "user: the beginning")),
        ("j", ("lines 2 to 21 of 41",)),
        (" ", ("lines 22 to 41 of 41", "line 39.")),
        (" ", ("event 3, 3 of 5", "assistant: line 0.")),
        ("/beginn", ("/beginn▏ (Enter)",)),
        ("\r", ("event 1, 1 of 5",)),
        ("/needle\r", ("event 3, 3 of 5",)),
        ("/nowhere\r", ("not found: nowhere",)),
        # Reverted were messages only.
        ("G", ("(reverted) user: A Needle.", "4  · snapshot")),
    ):
        shown.type(keys)
        for text in wanted:
            shown.wait_for(text)
    shown.type("q")
    assert shown.wait() == 0
