"""Types of arguments: ages, times, points of a session, session ids."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

import hansard
from hansard import clock
from hansard.cli.command import Settings, open_indexed, store_of_environment

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

#: Maximum ids that the Tab key offers.
_OFFERED: Final = 200

#: A point of a session, as `at=` takes it.
Place = int | str | datetime

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}

#: Seconds after which a time is shown as a date.
_LONG_AGO: Final = 14 * 86400


class Parsed(click.ParamType):  # type: ignore[type-arg] # generic in newer versions only
    """An argument that a function parses. A ValueError is a usage error."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self.parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the parsed argument."""
        try:
            return self.parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _duration(text: str) -> timedelta | None:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhdw])", text)
    return match and timedelta(seconds=float(match[1]) * _UNITS[match[2]])


def _age(text: str) -> timedelta:
    try:
        age = _duration(text)
    except OverflowError:
        age = None
    if age is None:
        raise ValueError(f"must be a duration such as 30d, 12h or 2w (s, m, h, d, w), got {text!r}")
    return age


def _moment(text: str) -> datetime:
    text = text.strip()
    try:
        age = _duration(text)
        if age is not None:
            return clock.now() - age
        # May overflow: the year 1 of another zone may be the year 0 of UTC.
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            "must be a time such as 2026-11-16, 2026-11-16T09:30, or 2d for two days ago, "
            f"got {text!r}"
        ) from None


def parse_place(text: str) -> Place:
    """Return the point that a text names: a seq, a time, or else a snapshot."""
    if text.isdecimal() and text.isascii():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return time.astimezone() if time.tzinfo is None else time


#: A duration: `30d`, `12h`, `2w`.
AGE: Final = Parsed("age", _age)
#: A time: `2026-11-16`, `2026-11-16T09:30` (local unless it names a zone), or `2d` ago.
MOMENT: Final = Parsed("time", _moment)
#: A seq (`12`), a time (`2026-11-16T09:30`), or a snapshot name.
PLACE: Final = Parsed("seq|time|name", parse_place)


def key_value(option: str, text: str) -> tuple[str, str]:
    """Split KEY=VALUE."""
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise click.UsageError(f"{option} must be KEY=VALUE, got {text!r}")
    return key, value


def ago(stamp: str, at: datetime) -> str:
    """Return how long ago a time was, or its date if it was long ago."""
    if not stamp:
        return ""
    then = datetime.fromisoformat(stamp)
    seconds = (at - then).total_seconds()
    if seconds < -60:  # noqa: PLR2004 - another machine's clock
        return then.astimezone().strftime("%Y-%m-%d %H:%M")
    if seconds > _LONG_AGO:
        return then.astimezone().strftime("%Y-%m-%d")
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds // unit:.0f} {name} ago"
    return "just now"


def last_before(session: "hansard.Session", place: Place) -> int:
    """Return the seq before the event at a point."""
    if isinstance(place, datetime):
        return seq_at(session, place - timedelta(microseconds=1))
    return max(seq_at(session, place) - 1, 0)


def seq_at(session: "hansard.Session", place: Place) -> int:
    """Return the seq of the last event at a point; raise if there is none."""
    if isinstance(place, int):
        last = session.seq
        if place > last:
            raise hansard.InvalidEvent(
                f"session {session.id!r} has no event {place}; the last is {last}"
            )
        return place
    known = session.snapshots.get(place) if isinstance(place, str) else None
    return session.state(at=place).seq if known is None else known


class SessionId(click.ParamType):  # type: ignore[type-arg] # generic in newer versions only
    """The id of a session; the Tab key completes it."""

    name = "id"

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002 - click's signature
        incomplete: str,
    ) -> "list[CompletionItem]":
        """Return the sessions whose ids start with a text; none if there is no store."""
        from click.shell_completion import CompletionItem

        from hansard.cli.completion import is_safe

        above: Any = ctx.parent.params.get("store") if ctx.parent else None
        settings = ctx.find_object(Settings)
        named = ctx.params.get("store") or above or (settings.store if settings else None)
        try:
            # With the index: the user must not wait until all logs are read.
            with open_indexed(named or store_of_environment()) as store:
                found = store.sessions(prefix=incomplete, limit=_OFFERED).items
        except (hansard.HansardError, OSError, ValueError):
            return []
        return [
            CompletionItem(info.id, help=info.title)
            for info in found
            # A shell ends a word at a line break, and a leading dash is an option.
            if info.id.isprintable() and is_safe(info.id)
            if incomplete.startswith("-") or not info.id.startswith("-")
        ]


SESSION: Final = SessionId()

#: The argument of commands on one session, and on several.
session_argument = click.argument("session_id", metavar="ID", type=SESSION)
sessions_argument = click.argument("session_ids", metavar="[ID]...", nargs=-1, type=SESSION)
