"""Any sequence of calls, through any handles, adds up to what a plain list would hold."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import hansard
from hansard import Event, Store
from hansard.log import names
from tests.properties.histories import settings
from tests.properties.model import Fact, Json, ModelSession, patched

IDS = st.sampled_from(["a", "Support/42", "x" * 300])
PLACES = st.sampled_from([0, 1])
KEYS = st.sampled_from(["k1", "k2", '\u2028"', "K1"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=4,
)  # fmt: skip
OBJECTS = st.dictionaries(st.sampled_from(["role", "content", "n", ""]), VALUES, max_size=3)
PATCHES = st.dictionaries(st.sampled_from(["title", "user", "tags"]), VALUES, max_size=2)


class Conversations(RuleBasedStateMachine):
    """Two stores on one directory, three sessions, and the list of what should be in each."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions: dict[str, ModelSession] = {}
        self.stores: list[Store] = []

    def open(self) -> Store:
        """Return a handle on the store."""
        raise NotImplementedError

    @initialize()
    def begin(self) -> None:
        """Open both handles."""
        self.stores = [self.open(), self.open()]

    def model(self, session_id: str) -> ModelSession:
        """Return the list that a session is compared with."""
        return self.sessions.setdefault(session_id, ModelSession())

    def teardown(self) -> None:
        """Close what was opened."""
        for store in self.stores:
            store.close()

    # -- appending ------------------------------------------------------------------------------

    def append(
        self,
        place: int,
        session_id: str,
        facts: list[Fact],
        *,
        key: str | None = None,
        delta: int | None = None,
    ) -> None:
        """Append facts of one kind through a handle, and compare what comes of it."""
        model = self.model(session_id)
        session = self.stores[place].session(session_id)
        expected_seq = None if delta is None else max(0, len(model.facts) + delta)
        options: Json = {"key": key, "expected_seq": expected_seq}

        def call() -> list[Event]:
            if facts[0].kind == "message.added":
                return session.add_messages([fact.data["message"] for fact in facts], **options)
            return [session.append(facts[0].kind, facts[0].data, **options)]

        if model.deleted:
            with pytest.raises(hansard.SessionDeleted):
                call()
            return
        known = model.with_key(key) if key is not None else []
        if known:
            given = [(event.seq, event.kind, event.data, event.key) for event in call()]
            wanted = [(seq, fact.kind, fact.data, fact.key) for seq, fact in known]
            # One event can be asked for again through `append`, which returns the first of several.
            assert given == (wanted if facts[0].kind == "message.added" else wanted[:1])
        elif expected_seq is not None and expected_seq != len(model.facts):
            with pytest.raises(hansard.SeqConflict) as caught:
                call()
            assert caught.value.actual == len(model.facts)
        else:
            events = call()
            first = len(model.facts) + 1
            model.append([facts[0]._replace(key=key), *facts[1:]])
            assert [event.seq for event in events] == list(range(first, first + len(facts)))

    @rule(place=PLACES, session_id=IDS, message=OBJECTS)
    def add_message(self, place: int, session_id: str, message: Json) -> None:
        """Append a message without conditions."""
        self.append(place, session_id, [Fact("message.added", {"message": message})])

    @rule(
        place=PLACES,
        session_id=IDS,
        messages=st.lists(OBJECTS, min_size=1, max_size=4),
        key=st.none() | KEYS,
        delta=st.sampled_from([None, 0, 0, -1, 1]),
    )
    def add_messages(
        self,
        place: int,
        session_id: str,
        messages: list[Json],
        key: str | None,
        delta: int | None,
    ) -> None:
        """Append a batch, perhaps with a key, perhaps with an expected seq, right or wrong."""
        facts = [Fact("message.added", {"message": message}) for message in messages]
        self.append(place, session_id, facts, key=key, delta=delta)

    @rule(place=PLACES, session_id=IDS, data=OBJECTS, key=st.none() | KEYS)
    def append_own(self, place: int, session_id: str, data: Json, key: str | None) -> None:
        """Append an event of the application's own."""
        self.append(place, session_id, [Fact("x.todo", data)], key=key)

    @rule(place=PLACES, session_id=IDS, patch=PATCHES)
    def set_metadata(self, place: int, session_id: str, patch: Json) -> None:
        """Merge metadata."""
        model = self.model(session_id)
        session = self.stores[place].session(session_id)
        if model.deleted:
            with pytest.raises(hansard.SessionDeleted):
                session.patch_metadata(patch)
            return
        before = model.metadata()
        event = session.patch_metadata(patch)
        assert (event is None) == same(patched(before, patch), before)
        if event is not None:
            model.append([Fact("metadata.set", {"metadata": patch})])
            assert event.seq == len(model.facts)

    @rule(place=PLACES, session_id=IDS, metadata=PATCHES)
    def create(self, place: int, session_id: str, metadata: Json) -> None:
        """Create a session that may exist."""
        model = self.model(session_id)
        if model.deleted:
            with pytest.raises(hansard.SessionDeleted):
                self.stores[place].create(session_id, metadata=metadata)
        elif model.facts:
            with pytest.raises(hansard.SessionExists):
                self.stores[place].create(session_id, metadata=metadata)
        else:
            assert self.stores[place].create(session_id, metadata=metadata).seq == 1
            model.append([Fact("session.created", {"metadata": metadata} if metadata else {})])

    # -- the rest of a session's life -----------------------------------------------------------

    @rule(place=PLACES, session_id=IDS)
    def delete(self, place: int, session_id: str) -> None:
        """Delete a session, if there is one."""
        model = self.model(session_id)
        if model.facts and not model.deleted:
            self.stores[place].delete(session_id)
            model.deleted = True
        else:
            error = hansard.SessionDeleted if model.deleted else hansard.SessionNotFound
            with pytest.raises(error):
                self.stores[place].delete(session_id)

    @rule(place=PLACES, session_id=IDS)
    def restore(self, place: int, session_id: str) -> None:
        """Restore a session, if it was deleted."""
        model = self.model(session_id)
        if model.deleted:
            self.stores[place].restore(session_id)
            model.deleted = False
        else:
            with pytest.raises(hansard.SessionNotFound):
                self.stores[place].restore(session_id)

    @rule(place=PLACES, session_id=IDS)
    def verify(self, place: int, session_id: str) -> None:
        """Nothing is ever damaged."""
        model = self.model(session_id)
        if model.facts and not model.deleted:
            assert self.stores[place].session(session_id).verify().ok
        assert self.stores[place].verify().ok

    # -- comparing ------------------------------------------------------------------------------

    @rule(
        place=PLACES,
        session_id=IDS,
        last=st.none() | st.integers(0, 9),
        after=st.integers(0, 30),
        at=st.none() | st.integers(0, 30),
    )
    def read(
        self, place: int, session_id: str, last: int | None, after: int, at: int | None
    ) -> None:
        """Every range of messages and events, and every state, is that of the list."""
        model = self.model(session_id)
        session = self.stores[place].session(session_id)
        if model.deleted:
            with pytest.raises(hansard.SessionDeleted):
                session.messages(last=last, after=after, at=at)
            return
        assert same(
            session.messages(last=last, after=after, at=at), model.messages(last, after, at)
        )
        found = [(event.kind, event.data, event.key) for event in session.events(after=after)]
        assert same(found, [tuple(fact) for fact in model.facts[after:]])
        state = session.state(at)
        assert state.seq == len(model.facts[:at])
        assert same(state.metadata, model.metadata(at))
        assert state.message_count == len(model.messages(at=at))

    @invariant()
    def everything_is_as_in_the_lists(self) -> None:
        """Through both handles: listing, seq, metadata and messages."""
        for store in self.stores:
            live = {name: model for name, model in self.sessions.items() if model.facts}
            listed = {info.id: info for info in store.sessions().items}
            assert set(listed) == {name for name, model in live.items() if not model.deleted}
            for name, info in listed.items():
                model, session = live[name], store.session(name)
                assert info.seq == session.seq == len(model.facts)
                assert same(session.messages(), model.messages())
                assert same(info.metadata, model.metadata())
                assert info.damaged == ""


def same(one: Any, other: Any) -> bool:
    """Say whether two values are the same JSON: 1 is not 1.0, and 0.0 is not -0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other)


class InMemory(Conversations):
    """Both handles are one store, which lives as long as it is held."""

    def open(self) -> Store:
        """Return the store."""
        return self.stores[0] if self.stores else hansard.open("memory:")

    @initialize()
    def begin(self) -> None:
        """Open one store, and hold it twice."""
        self.stores = [self.open()]
        self.stores.append(self.stores[0])


class InFiles(Conversations):
    """Both handles are stores of their own on one directory, which crashes can visit."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="hansard-model-"))

    def open(self) -> Store:
        """Open the directory."""
        return hansard.open(self.root / "store", durability="os")

    def teardown(self) -> None:
        """Close and delete everything."""
        super().teardown()
        shutil.rmtree(self.root)

    @rule(place=PLACES)
    def reopen(self, place: int) -> None:
        """Forget all that a handle knows."""
        self.stores[place].close()
        self.stores[place] = self.open()

    @precondition(lambda self: any(m.facts and not m.deleted for m in self.sessions.values()))
    @rule(
        session_id=IDS,
        garbage=st.binary(min_size=1, max_size=60) | st.integers(1, 400).map(lambda n: b"\0" * n),
    )
    def tear(self, session_id: str, garbage: bytes) -> None:
        """Leave bytes without a newline at the end of a log, as a crash does."""
        model = self.model(session_id)
        if model.facts and not model.deleted:
            self._add(session_id, garbage.replace(b"\n", b"\r"))

    @precondition(lambda self: any(m.facts and not m.deleted for m in self.sessions.values()))
    @rule(session_id=IDS, kept=st.integers(1, 200))
    def tear_a_record(self, session_id: str, kept: int) -> None:
        """Leave the beginning of a line that once was whole."""
        model = self.model(session_id)
        if model.facts and not model.deleted:
            lines = self._log(session_id).read_bytes().split(b"\n")
            self._add(session_id, lines[-2][:kept] or b"{")

    def _log(self, session_id: str) -> Path:
        return self.root / "store" / "sessions" / names.encode(session_id) / "log.jsonl"

    def _add(self, session_id: str, data: bytes) -> None:
        with open(self._log(session_id), "ab") as file:
            file.write(data)


@pytest.mark.slow
def test_sessions_in_files_are_lists() -> None:
    """N-2, N-18, N-19, N-33, N-42, N-57, N-72: any calls through two stores, torn tails between."""
    run_state_machine_as_test(InFiles, settings=settings(96))


@pytest.mark.slow
def test_sessions_in_memory_are_lists() -> None:
    """N-42, N-57, N-63, N-72: memory adds up to the same lists as files do."""
    run_state_machine_as_test(InMemory, settings=settings(64))
