"""Ask a real session and the plain lists everything that can be asked, and see that the answers are the same.

See `machine`, which calls this after every step, and `reference_model`.
"""

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest

import hansard
from hansard import Session, Store
from hansard.event.kinds import MESSAGE_ADDED
from hansard.exporters import export, shared
from hansard.transfer.transcript import Transcript
from tests.properties import reference_model
from tests.properties.reference_model import Json, ReferenceModel

#: Opens what a store has written once more, to be read without any cached state.
Reopen = Callable[[], Store]


class Comparison:
    """Compares, and goes another way through the questions each time."""

    def __init__(self, lists: ReferenceModel) -> None:
        self._plain = lists
        self._steps = 0

    def run(
        self,
        stores: list[Store],
        handle: Callable[[int, str], Session],
        reopen: Reopen | None = None,
    ) -> None:
        """Compare all sessions: through handles that have been used before, and through new ones."""
        self._steps += 1
        # The reads depend only on the number of the step, so a failure is reproducible.
        rng = random.Random(self._steps)
        warm = rng.randrange(2)
        for name in list(self._plain.sessions):
            self._take_stamps(name, handle(warm, name))
        for name in list(self._plain.sessions):
            self.compare(name, handle(warm, name), rng)
            self._glance(name, handle(1 - warm, name), rng)
            self._glance(name, stores[1 - warm].session(name), rng)
        self._listing(stores[warm])
        if reopen is not None and self._steps % 4 == 0:
            with reopen() as cold:
                for name in self._plain.live():
                    # One call for each handle, so that nothing is cached.
                    self.compare(name, cold.session(name), rng)
                self._listing(cold)

    def _take_stamps(self, name: str, session: Session) -> None:
        own = self._plain.session(name)
        if own.deleted or not own.own or own.own[-1].stamp:
            return
        missing = [fact for fact in own.own if not fact.stamp]
        events = session.events(after=missing[0].seq - 1)
        for fact, event in zip(missing, events, strict=True):
            fact.stamp = event.stamp
        assert "" not in (fact.stamp for fact in missing)

    def _listing(self, store: Store) -> None:
        items = store.sessions().items
        assert [info.id for info in items] == self._plain.live()
        for info in items:
            listed = (info.seq, info.damaged, same(info.metadata))
            metadata = self._plain.metadata(info.id)[0]
            assert listed == (self._plain.session(info.id).seq, "", same(metadata))

    def _glance(self, name: str, session: Session, rng: random.Random) -> None:
        """Make one call on a used handle: the answer must not be outdated."""
        if self._plain.session(name).deleted:
            with pytest.raises(hansard.SessionDeleted):
                rng.choice(READS)(session)
            return
        questions = [self._messages, self._state, self._properties, self._events, self._window]
        rng.choice(questions)(name, session, rng)

    def compare(self, name: str, session: Session, rng: random.Random) -> None:
        """Ask everything."""
        if self._plain.session(name).deleted:
            for read in READS:
                with pytest.raises(hansard.SessionDeleted):
                    read(session)
            return
        questions = [self._messages, self._state, self._properties, self._events, self._window]
        questions.append(self._exports)
        rng.shuffle(questions)
        for question in questions:
            question(name, session, rng)

    def _messages(self, name: str, session: Session, rng: random.Random) -> None:
        lists = self._plain
        assert same(session.messages()) == same(lists.messages(name))
        assert same(session.messages(view="history")) == same(lists.messages(name, view="history"))
        seq = lists.session(name).seq
        for view in ("model", "history"):
            at, place = self._place(name, rng)
            options: Json = {
                "last": rng.choice([None, 0, 1, 2, 5]),
                "after": rng.choice([0, 0, rng.randint(0, seq + 1)]),
                "view": view,
            }
            expected = same(lists.messages(name, at=place, **options))
            assert same(session.messages(at=at, **options)) == expected, (at, options)
            if rng.random() < 0.3:
                assert same(json.loads(session.messages_json(at=at, **options))) == expected

    def _exports(self, name: str, session: Session, rng: random.Random) -> None:
        """Ask for the views of what is exported, shared and written as a transcript."""
        if not session.seq:
            return
        for view in ("model", "history"):
            expected = [_finished(message) for message in session.messages(view=view)]
            expected = [message for message in expected if message]
            events = shared(session, redacted=False, view=view).events
            messages = [event.message for event in events if event.kind == MESSAGE_ADDED]
            assert same([message for message in messages if message]) == same(expected), view
            if expected:
                made = json.loads(b"".join(export(session, "atif", redacted=False, view=view)))
                found = {seq for step in made["steps"] for seq in step["extra"]["seqs"]}
                assert found >= {one.seq for one in session.numbered(view=view) if one.message}
                dropped = sum(made["extra"]["dropped"].values())
                assert len(found) + dropped == made["extra"]["events"] == session.seq
        transcript = Transcript(
            session._reader(),
            name,
            session.seq,
            redact=False,
            view="model",
            events=bool(rng.randrange(2)),
        )
        entries = [entry.message for entry in transcript.entries() if entry.message is not None]
        assert same(entries) == same(session.messages())
        assert same(transcript.metadata) == same(session.metadata)
        metadata = shared(session, redacted=False, view="model").metadata
        assert same(metadata) == same(session.metadata)
        if rng.random() < 0.1:
            self._imported(session)

    @staticmethod
    def _imported(session: Session) -> None:
        """Import what is exported, and ask for the views of that."""
        with hansard.open("memory:") as target:
            target.import_session(session.export(redacted=False))
            moved = target.session(session.id)
            assert lines(moved) == lines(session)
            for view in ("model", "history"):
                assert same(moved.messages(view=view)) == same(session.messages(view=view))
            assert same(moved.metadata) == same(session.metadata)
            assert moved.snapshots == session.snapshots
            assert target.import_session(session.export(redacted=False)).already

    def _place(self, name: str, rng: random.Random) -> tuple[Any, int | None]:
        """Return a place as a caller may name it, and its seq."""
        facts = self._plain.facts(name)
        seq = facts[-1].seq if facts else 0
        labels = sorted(self._plain.snapshots(name).items())
        how = rng.choice(["now", "seq", "seq", "label", "time", "before"])
        if how == "label" and labels:
            return rng.choice(labels)
        if how == "time" and facts:
            stamp = rng.choice(facts).stamp
            # In another zone: a time is a time.
            when = datetime.fromisoformat(stamp).astimezone(UTC) + timedelta(0)
            return when, self._plain.seq_by(name, stamp)
        if how == "before":
            return datetime(2001, 1, 1, tzinfo=UTC), 0
        if how == "seq":
            place = rng.randint(0, seq + 1)
            return place, place
        return None, None

    def _state(self, name: str, session: Session, rng: random.Random) -> None:
        at, place = self._place(name, rng)
        for given, upto in ((at, place), (None, None)):
            state = msgspec.to_builtins(session.state(at=given))
            usage = {
                model: (
                    used["calls"],
                    used["input_tokens"],
                    used["output_tokens"],
                    Decimal(used["cost"]),
                )
                for model, used in state.pop("usage").items()
            }
            assert usage == self._plain.usage(name, upto)
            assert same(state) == same(self._plain.state(name, upto)), given

    def _properties(self, name: str, session: Session, rng: random.Random) -> None:
        lists = self._plain
        own = lists.session(name)
        metadata = lists.metadata(name)[0]
        title = metadata.get("title")
        assert session.seq == own.seq
        assert same(session.metadata) == same(metadata)
        assert session.title == (title if isinstance(title, str) else None)
        assert session.snapshots == lists.snapshots(name)
        assert session.parent == own.parent
        assert session.children() == (lists.children(name) if own.own else [])
        assert {model: used.calls for model, used in session.usage.items()} == {
            model: used[0] for model, used in lists.usage(name).items()
        }

    def _events(self, name: str, session: Session, rng: random.Random) -> None:
        after = rng.choice([0, rng.randint(0, self._plain.session(name).seq + 1)])
        found = [(e.seq, e.kind, e.data, e.key) for e in session.events(after=after)]
        assert same(found) == same([shown for shown in self._plain.shown(name) if shown[0] > after])

    def _window(self, name: str, session: Session, rng: random.Random) -> None:
        most, turns = rng.choice([(None, 1), (2, None), (3, 2), (None, None), (5, None), (0, 0)])
        keep_first = rng.random() < 0.5
        found = session.window(messages=most, turns=turns, keep_first=keep_first)
        view = self._plain.view(name)
        summaries = [fact.seq for fact in self._plain.facts(name) if fact.kind == "summary.added"]
        expected = reference_model.window(
            [message for _, message in view],
            head=sum(seq in summaries for seq, _ in view),
            most=most,
            turns=turns,
            keep_first=keep_first,
        )
        assert same(found) == same(expected), (most, turns, keep_first)


def _finished(message: Json) -> Json | None:
    """Return a message without the mark of an unfinished one; None if it was never begun."""
    if message.get("partial") is not True:
        return message
    begun = {key: value for key, value in message.items() if key != "partial"}
    return begun if begun["content"] else None


READS: list[Callable[[Session], object]] = [
    lambda session: session.seq,
    lambda session: session.messages(),
    lambda session: session.messages(last=2, view="history"),
    lambda session: session.messages_json(),
    lambda session: session.window(turns=1),
    lambda session: list(session.events()),
    lambda session: session.metadata,
    lambda session: session.snapshots,
    lambda session: session.usage,
    lambda session: session.state(),
    lambda session: session.parent,
    lambda session: session.children(),
]


def same(value: Any) -> str:
    """Return a JSON value as a text that is the same for the same JSON: 1 is not true."""
    return json.dumps(value, sort_keys=True)


def lines(session: Session) -> list[bytes]:
    """Return the lines of an export, without its time."""
    return b"".join(session.export(redacted=False)).splitlines()[1:-1]
