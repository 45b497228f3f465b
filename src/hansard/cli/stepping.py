"""Go through a session by key: forward, back, to a number, to its ends.

Above: `commands.replay`.  Below: `telling`, `keys`.
One event is on the screen at a time. Each is read when it is looked at, so that a long session takes no more
memory than a short one.
"""

from typing import TYPE_CHECKING, Final

from hansard.cli.keys import RESIZED, Keys
from hansard.cli.screen import Screen, many
from hansard.cli.telling import Teller

if TYPE_CHECKING:
    from hansard import Event, Session

_NEXT: Final = frozenset({"n", " ", "j", "right", "down", "enter"})
_BACK: Final = frozenset({"p", "b", "k", "left", "up", "backspace"})
_LEAVE: Final = frozenset({"q", "escape", "end of input"})

_HELP: Final = "n next · p back · g first · G last · 12 Enter go to 12 · q quit"


def step_through(
    screen: Screen, session: "Session", seqs: list[int], *, full: bool, markdown: bool
) -> None:
    """Show one event after another, as the keys say."""
    if not seqs:
        screen.line("no such events")
        return
    place = 0
    typed = ""
    with Keys() as keys, screen.console.screen(hide_cursor=True):
        while True:
            teller = Teller(screen, full=full, markdown=markdown)
            _draw(screen, session, seqs, place, typed, teller)
            key = keys.read()
            if key in _LEAVE:
                return
            if key == RESIZED:
                continue
            if key.isdecimal():
                typed += key
                continue
            if typed:
                if key == "enter":
                    place = _nearest(seqs, int(typed))
                typed = typed[:-1] if key == "backspace" else ""
                if key in {"enter", "backspace"}:
                    continue
            place = _moved(place, key, len(seqs))


def _moved(place: int, key: str, count: int) -> int:
    """Return the place to which a key leads."""
    if key in _NEXT:
        place += 1
    elif key in _BACK:
        place -= 1
    elif key in {"g", "home"}:
        place = 0
    elif key in {"G", "end"}:
        place = count - 1
    elif key == "page down":
        place += 10
    elif key == "page up":
        place -= 10
    return min(max(place, 0), count - 1)


def _nearest(seqs: list[int], wanted: int) -> int:
    """Return the place of a seq, or of the last one before it."""
    from bisect import bisect_right

    return max(bisect_right(seqs, wanted) - 1, 0)


def _draw(
    screen: Screen, session: "Session", seqs: list[int], place: int, typed: str, teller: Teller
) -> None:
    console = screen.console
    # What does not fit is cut off below: the lines of the frame must stay where they are.
    with console.capture() as captured:
        event = _event(session, seqs[place])
        if event is not None:
            teller.event(event, alone=True)
    body = captured.get().removesuffix("\n").split("\n")
    room = max(console.height - 3, 1)
    head = f"{session.id} — event {seqs[place]}, {place + 1} of {len(seqs)}"
    foot = f"go to {typed}▏ (Enter)" if typed else _HELP
    if len(body) > room:
        more = f"… {many(len(body) - room + 1, 'line')} more: hansard replay --from {seqs[place]}"
        lines = [*body[: room - 1], _fit(more, console.width)]
    else:
        lines = body + [""] * (room - len(body))
    console.file.write("\x1b[H")
    console.print(screen.text((_fit(head, console.width), "reverse")), end="\n", overflow="crop")
    console.file.write("".join(f"\x1b[2K{line}\n" for line in lines))
    console.file.write("\x1b[J")
    console.print(screen.text((_fit(foot, console.width - 1), "dim")), end="", overflow="crop")
    console.file.flush()


def _fit(text: str, width: int) -> str:
    from hansard.cli.visible import cell

    text = cell(text)
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def _event(session: "Session", seq: int) -> "Event | None":
    return next(session.events(after=seq - 1), None)
