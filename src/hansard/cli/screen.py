"""Output to a terminal, a pipe, or a program that reads JSON.

A terminal gets colors (unless NO_COLOR is set), and tables that fit its width. A pipe gets the same text
without colors, never wrapped or cut. Both show every character of a text: long lines are wrapped here,
because Rich would drop spaces and expand tabs. With --json, stdout has only JSON. Progress, questions and
notes go to stderr.
"""

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Final, TextIO, cast

import click

from hansard.message import sentences

if TYPE_CHECKING:
    import subprocess

    from rich.console import Console
    from rich.text import Text

many, money = sentences.many, sentences.money

#: A piece of a line: text, or text and its style.
Piece = str | tuple[str, str]

#: Width if the terminal's is unknown.
_WIDTH: Final = 80

#: Columns between tab stops.
_TAB: Final = 8


def _pager() -> list[str]:
    """Return the words of the user's pager; none if it is missing or not wanted."""
    import shutil

    command = shlex.split(os.environ.get("PAGER", "less"))
    return command if command not in ([], ["cat"]) and shutil.which(command[0]) else []


class PagedOutput:
    """A replacement of stdout: up to a screenful is printed directly, and more goes to a pager."""

    def __init__(self, command: Sequence[str], rows: int) -> None:
        self._command = command
        self._out = sys.stdout
        self._kept: list[str] = []
        self._rows = rows
        self._pager: subprocess.Popen[str] | None = None
        self.encoding = sys.stdout.encoding

    def isatty(self) -> bool:
        """Return whether the output ends on a terminal."""
        return True

    def write(self, text: str) -> int:
        """Print a text, or keep it while it fits on the screen."""
        if self._pager is None:
            self._kept.append(text)
            self._rows -= text.count("\n")
            if self._rows >= 0:
                return len(text)
            import subprocess

            self._pager = subprocess.Popen(  # noqa: S603 - the user's own choice
                self._command,
                stdin=subprocess.PIPE,
                text=True,
                encoding=self.encoding,
                errors="backslashreplace",
                # No pager for what fits, and the output stays on the screen; colors with any LESS.
                env={"LV": "-c", **os.environ, "LESS": f"-R {os.environ.get('LESS', 'FX')}"},
            )
            text = "".join(self._kept)
        assert self._pager.stdin is not None  # a pipe
        return self._pager.stdin.write(text)

    def flush(self) -> None:
        """Flush what the pager gets."""
        if self._pager is not None and self._pager.stdin is not None:
            self._pager.stdin.flush()

    def close(self) -> None:
        """Print what was kept, or wait until the user leaves the pager."""
        if self._pager is None:
            self._out.write("".join(self._kept))
            return
        import signal

        # Ctrl-C is for the pager.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with suppress(BrokenPipeError):
                self._pager.communicate()
        finally:
            signal.signal(signal.SIGINT, before)


class Screen:
    """The output of one call.

    Attributes:
        json: stdout is for a program.
        terminal: stdout is a terminal.
    """

    def __init__(self, *, json: bool) -> None:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                # Show characters that the terminal's encoding lacks as escapes.
                stream.reconfigure(errors="backslashreplace")
        self.json = json
        self.terminal = not json and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        #: What every row begins with, and its style.
        self._margin = ("", "")
        #: Notes to print after the pager has ended; None without one.
        self._notes: list[str] | None = None

    @property
    def interactive(self) -> bool:
        """Whether a user can see the output and answer."""
        return self.terminal and sys.stdin.isatty()

    @property
    def width(self) -> int:
        """The number of columns."""
        return self.console.width if self.terminal else _WIDTH

    @cached_property
    def console(self) -> "Console":
        """Rich's console."""
        from rich.console import Console

        class Output(Console):
            """Leaves a closed pipe to the command; Rich would end the process with 1."""

            def on_broken_pipe(self) -> None:
                raise BrokenPipeError

        return Output(markup=False, highlight=False, emoji=False)

    @contextmanager
    def paged(self) -> "Iterator[None]":
        """Show more than a screenful with `$PAGER`, by default less; stdin and stdout must be a terminal."""
        command = _pager() if self.interactive else []
        if not command:
            yield
            return
        before, notes = sys.stdout, list[str]()
        output = PagedOutput(command, self.console.height - 1)
        sys.stdout, self._notes = cast("TextIO", output), notes
        try:
            yield
        finally:
            sys.stdout, self._notes = before, None
            output.close()
            for text in notes:
                self.note(text)

    # -- for programs ---------------------------------------------------------------------------

    def document(self, value: object) -> None:
        """With --json, print a command's document, indented on a terminal."""
        if not self.json:
            return
        import msgspec

        raw = msgspec.json.encode(value)
        if sys.stdout.isatty():
            raw = msgspec.json.format(raw, indent=2)
        self.record(raw)

    def record(self, value: object) -> None:
        """Print one line of a stream of JSON values; bytes are JSON already."""
        import json

        import msgspec

        raw = value if isinstance(value, bytes) else msgspec.json.encode(value)
        utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
        acting = _IN_JSON if utf8 else r"[^\x00-\x7e]"
        escaped = re.sub(acting, lambda found: json.dumps(found[0])[1:-1], raw.decode())
        sys.stdout.write(escaped + "\n")

    def flush(self) -> None:
        """Flush stdout."""
        sys.stdout.flush()

    # -- for people -----------------------------------------------------------------------------

    @contextmanager
    def margin(self, text: str, style: str) -> "Iterator[None]":
        """Begin every row with a text."""
        self._margin = (text, style)
        try:
            yield
        finally:
            self._margin = ("", "")

    def line(self, *pieces: Piece, indent: int = 0, hang: int = 0) -> None:
        """Print a text, one or several lines, with every space and tab.

        On a terminal, a long line continues below, indented by `indent` and `hang` columns.
        """
        if self.json:
            return
        if not self.terminal:
            text = visible("".join(p if isinstance(p, str) else p[0] for p in pieces))
            for part in text.split("\n"):
                row = self._margin[0] + (" " * indent + part if part else "")
                sys.stdout.write((row if part else row.rstrip()) + "\n")
            return
        from rich.segment import Segment, Segments

        width = self.width - len(self._margin[0])
        indent = indent if width > 2 * indent else 0
        styled = self.text(*pieces)
        segments: list[Segment] = []
        for lead, start, end in _rows(styled.plain, width, indent, hang):
            segments += self.text(self._margin).render(self.console)
            segments.append(Segment(" " * lead if end > start else ""))
            segments += styled[start:end].render(self.console, end="\n")
        self.console.print(Segments(segments), soft_wrap=True, end="")

    def labeled(self, head: Sequence[Piece], *pieces: Piece) -> None:
        """Print a line after a head; on a terminal, a long line continues next to the head."""
        width = sum(columns_of(p if isinstance(p, str) else p[0]) for p in head)
        self.line(*head, *pieces, hang=width if self.width >= 2 * width else 0)

    def hint(self, text: str) -> None:
        """Print a line below the output that only the terminal wraps, so that it can be copied.

        In a pipe, on stderr.
        """
        if self.terminal:
            self.console.print(self.text((text, "dim")), soft_wrap=True)
        else:
            self.note(text)

    def cropped(self, *pieces: Piece) -> None:
        """Print a line that is never wrapped; a terminal cuts it off."""
        if not self.terminal:
            self.line(*pieces)
            return
        line = self.text(*pieces)
        line.rstrip()
        self.console.print(line, no_wrap=True, overflow="crop", crop=True)

    def write(self, text: str) -> None:
        """Print a part of a line, and flush it."""
        if not self.json:
            sys.stdout.write(visible(text))
            sys.stdout.flush()

    def text(self, *pieces: Piece) -> "Text":
        """Return pieces as Rich's text, with control characters escaped."""
        from rich.text import Text

        made = Text()
        for piece in pieces:
            text, style = (piece, "") if isinstance(piece, str) else piece
            made.append(visible(text), style=style)
        return made

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: str = ""
    ) -> None:
        """Print a table. `numbers`: the columns that are aligned right, separated by spaces."""
        right = {place for place, column in enumerate(columns) if column in numbers.split()}
        shown = [[cell(str(value)) for value in row] for row in rows]
        shown.insert(0, [column.upper() for column in columns])
        widths = [max(map(columns_of, values)) for values in zip(*shown, strict=True)]
        for number, row in enumerate(shown):
            cells = [
                padded(value, widths[place], right=place in right)
                for place, value in enumerate(row)
            ]
            self.line(("  ".join(cells).rstrip(), "" if number else "bold"))

    def note(self, text: str) -> None:
        """Print a note on stderr."""
        if self._notes is not None:
            self._notes.append(text)
            return
        sys.stdout.flush()
        sys.stderr.write(f"hansard: {visible(text)}\n")
        sys.stderr.flush()

    def failures(self, reasons: Mapping[str, str]) -> None:
        """Print failures on stderr, by name."""
        for name, reason in reasons.items():
            self.note(f"{name}: {reason}")

    def confirm(self, question: str) -> bool:
        """Ask the user; raise without a terminal."""
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise click.UsageError("confirmation needs a terminal; pass --yes")
        sys.stdout.flush()
        return click.confirm(visible(question), default=False, err=True)

    def damaged(self, count: int, consequence: str) -> None:
        """Print a note about damaged sessions, if there are any."""
        if count:
            damaged = many(count, "session is", "sessions are")
            self.note(f"{damaged} damaged{consequence}; `hansard ls --damaged` lists them")

    def counted(
        self, label: str, pieces: "Iterable[bytes]", total: int, unit: str
    ) -> "Iterator[bytes]":
        """Yield pieces, with a progress bar that counts them; `total`: about how many there are."""
        with self.progress(label, unit) as update:
            for done, piece in enumerate(pieces, 1):
                yield piece
                update(min(done, total), total)

    @contextmanager
    def progress(
        self, label: str, unit: str, *, least: int = 0
    ) -> "Iterator[Callable[[int, int], None]]":
        """Show a progress bar while the block runs, if stderr is a terminal.

        Args:
            label: what is done.
            unit: what is counted.
            least: show it only if the total is at least this.
        """
        if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
            yield lambda _done, _total: None
            return
        from rich import progress as bars
        from rich.console import Console

        console = Console(stderr=True, markup=False, highlight=False, emoji=False)
        bar = bars.Progress(
            bars.TextColumn("{task.description}", markup=False),
            bars.BarColumn(bar_width=None if console.width < _WIDTH else 40),
            bars.MofNCompleteColumn(),
            bars.TextColumn(unit),
            bars.TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        task = bar.add_task(cell(label), total=None)

        def update(done: int, total: int) -> None:
            if total >= least:
                bar.start()
            bar.update(task, completed=done, total=total)

        if not least:
            bar.start()
        try:
            yield update
        finally:
            bar.stop()


def shorten(text: str, width: int, *, middle: bool = False) -> str:
    """Return a text shortened to a width; with `middle`, in its middle."""
    if columns_of(text) <= width:
        return text
    from rich.cells import set_cell_size

    tail = (width - 1) // 2 if middle else 0
    return set_cell_size(text, width - 1 - tail) + "…" + set_cell_size(text[::-1], tail)[::-1]


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Return a text padded to a width; with `right`, aligned right."""
    room = " " * max(width - columns_of(text), 0)
    return room + text if right else text + room


def rounded(number: int) -> str:
    """Return a number, abbreviated."""
    for least, unit, name in ((999_950_000, 10**9, "G"), (999_950, 10**6, "M"), (10**4, 1000, "k")):
        if number >= least:
            return f"{number / unit:.1f}{name}"
    return f"{number:,}"


def _rows(text: str, width: int, indent: int, hang: int) -> Iterator[tuple[int, int, int]]:
    """Yield the rows of a text on a terminal: indent, start and end.

    Every character but a line feed is in a row. A row ends after a space or tab, if it has one. Only a space
    may take the last column.
    """
    start = 0
    for line in text.split("\n"):
        end, lead, space, column = start + len(line), indent, start, indent
        if not line.isascii() or "\t" in line or indent + len(line) >= width:
            for place in range(start, end):
                character = text[place]
                step = _TAB - column % _TAB if character == "\t" else columns_of(character)
                if place > start and column + step >= width + (character == " "):
                    fold = space if space > start else place
                    yield lead, start, fold
                    start, lead = fold, indent + hang
                    column = lead + columns_of(text[start:place])
                    step = _TAB - column % _TAB if character == "\t" else step
                column += step
                if character in " \t":
                    space = place + 1
        yield lead, start, end
        start = end + 1


def columns_of(text: str) -> int:
    """Return the width of a text in columns."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


# -- characters that act on a terminal -----------------------------------------------------------
#
# A stored text may come from anyone. Sent raw, it could move the cursor, change the title, hide text or
# answer in the user's name. These characters are shown as escapes, such as `\x1b`.

#: C0 except tab and line feed, DEL, C1; line and paragraph separators; bidirectional marks; lone surrogates;
#: invisible tags.
_ACTING: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)

#: Those that JSON may contain unescaped.
_IN_JSON: Final = (
    "[\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """Return a text with control characters escaped; line breaks and tabs stay."""
    return _ACTING.sub(lambda found: ascii(found[0])[1:-1], text)


def cell(text: str) -> str:
    """Return the same in one line."""
    return visible(text).replace("\n", "↵").replace("\t", " ")
