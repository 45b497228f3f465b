"""Types of arguments, such as ages and session ids; arguments and options that several commands have."""

import json
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

import hansard
from hansard import clock
from hansard.cli.command import open_indexed, store_of_environment

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

#: Maximum ids that the Tab key offers.
_OFFERED: Final = 200

#: Events whose kinds the Tab key offers, and maximum characters of a value of metadata.
_LATEST: Final = 1_000
_LONGEST: Final = 60

#: A point of a session, as `at=` takes it.
Place = int | str | datetime

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}

#: Seconds after which a time is shown as a date.
_LONG_AGO: Final = 14 * 86400


#: What the Tab key offers for an unfinished argument: values, each with its help.
Found = Iterable[tuple[str, str | None]]
Find = Callable[[click.Context, "hansard.Store", str], Found]


class Argument(click.ParamType):  # type: ignore[type-arg] # generic in newer versions only
    """A type of argument.

    Args:
        name: its name in the help.
        parse: returns the value; a ValueError is a usage error.
        find: returns what the Tab key offers.
    """

    def __init__(
        self, name: str, parse: Callable[[str], Any] = str, find: Find = lambda *_: ()
    ) -> None:
        self.name = name
        self.parse = parse
        self.find = find

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the parsed argument."""
        try:
            return self.parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)

    def shell_complete(
        self, ctx: click.Context, _: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        """Return the values that start with a text; none if there is no store."""
        from click.shell_completion import CompletionItem

        from hansard.cli.completion import is_safe

        above: Any = ctx.parent.params.get("store") if ctx.parent else None
        named = ctx.params.get("store") or above
        try:
            # With the index: the user must not wait until all logs are read.
            with open_indexed(named or store_of_environment()) as store:
                found = dict(self.find(ctx, store, incomplete))
        except (hansard.HansardError, OSError, ValueError):
            return []
        return [
            CompletionItem(value, help=help)
            for value, help in found.items()
            # A shell ends a word at a line break, and a leading dash is an option.
            if value.startswith(incomplete) and value.isprintable() and is_safe(value)
            if incomplete.startswith("-") or not value.startswith("-")
        ]


def _duration(text: str) -> timedelta | None:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smhdw])", text)
    return match and timedelta(seconds=float(match[1]) * _UNITS[match[2]])


def _age(text: str) -> timedelta:
    with suppress(OverflowError):
        if (age := _duration(text)) is not None:
            return age
    raise ValueError(f"must be a duration such as 30d, 12h or 2w (s, m, h, d, w), got {text!r}")


def _size(text: str) -> int:
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([kmgt]?)(i?)b?", text, re.IGNORECASE)
    if match is None:
        raise ValueError(f"must be a size such as 10GB or 512MiB, got {text!r}")
    power = " kmgt".index(match[2].lower() or " ")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)


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


def _key_value(text: str) -> tuple[str, Any]:
    """Split KEY=VALUE; the value is JSON, or else text."""
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise ValueError(f"must be KEY=VALUE, got {text!r}")
    try:
        json.loads(value)
    except ValueError:
        return key, value
    return key, parse_json(value, key)


def parse_json(text: str | bytes, where: str) -> Any:
    """Return the value of a JSON text, or raise an error that begins with `where`."""
    from hansard.importers.foreign_json import Unreadable
    from hansard.importers.source import Files

    try:
        return Files.decode(text)
    except Unreadable as error:
        raise click.UsageError(f"{where}: {error}") from error


def ago(then: datetime | None, at: datetime) -> str:
    """Return how long ago a time was, or its date if it was long ago."""
    if then is None:
        return ""
    seconds = (at - then).total_seconds()
    if seconds < -60:  # noqa: PLR2004 - another machine's clock
        return then.astimezone().isoformat(" ", "minutes")
    if seconds > _LONG_AGO:
        return then.astimezone().strftime("%Y-%m-%d")
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds // unit:.0f} {name} ago"
    return "just now"


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


def _snapshots(session: "hansard.Session", before: str = "") -> Found:
    return [(f"{before}{label}", f"seq {seq}") for label, seq in session.snapshots.items()]


def _session(ctx: click.Context, store: "hansard.Store") -> "hansard.Session":
    """Return the session of an unfinished call. Before an option's value, click leaves its id in `args`."""
    return store.session(ctx.params.get("session_id") or next(iter(ctx.args), ""))


def _ids(_: object, store: "hansard.Store", incomplete: str) -> Found:
    listed = store.sessions(prefix=incomplete, limit=_OFFERED)
    return [(info.id, info.title) for info in listed]


def _points(_: object, store: "hansard.Store", incomplete: str) -> Found:
    """Return ids; after an `@`, also the snapshot names of the session before it."""
    session_id = incomplete.rpartition("@")[0]
    named = _snapshots(store.session(session_id), f"{session_id}@") if session_id else ()
    return [*_ids(None, store, incomplete), *named]


def _kinds(ctx: click.Context, store: "hansard.Store", _: str) -> Found:
    """Return the kinds of the latest events of the named session."""
    session = _session(ctx, store)
    latest = session.events(after=max(session.seq - _LATEST, 0))
    return sorted({(event.kind, None) for event in latest})


def _metadata(_: object, store: "hansard.Store", __: str) -> Found:
    """Yield KEY=VALUE of the latest sessions."""
    for info in store.sessions(order="-updated", limit=_OFFERED):
        for key, value in info.metadata.items():
            text = value if isinstance(value, str) else json.dumps(value)
            if key != "title" and len(text) <= _LONGEST:
                yield f"{key}={text}", None


#: A duration: `30d`, `12h`, `2w`.
AGE: Final = Argument("age", _age)
#: A number of bytes: `10GB`, `512MiB`, `1000`.
SIZE: Final = Argument("size", _size)
#: A time: `2026-11-16`, `2026-11-16T09:30` (local unless it names a zone), or `2d` ago.
MOMENT: Final = Argument("time", _moment)
#: A seq (`12`), a time (`2026-11-16T09:30`), or a snapshot name.
PLACE: Final = Argument(
    "seq|time|name", parse_place, lambda ctx, store, _: _snapshots(_session(ctx, store))
)
#: The id of a session; the same, or ID@NAME; and that of one in the trash.
SESSION: Final = Argument("id", find=_ids)
SESSION_POINT: Final = Argument("id", find=_points)
TRASHED: Final = Argument("id", find=lambda _, store, __: dict.fromkeys(store.trash()).items())
#: Values of other options.
KIND: Final = Argument("kind", find=_kinds)
METADATA: Final = Argument("key=value", _key_value, _metadata)
MODEL: Final = Argument(
    "name", find=lambda _, store, __: dict.fromkeys(store.stats().models).items()
)

#: The argument of commands on one session, and on several.
session_argument = click.argument("session_id", metavar="ID", type=SESSION)
sessions_argument = click.argument("session_ids", metavar="[ID]...", nargs=-1, type=SESSION)

full_option = click.option("--full", is_flag=True, help="Do not truncate")
prefix_option = click.option("--prefix", default="", help="Only ids starting with TEXT")
yes_option = click.option("-y", "--yes", is_flag=True, help="Skip confirmation")


def count_option(
    *names: str, help: str, default: int | None = None, least: int = 0, most: int | None = None
) -> Callable[[Callable[..., int | None]], Callable[..., int | None]]:
    """Return an option that takes a number."""
    return click.option(
        *names,
        type=click.IntRange(least, most),
        default=default,
        show_default=default is not None,
        metavar="N",
        help=help,
    )
