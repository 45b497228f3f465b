"""All that can be done to sessions: what the real ones and the plain lists are put through.

See `machine_steps` (which chooses, and makes each call twice), `test_machine` (which runs it).
"""

from datetime import datetime
from typing import Any

import pytest
from hypothesis import strategies as st

import hansard
from hansard import Event
from hansard.stream import Stream
from tests.properties.machine_steps import MESSAGES, NAMES, PATCHES, PLACES, Stepping, action
from tests.properties.reference_model import Json, Plain, after_patch

LABELS = st.sampled_from(["start", "before tools"])
TITLES = st.sampled_from(["T", "U"])
#: A seq of a session, as a share of its length: 0 is the beginning, 12 the end, 13 after it.
SHARES = st.integers(0, 13)


class Running:
    """A message that is being streamed, there and here."""

    def __init__(self, stream: Stream, name: str, place: int, begun: Json) -> None:
        self.stream = stream
        self.name = name
        self.place = place
        self.begun = begun
        self.text = ""

    def __repr__(self) -> str:
        return f"a stream of {self.name}, begun at {self.place}"


class Conversations(Stepping):
    """Sessions of which any may be forked from any other."""

    @action(
        6,
        when=lambda self: self.plain.live(),
        place=PLACES,
        share=st.integers(0, 13),
        how=st.sampled_from(["end", "seq", "seq", "label", "time"]),
        taken=st.integers(0, 5).map(lambda number: number == 0),
    )
    def fork(self, place: int, share: int, how: str, taken: bool) -> None:
        """Fork a session somewhere, to an id that may be taken."""
        name = self.draw(st.sampled_from(self.plain.live()))
        self._fork(place, name, share, how, taken=taken)

    @action(4, when=lambda self: self._forks(), place=PLACES, share=st.integers(0, 12))
    def fork_again(self, place: int, share: int) -> None:
        """Fork a fork, at any place: before the fork itself, at it, or after it."""
        name = self.draw(st.sampled_from(self._forks()))
        self._fork(place, name, share, "seq", taken=False)

    def _forks(self) -> list[str]:
        return [name for name in self.plain.live() if self.plain.session(name).parent]

    def _fork(self, place: int, name: str, share: int, how: str, *, taken: bool) -> None:
        free = [name for name in NAMES if not self.plain.session(name).own]
        child = self.draw(st.sampled_from(NAMES if taken or not free else free))
        session = self.handle(place, name)
        at: Any = None
        seq = self.plain.session(name).seq
        labels = self.plain.snapshots(name)
        if how == "label" and labels:
            at, seq = sorted(labels.items())[share % len(labels)]
        elif how == "time":
            facts = self.plain.facts(name)
            stamp = facts[share % len(facts)].stamp
            at, seq = datetime.fromisoformat(stamp), self.plain.seq_by(name, stamp)
        elif how == "seq":
            at = seq = self.seq(name, share)
        target = self.plain.session(child)
        refuses: type[Exception] | None = hansard.SessionExists if target.own else None
        if seq > self.plain.session(name).seq:
            refuses = hansard.InvalidEvent
            if target.deleted:
                return  # the order of the two does not matter
        if refuses is None:
            target.parent, target.forked_at = name, seq
        data = {"parent": name, "seq": seq, "created": self.plain.session(name).own[0].stamp}
        depth = self.plain.depth(name) + 1
        if depth > 1:
            data["depth"] = depth
        if isinstance(at, str):
            data["label"] = at
        self.do(
            child, lambda: session.fork(child, at=at), ("session.forked", data), refuses=refuses
        )

    @action(3, place=PLACES, label=LABELS)
    def snapshot(self, place: int, name: str, label: str) -> None:
        """Give the present seq a label."""
        data = {"label": label, "seq": self.plain.session(name).seq}
        self.do(
            name, lambda: self.handle(place, name).snapshot(label), ("session.snapshotted", data)
        )

    @action(3, place=PLACES, share=SHARES, label=st.none() | LABELS)
    def revert(self, place: int, name: str, share: int, label: str | None) -> None:
        """Go back to a seq or a label; a revert of a revert is one to a seq before it."""
        plain = self.plain.session(name)
        known = self.plain.snapshots(name)
        to = self.seq(name, share) if label is None else known.get(label, 0)
        wrong = to > plain.seq if label is None else label not in known
        self.do(
            name,
            lambda: self.handle(place, name).revert(to if label is None else label),
            ("session.reverted", {"seq": to}),
            refuses=hansard.InvalidEvent if wrong else None,
        )

    @action(2, when=lambda self: self.plain.live(), place=PLACES, back=st.integers(1, 3))
    def undo(self, place: int, back: int) -> None:
        """Go back by a few events, most often over another revert."""
        name = self.draw(st.sampled_from(self.plain.live()))
        to = max(0, self.plain.session(name).seq - back)
        self.do(
            name, lambda: self.handle(place, name).revert(to), ("session.reverted", {"seq": to})
        )

    @action(5, when=lambda self: self.plain.live(), place=PLACES)
    def redact(self, place: int) -> None:
        """Take out any event that has something to take out, own or inherited; others are refused."""
        parents = [name for name in self.plain.live() if self.plain.children(name)]
        name = self.draw(st.sampled_from(self.plain.live() + 2 * parents))
        facts = self.plain.facts(name)
        wanted = {"message.added", "message.part", "summary.added"}
        places = [fact.seq for fact in facts if fact.kind in wanted] or [0]
        places += [fact.seq for fact in facts if fact.kind == "message.part"]
        seq = self.draw(st.sampled_from(places) | st.integers(0, facts[-1].seq + 1))
        found = [fact for fact in facts if fact.seq == seq and fact.kind in wanted]
        # Of a message that was finished, whichever part is named, the message goes.
        stream = self._stream_of(name, seq) if found else None
        finished = [
            fact.seq
            for fact in facts
            if fact.kind == "message.added" and fact.data.get("stream") == stream and stream
            and fact.seq >= seq and not self.plain.gone(name).has(fact)
        ]  # fmt: skip
        taken = finished[0] if finished else seq
        redaction = {"seq": taken, "reason": "r", **({"stream": stream} if stream else {})}
        self.do(
            name,
            lambda: self.handle(place, name).redact(seq, reason="r"),
            ("message.redacted", redaction),
            *[
                ("message.redacted", {"seq": copy, "reason": "r"})
                for copy in self._copies_of(name, seq)
            ],
            refuses=None if found else hansard.InvalidEvent,
        )

    def _copies_of(self, name: str, seq: int) -> list[int]:
        """Return where a summary that can be seen was added again."""
        shown = [
            (place, data)
            for place, kind, data, _ in self.plain.shown(name)
            if kind == "summary.added"
        ]
        said = next(
            (data for place, data in shown if place == seq and "redacted" not in data), None
        )
        return [place for place, data in shown if data == said and place != seq]

    def _stream_of(self, name: str, seq: int) -> str | None:
        """Return the stream of a message or part, as far as it can be seen."""
        data = next(data for place, _, data, _ in self.plain.shown(name) if place == seq)
        return data.get("stream")

    @action(2, when=lambda self: self.plain.live(), place=PLACES, share=SHARES, dry=st.booleans())
    def drop_history(self, place: int, share: int, dry: bool) -> None:
        """Drop the beginning, which a fork that needs it does not let happen."""
        childless = [name for name in self.plain.live() if not self.plain.children(name)]
        name = self.draw(st.sampled_from(self.plain.live() + 3 * childless))
        before = self.seq(name, share)
        data = self.plain.dropped(name, before)
        refuses = hansard.InUse if data and self.plain.drop_hits(name, data["before"]) else None
        session = self.handle(place, name)
        if dry and refuses is None:
            assert session.drop_history(before, reason="r", dry_run=True).seq == 0
        report = self.do(
            name,
            lambda: session.drop_history(before, reason="r"),
            *([("history.dropped", data)] if data else []),
            refuses=refuses,
        )
        if report is not None:
            assert report.seq == (self.plain.session(name).seq if data else 0)
            assert (report.events, report.messages) == (
                data.get("events", 0),
                data.get("messages", 0),
            )

    @action(4, place=PLACES, share=SHARES, message=MESSAGES)
    def summarize(self, place: int, name: str, share: int, message: Json) -> None:
        """Let a message replace the beginning."""
        upto = self.seq(name, share)
        self.do(
            name,
            lambda: self.handle(place, name).summarize(upto=upto, message=message),
            ("summary.added", {"upto": upto, "message": message}),
            refuses=hansard.InvalidEvent if share == 13 else None,
        )

    @action(
        4,
        place=PLACES,
        call=st.sampled_from(
            ["clear", "clear", "clear", "archive", "unarchive", "close", "reopen"]
        ),
    )
    def mark(self, place: int, name: str, call: str) -> None:
        """Clear, archive or close, or undo that."""
        fact: tuple[str, Json] = {
            "clear": ("session.cleared", {}),
            "archive": ("session.archived", {}),
            "unarchive": ("session.archived", {"archived": False}),
            "close": ("session.closed", {}),
            "reopen": ("session.closed", {"closed": False}),
        }[call]
        self.do(name, getattr(self.handle(place, name), call), fact)

    @action(4, place=PLACES, patch=PATCHES, title=st.none() | TITLES, automatic=st.booleans())
    def describe(
        self, place: int, name: str, patch: Json, title: str | None, automatic: bool
    ) -> None:
        """Set metadata, or a title, as a person or as a program."""
        plain = self.plain.session(name)
        session = self.handle(place, name)
        data: Json = {"metadata": patch if title is None else {"title": title}}
        if title is not None and automatic:
            data["automatic"] = True

        def call() -> Event | None:
            if title is None:
                return session.patch_metadata(patch)
            return session.set_title(title, automatic=automatic)

        before, named = self.plain.metadata(name)
        after, _ = after_patch(before, named=named, data=data)
        # A person's title is news, even if a program had the same.
        taken_over = "automatic" not in data and data["metadata"].get("title") is not None
        is_same = repr(_sorted(before)) == repr(_sorted(after))
        if not plain.deleted and is_same and (named or not taken_over):
            assert call() is None
            return
        assert self.do(name, call, ("metadata.set", data)) is not None or plain.deleted

    @action(3, place=PLACES, tokens=st.integers(0, 9), cost=st.sampled_from([None, 0.5, 2.25]))
    def record_usage(self, place: int, name: str, tokens: int, cost: float | None) -> None:
        """Record what a call took."""
        data: Json = {
            "model": f"m{tokens % 2}",
            "input_tokens": tokens,
            "output_tokens": 2 * tokens,
        }
        call = self.handle(place, name).record_usage
        fact = ("usage.recorded", data if cost is None else {**data, "cost": str(cost)})
        self.do(name, lambda: call(**data, cost=cost), fact)

    @action(2, place=PLACES)
    def delete(self, place: int, name: str) -> None:
        """Delete a session, if there is one: a parent too."""
        plain = self.plain.session(name)
        refuses = None if plain.own else hansard.SessionNotFound
        self.do(name, lambda: self.stores[place].delete(name), refuses=refuses)
        plain.deleted = bool(plain.own)

    @action(3, when=lambda self: self.plain.live(), place=PLACES)
    def compact(self, place: int) -> None:
        """Make it smaller, which changes nothing."""
        name = self.draw(st.sampled_from(self.plain.live()))
        if self.draw(st.integers(0, 4)):
            self.handle(place, name).compact()
        else:
            failed = self.stores[place].compact().failed
            assert failed == {}, failed

    @action(2, place=PLACES)
    def restore(self, place: int, name: str) -> None:
        """Restore a session, if it was deleted."""
        plain = self.plain.session(name)
        if plain.deleted:
            self.stores[place].restore(name)
            plain.deleted = False
        else:
            with pytest.raises(hansard.SessionNotFound):
                self.stores[place].restore(name)


class Streaming(Conversations):
    """The same, with messages that come bit by bit."""

    def __init__(self) -> None:
        super().__init__()
        self.running: list[Running] = []

    @action(
        4,
        place=PLACES,
        begun=st.sampled_from([{"role": "assistant"}, {"role": "user", "name": "n", "n": [1]}]),
        text=st.sampled_from(["", "par", "ä\n"]),
    )
    def stream(self, place: int, name: str, begun: Json, text: str) -> None:
        """Begin a message."""
        stream = self.handle(place, name).stream(gather=0, **begun)
        self.running.append(Running(stream, name, place, begun))
        if not self.plain.session(name).deleted:
            self._write(self.running[-1], text)

    def _write(self, running: Running, text: str) -> None:
        data: Json = {"stream": running.stream.id, "text": text}
        if not running.text:
            data["message"] = running.begun
        facts = [("message.part", data)] if text else []
        if text:
            self.do(running.name, lambda: running.stream.write(text), *facts)
        if not self._plain(running).deleted:
            running.text += text
        assert running.stream.text == running.text

    def _plain(self, running: Running) -> Plain:
        return self.plain.session(running.name)

    def _some(self, *, over: bool) -> Running:
        running: Running = self.draw(st.sampled_from(self.running))
        if over and not self._plain(running).deleted:
            self.running.remove(running)
        return running

    @action(
        3,
        when=lambda self: self.running,
        texts=st.lists(st.sampled_from(["t", "ial "]), min_size=1, max_size=3),
    )
    def write(self, texts: list[str]) -> None:
        """Say a little more."""
        running = self._some(over=False)
        for text in texts:
            self._write(running, text)

    @action(3, when=lambda self: self.running, message=st.none() | MESSAGES)
    def finish(self, message: Json | None) -> None:
        """Add the complete message, or another one."""
        running = self._some(over=True)
        whole = message or {**running.begun, "content": running.text}
        added = {"message": whole, **({"stream": running.stream.id} if running.text else {})}
        self.do(running.name, lambda: running.stream.finish(message), ("message.added", added))

    @action(4, when=lambda self: self.running)
    def discard(self) -> None:
        """Discard a message, or drop the object that was to finish it."""
        running = self._some(over=True)
        if self.draw(st.integers(0, 3)):
            over = {"stream": running.stream.id, "over": True}
            facts = [("message.part", over)] if running.text else []
            if running.text or not self._plain(running).deleted:
                self.do(running.name, running.stream.discard, *facts)


def _sorted(value: Any) -> Any:
    """Return a JSON value whose keys are in order, so that two can be compared by their texts."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value
