"""Workloads for faults: eight uses of a store, each in a separate process.

A workload continues after a refusal, with the same store object: the next call may succeed.
"""

import gc
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import hansard
from tools.crash import shim
from tools.crash.ledger import Ledger

Work = Callable[[hansard.Store, Ledger], None]

#: Bytes of a long message.
LARGE: Final = 600

#: Marks the temporary files that existed before a workload.
LEFT: Final = "0" * 16


def message(name: str, size: int = 20) -> dict[str, Any]:
    """Return a unique message."""
    return {"role": "user", "content": f"{name} " * (size // (len(name) + 1) + 1), "id": name}


def append(
    store: hansard.Store, ledger: Ledger, session: str, *ids: str, size: int = 20, key: bool = False
) -> bool:
    """Append messages, in one batch; with a key, again if it was refused."""
    said = [message(name, size) for name in ids]
    tries = 2 if key else 1
    return any(
        ledger.step(
            "append",
            session,
            lambda: store.session(session).add_messages(said, key=ids[0] if key else None),
            ids,
        )
        for _ in range(tries)
    )


def compact(store: hansard.Store, ledger: Ledger, session: str) -> None:
    """Seal and compress the segments of a session, and save a checkpoint."""
    ledger.step("compact", session, lambda: store.session(session).compact())


# -- stores before the fault ---------------------------------------------------------


def _nothing(store: hansard.Store, ledger: Ledger) -> None:
    pass


def _some(store: hansard.Store, ledger: Ledger) -> None:
    for number in range(4):
        append(store, ledger, "a", f"a{number}", size=200)


def _sealed(store: hansard.Store, ledger: Ledger) -> None:
    _some(store, ledger)
    compact(store, ledger, "a")
    append(store, ledger, "a", "a4", "a5")


def _several(store: hansard.Store, ledger: Ledger) -> None:
    _sealed(store, ledger)
    for session in ("b", "c"):
        append(store, ledger, session, f"{session}0")
        append(store, ledger, session, f"{session}1", size=LARGE)
    ledger.step("delete", "c", lambda: store.delete("c"))


def _torn(store: hansard.Store, ledger: Ledger) -> None:
    """Create what a crash may leave: an unfinished batch, a temporary file, one segment under two names."""
    _several(store, ledger)
    # It was never acknowledged, because only half of it is stored.
    ledger.about("append", "b", ["torn0", "torn1"])
    store.session("b").add_messages([message("torn0"), message("torn1")])
    root = store.health().where
    store.close()
    log = os.path.join(root, "sessions", "b", "log.jsonl")
    os.truncate(log, os.path.getsize(log) - 30)
    dead = _dead_process()
    for place in ("sessions/a", "sessions/b", ""):
        with open(
            os.path.join(root, place, f".tmp-log.jsonl-{dead}-{LEFT}"), "w", encoding="utf-8"
        ):
            pass
    # Synced, because a power cut does not undo it: the store was like this before.
    os.sync()


def _dead_process() -> int:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return child


# -- calls under the fault -------------------------------------------------------------------------------


def _create(store: hansard.Store, ledger: Ledger) -> None:
    ledger.step("append", "new", lambda: store.create("new", metadata={"title": "T"}))
    append(store, ledger, "a", "n0")
    append(store, ledger, "a", "n1", "n2")
    append(store, ledger, "a", "n3", key=True)
    append(store, ledger, "a", "n4", size=LARGE)
    ledger.step("list", "", store.sessions)
    ledger.step("list", "", lambda: store.search("n1"))


def _together(jobs: dict[str, Callable[[Ledger], None]], ledger: Ledger) -> None:
    """Run jobs in threads that begin at once."""
    barrier = threading.Barrier(len(jobs))

    def run(job: Callable[[Ledger], None], own: Ledger) -> None:
        barrier.wait()
        job(own)
        own.close()

    threads = [
        threading.Thread(target=run, args=(job, ledger.other(name))) for name, job in jobs.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _writer(store: hansard.Store, name: str, count: int) -> Callable[[Ledger], None]:
    def write(own: Ledger) -> None:
        for number in range(count):
            append(store, own, "a", f"{name}-{number}", key=number % 2 == 0)

    return write


def _group(store: hansard.Store, ledger: Ledger) -> None:
    _together({f"t{n}": _writer(store, f"t{n}", 4) for n in range(4)}, ledger)


def _rotate(store: hansard.Store, ledger: Ledger) -> None:
    append(store, ledger, "a", "r0")
    compact(store, ledger, "a")
    append(store, ledger, "a", "r1")


def _checkpoint(store: hansard.Store, ledger: Ledger) -> None:
    for number in range(2):
        append(store, ledger, "a", f"p{number}")
        ledger.step("title", "a", lambda: store.session("a").set_metadata(title="T"))
        compact(store, ledger, "a")
        ledger.step("state", "a", lambda: store.session("a").state())


def _concurrent(store: hansard.Store, ledger: Ledger) -> None:
    def compactor(own: Ledger) -> None:
        for _ in range(2):
            own.step("compact", "a", lambda: store.session("a").compact())

    jobs = {name: _writer(store, name, 3) for name in ("v0", "v1")}
    _together({"compactor": compactor, **jobs}, ledger)


def _recover(store: hansard.Store, ledger: Ledger) -> None:
    ledger.step("verify", "", store.verify)
    for session in ("a", "b"):
        # Also named after the ledger: a killed recovery is followed by another.
        append(store, ledger, session, f"{session}-{ledger.writer}")
    ledger.step("restore", "c", lambda: store.restore("c"))
    ledger.step("compact", "", store.compact)
    ledger.step("list", "", store.sessions)
    append(store, ledger, "a", f"a-after-{ledger.writer}")


def _move(store: hansard.Store, ledger: Ledger) -> None:
    exported: list[bytes] = []

    def export() -> None:
        exported[:] = store.session("a").export(redacted=False)

    if ledger.step("export", "a", export):
        ids = [found["id"] for found in store.session("a").messages()]
        for copy in ("i0", "i1"):
            take_in = partial(store.import_session, exported, id=copy)
            ledger.step("import", copy, take_in, ids)
            append(store, ledger, copy, f"{copy}-after")


def _delete(store: hansard.Store, ledger: Ledger) -> None:
    inherited = [f"a{number}" for number in range(6)]
    ledger.step("fork", "f", lambda: store.session("a").fork("f"), inherited)
    append(store, ledger, "f", "f0")
    ledger.step("delete", "b", lambda: store.delete("b"))
    ledger.step("restore", "c", lambda: store.restore("c"))
    ledger.step("restore", "b", lambda: store.restore("b"))
    append(store, ledger, "b", "b-again")
    if ledger.step("delete", "c", lambda: store.delete("c")):
        ledger.step("purge", "c", lambda: store.purge("c"))


#: Each workload: its store before the fault, and its calls.
WORKLOADS: Final[dict[str, tuple[Work, Work]]] = {
    "create": (_nothing, _create),
    "group": (_some, _group),
    "rotate": (_some, _rotate),
    "checkpoint": (_sealed, _checkpoint),
    "concurrent": (_sealed, _concurrent),
    "recover": (_torn, _recover),
    "move": (_several, _move),
    "delete": (_several, _delete),
}

#: Workloads of several threads, whose calls have a different order in each run.
THREADED: Final = frozenset({"group", "concurrent"})


def open_store(path: str, durability: str = "sync", **options: Any) -> hansard.Store:
    """Open a store as all workloads do."""
    assert durability in {"sync", "os"}
    return hansard.open(
        path,
        durability="os" if durability == "os" else "sync",
        lock_timeout=5.0,
        **options,
    )


def prepare(name: str, path: str, ledger: str, durability: str = "sync") -> None:
    """Create the store that a workload begins with, if it has one. For a nursery."""
    if WORKLOADS[name][0] is _nothing:
        return
    with open_store(path, durability) as store:
        WORKLOADS[name][0](store, Ledger(ledger, "prepared"))


def perform(
    name: str,
    path: str,
    ledger: str,
    fault: list[Any] | None = None,
    under: str = "",
    report: str = "",
    durability: str = "sync",
    wire: int | None = None,
) -> dict[str, int]:
    """Run the workload, with or without a fault; return the leftovers. For a nursery with the shim."""
    own = Ledger(ledger, os.path.basename(ledger), wire)
    gc.collect()
    descriptors, threads = _left()
    if fault is not None:
        act, at, calls, *rest = fault
        shim.arm(shim.Fault(act, at, tuple(calls), *rest), under, report)
    opened: list[hansard.Store] = []
    # The second call may succeed after the first was refused.
    for _ in range(2):
        if not opened:
            own.step("open", "", lambda: opened.append(open_store(path, durability)))
    for store in opened:
        WORKLOADS[name][1](store, own)
        own.step("close", "", store.close)
    if fault is not None:
        shim.disarm()
    opened.clear()
    store = None  # type: ignore[assignment]  # the loop's name holds it, too
    gc.collect()
    now = _left()
    return {"descriptors": now[0] - descriptors, "threads": now[1] - threads}


def _left() -> tuple[int, int]:
    return len(os.listdir("/proc/self/fd")), threading.active_count()
