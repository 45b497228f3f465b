"""A naive model of sessions and forks, of dicts and lists, to compare the real ones with.

See `machine`, which makes the same calls here and there. Written from the design and the docstrings of
the public calls, as naively as possible: every question is answered by walking all events from the first one,
nothing is kept, and nothing of the store's own code is used.
"""

from decimal import Decimal
from typing import Any, NamedTuple

Json = dict[str, Any]
Placed = list[tuple[int, Json]]


class Fact:
    """One event."""

    def __init__(self, seq: int, kind: str, data: Json, key: str | None = None) -> None:
        self.seq = seq
        self.kind = kind
        self.data = data
        self.key = key
        #: The real event's, since a clock cannot be foretold.
        self.stamp = ""

    @property
    def stream(self) -> object:
        """The stream whose message the event adds; None for others."""
        return self.data.get("stream") if self.kind == "message.added" else None


class Plain:
    """One session: what was appended to it, and where it was forked from."""

    def __init__(self) -> None:
        self.own: list[Fact] = []
        self.parent: str | None = None
        self.forked_at = 0
        self.deleted = False
        #: First seq and number of events of each append with a key.
        self.keys: dict[str, tuple[int, int]] = {}

    @property
    def seq(self) -> int:
        """The last seq; 0 for a session that does not exist."""
        return self.own[-1].seq if self.own else 0

    def add(self, *facts: tuple[str, Json], key: str | None = None) -> list[Fact]:
        """Append facts, each a kind and its data; the key is the first one's."""
        first = (self.own[-1].seq if self.own else self.forked_at) + 1
        added = [
            Fact(first + place, kind, data, None if place else key)
            for place, (kind, data) in enumerate(facts)
        ]
        self.own += added
        if key is not None:
            self.keys[key] = (first, len(added))
        return added


class Gone(NamedTuple):
    """What was taken out of a session: seqs, streams, parts of streams, and all before a seq."""

    seqs: set[int]
    streams: set[str]
    parts: set[str]
    before: int = 0

    def has(self, fact: Fact) -> bool:
        """Return whether nothing is left of an event's content."""
        kind = fact.kind
        if kind == "message.part" and fact.data["stream"] in self.streams | self.parts:
            return True
        if fact.seq in self.seqs or fact.stream in self.streams:
            return True
        said = kind in {"message.added", "message.part", "summary.added"} or kind.startswith("x.")
        return said and fact.seq < self.before


class ReferenceModel:
    """All sessions by their ids."""

    def __init__(self) -> None:
        self.sessions: dict[str, Plain] = {}

    def session(self, name: str) -> Plain:
        """Return a session, which need not exist."""
        return self.sessions.setdefault(name, Plain())

    def live(self) -> list[str]:
        """Return the ids of the sessions that exist and are not deleted, sorted."""
        return sorted(n for n, plain in self.sessions.items() if plain.own and not plain.deleted)

    def depth(self, name: str) -> int:
        """Return of how many forks a session is one."""
        parent = self.session(name).parent
        return 0 if parent is None else self.depth(parent) + 1

    def facts(self, name: str, upto: int | None = None) -> list[Fact]:
        """Return all events of a session, inherited ones first, as they were appended."""
        plain = self.session(name)
        inherited = [] if plain.parent is None else self.facts(plain.parent, plain.forked_at)
        return [fact for fact in inherited + plain.own if upto is None or fact.seq <= upto]

    def gone(self, name: str) -> Gone:
        """Return what was ever taken out: by the session, or by those it inherits it from."""
        plain = self.session(name)
        found = Gone(set(), set(), set())
        before = 0
        if plain.parent is not None:
            above = self.gone(plain.parent)
            found.seqs.update(seq for seq in above.seqs if seq <= plain.forked_at)
            found.streams.update(above.streams)
            found.parts.update(above.parts)
            before = min(above.before, plain.forked_at + 1)
        for fact in plain.own:
            if fact.kind == "message.redacted":
                found.seqs.add(fact.data["seq"])
                found.streams.update([fact.data["stream"]] if "stream" in fact.data else [])
            elif fact.kind == "history.dropped":
                before = max(before, fact.data["before"])
                found.parts.update(fact.data.get("streams", []))
        return found._replace(before=before)

    def shown(self, name: str, gone: Gone | None = None) -> list[tuple[int, str, Json, str | None]]:
        """Return all events as a reader may see them."""
        gone = self.gone(name) if gone is None else gone
        found = []
        for fact in self.facts(name):
            data = fact.data
            # Which stream a part is of may be known, unless only this part was redacted.
            if fact.kind == "message.part" and gone._replace(seqs=set()).has(fact):
                data = {"stream": data["stream"], "over": True, "redacted": True}
            elif gone.has(fact):
                blank = {"message": None} if fact.kind == "message.added" else {}
                data = {**blank, "redacted": True}
            found.append((fact.seq, fact.kind, data, fact.key))
        return found

    def dropped(self, name: str, before: int) -> Json:
        """Return the data of the event that drops history before a seq; empty if nothing is dropped."""
        gone = self.gone(name)
        facts = [fact for fact in self.facts(name) if not gone.has(fact)]
        spans = [*_spans(facts), *_answered(facts)]
        while True:
            first = min((first for first, last in spans if first < before <= last), default=0)
            if not first:
                break
            before = first
        unfinished = _unfinished(facts, gone)
        begun = [
            fact.data["stream"]
            for fact in facts
            if fact.seq < before and fact.kind == "message.part" and "message" in fact.data
        ]
        streams = [stream for stream in begun if stream in unfinished]
        then = gone._replace(before=max(before, gone.before))
        changed = [
            kind
            for (_, _, data, _), (_, kind, blank, _) in zip(
                self.shown(name, gone), self.shown(name, then), strict=True
            )
            if data != blank
        ]
        facts_of_it = {
            "before": before,
            "reason": "r",
            "streams": streams,
            "events": len(changed),
            "messages": changed.count("message.added"),
        }
        return {word: value for word, value in facts_of_it.items() if value} if changed else {}

    def drop_hits(self, name: str, before: int) -> list[str]:
        """Return the forks, deleted ones too, that have something of what a bound takes out."""
        gone = self.gone(name)
        then = gone._replace(before=max(before, gone.before))
        pairs = zip(self.shown(name, gone), self.shown(name, then), strict=True)
        lowest = min(now[0] for now, after in pairs if now != after)
        return [
            child
            for child, plain in self.sessions.items()
            if plain.own and plain.parent == name and plain.forked_at >= lowest
        ]

    def seq_by(self, name: str, stamp: str) -> int:
        """Return the last seq by a time."""
        return max((fact.seq for fact in self.facts(name) if fact.stamp <= stamp), default=0)

    def view(self, name: str, view: str = "model", upto: int | None = None) -> Placed:
        """Return the messages of a view, each with its seq; a summary is first."""
        gone = self.gone(name)
        facts = self.facts(name, upto)
        if view == "history":
            return _said(facts, gone)
        walked = _walk(facts)
        begin, summary = 0, None
        covered = -1
        for fact in walked:
            if fact.kind == "session.cleared":
                begin, summary, covered = fact.seq, None, -1
            elif fact.kind != "summary.added" or gone.has(fact):
                continue
            elif fact.data["upto"] >= covered:
                summary, covered = fact, fact.data["upto"]
        rest = _said([fact for fact in walked if fact.seq > max(begin, covered)], gone)
        return rest if summary is None else [(summary.seq, summary.data["message"]), *rest]

    def messages(
        self,
        name: str,
        *,
        last: int | None = None,
        after: int = 0,
        at: int | None = None,
        view: str = "model",
    ) -> list[Json]:
        """Return the messages of a range of a view."""
        found = [message for seq, message in self.view(name, view, at) if seq > after]
        return found if last is None else found[max(0, len(found) - last) :]

    def metadata(self, name: str, upto: int | None = None) -> tuple[Json, bool]:
        """Return the metadata, and whether a person gave the title."""
        metadata: Json = {}
        named = False
        for fact in self.facts(name, upto):
            if fact.kind in {"metadata.set", "session.created"}:
                metadata, named = after_patch(metadata, named=named, data=fact.data)
        return metadata, named

    def snapshots(self, name: str, upto: int | None = None) -> dict[str, int]:
        """Return the labels; of two that are the same the later counts."""
        facts = self.facts(name, upto)
        marked = [fact.data for fact in facts if fact.kind == "session.snapshotted"]
        return {data["label"]: data["seq"] for data in marked}

    def usage(self, name: str, upto: int | None = None) -> dict[str, tuple[int, int, int, Decimal]]:
        """Return calls, tokens in, tokens out and cost, by model."""
        found: dict[str, tuple[int, int, int, Decimal]] = {}
        for fact in self.facts(name, upto):
            if fact.kind == "usage.recorded":
                data = fact.data
                calls, came, went, cost = found.get(data["model"], (0, 0, 0, Decimal(0)))
                found[data["model"]] = (
                    calls + 1,
                    came + data["input_tokens"],
                    went + data["output_tokens"],
                    cost + Decimal(str(data.get("cost", 0))),
                )
        return found

    def state(self, name: str, upto: int | None = None) -> Json:
        """Return all else that the events up to a seq add up to."""
        facts = self.facts(name, upto)
        metadata, named = self.metadata(name, upto)
        born = [fact for fact in facts if fact.kind == "session.forked"] or facts[:1]
        forked = born[-1].data if born and born[-1].kind == "session.forked" else None
        # Only the session is archived or closed, not its parent.
        own = facts if forked is None else [fact for fact in facts if fact.seq >= born[-1].seq]
        counts: dict[str, int] = {}
        for fact in facts:
            counts[fact.kind] = counts.get(fact.kind, 0) + 1
        return {
            "seq": facts[-1].seq if facts else 0,
            "created": born[-1].stamp if born else "",
            "updated": facts[-1].stamp if facts else "",
            "parent": forked["parent"] if forked else None,
            "forked_at": forked["seq"] if forked else 0,
            "forked_label": forked.get("label", "") if forked else "",
            "message_count": counts.get("message.added", 0),
            "metadata": metadata,
            "named": named,
            "snapshots": self.snapshots(name, upto),
            "streams": _unfinished(facts, self.gone(name)),
            "archived": _latest(own, "session.archived", "archived"),
            "closed": _latest(own, "session.closed", "closed"),
            "holds": {},
            "kinds": counts,
        }

    def children(self, name: str) -> list[str]:
        """Return the sessions that were forked from one and live, sorted."""
        return [child for child in self.live() if self.sessions[child].parent == name]


def _walk(facts: list[Fact]) -> list[Fact]:
    """Return the events that a view passes: a revert goes back to what was passed at its seq."""
    passed: dict[int, list[Fact]] = {0: []}
    walked: list[Fact] = []
    for fact in facts:
        if fact.kind == "session.reverted":
            walked = passed[fact.data["seq"]]
        walked = [*walked, fact]
        passed[fact.seq] = walked
    return walked


def _said(facts: list[Fact], gone: Gone) -> Placed:
    """Return the messages among some events; what was streamed and not finished is one, at its last part."""
    found: Placed = [
        (fact.seq, fact.data["message"])
        for fact in facts
        if fact.kind == "message.added" and not gone.has(fact)
    ]
    for stream, last in _unfinished(facts, gone).items():
        parts = [
            fact.data
            for fact in facts
            if fact.kind == "message.part" and fact.data["stream"] == stream
        ]
        text = "".join(part.get("text", "") for part in parts)
        begun = parts[0].get("message", {"role": "assistant"})
        found.append((last, {**begun, "content": text, "partial": True}))
    return sorted(found, key=lambda placed: placed[0])


def _unfinished(facts: list[Fact], gone: Gone) -> dict[str, int]:
    """Return the streams that have parts and no end, each with the seq of its last part."""
    found: dict[str, int] = {}
    for fact in facts:
        stream: str = fact.data.get("stream", "")
        if fact.kind == "message.part" and gone._replace(seqs=set()).has(fact):
            found.pop(stream, None)
        elif fact.kind == "message.part" and not fact.data.get("over"):
            found[stream] = fact.seq
        elif fact.kind in {"message.part", "message.added"}:
            found.pop(stream, None)
    return found


def _spans(facts: list[Fact]) -> list[tuple[int, int]]:
    """Return where each stream begins and where it was heard of last."""
    places: dict[str, list[int]] = {}
    for fact in facts:
        if fact.kind in {"message.part", "message.added"} and "stream" in fact.data:
            places.setdefault(fact.data["stream"], []).append(fact.seq)
    return [(seqs[0], seqs[-1]) for seqs in places.values()]


def _answered(facts: list[Fact]) -> list[tuple[int, int]]:
    """Return the seqs of calls and of their results, for chat messages."""
    waiting: dict[str, int] = {}
    found = []
    for fact in facts:
        message = fact.data["message"] if fact.kind == "message.added" else {}
        answered = message.get("tool_call_id")
        if answered in waiting:
            found.append((waiting.pop(answered), fact.seq))
        waiting.update({call["id"]: fact.seq for call in message.get("tool_calls", [])})
    return found


def _latest(facts: list[Fact], kind: str, word: str) -> bool:
    said = [fact.data.get(word, True) for fact in facts if fact.kind == kind]
    return bool(said and said[-1])


def after_patch(metadata: Json, *, named: bool, data: Json) -> tuple[Json, bool]:
    """Return the metadata after one event, and whether their title is a person's."""
    patch = dict(data.get("metadata", {}))
    if "title" in patch:
        if not data.get("automatic"):
            named = patch["title"] is not None
        elif named:
            del patch["title"]
    return merged(metadata, patch), named


def merged(target: Any, patch: Any) -> Any:
    """Return RFC 7396's MergePatch(target, patch), word for word."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def window(
    messages: list[Json], *, head: int, most: int | None, turns: int | None, keep_first: bool
) -> list[Json]:
    """Return the end of a view that fits, with no call cut from its result, for chat messages.

    The first `head` messages stay. A message of the user comes next, unless there is one in the head.
    """
    first, rest = messages[:head], messages[head:]
    users = [place for place, message in enumerate(rest) if message.get("role") == "user"]
    free = any(message.get("role") == "user" for message in first)
    left = None if most is None else max(most - head, 0)
    found = _best(rest, left, turns, [*range(len(rest))] if free else users)
    whole = [place for place in users if rest[place].get("partial") is not True]
    if keep_first and whole and whole[0] not in found:
        left = None if left is None else max(left - 1, 0)
        found = [whole[0], *_best(rest, left, turns, [*range(len(rest))])]
    return first + [rest[place] for place in found]


def _best(
    messages: list[Json], most: int | None, turns: int | None, starts: list[int]
) -> list[int]:
    """Return the longest of the lists that fit, else the shortest one that is not empty."""
    users = [place for place, message in enumerate(messages) if message.get("role") == "user"]
    wanted = 0 if most is None else max(0, len(messages) - most)
    if turns == 0:
        wanted = len(messages)
    elif turns is not None and len(users) > turns:
        wanted = max(wanted, users[-turns])
    if wanted == len(messages):
        return []
    lists = []
    for place in range(len(messages)):
        leads = [start for start in starts if start <= place]
        if leads and not _splits(messages, place):
            lists.append((place, sorted({leads[-1], *range(place, len(messages))})))
    if not lists:
        return _best(messages, most, turns, [*range(len(messages))])
    fit = [one for place, one in lists if place >= wanted and (most is None or len(one) <= most)]
    return fit[0] if fit else lists[-1][1]


def _splits(messages: list[Json], place: int) -> bool:
    """Return whether a result from a place on answers a call before it: the last one with its id."""
    called: dict[str, int] = {}
    for at, message in enumerate(messages):
        if at >= place and called.get(message.get("tool_call_id", ""), at) < place:
            return True
        called |= {call["id"]: at for call in message.get("tool_calls", [])}
    return False
