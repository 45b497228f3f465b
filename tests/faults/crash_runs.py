"""Runs of a store that a power cut may end at any call, and what must be readable then.

A run is a list of steps. `tests.crashlab.crashes` rebuilds every state that a power cut may leave; each state
is opened, read, verified and appended to, and compared with what had been acknowledged. The campaign uses
`PLANS`, too.
"""

import errno
import itertools
import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import hansard
from tests.crashlab import crashes, faults

ID = "s"
CHILD = "child"

Durability = Literal["sync", "os"]

#: The state without a store; a store without the session is None.
NO_STORE = "no store"

MESSAGES = [{"n": n} for n in range(1, 6)]


class Run:
    """A recorded run: its steps, and the state before and after each."""

    def __init__(self, base: Path, durability: Durability = "sync") -> None:
        self._base = base
        self._path = base / "store"
        self._durability: Durability = durability
        self._stores: list[hansard.Store] = []
        self.steps: list[Callable[[], object]] = []
        #: The states that may be read after each number of acknowledged steps.
        self.states: list[tuple[object, ...]] = [(NO_STORE,)]
        #: The sessions that are read; with more than one, a state is a tuple.
        self.ids: tuple[str, ...] = (ID,)

    def open(self) -> None:
        """Open the store, again if it is open."""
        store = hansard.open(self._path, durability=self._durability, auto_compact=False)
        self._stores.append(store)

    def open_and_be_refused(self) -> None:
        """Create a store whose names are not synced, which is an error."""
        with faults.fail(errno.EIO, only=("sync_directory",)):
            try:
                hansard.open(self._path)
            except hansard.DiskFailed:
                return
        raise AssertionError("a store whose names are not on the disk was opened")

    def step(self, step: Callable[[], object], *states: object) -> None:
        """Add a step, and what may be seen once it is acknowledged."""
        self.steps.append(step)
        self.states.append(states)

    def append(self, *messages: dict[str, Any], store: int = 0) -> None:
        """Add an append through one of the stores."""
        before = self.states[-1][0] or []
        assert isinstance(before, list)
        self.step(
            lambda: self._stores[store].session(ID).add_messages(messages), [*before, *messages]
        )

    def record(self) -> crashes.Recording:
        """Take the steps, and return what was recorded."""
        with crashes.record(self._base) as recording:
            for step in self.steps:
                step()
                recording.acknowledge()
        for store in self._stores:
            store.close()
        return recording

    @property
    def store(self) -> hansard.Store:
        """The store that was opened first."""
        return self._stores[0]

    def allowed(self, acknowledged: int) -> list[object]:
        """Return the states that may be read after a power cut, by the number of acknowledged steps."""
        # With "os" a prefix of what was written; acknowledged events may be lost.
        first = acknowledged if self._durability == "sync" else 0
        seen = [state for states in self.states[first : acknowledged + 2] for state in states]
        if self._durability == "os" and len(self.ids) > 1:
            # Of each session its own prefix.
            several = [state for state in seen if isinstance(state, tuple)]
            rest = [state for state in seen if not isinstance(state, tuple)]
            return [*rest, *itertools.product(*zip(*several, strict=True))]
        return seen


def life_cycle(run: Run) -> None:
    """Open, create, append three times, delete, restore, append."""
    run.step(run.open, None)
    run.step(lambda: run.store.create(ID), [])
    run.append(MESSAGES[0])
    run.append(*MESSAGES[1:3])
    run.append(MESSAGES[3])
    run.step(lambda: run.store.delete(ID), None)
    run.step(lambda: run.store.restore(ID), MESSAGES[:4])
    run.append(MESSAGES[4])


def two_writers(run: Run) -> None:
    """Let two stores, as two processes would, append in turn to one session."""
    run.step(run.open, None)
    run.step(run.open, None)
    for number, message in enumerate(MESSAGES):
        run.append(message, store=number % 2)


def second_try(run: Run) -> None:
    """Make a store whose names were not synced, open it again, and use it."""
    # What was refused may be there or not. To open what is there promises nothing; an append does.
    run.step(run.open_and_be_refused, None, NO_STORE)
    run.step(run.open, None, NO_STORE)
    run.append(MESSAGES[0])


def sealing_and_joining(run: Run) -> None:
    """Append, compact, append, compact so that both are joined, append."""
    run.step(run.open, None)
    run.append(MESSAGES[0])
    run.append(MESSAGES[1])
    run.step(lambda: run.store.session(ID).compact(), MESSAGES[:2])
    run.append(MESSAGES[2])
    run.step(lambda: run.store.session(ID).compact(), MESSAGES[:3])
    run.append(MESSAGES[3])


def compacting_while_writing(run: Run) -> None:
    """Compact in one store, while another, which had the log open before, appends."""
    run.step(run.open, None)
    run.step(run.open, None)
    run.append(MESSAGES[0])
    run.append(MESSAGES[1], store=1)
    run.step(lambda: run.store.session(ID).compact(), MESSAGES[:2])
    run.append(MESSAGES[2], store=1)
    run.append(MESSAGES[3])
    run.step(lambda: run._stores[1].session(ID).compact(), MESSAGES[:4])
    run.append(MESSAGES[4])


def redacting(run: Run) -> None:
    """Redact a message, and compact."""
    run.step(run.open, None)
    run.append(*MESSAGES[:3])
    run.step(lambda: run.store.session(ID).redact(2), [MESSAGES[0], MESSAGES[2]])
    run.step(lambda: run.store.session(ID).compact(), [MESSAGES[0], MESSAGES[2]])
    run.append(MESSAGES[3])


def reverting(run: Run) -> None:
    """Revert, and append."""
    run.step(run.open, None)
    run.append(*MESSAGES[:3])
    run.step(lambda: run.store.session(ID).revert(1), MESSAGES[:1])
    run.append(MESSAGES[3])


def streaming(run: Run) -> None:
    """Stream a message in parts; a synced append makes the first ones durable."""
    said = {"role": "assistant", "content": "one two"}

    def say() -> None:
        with run.store.session(ID).stream(gather=0) as stream:
            stream.write("one ")
            stream.write("two")

    def partial(text: str) -> list[dict[str, Any]]:
        return [MESSAGES[0], {"role": "assistant", "content": text, "partial": True}]

    run.step(run.open, None)
    # Until it is finished, it is shown as partial.
    run.step(
        lambda: run.store.session(ID).add_message(MESSAGES[0]),
        [MESSAGES[0]],
        *(partial(text) for text in ("", "one ", "one two")),
    )
    run.step(say, [MESSAGES[0], said])


def forking(run: Run) -> None:
    """Fork, append to the one and to the other, delete the parent."""
    run.ids = (ID, CHILD)
    one = MESSAGES[:2]
    run.step(run.open, (None, None))
    run.step(lambda: run.store.session(ID).add_messages(one), (one, None))
    run.step(lambda: run.store.session(ID).fork(CHILD), (one, one))
    run.step(lambda: run.store.session(CHILD).add_message(MESSAGES[2]), (one, MESSAGES[:3]))
    more = [*one, MESSAGES[4]]
    run.step(lambda: run.store.session(ID).add_message(MESSAGES[4]), (more, MESSAGES[:3]))
    run.step(lambda: run.store.session(ID).compact(), (more, MESSAGES[:3]))


def importing(run: Run) -> None:
    """Import a session that was exported from another store, and append."""
    with hansard.open(run._base.with_name("elsewhere"), durability="os") as other:
        other.session(ID).add_messages(MESSAGES[:3])
        exported = b"".join(other.session(ID).export())
    run.step(run.open, None)
    run.step(lambda: run.store.import_session(exported), MESSAGES[:3])
    run.append(MESSAGES[3])


def purging(run: Run) -> None:
    """Delete, purge, and begin again under the same name."""
    run.step(run.open, None)
    run.append(MESSAGES[0])
    run.step(lambda: run.store.delete(ID), None)
    run.step(lambda: run.store.purge(ID), None)
    run.append(MESSAGES[1])


#: The runs by their names.
PLANS: dict[str, Callable[[Run], None]] = {
    plan.__name__.replace("_", " "): plan
    for plan in (
        life_cycle,
        two_writers,
        second_try,
        sealing_and_joining,
        compacting_while_writing,
        redacting,
        reverting,
        streaming,
        forking,
        importing,
        purging,
    )
}

#: With "os", each of these would leave more states than are worth describing.
SYNC_ONLY = {"second try", "streaming", "forking"}

RUNS: list[tuple[str, Durability]] = [
    *((name, "sync") for name in PLANS),
    *((name, "os") for name in PLANS if name not in SYNC_ONLY),
]


def seen_after_the_cut(path: Path, ids: tuple[str, ...] = (ID,)) -> object:
    """Return the state, and fail unless the store can be used."""
    try:
        store = hansard.open(path, create=False, durability="os", auto_compact=False)
    except hansard.StoreNotFound:
        hansard.open(path).close()
        return NO_STORE
    with store:
        found = tuple(_seen(store, session_id) for session_id in ids)
    return found if len(found) > 1 else found[0]


def _seen(store: hansard.Store, session_id: str) -> list[dict[str, Any]] | None:
    if not store.exists(session_id):
        return None
    session = store.session(session_id)
    found = session.messages()
    assert session.verify().ok
    session.add_message({"after": True})
    assert session.messages() == [*found, {"after": True}]
    return found


def problem_of(
    state: crashes.State, allowed: list[object], ids: tuple[str, ...], place: Path
) -> str:
    """Build a state in a new directory, and return what is wrong with it, mostly nothing."""
    state.build(place)
    try:
        seen = seen_after_the_cut(place / "store", ids)
    except hansard.Damaged as error:
        # Events after a hole are reported as damage.
        seen = allowed[0] if state.hole else repr(error)
    except (hansard.HansardError, AssertionError) as error:
        seen = repr(error)
    finally:
        shutil.rmtree(place)
    return "" if seen in allowed else f"{state.label}, after {state.acknowledged} steps: {seen}"


def recorded(
    place: Path, write: Callable[[Run], None], durability: Durability = "sync"
) -> tuple[Run, crashes.Recording]:
    """Take the steps of a plan in a fresh directory."""
    base = place / "run"
    base.mkdir(parents=True)
    run = Run(base, durability)
    write(run)
    return run, run.record()


def broken_promises(
    tmp_path: Path,
    plan: Callable[[Run], None],
    durability: Durability = "sync",
    *,
    sample: tuple[random.Random, int] | None = None,
) -> Iterator[str]:
    """Yield for each state that a power cut may leave of a run what is wrong with it, mostly nothing.

    Args:
        tmp_path: where the run is taken and the states are built.
        plan: adds the steps to a run.
        durability: what the store promises.
        sample: a random generator, and the number of states to check.
    """
    run, recording = recorded(tmp_path, plan, durability)
    states: Iterable[crashes.State] = recording.states()
    if sample is not None:
        rng, count = sample
        found = list(states)
        states = rng.sample(found, min(count, len(found)))
    for number, state in enumerate(states):
        place = tmp_path / f"state-{number}"
        yield problem_of(state, run.allowed(state.acknowledged), run.ids, place)
