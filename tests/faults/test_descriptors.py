"""Claims about descriptors: what stores keep open follows from what the process may open. N-79."""

from pathlib import Path

import pytest

from tests.programs import python

#: A separate process with the default limit of open files of macOS.
LIMIT = 256

SETTING = f"""
import os, resource, sys, threading
resource.setrlimit(resource.RLIMIT_NOFILE, ({LIMIT}, {LIMIT}))
import hansard
from pathlib import Path
path = Path(sys.argv[1])

def descriptors():
    return len(os.listdir("/dev/fd"))
"""

SESSIONS = """
store = hansard.open(path / "store", durability="os", auto_compact=False)
sessions = [store.session(f"s{number}") for number in range(300)]
most = 0
for turn in range(2):
    for session in sessions:
        session.add_message({"turn": turn})
        most = max(most, descriptors())
assert all(session.seq == 2 for session in sessions)
assert store.count() == 300
assert most <= 256 * 2 // 3, most
"""

STORES = """
stores = [
    hansard.open(path / f"store-{number}", durability="os", auto_compact=False)
    for number in range(150)
]
for turn in range(2):
    for number, store in enumerate(stores):
        store.session("s").add_message({"turn": turn})
        # Each of these opens an index, which takes three descriptors more.
        assert turn or number % 4 or store.count() == 1
assert all(store.session("s").seq == 2 for store in stores)
assert all(store.verify().ok for store in stores)
for store in stores:
    store.close()
"""

#: The application has taken all that is left: what is idle is closed, and the append goes well.
TAKEN = """
store = hansard.open(path / "store", durability="os", auto_compact=False)
for number in range(20):
    store.session(f"s{number}").add_message({"turn": 0})
taken = []
try:
    while True:
        taken.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
assert len(taken) > 100
for number in range(30):
    store.session(f"s{number}").add_message({"turn": 1})
threads = [
    threading.Thread(target=store.session(f"s{number}").add_message, args=({"turn": 2},))
    for number in range(5)
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for descriptor in taken:
    os.close(descriptor)
seqs = [store.session(f"s{number}").seq for number in range(30)]
assert seqs == [3] * 5 + [2] * 15 + [1] * 10, seqs
assert store.verify().ok
"""


#: The budget that stores share keeps none of them open.
UNREFERENCED = """
import gc
before = descriptors()
for number in range(20):
    hansard.open(path / str(number), durability="os").session("s").add_message({"n": 1})
    gc.collect()
assert descriptors() <= before + 12, descriptors() - before
"""

PROGRAMS = {"sessions": SESSIONS, "stores": STORES, "taken": TAKEN, "unreferenced": UNREFERENCED}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_process_with_few_descriptors_can_use_many_sessions(tmp_path: Path, name: str) -> None:
    """N-79: 300 sessions, 150 stores, and appends with no descriptor left, all work with a limit of 256."""
    done = python("-c", SETTING + PROGRAMS[name], tmp_path)
    assert done.returncode == 0, done.stderr
