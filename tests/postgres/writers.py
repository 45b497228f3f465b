"""Processes that write to a store at once: run as `python -m tests.postgres.writers`.

Its line of input is JSON: the URL, a folder, how many processes, how many appends each, how many sessions.
Each process notes what it was told in a file of its own, one line for each append that was acknowledged.
"""

import json
import os
import sys
import traceback

import hansard
from hansard.backend.postgres import backend  # noqa: F401 - once, before the processes part


def write(name: int, orders: dict[str, object], ready: int, go: int) -> None:
    """Open the store, wait until all have it open, append, and note what was acknowledged."""
    path = os.path.join(str(orders["folder"]), str(name))
    journal = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    count, sessions = int(str(orders["appends"])), int(str(orders["sessions"]))
    with hansard.open(str(orders["url"])) as store:
        os.write(ready, b".")
        os.read(go, 1)
        for number in range(count):
            session = store.session(f"s{(name * count + number) % sessions}")
            text = f"{name} {number}"
            event = session.add_message({"role": "user", "content": text})
            line = json.dumps([session.id, event.seq, text]) + "\n"
            os.write(journal, line.encode())


def main() -> int:
    """Start the processes, and wait for them."""
    orders = json.loads(sys.stdin.readline())
    children = []
    is_ready, ready = os.pipe()
    go, may_go = os.pipe()
    for name in range(orders["processes"]):
        child = os.fork()
        if child == 0:
            os.close(may_go)
            try:
                write(name, orders, ready, go)
            except BaseException:  # noqa: BLE001 - its parent's business from here on
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(child)
    os.close(ready)
    for _ in children:
        os.read(is_ready, 1)
    os.close(may_go)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


if __name__ == "__main__":
    sys.exit(main())
