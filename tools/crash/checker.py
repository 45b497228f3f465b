"""Compare a store after a fault with the ledgers of the processes that used it.

Acknowledged events are there exactly once and in order; others once or not at all, and a batch completely
or not at all. Nothing else is there, deleted sessions stay deleted, `verify` finds nothing, and the store
works. The first check writes nothing.
"""

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import hansard
from tools.crash import ledger as ledgers
from tools.crash.workloads import message, open_store

#: Operations that create a session, and operations that remove one.
_COMES = frozenset({"append", "import", "fork", "restore"})
_GOES = frozenset({"delete", "purge"})


class Expected(NamedTuple):
    """What may be found in one session."""

    #: Whether it may exist, and whether it may be missing.
    may_be: bool
    may_lack: bool
    #: Each batch, its writer, and whether it was acknowledged.
    batches: list[tuple[str, tuple[str, ...], bool]]
    #: Damage was repaired: the beginning of a batch that was not acknowledged may be there (decision 0027).
    repaired: bool = False


def expected_of(steps: list[ledgers.Step]) -> dict[str, Expected]:
    """Return the expected content of each session, from the ledgers."""
    found: dict[str, Expected] = {}
    for step in steps:
        before = found.get(step.session, Expected(may_be=False, may_lack=True, batches=[]))
        if step.act in _COMES:
            after = before._replace(may_be=True, may_lack=before.may_lack and not step.done)
        elif step.act in _GOES:
            after = before._replace(may_be=before.may_be and not step.done, may_lack=True)
        else:
            continue
        if step.ids:
            _add(after.batches, step)
        found[step.session] = after
    return found


def _add(batches: list[tuple[str, tuple[str, ...], bool]], step: ledgers.Step) -> None:
    """Add a batch; a retry with the same key is the same batch."""
    for place, (writer, ids, done) in enumerate(batches):
        if ids == step.ids:
            batches[place] = (writer, ids, done or step.done)
            return
    batches.append((step.writer, step.ids, step.done))


def check(
    path: str,
    ledger: list[str],
    *,
    damage: bool = False,
    prefix: bool = False,
    go_on: bool = True,
    heard: tuple[str, set[tuple[int, int]]] | None = None,
) -> dict[str, Any]:
    """Describe what is wrong with a store, and what else was found. For a nursery without the shim.

    Args:
        path: the store.
        ledger: the ledgers of all that was done to it, in order.
        damage: located damage counts as found, and must be repairable.
        prefix: of each writer only a prefix need be there, as after a power cut with durability "os".
        go_on: use the store again, and repeat the check.
        heard: a ledger of which only these steps, by process and number, count as acknowledged.
    """
    steps = ledgers.read(ledger)
    if heard is not None:
        late = {(step.process, step.number) for step in ledgers.read([heard[0]])} - heard[1]
        steps = [
            step._replace(done=False) if (step.process, step.number) in late else step
            for step in steps
        ]
    expected = expected_of(steps)
    wrong = [f"{step.act} {step.session}: {step.wrong}" for step in steps if step.wrong]
    temporaries = _temporaries(path)
    try:
        with open_store(path, read_only=True) as store:
            wrong += _look(store, expected, damage=damage, prefix=prefix)
    except hansard.StoreNotFound:
        wrong += [f"no store, and {id} was acknowledged" for id in _required(expected)]
    if go_on and not wrong:
        wrong += _go_on(path, expected, damage=damage, prefix=prefix)
    return {"wrong": wrong, "temporaries": temporaries}


def _required(expected: dict[str, Expected]) -> Iterator[str]:
    return (session for session, what in expected.items() if not what.may_lack)


def _look(
    store: hansard.Store, expected: dict[str, Expected], *, damage: bool, prefix: bool
) -> Iterator[str]:
    """Compare everything that another process can read with what is expected."""
    present = set()
    for session, what in expected.items():
        if not session:
            continue
        there = store.exists(session)
        if there:
            present.add(session)
        if there and not what.may_be:
            yield f"{session} is there"
        elif not there and not what.may_lack and not prefix:
            yield f"{session} is missing"
        elif there:
            yield from _compare(store.session(session), what, damage=damage, prefix=prefix)
    listed = {info.id for info in store.sessions(limit=1000).items}
    if listed != present:
        yield f"listed are {sorted(listed)}, and there are {sorted(present)}"


def _compare(
    session: hansard.Session, what: Expected, *, damage: bool, prefix: bool
) -> Iterator[str]:
    """Compare one session's messages with what is expected."""
    report = session.verify()
    if not report.ok:
        located = all(finding.where and finding.offset >= 0 for finding in report.damage)
        if not damage or not located:
            yield f"{session.id}: verify finds {report.damage}"
        return
    seqs = [event.seq for event in session.events()]
    if seqs != list(range(1, len(seqs) + 1)):
        yield f"{session.id}: seqs are {seqs}"
    ids = [found["id"] for found in session.messages()]
    yield from (f"{session.id}: {told}" for told in compare_ids(ids, what, prefix=prefix))


def compare_ids(ids: list[str], what: Expected, *, prefix: bool = False) -> Iterator[str]:
    """Return the errors in the messages of a session, each named by its id."""
    place = {name: number for number, name in enumerate(ids)}
    known = {name for _, batch, _ in what.batches for name in batch}
    yield from (f"{name} is there {n} times" for name, n in Counter(ids).items() if n > 1)
    yield from (f"{name} was never said" for name in ids if name not in known)
    last: dict[str, int] = {}
    missing: set[str] = set()
    for writer, batch, done in what.batches:
        there = [name for name in batch if name in place]
        if not there:
            if done and not prefix:
                yield f"{batch} was acknowledged and is missing"
            if done:
                missing.add(writer)
            continue
        if writer in missing:
            yield f"{batch} is there, and not what {writer} had said before"
        begin = place.get(batch[0], -1)
        # A repair may keep the beginning of a batch that was not acknowledged, if it is contiguous.
        size = len(there) if what.repaired and not done else len(batch)
        if ids[begin : begin + size] != list(batch[:size]):
            yield f"{batch} is there in part, or torn apart: {ids}"
        if begin < last.get(writer, -1):
            yield f"{batch} is out of order: {ids}"
        last[writer] = begin


def _go_on(path: str, expected: dict[str, Expected], *, damage: bool, prefix: bool) -> list[str]:
    """Use the store as if no fault had occurred, and check it again."""
    wrong: list[str] = []
    with open_store(path) as store:
        # Allows appends again after a failed sync.
        report = store.verify()
        if not report.ok and not damage:
            wrong.append(f"verify finds {report.findings}")
        for session in filter(None, expected):
            if store.exists(session) and not store.session(session).verify().ok:
                wrong += _mended(store.session(session))
                expected[session] = expected[session]._replace(repaired=True)
            name = f"{session}-later"
            if not store.exists(session):
                if not prefix and any(done for *_, done in expected[session].batches):
                    continue  # it was deleted, or even purged
                expected[session].batches.clear()
            try:
                # A missing session begins here.
                store.session(session).add_messages([message(name)])
            except hansard.SessionDeleted:
                continue
            expected[session].batches.append(("later", (name,), True))
            expected[session] = expected[session]._replace(may_be=True, may_lack=False)
        store.session("later").add_message(message("later0", 600))
        expected["later"] = Expected(
            may_be=True, may_lack=False, batches=[("later", ("later0",), True)]
        )
        failed = store.compact().failed
        if failed:
            wrong.append(f"cannot be compacted: {failed}")
        store.health()
    with open_store(path, read_only=True) as store:
        wrong += _look(store, expected, damage=False, prefix=prefix)
    wrong += [f"{left} is left over" for left in _temporaries(path)]
    return wrong


def _mended(session: hansard.Session) -> list[str]:
    """Repair a session whose damage was located; return an error if that failed."""
    report = session.repair()
    return [] if session.verify().ok else [f"{session.id}: cannot be repaired: {report}"]


def _temporaries(path: str) -> list[str]:
    return [
        os.path.relpath(os.path.join(directory, name), path)
        for directory, _, names in os.walk(path)
        for name in names
        if name.startswith(".tmp-")
    ]
