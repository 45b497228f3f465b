"""Where output goes: a terminal, a pipe, or a program that reads JSON.

On a terminal there are colours (unless NO_COLOR is set), and tables that fit its width. In a pipe there is
the same text, plain, one line for each line, never wrapped or cut. Both show every character of a text: a
line that does not fit the terminal is wrapped here, since Rich would drop spaces and expand tabs. With --json
there is nothing but JSON on stdout. Progress, questions and remarks go to stderr.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from hansard.cli.visible import cell, json_line, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as RichProgress
    from rich.text import Text

#: A piece of a line: text, or text and its style.
Piece = str | tuple[str, str]

#: How many columns a terminal has that does not say so.
_WIDTH: Final = 80

#: How many columns there are between a terminal's tab stops.
_TAB: Final = 8


class Screen:
    """The output of one call.

    Attributes:
        json: stdout is for a program.
        terminal: stdout is a terminal, and for a person.
    """

    __slots__ = ("_console", "_errors", "json", "terminal")

    def __init__(self, *, json: bool) -> None:
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                # What cannot be written in the terminal's encoding is shown as an escape, and is no error.
                stream.reconfigure(errors="backslashreplace")
        self.json = json
        self.terminal = not json and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._console: Console | None = None
        self._errors: Console | None = None

    @property
    def interactive(self) -> bool:
        """Whether there is a person who sees the output and can answer."""
        return self.terminal and sys.stdin.isatty()

    @property
    def width(self) -> int:
        """How many columns there are, on a terminal."""
        return self.console.width if self.terminal else _WIDTH

    @property
    def console(self) -> "Console":
        """Rich's idea of the terminal."""
        if self._console is None:
            from rich.console import Console

            self._console = Console(markup=False, highlight=False, emoji=False)
        return self._console

    @property
    def pens(self) -> "Pens":
        """What to draw with: what the output can show."""
        return BLOCKS if _is_utf8() else ASCII

    # -- for programs ---------------------------------------------------------------------------

    def document(self, value: object) -> None:
        """With --json, print the one document of a command, indented if a person looks at it."""
        if not self.json:
            return
        import msgspec

        raw = msgspec.json.encode(value)
        if sys.stdout.isatty():
            raw = msgspec.json.format(raw, indent=2)
        self.record(raw)

    def record(self, value: object) -> None:
        """Print one line of a stream of JSON values; bytes are JSON already."""
        import msgspec

        raw = value if isinstance(value, bytes) else msgspec.json.encode(value)
        text = json_line(raw.decode())
        if not _is_utf8():
            text = "".join(c if c.isascii() else _escaped(c) for c in text)
        sys.stdout.write(text + "\n")

    def flush(self) -> None:
        """Let whoever reads see what was printed so far."""
        sys.stdout.flush()

    # -- for people -----------------------------------------------------------------------------

    def line(self, *pieces: Piece, indent: int = 0, hang: int = 0) -> None:
        """Print a line, or several if the text has several: every character of it, spaces and tabs too.

        On a terminal, what does not fit continues below, indented by `indent` and `hang` columns.
        """
        if self.json:
            return
        if not self.terminal:
            text = visible("".join(p if isinstance(p, str) else p[0] for p in pieces))
            for part in text.split("\n"):
                sys.stdout.write((" " * indent + part if part else "") + "\n")
            return
        from rich.segment import Segment, Segments

        margin = indent if self.width > 2 * indent else 0
        styled = [(p, "") if isinstance(p, str) else p for p in pieces]
        shown = [(visible(text), self.console.get_style(style or "none")) for text, style in styled]
        segments: list[Segment] = []
        for lead, start, end in _rows("".join(t for t, _ in shown), self.width, margin, hang):
            segments.append(Segment(" " * lead if end > start else ""))
            before = 0
            for text, style in shown:
                part = text[max(start - before, 0) : max(end - before, 0)]
                before += len(text)
                if part:
                    segments.append(Segment(part, style))
            segments.append(Segment.line())
        self.console.print(Segments(segments), soft_wrap=True, end="")

    def beside(self, head: Sequence[Piece], said: Sequence[Piece]) -> None:
        """Print a line with a head; on a terminal, what does not fit continues next to the head."""
        width = sum(columns_of(p if isinstance(p, str) else p[0]) for p in head)
        self.line(*head, *said, hang=width if self.width >= 2 * width else 0)

    def whole(self, *pieces: Piece) -> None:
        """Print a line that only the terminal wraps, so that it can be copied from there in one piece."""
        if not self.terminal:
            self.line(*pieces)
            return
        self.console.print(self.text(*pieces), soft_wrap=True)

    def unbroken(self, *pieces: Piece) -> None:
        """Print a line that is never wrapped: on a terminal, what does not fit is cut off."""
        if not self.terminal:
            self.line(*pieces)
            return
        line = self.text(*pieces)
        line.rstrip()
        self.console.print(line, no_wrap=True, overflow="crop", crop=True)

    def bit(self, text: str) -> None:
        """Print a part of a line, at once: somebody is still speaking."""
        if not self.json:
            sys.stdout.write(visible(text))
            sys.stdout.flush()

    def text(self, *pieces: Piece) -> "Text":
        """Return pieces as Rich has them, with nothing in them that acts on a terminal."""
        from rich.text import Text

        made = Text()
        for piece in pieces:
            text, style = (piece, "") if isinstance(piece, str) else piece
            made.append(visible(text), style=style)
        return made

    def markdown(self, text: str, *, indent: int = 0) -> None:
        """Print a text as Markdown: rendered on a terminal, as it is in a pipe."""
        if not self.terminal:
            self.line(text, indent=indent)
            return
        from rich.markdown import Markdown
        from rich.padding import Padding

        shown = _with_breaks(visible(text.replace("\r\n", "\n")))
        margin = indent if self.width > 2 * indent else 0
        # Links as text: where a link leads must be seen before it is followed.
        rendered = Markdown(shown, hyperlinks=False, code_theme="ansi_dark")
        self.console.print(Padding(rendered, (0, 0, 0, margin)))

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: str = ""
    ) -> None:
        """Print a table. `numbers`: the columns, separated by spaces, that stand to the right."""
        if self.json:
            return
        places = {place for place, column in enumerate(columns) if column in numbers.split()}
        shown = [[cell(str(value)) for value in row] for row in rows]
        if self.terminal:
            self._rich_table(columns, shown, places)
            return
        widths = [
            max(len(column), *(columns_of(row[place]) for row in shown), 0)
            for place, column in enumerate(columns)
        ]
        for row in ([column.upper() for column in columns], *shown):
            cells = [
                padded(value, width, right=place in places)
                for place, (value, width) in enumerate(zip(row, widths, strict=True))
            ]
            sys.stdout.write("  ".join(cells).rstrip() + "\n")

    def _rich_table(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], places: set[int]
    ) -> None:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
        for place, column in enumerate(columns):
            table.add_column(
                column,
                justify="right" if place in places else "left",
                no_wrap=place in places,
                overflow="fold",
            )
        for row in rows:
            table.add_row(*(Text(value) for value in row))
        self.console.print(table)

    def note(self, text: str) -> None:
        """Remark something on stderr."""
        sys.stdout.flush()
        sys.stderr.write(f"hansard: {visible(text)}\n")
        sys.stderr.flush()

    def failures(self, reasons: Mapping[str, str]) -> None:
        """Remark on stderr what failed, by name, and why."""
        for name, reason in reasons.items():
            self.note(f"{name}: {reason}")

    def confirm(self, question: str, *, instead: str) -> bool:
        """Ask a person; where nobody can answer, refuse and name the option that answers."""
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise click.UsageError(f"nobody is there to ask: {question} {instead} answers yes")
        sys.stdout.flush()
        return click.confirm(visible(question), default=False, err=True)

    @contextmanager
    def progress(self, label: str, *, unit: str = "bytes") -> "Iterator[Progress]":
        """Show how far something is, on stderr, while the block runs: only if stderr is a terminal.

        `unit`: "bytes", which come with a rate, or what is counted.
        """
        if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
            yield Progress(None)
            return
        from rich import progress as bars
        from rich.console import Console

        amount: list[bars.ProgressColumn] = (
            [bars.DownloadColumn(binary_units=True), bars.TransferSpeedColumn()]
            if unit == "bytes"
            else [bars.MofNCompleteColumn(), bars.TextColumn(unit)]
        )
        console = Console(stderr=True, markup=False, highlight=False, emoji=False)
        with bars.Progress(
            bars.TextColumn("{task.description}", markup=False),
            bars.BarColumn(bar_width=None if console.width < _WIDTH else 40),
            *amount,
            bars.TimeRemainingColumn(),
            console=console,
            transient=True,
        ) as shown:
            yield Progress(shown, label=cell(label))

    @contextmanager
    def progress_if_slow(
        self, label: str, *, unit: str, least: int = 200
    ) -> "Iterator[Callable[[int, int], None]]":
        """The same, for what mostly is done at once: nothing is shown of fewer than some things to do."""
        with ExitStack() as stack:
            shown: list[Progress] = []

            def update(done: int, total: int) -> None:
                if not shown and total >= least:
                    shown.append(stack.enter_context(self.progress(label, unit=unit)))
                for progress in shown:
                    progress.update(done, total)

            yield update


class Progress:
    """A progress bar, or nothing."""

    __slots__ = ("_bar", "_task")

    def __init__(self, bar: "RichProgress | None", *, label: str = "") -> None:
        self._bar = bar
        self._task = None if bar is None else bar.add_task(label, total=None)

    def update(self, done: int, total: int) -> None:
        """Say how much is done, and of how much."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=total)

    def label(self, text: str) -> None:
        """Say what is being done now."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=cell(text))


class Pens(NamedTuple):
    """What lines are drawn with: characters that the output has, be it ASCII only."""

    #: Between a session and its forks: to one of several, to the last, past others, past nothing.
    branch: str
    last: str
    past: str
    nothing: str
    #: From an eighth of a place to all of it: from the left, and from below.
    across: str
    upward: str
    #: What is left out.
    dots: str
    #: The line under a plot.
    ground: str


BLOCKS = Pens("├─ ", "└─ ", "│  ", "   ", "▏▎▍▌▋▊▉█", "▁▂▃▄▅▆▇█", "…", "─")
ASCII = Pens("|- ", "`- ", "|  ", "   ", "#", "#", "~", "-")


def _is_utf8() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def shorten(text: str, width: int, dots: str, *, middle: bool = False) -> str:
    """Return a text that takes at most so many columns. `middle`: its end says as much as its beginning."""
    if columns_of(text) <= width:
        return text
    room = width - len(dots)
    if room < 1:
        return dots[:width]
    tail = room // 2 if middle else 0
    return _head(text, room - tail) + dots + _head(text[::-1], tail)[::-1]


def _head(text: str, width: int) -> str:
    taken = 0
    for place, character in enumerate(text):
        taken += columns_of(character)
        if taken > width:
            return text[:place]
    return text


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Return a text that takes so many columns, if it does not take more. `right`: it stands at the right."""
    room = " " * max(width - columns_of(text), 0)
    return room + text if right else text + room


def size(number: float) -> str:
    """Return a number of bytes as people say it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(number) < 1024:  # noqa: PLR2004 - the next unit
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def many(number: int, thing: str, things: str = "") -> str:
    """Return `1 event`, `2 events`."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def _with_breaks(text: str) -> str:
    """Return Markdown whose lines stay lines: who presses Enter in a chat means it."""
    lines = text.split("\n")
    fenced = False
    for place, line in enumerate(lines[:-1]):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced and line.strip() and lines[place + 1].strip():
            lines[place] = line + "  "  # two spaces: Markdown's own sign for it
    return "\n".join(lines)


def _rows(text: str, width: int, indent: int, hang: int) -> Iterator[tuple[int, int, int]]:
    """Yield the rows that a text takes on a terminal: the indent, and where the row begins and ends.

    Every character but a line feed is in a row. A row ends after a space or a tab if it has one; a space may
    take the last column, which is free otherwise.
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
    """Return how many columns a text takes."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def _escaped(character: str) -> str:
    import json

    return json.dumps(character)[1:-1]
