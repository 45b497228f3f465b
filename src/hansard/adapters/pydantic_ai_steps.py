"""A step store for `StepPersistence`, a capability of Pydantic AI's harness.

    from hansard.adapters.pydantic_ai import HansardStepStore

    agent = Agent(model, capabilities=[StepPersistence(store=HansardStepStore("data"))])

Each run is a session, and one more session lists the runs. Snapshots share their messages, which every
framework can read. Steps, snapshots and tool effects are application events. The store answers as the
harness' own stores do.
"""

import json
from contextlib import AbstractContextManager, suppress
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final

import hansard
from hansard.adapters.opening import StoreLike, missing, opened, settled, threaded
from hansard.adapters.session_projection import AdapterProjection
from hansard.message import values
from hansard.message.pydantic_items import EFFECT, RUN, SNAPSHOT, STEP, message_of, natives_of

try:
    from pydantic import TypeAdapter
    from pydantic_ai_harness.step_persistence import (
        ContinuableSnapshot,
        RunRecord,
        StepEvent,
        ToolEffectRecord,
    )
except ImportError as error:
    missing("pydantic_ai", "pydantic-ai-harness for its step store", "pydantic-ai", error)

from hansard.adapters.pydantic_ai import natives, validated

#: Longer idempotency keys are hashed.
_LONGEST: Final = 512

_records: Final = TypeAdapter(RunRecord)
_steps: Final = TypeAdapter(StepEvent)
_effects: Final = TypeAdapter(ToolEffectRecord)
_snapshots: Final = TypeAdapter(ContinuableSnapshot)

Data = dict[str, Any]


class HansardStepStore:
    """Keeps the steps, snapshots and tool effects of runs in a store; for `StepPersistence`.

    One step store serves all runs, and any number of processes.
    """

    def __init__(self, store: StoreLike, *, prefix: str = "steps/") -> None:
        """Create a handle; nothing is opened or written yet.

        Args:
            store: a `hansard.Store`, a `hansard.aio.Store`, or the path of one.
            prefix: prefix of the session ids.
        """
        self._store = settled(store)
        self._prefix = prefix
        self._runs = lru_cache(64)(lambda name: _Run(opened(self._store), name))
        self._lists = lru_cache(64)(lambda name: _Runs(opened(self._store), name))

    def _run(self, run_id: str) -> "AbstractContextManager[_Run]":
        return self._runs(f"{self._prefix}run/{run_id}").fresh()

    @threaded
    def _append(self, name: str, kind: str, data: Data, key: str | None = None) -> None:
        opened(self._store).session(self._prefix + name).append(kind, data, key=key)

    async def register_run(self, record: RunRecord) -> None:
        """Store the record of a run; the last record counts."""
        await self._append("runs", RUN, _records.dump_python(record, mode="json"))

    def _registered(self) -> dict[str, Data]:
        with self._lists(f"{self._prefix}runs").fresh() as runs:
            return dict(runs.records)

    @threaded
    def get_run(self, *, run_id: str) -> RunRecord | None:
        """Return the record of a run; None if it is not registered."""
        found = self._registered().get(run_id)
        return None if found is None else _records.validate_python(found)

    @threaded
    def list_runs(
        self, *, parent_run_id: str | None = None, conversation_id: str | None = None
    ) -> list[RunRecord]:
        """Return the runs of a parent or a conversation, or all, in the order in which they began."""
        records = [
            _records.validate_python(one)
            for one in self._registered().values()
            if parent_run_id in {None, one.get("parent_run_id")}
            and conversation_id in {None, one.get("conversation_id")}
        ]
        return sorted(records, key=lambda record: record.started_at)

    async def append_event(self, event: StepEvent) -> None:
        """Store a step; one with an idempotency key only once."""
        key = event.idempotency_key
        if key is not None and (len(key) > _LONGEST or "\0" in key):
            key = sha256(key.encode(errors="surrogatepass")).hexdigest()
        data = _steps.dump_python(event, mode="json")
        await self._append(
            f"run/{event.run_id}", STEP, data, None if key is None else f"step:{key}"
        )

    @threaded
    def list_events(self, *, run_id: str) -> list[StepEvent]:
        """Return the steps of a run, in order."""
        with self._run(run_id) as run:
            return [_steps.validate_python(one) for one in run.steps]

    async def save_snapshot(self, snapshot: ContinuableSnapshot) -> None:
        """Store a snapshot; messages that the run has stored already are not stored again."""
        data = _snapshots.dump_python(snapshot, mode="json", exclude={"messages"})
        await self._save(snapshot.run_id, data, natives(snapshot.messages))

    @threaded
    def _save(self, run_id: str, data: Data, natives: list[Data]) -> None:
        while True:
            with suppress(hansard.SeqConflict), self._run(run_id) as run:
                run.save(data, natives)
                return

    @threaded
    def latest_snapshot(
        self, *, run_id: str, include_interrupted: bool = False
    ) -> ContinuableSnapshot | None:
        """Return the newest snapshot, of the complete ones or of all; None if there is none."""
        with self._run(run_id) as run:
            found = run.shown(include_interrupted)
        return _snapshot(found[-1]) if found else None

    @threaded
    def list_snapshots(
        self, *, run_id: str, include_interrupted: bool = False
    ) -> list[ContinuableSnapshot]:
        """Return the snapshots, oldest first: the complete ones, or all."""
        with self._run(run_id) as run:
            return list(map(_snapshot, run.shown(include_interrupted)))

    async def record_tool_effect(self, record: ToolEffectRecord) -> None:
        """Store the record of a call; the last record counts."""
        data = _effects.dump_python(record, mode="json")
        await self._append(f"run/{record.run_id}", EFFECT, data)

    @threaded
    def get_tool_effect(self, *, run_id: str, tool_call_id: str) -> ToolEffectRecord | None:
        """Return the record of a call; None if there is none."""
        with self._run(run_id) as run:
            found = run.effects.get(tool_call_id)
        return None if found is None else _effects.validate_python(found)

    @threaded
    def list_unresolved_tool_effects(self, *, run_id: str) -> list[ToolEffectRecord]:
        """Return the calls that began and whose end is unknown."""
        with self._run(run_id) as run:
            found = [one for one in run.effects.values() if one["status"] == "started"]
        return [_effects.validate_python(one) for one in found]


def _snapshot(stored: tuple[Data, list[Data]]) -> ContinuableSnapshot:
    data, found = stored
    return _snapshots.validate_python({**data, "messages": validated(found)})


class _Runs(AdapterProjection):
    """The runs, in the order in which they were first registered."""

    def _begin(self) -> None:
        self.records: dict[str, Data] = {}

    def _add(self, event: hansard.Event) -> None:
        if event.kind == RUN and "run_id" in event.data:
            self.records[event.data["run_id"]] = event.data


class _Run(AdapterProjection):
    """One run: its steps, its snapshots, and the effects of its tools."""

    def _begin(self) -> None:
        self.steps: list[Data] = []
        self.effects: dict[str, Data] = {}
        #: The data of each snapshot, and the seqs of its messages.
        self.snapshots: list[tuple[Data, list[int]]] = []
        #: Messages by their seqs, and the seqs by the messages as JSON.
        self.messages: dict[int, Data] = {}
        self.places: dict[str, int] = {}
        #: The idempotency keys of the snapshots.
        self.keys: set[str | None] = set()

    def _add(self, event: hansard.Event) -> None:
        if event.message is not None:
            for native in natives_of([event.message]):
                self.messages[event.seq] = native
                self.places[_text(native)] = event.seq
        elif event.kind == STEP and "run_id" in event.data:
            self.steps.append(event.data)
        elif event.kind == EFFECT and "tool_call_id" in event.data:
            self.effects[event.data["tool_call_id"]] = event.data
        elif event.kind == SNAPSHOT and "snapshot" in event.data:
            snapshot = event.data["snapshot"]
            self.keys.add(snapshot.get("idempotency_key"))
            self.snapshots.append((snapshot, event.data["messages"]))

    def shown(self, include_interrupted: bool) -> list[tuple[Data, list[Data]]]:  # noqa: FBT001 - the harness' option
        """Return the snapshots with their messages."""
        return [
            (data, [self.messages[seq] for seq in seqs if seq in self.messages])
            for data, seqs in self.snapshots
            if include_interrupted or data.get("state") in {None, "complete"}
        ]

    def save(self, data: Data, natives: list[Data]) -> None:
        """Append a snapshot and its new messages, unless it is a repetition.

        `SeqConflict` if another process appended concurrently.
        """
        key = data["idempotency_key"]
        if key is not None and key in self.keys:
            return
        new: list[Data] = []
        places = dict(self.places)
        for native in natives:
            if places.setdefault(_text(native), self.seq + len(new) + 1) > self.seq + len(new):
                new.append(native)
        seqs = [places[_text(native)] for native in natives]
        events = [("message.added", {"message": message_of(native)}) for native in new]
        snapshot = (SNAPSHOT, {"snapshot": data, "messages": seqs})
        self.handle.append_all([*events, snapshot], expected_seq=self.seq)


def _text(native: Data) -> str:
    return json.dumps(values.wrap("message", native), sort_keys=True)
