"""Types of arguments: ages, times, points of a session, session ids."""

import json
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

import hansard
from hansard import clock
from hansard.cli.command import Settings, open_indexed, store_of_environment

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


#: A duration: `30d`, `12h`, `2w`.
AGE: Final = Parsed("age", _age)
#: A number of bytes: `10GB`, `512MiB`, `1000`.
SIZE: Final = Parsed("size", _size)
#: A time: `2026-11-16`, `2026-11-16T09:30` (local unless it names a zone), or `2d` ago.
MOMENT: Final = Parsed("time", _moment)


def key_value(option: str, text: str) -> tuple[str, str]:
    """Split KEY=VALUE."""
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise click.UsageError(f"{option} must be KEY=VALUE, got {text!r}")
    return key, value


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


def completed(
    ctx: click.Context,
    incomplete: str,
    find: "Callable[[hansard.Store], Iterable[tuple[str, Any]]]",
) -> "list[CompletionItem]":
    """Return the values that start with a text, each with its help; none if there is no store."""
    from click.shell_completion import CompletionItem

    from hansard.cli.completion import is_safe

    above: Any = ctx.parent.params.get("store") if ctx.parent else None
    settings = ctx.find_object(Settings)
    named = ctx.params.get("store") or above or (settings.store if settings else None)
    try:
        # With the index: the user must not wait until all logs are read.
        with open_indexed(named or store_of_environment()) as store:
            found = dict(find(store))
    except (hansard.HansardError, OSError, ValueError):
        return []
    return [
        CompletionItem(value, help=help)
        for value, help in found.items()
        # A shell ends a word at a line break, and a leading dash is an option.
        if value.startswith(incomplete) and value.isprintable() and is_safe(value)
        if incomplete.startswith("-") or not value.startswith("-")
    ]


def _named(ctx: click.Context) -> str:
    """Return the id in an unfinished call. Before an option's value is there, click leaves it in `args`."""
    return ctx.params.get("session_id") or next(iter(ctx.args), "")


def _completer(
    find: "Callable[[click.Context, hansard.Store], Iterable[tuple[str, Any]]]",
) -> "Callable[[click.Context, click.Parameter, str], list[CompletionItem]]":
    """Return a function that completes an option's value with what `find` returns."""
    return lambda ctx, _, incomplete: completed(ctx, incomplete, partial(find, ctx))


def _kinds(ctx: click.Context, store: "hansard.Store") -> Iterable[tuple[str, Any]]:
    """Return the kinds of the latest events of the named session."""
    session = store.session(_named(ctx))
    latest = session.events(after=max(session.seq - _LATEST, 0))
    return sorted({(event.kind, None) for event in latest})


def _metadata(_: click.Context, store: "hansard.Store") -> Iterable[tuple[str, Any]]:
    """Yield KEY=VALUE of the latest sessions."""
    for info in store.sessions(order="-updated", limit=_OFFERED):
        for key, value in info.metadata.items():
            text = value if isinstance(value, str) else json.dumps(value)
            if key != "title" and len(text) <= _LONGEST:
                yield f"{key}={text}", None


complete_kinds: Final = _completer(_kinds)
complete_metadata: Final = _completer(_metadata)
complete_models: Final = _completer(lambda _, store: dict.fromkeys(store.stats().models).items())


class PlaceType(Parsed):
    """A point of a session; the Tab key completes snapshot names."""

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002 - click's signature
        incomplete: str,
    ) -> "list[CompletionItem]":
        """Return the snapshot names of the named session that start with a text."""

        def labels(store: "hansard.Store") -> Iterable[tuple[str, Any]]:
            session = store.session(_named(ctx))
            return [(label, f"seq {seq}") for label, seq in session.snapshots.items()]

        return completed(ctx, incomplete, labels)


#: A seq (`12`), a time (`2026-11-16T09:30`), or a snapshot name.
PLACE: Final = PlaceType("seq|time|name", parse_place)


class SessionId(click.ParamType):  # type: ignore[type-arg] # generic in newer versions only
    """The id of a session; the Tab key completes it."""

    name = "id"

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002 - click's signature
        incomplete: str,
    ) -> "list[CompletionItem]":
        """Return the sessions whose ids start with a text."""
        return completed(ctx, incomplete, partial(self.find, incomplete))

    def find(self, incomplete: str, store: "hansard.Store") -> Iterable[tuple[str, Any]]:
        """Return ids that start with a text, with the titles."""
        found = store.sessions(prefix=incomplete, limit=_OFFERED)
        return [(info.id, info.title) for info in found]


class SessionPoint(SessionId):
    """The id of a session, or ID@NAME; the Tab key completes both."""

    def find(self, incomplete: str, store: "hansard.Store") -> Iterable[tuple[str, Any]]:
        """Return ids; after an `@`, the snapshot names of the session before it."""
        session_id, sign, _ = incomplete.rpartition("@")
        names = store.session(session_id).snapshots if sign and session_id else {}
        points = [(f"{session_id}@{name}", f"seq {seq}") for name, seq in names.items()]
        return [*super().find(incomplete, store), *points]


SESSION: Final = SessionId()
SESSION_POINT: Final = SessionPoint()

#: The argument of commands on one session, and on several.
session_argument = click.argument("session_id", metavar="ID", type=SESSION)
sessions_argument = click.argument("session_ids", metavar="[ID]...", nargs=-1, type=SESSION)
