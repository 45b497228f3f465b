"""Record the command for the README and the guides: `replay`, `ls --tree`, `stats` and an agent's questions.

`python tools/record.py` prints what the pictures show; `--write` writes them to docs/images; `--store PATH`
only makes the store that they show. A test fails if they are stale: the store and the time are always the
same.
The real command runs in a real terminal (a pty); what it sends there is drawn by Rich as SVG.
"""

import contextlib
import fcntl
import io
import os
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import hansard

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"

COLUMNS = 88

#: The time at which the command is called.
NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)

RECORDED = {
    "replay": ["replay", "support/42"],
    "ls-tree": ["ls", "--tree"],
    "stats": ["stats", "--top", "4"],
}

#: An example whose output is recorded as well, and its arguments before the store.
EXAMPLE = ["docs/examples/mcp_client.py", "refund"]

#: No fonts from elsewhere: a README shows a picture without its links. What is `{so}` is filled in by Rich.
PICTURE = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{
  font-family: "DejaVu Sans Mono", Menlo, Consolas, "Liberation Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width;
}}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""

#: Runs the command with a stopped clock.
CHILD = """
import sys, time
time.time = lambda: {now}
sys.argv = ["hansard", *{words}]
from hansard.cli.__main__ import main
sys.exit(main())
"""

#: Runs the example.
EXAMPLE_CHILD = """
import runpy, sys
sys.argv = {words}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


# -- the store ----------------------------------------------------------------------------------


class Clock:
    """The clock of the store."""

    def __init__(self) -> None:
        self.now = 0.0

    def at(self, day: int, hour: int, minute: int = 0) -> None:
        """Set it to a time in November."""
        self.now = datetime(2026, 11, day, hour, minute, tzinfo=UTC).timestamp()

    def read(self) -> int:
        """Read it; each call advances it by a few seconds."""
        self.now += 3.5
        return round(self.now * 1e9)


@contextlib.contextmanager
def standing_still() -> Iterator[Clock]:
    """Replace the clock of this process."""
    clock, real = Clock(), time.time_ns
    time.time_ns = clock.read
    try:
        yield clock
    finally:
        time.time_ns = real


def make_store(path: Path) -> None:
    """Create the store that the pictures show: always the same bytes."""
    with (
        standing_still() as clock,
        hansard.open(path, durability="os", auto_compact=False) as store,
    ):
        for day in range(2, 16):
            for number in range((day * 7) % 5 + 1):
                clock.at(day, 9 + number)
                session = store.create(
                    f"batch/{day:02}-{number}", metadata={"title": "Nightly triage"}
                )
                for turn in range((day * 11 + number * 5) % 7 + 1):
                    session.add_message(
                        {"role": "user", "content": f"Ticket {day}{turn}: " + "a parcel " * day}
                    )
                    session.add_message({"role": "assistant", "content": "Sorted: delivery."})
                session.record_usage(
                    model="small-1", input_tokens=900 * day, output_tokens=60 * day, cost=0.001
                )
                session.archive()
        clock.at(15, 16)
        session = store.create(
            "support/42", metadata={"title": "Where is my refund?", "user": "u7"}
        )
        session.add_message({"role": "user", "content": "Where is my refund? I asked **twice**."})
        session.add_message(_call("c1", "find_order", '{"user": "u7", "last": true}'))
        session.add_message(_result("c1", "find_order", '{"order": 1042, "refunded": false}'))
        session.snapshot("order found")
        session.record_usage(model="large-2", input_tokens=2_400, output_tokens=180, cost=0.0321)
        answer = (
            "It was **not** sent yet, and I am sorry.\n\n1. I have asked for it now: `refund #1042`.\n"
            "2. It will be with you by *Friday*."
        )
        session.add_message({"role": "assistant", "content": answer})
        clock.at(16, 9, 30)
        polite = session.fork("support/42-polite", at="order found")
        polite.set_metadata(title="A kinder answer")
        polite.add_message({"role": "assistant", "content": "I am so sorry; let me see to it."})
        clock.at(16, 10, 15)
        tools = session.fork("support/42-tools", at=4)
        tools.set_metadata(title="With the refund tool")
        tools.add_message(_call("c2", "issue_refund", '{"order": 1042}'))
        tools.add_message(_result("c2", "issue_refund", "done: 49.90"))
        tools.record_usage(model="large-2", input_tokens=5_100, output_tokens=420, cost=0.0714)
        clock.at(16, 11, 40)
        again = tools.fork("support/42-tools-2")
        again.set_metadata(title="And a voucher")
        again.add_message({"role": "user", "content": "A voucher would be nice, too."})
        clock.at(16, 11, 58)
        other = store.create("support/43", metadata={"title": "Café order, wrong size"})
        other.add_message({"role": "user", "content": "The cups are too small."})


def _call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    calls = [{"id": call_id, "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def _result(call_id: str, name: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "name": name, "content": content}


# -- the terminal -------------------------------------------------------------------------------


def run(words: list[str], store: Path, child_code: str = CHILD) -> str:
    """Run the command in a terminal, and return its output."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    unwanted = {"COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "PYTHONIOENCODING"}
    environment = {name: value for name, value in os.environ.items() if name not in unwanted}
    environment |= {
        "HANSARD_STORE": str(store),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONUTF8": "1",
        "TERM": "xterm-256color",
        "TZ": "UTC",
        "XDG_STATE_HOME": str(store.parent / "state"),
    }
    program = child_code.format(now=NOW.timestamp(), words=words)
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env=environment,
    ) as child:
        os.close(theirs)
        sent = b""
        # When the command has ended, a read fails or returns nothing.
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 65536):
                sent += piece
    os.close(ours)
    if child.returncode:
        raise SystemExit(sent.decode())
    return sent.decode().replace("\r\n", "\n")


def picture(name: str, sent: str) -> str:
    """Draw what a call has sent to the terminal."""
    from rich.console import Console
    from rich.text import Text

    words = ["hansard", *RECORDED[name]] if name in RECORDED else ["python", *EXAMPLE]
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "bold green"), (shlex.join(words), "bold")))
    for line in sent.rstrip("\n").split("\n"):
        console.print(Text.from_ansi(line), soft_wrap=True)
    return console.export_svg(title="hansard", code_format=PICTURE, unique_id=f"hansard-{name}")


def record() -> dict[str, tuple[str, str]]:
    """Return what each call sends to the terminal, and the picture of it."""
    with tempfile.TemporaryDirectory(prefix="hansard-record-") as directory:
        store = Path(directory) / "store"
        make_store(store)
        sent = {name: run(words, store) for name, words in RECORDED.items()}
        example = [str(ROOT / EXAMPLE[0]), EXAMPLE[1], str(store)]
        sent["mcp"] = run(example, store, EXAMPLE_CHILD)
    return {name: (text, picture(name, text)) for name, text in sent.items()}


if __name__ == "__main__":
    if "--store" in sys.argv[1:]:
        make_store(Path(sys.argv[sys.argv.index("--store") + 1]))
        sys.exit()
    for name, (text, drawn) in record().items():
        if "--write" in sys.argv[1:]:
            IMAGES.mkdir(exist_ok=True)
            (IMAGES / f"{name}.svg").write_text(drawn, encoding="utf-8")
        else:
            print(text)
