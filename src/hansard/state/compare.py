"""Compare two sessions, or two points of one: what they share, and what only one of them has.

Messages are compared as JSON, in which the order of members does not count. Tool calls are compared by name,
arguments and result, and not by their ids, which differ in every run.
"""

import sys
from collections.abc import Hashable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, Literal, NamedTuple

import msgspec

from hansard.backend.contract import Backend, LogReader
from hansard.message.parse import parse
from hansard.state import lineage, view
from hansard.state.fold import State
from hansard.state.view import NumberedMessage

#: Longer ranges count as replaced: to align them would take the square of their length.
_ALIGNED: Final = 2_000

_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class Place(msgspec.Struct, frozen=True):
    """A point of a session: its id, and a seq."""

    session: str
    seq: int


class Divergence(msgspec.Struct, frozen=True):
    """Where two views first differ.

    Attributes:
        after: how many messages they begin with in common.
        a, b: the seqs of the messages that follow in each; None where there is none.
    """

    after: int
    a: int | None
    b: int | None


class ToolCall(msgspec.Struct, frozen=True):
    """A tool call of a view.

    Attributes:
        seq: the seq of the message with the call.
        name: the name of the tool.
        arguments: the arguments, decoded if they are JSON.
        result: the result as text; None if there is none.
    """

    seq: int
    name: str
    arguments: Any
    result: str | None


class CallDifference(msgspec.Struct, frozen=True):
    """A tool call that differs.

    Attributes:
        what: "arguments" (same tool, other arguments), "result" (same call, other result), "only a" or
            "only b".
        a, b: the call in each; None where there is none.
    """

    what: Literal["arguments", "result", "only a", "only b"]
    a: ToolCall | None = None
    b: ToolCall | None = None


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value that differs.

    Attributes:
        a: the value in the first session; `msgspec.UNSET` if it has none.
        b: the value in the second session; `msgspec.UNSET` if it has none.
    """

    a: Any = msgspec.UNSET
    b: Any = msgspec.UNSET


class Comparison(msgspec.Struct, frozen=True):
    """The differences between two sessions, or two points of one.

    Attributes:
        a, b: the two points.
        base: the last event that both have by descent, in the session that added it; None if neither was
            forked from the other, nor both from a third.
        divergence: where their model views first differ; None if they are equal.
        same: number of messages in both views.
        only_a, only_b: the messages that only one of them has, in order.
        calls: the tool calls that differ.
        metadata, usage, snapshots: the differences, by key, model or snapshot name.
    """

    a: Place
    b: Place
    base: Place | None
    divergence: Divergence | None
    same: int
    only_a: list[NumberedMessage]
    only_b: list[NumberedMessage]
    calls: list[CallDifference]
    metadata: dict[str, Change]
    usage: dict[str, Change]
    snapshots: dict[str, Change]

    @property
    def equal(self) -> bool:
        """True if nothing differs."""
        return not (self.divergence or self.metadata or self.usage or self.snapshots)


class Side(msgspec.Struct, frozen=True):
    """One of the two: a session with what it inherits, its state at a seq, and its store."""

    log: LogReader
    state: State
    home: Backend


def compare(one: Side, other: Side) -> Comparison:
    """Compare two sessions at the seqs of their states."""
    a, b = _messages(one), _messages(other)
    blocks = _blocks([_encode(said.message) for said in a], [_encode(said.message) for said in b])
    begin = len(blocks[0].a)
    only_a = [a[place] for block in blocks if not block.same for place in block.a]
    only_b = [b[place] for block in blocks if not block.same for place in block.b]
    base = None
    # One store may be opened twice, but not one in memory.
    lasting = one.home.durability != "none"
    if one.home is other.home or (lasting and one.home.where == other.home.where):
        base = lineage.merge_base(one.log, one.state.seq, other.log, other.state.seq)
    return Comparison(
        a=Place(one.log.session_id, one.state.seq),
        b=Place(other.log.session_id, other.state.seq),
        base=None if base is None else Place(*base),
        divergence=Divergence(begin, _seq_at(a, begin), _seq_at(b, begin))
        if only_a or only_b
        else None,
        same=len(a) - len(only_a),
        only_a=only_a,
        only_b=only_b,
        calls=list(_calls(_called(a), _called(b))),
        metadata=_changes(one.state.metadata, other.state.metadata),
        usage=_changes(
            msgspec.to_builtins(one.state.usage), msgspec.to_builtins(other.state.usage)
        ),
        snapshots=_changes(one.state.snapshots, other.state.snapshots),
    )


def _messages(side: Side) -> list[NumberedMessage]:
    shown = view.read_last(
        side.log, view.decoded, view.ranges_of(side.log, upto=side.state.seq), sys.maxsize
    )
    return [NumberedMessage(seq, message) for seq, message in shown]


def _seq_at(messages: Sequence[NumberedMessage], place: int) -> int | None:
    return messages[place].seq if place < len(messages) else None


def _changes(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Change]:
    """Return the differences between two mappings, by key."""
    found = {}
    for key in (*one, *(key for key in other if key not in one)):
        a, b = one.get(key, msgspec.UNSET), other.get(key, msgspec.UNSET)
        # As JSON: to Python, 1 is true.
        if a is msgspec.UNSET or b is msgspec.UNSET or _encode(a) != _encode(b):
            found[key] = Change(a, b)
    return found


class _Block(NamedTuple):
    """Places that follow one another in each of two lists, which are the same there or not."""

    a: range
    b: range
    same: bool = True


def _blocks(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[_Block]:
    """Return all places of two lists, in order; the first block is their common beginning."""
    shorter = min(len(a), len(b))
    begin = next((place for place in range(shorter) if a[place] != b[place]), shorter)
    end = 0
    while end < shorter - begin and a[-1 - end] == b[-1 - end]:
        end += 1
    left_a, left_b = range(begin, len(a) - end), range(begin, len(b) - end)
    if max(len(left_a), len(left_b)) > _ALIGNED:
        found = [_Block(left_a, left_b, same=False)]
    else:
        some_a, some_b = a[begin : left_a.stop], b[begin : left_b.stop]
        codes = SequenceMatcher(None, some_a, some_b, autojunk=False).get_opcodes()
        found = [_Block(left_a[i:j], left_b[k:m], what == "equal") for what, i, j, k, m in codes]
    last = _Block(range(left_a.stop, len(a)), range(left_b.stop, len(b)))
    return [_Block(range(begin), range(begin)), *found, last]


def _called(messages: Sequence[NumberedMessage]) -> list[ToolCall]:
    """Return the tool calls in some messages, each with its result."""
    calls: list[ToolCall] = []
    #: The places of calls without a result, by what call and result share.
    waiting: dict[str, int] = {}
    for said in messages:
        for part in parse(said.message).parts:
            shared = part.call_id or part.name
            if part.kind == "call":
                waiting[shared] = len(calls)
                calls.append(ToolCall(said.seq, part.name, _value(part.value), None))
            elif part.kind == "result" and shared in waiting:
                place = waiting.pop(shared)
                calls[place] = msgspec.structs.replace(calls[place], result=part.text)
    return calls


def _value(given: Any) -> Any:
    """Return the arguments of a call, decoded if they are a string of JSON."""
    if not isinstance(given, str):
        return given
    try:
        return msgspec.json.decode(given) if given else None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return given


def _calls(a: list[ToolCall], b: list[ToolCall]) -> Iterator[CallDifference]:
    """Yield the calls that differ, in order."""
    asked_a = [(call.name, _encode(call.arguments)) for call in a]
    asked_b = [(call.name, _encode(call.arguments)) for call in b]
    for block in _blocks(asked_a, asked_b):
        here, there = [a[place] for place in block.a], [b[place] for place in block.b]
        if not block.same:
            yield from _replaced(here, there)
            continue
        for one, other in zip(here, there, strict=True):
            if one.result != other.result:
                yield CallDifference("result", one, other)


def _replaced(a: list[ToolCall], b: list[ToolCall]) -> Iterator[CallDifference]:
    """Yield calls in the same place of each: those of one tool belong together, in their order."""
    rest = list(b)
    for call in a:
        twin = next((other for other in rest if other.name == call.name), None)
        if twin is None:
            yield CallDifference("only a", call)
        else:
            rest.remove(twin)
            yield CallDifference("arguments", call, twin)
    for call in rest:
        yield CallDifference("only b", None, call)
