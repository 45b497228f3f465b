"""Make the same call on a real store and on plain lists, one after the other.

See `reference_model` (the lists), `comparing` (every view of both), `machine` (all that can be done).
There are two handles on each session, from two stores on one directory where there is one; a step goes
through one of them, and everything is compared through both.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import hansard
from hansard import Event, Session, Store
from tests.properties.comparing import Comparison
from tests.properties.reference_model import Json, ReferenceModel

NAMES = ["a", "B/1", "c", "d.lock", "é", "x" * 300, "..", "7"]
PLACES = st.sampled_from([0, 1])
KEYS = st.sampled_from(["k1", "K1", '\u2028"'])

MESSAGES = st.sampled_from(
    [
        {"role": "user", "content": "yes"},
        {"role": "user", "content": "and now?"},
        {"role": "assistant", "content": "no\u2028", "n": 2**60},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c2"}, {"id": "c3"}]},
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {"role": "tool", "tool_call_id": "c2", "content": "2"},
        {"role": "tool", "tool_call_id": "c3", "content": [3.5, {}]},
        {"seq": 1, "": None},
    ]
)
PATCHES = st.dictionaries(
    st.sampled_from(["title", "user", "tags"]),
    st.sampled_from([None, "T", "u7", 1, True, {"a": 1, "b": {"c": []}}, {"a": None, "d": 2}]),
    min_size=1,
    max_size=2,
)


Method = TypeVar("Method", bound=Callable[..., None])


def action(
    weight: int,
    *,
    when: Callable[[Any], Any] = lambda _: True,
    **strategies: st.SearchStrategy[Any],
) -> Callable[[Method], Method]:
    """Make a method one of the calls of a step, with a weight.

    Hypothesis leaves out some rules in each run, which finds more in machines whose rules get in each other's
    way; here it is their meeting that matters, so there is one rule, and it chooses among all.
    """

    def mark(method: Method) -> Method:
        ACTIONS[method.__name__] = (weight, when, st.fixed_dictionaries(strategies))
        return method

    return mark


ACTIONS: dict[str, tuple[int, Callable[[Any], Any], st.SearchStrategy[Any]]] = {}


class Stepping(RuleBasedStateMachine):
    """A few sessions, and the lists of what should be in them; each step does one of the actions."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = ReferenceModel()
        self.stores: list[Store] = []
        self.handles: dict[tuple[int, str], Session] = {}
        self.comparison = Comparison(self.plain)
        #: Draws a value in the step that is being made.
        self.draw: Callable[[st.SearchStrategy[Any]], Any]

    def open(self) -> Store:
        """Return a handle on the store."""
        raise NotImplementedError

    @initialize()
    def begin(self) -> None:
        """Open both handles."""
        self.stores = [self.open(), self.open()]

    def teardown(self) -> None:
        """Close what was opened."""
        for store in self.stores:
            store.close()

    def handle(self, place: int, name: str) -> Session:
        """Return the handle on a session, the same each time."""
        if (place, name) not in self.handles:
            self.handles[place, name] = self.stores[place].session(name)
        return self.handles[place, name]

    def seq(self, name: str, share: int) -> int:
        """Return a seq of a session: from 0 to one after its end."""
        last = self.plain.session(name).seq
        return last + 1 if share == 13 else last * share // 12

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        """Make one call, on a session that may be missing."""
        self.draw = data.draw
        possible = [
            name
            for name, (weight, when, _) in ACTIONS.items()
            if hasattr(self, name) and when(self)
            for _ in range(weight)
        ]
        chosen = data.draw(st.sampled_from(possible))
        arguments = data.draw(ACTIONS[chosen][2])
        method = getattr(self, chosen)
        if "name" in method.__annotations__:
            # Mostly an existing one: missing sessions have few answers.
            arguments["name"] = data.draw(st.sampled_from([*self.plain.live() * 3, *NAMES[:3]]))
        method(**arguments)

    def do(
        self,
        name: str,
        call: Callable[[], Any],
        *facts: tuple[str, Json],
        refuses: type[Exception] | None = None,
    ) -> Any:
        """Make a call that adds facts to a session, or is refused, and compare what it returns."""
        plain = self.plain.session(name)
        if plain.deleted:
            refuses = hansard.SessionDeleted
        if refuses is not None:
            with pytest.raises(refuses):
                call()
            return None
        returned = call()
        added = plain.add(*facts)
        if isinstance(returned, Event):
            # Of several redactions the first is returned, of anything else the last.
            fact = added[0] if returned.kind == "message.redacted" else added[-1]
            got = (returned.seq, returned.kind, returned.data)
            assert got == (fact.seq, fact.kind, fact.data)
        return returned

    def append(
        self,
        place: int,
        name: str,
        facts: list[tuple[str, Json]],
        key: str | None,
        delta: int | None,
    ) -> None:
        """Append facts, perhaps with a key, perhaps with an expected seq, right or wrong."""
        plain = self.plain.session(name)
        session = self.handle(place, name)
        expected = None if delta is None else max(0, plain.seq + delta)
        options: Json = {"key": key, "expected_seq": expected}

        def call() -> list[Event]:
            if facts[0][0] == "message.added":
                return session.add_messages([data["message"] for _, data in facts], **options)
            return [session.append(*facts[0], **options)]

        if not plain.deleted and key in plain.keys:
            first, count = plain.keys[key]
            stored = plain.own[first - plain.own[0].seq :][:count]
            if [fact.kind for fact in stored] == [kind for kind, _ in facts]:
                assert [event.seq for event in call()] == [fact.seq for fact in stored]
            else:
                with pytest.raises(hansard.InvalidEvent, match="was used for"):
                    call()
        elif plain.deleted or expected not in {None, plain.seq}:
            refusal = hansard.SessionDeleted if plain.deleted else hansard.SeqConflict
            with pytest.raises(refusal) as caught:
                call()
            assert plain.deleted or getattr(caught.value, "actual", None) == plain.seq
        else:
            events = call()
            added = plain.add(*facts, key=key)
            assert [event.seq for event in events] == [fact.seq for fact in added]
            assert [event.data for event in events] == [fact.data for fact in added]

    @action(
        6,
        place=PLACES,
        messages=st.lists(MESSAGES, min_size=1, max_size=4),
        key=st.none() | st.none() | KEYS,
        delta=st.sampled_from([None, None, 0, -1, 1]),
    )
    def add_messages(
        self, place: int, name: str, messages: list[Json], key: str | None, delta: int | None
    ) -> None:
        """Say something."""
        facts = [("message.added", {"message": message}) for message in messages]
        self.append(place, name, facts, key, delta)

    @action(1, place=PLACES, key=st.none() | KEYS, delta=st.sampled_from([None, 0, 1]))
    def append_own(self, place: int, name: str, key: str | None, delta: int | None) -> None:
        """Append an event of the application's own."""
        self.append(place, name, [("x.todo", {"done": False})], key, delta)

    @action(1, place=PLACES, metadata=st.just({}) | PATCHES)
    def create(self, place: int, name: str, metadata: Json) -> None:
        """Create a session that may exist."""
        exists = self.plain.session(name).own
        data = {"metadata": metadata} if metadata else {}
        self.do(
            name,
            lambda: self.stores[place].create(name, metadata=metadata),
            ("session.created", data),
            refuses=hansard.SessionExists if exists else None,
        )

    @invariant()
    def both_say_the_same(self) -> None:
        """Every view, through both handles and through a new one."""
        if self.stores:
            self.comparison.run(self.stores, self.handle)
