"""Add up a store: its size, its growth, and the usage of models.

Each event counts once, in the session that appended it: forks do not count what they inherit. Counting reads
all of a session, also what was compacted, which a listing never does. So it happens when `stats` is called;
the result is stored, and continued when the session has grown.
"""

import re
from collections import Counter
from collections.abc import Iterable
from itertools import repeat
from typing import Any, Final

import msgspec

from hansard.backend.contract import Backend, LogReader, Progress
from hansard.errors import UNREADABLE, SessionDeleted
from hansard.event.kinds import MESSAGE_ADDED, USAGE_RECORDED
from hansard.index import DayStats, StoreStats
from hansard.index.listing import SessionFilter, clause
from hansard.index.sqlite_storage import Storage
from hansard.message.parse import parse
from hansard.state import fold, redaction
from hansard.state.fold import Usage


class Tally(msgspec.Struct, array_like=True):
    """What happened in a session up to a seq.

    Attributes:
        days: events, messages and tokens by day (UTC).
        usage: usage by model.
        tools: calls and failures by tool.
        waiting: the tools of calls without a result so far, by the call's id.
    """

    seq: int = 0
    days: dict[str, tuple[int, int, int]] = {}
    usage: dict[str, Usage] = {}
    tools: dict[str, list[int]] = {}
    waiting: dict[str, str] = {}


_decode: Final = msgspec.json.Decoder(Tally).decode

_FRESH: Final = "t.seq = s.seq AND t.bytes = s.bytes"


def count(log: LogReader, before: Tally, upto: int) -> Tally:
    """Return what happened in a session itself up to a seq; `before`: what was counted already."""
    redactions = redaction.of(log.controls())
    days = {day: [*counts] for day, counts in before.days.items()}
    tools = {name: [*counts] for name, counts in before.tools.items()}
    usage = dict(before.usage)
    waiting = dict(before.waiting)
    for chunk in log.read(before.seq, upto):
        for event in chunk.events():
            added, day = event.kind == MESSAGE_ADDED, event.stamp[:10]
            _add(days, day, (1, added, 0))
            if added and _CALLS.search(event.raw):
                _count_calls(redactions.mask(event).message, tools, waiting)
            elif event.kind == USAGE_RECORDED and (call := fold.usage_of(redactions.mask(event))):
                model, used = call
                _add(days, day, (0, 0, used.input_tokens + used.output_tokens))
                usage[model] = fold.add_usage(usage.get(model, Usage()), used)
    counted: Any = {day: tuple(counts) for day, counts in days.items()}
    return Tally(upto, counted, usage, tools, waiting)


#: What a message with a call or a result contains, in every known shape.
_CALLS: Final = re.compile(rb"(?i)tool|function|call")


def _count_calls(message: Any, tools: dict[str, list[int]], waiting: dict[str, str]) -> None:
    """Add the calls of a message, and the failed ones among its results."""
    for part in parse(message).parts if isinstance(message, dict) else ():
        if part.kind == "call":
            waiting[part.call_id] = part.name
            _add(tools, part.name, (1, 0))
        elif part.kind == "result":
            name = waiting.pop(part.call_id, "")
            if part.failed:
                _add(tools, part.name or name, (0, 1))


def refresh(
    backend: Backend, storage: Storage, filters: SessionFilter, progress: Progress | None = None
) -> set[int]:
    """Count what is new in the wanted sessions; return those that were deleted concurrently."""
    deleted: set[int] = set()
    conditions = clause(storage, filters._replace(damaged=False)).plus(f"({_FRESH}) IS NOT TRUE")
    rows = storage.all(
        "SELECT s.n, s.id, s.seq, s.bytes, t.data "  # noqa: S608 - values are apart
        f"FROM index_session s LEFT JOIN index_tally t ON t.n = s.n{conditions.text}",
        *conditions.values,
    )
    for place, (n, session_id, seq, size, data) in enumerate(rows, 1):
        try:
            log = backend.log(session_id).reader()
            counted = count(log, Tally() if data is None else _decode(data), seq)
            saved = log.size(unpacked=True) - log.size()
        except SessionDeleted:
            deleted.add(n)
        except UNREADABLE:
            # Damaged where a listing has not read: none of it is counted.
            storage.do("DELETE FROM index_tally WHERE n = ?", n)
        else:
            tally = msgspec.json.encode(counted).decode()
            storage.upsert("index_tally", n=n, seq=seq, bytes=size, saved=saved, data=tally)
        if progress is not None:
            progress(place, len(rows))
    return deleted


def stats(
    backend: Backend, storage: Storage, filters: SessionFilter, progress: Progress | None = None
) -> StoreStats:
    """Add up the wanted sessions, all of them as of one moment."""
    with storage.changing():
        deleted = refresh(backend, storage, filters, progress)
        conditions = clause(storage, filters)
        rows = storage.all(
            "SELECT s.n, s.damaged, s.archived, s.parent IS NOT NULL, "  # noqa: S608 - as above
            "s.workspace, s.created, s.bytes, t.saved, t.data FROM index_session s "
            f"LEFT JOIN index_tally t ON t.n = s.n AND {_FRESH}{conditions.text}",
            *conditions.values,
        )
    total: Counter[str] = Counter()
    workspaces: Counter[str] = Counter()
    #: Sessions, events and messages of each day.
    days: dict[str, list[int]] = {}
    tools: dict[str, list[int]] = {}
    models: dict[str, Usage] = {}
    for n, damaged, archived, forked, workspace, created, size, saved, data in rows:
        if n in deleted:
            continue
        total.update(sessions=1, forks=forked)
        if damaged or data is None:
            total["damaged"] += 1
            continue
        total.update(archived=archived, bytes=size, raw_bytes=size + saved)
        if workspace is not None:
            workspaces[workspace] += 1
        counted = _decode(data)
        _add(days, created[:10], (1, 0, 0, 0))
        for day, (events, messages, tokens) in counted.days.items():
            _add(days, day, (0, events, messages, tokens))
            total.update(events=events, messages=messages)
        for tool, counts in counted.tools.items():
            _add(tools, tool, counts)
        for model, used in counted.usage.items():
            models[model] = fold.add_usage(models.get(model, Usage()), used)
    return StoreStats(
        **total,
        days={day: DayStats(*days[day]) for day in sorted(days)},
        models={model: models[model] for model in sorted(models)},
        workspaces=dict(sorted(workspaces.items())),
        tools={name: (calls, bad) for name, (calls, bad) in sorted(tools.items())},
    )


def _add(sums: dict[str, list[int]], key: str, values: Iterable[int]) -> None:
    before = sums.get(key) or repeat(0)
    sums[key] = [one + more for one, more in zip(before, values, strict=False)]
