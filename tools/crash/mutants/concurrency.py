"""Mutants that break concurrent calls: locks, outdated log ends, shared names."""

from tools.crash.mutants.mutant import Mutant

_AT_ONCE = "tests/faults/test_writers_at_once.py"
_LOCKS = "tests/faults/test_locks.py"
_DELETION = "tests/faults/test_deletion.py"

CONCURRENCY = (
    Mutant(
        "no lock",
        "log/disk.py",
        "            self._flock(self.descriptor, how)\n        except OSError as error:\n",
        "            pass\n        except OSError as error:\n",
        (f"{_AT_ONCE}::test_processes_append_to_the_same_sessions_and_every_event_is_there_once",),
    ),
    Mutant(
        "no lock for the lone append",
        "log/writer.py",
        "                    lock.acquire(self._wait)\n                    with self._files.mutex:\n",
        "                    with self._files.mutex:\n",
        (f"{_LOCKS}::test_a_warm_writer_waits_for_the_lock_as_well",),
    ),
    Mutant(
        "the lock is held during a sync",
        "log/writer.py",
        "                            target = self._target()\n",
        "                            target = self._target()\n"
        "                            self._sync(target)\n",
        (f"{_LOCKS}::test_the_lock_is_not_held_during_a_sync",),
    ),
    Mutant(
        "a deleted lock file is not noticed",
        "log/writer.py",
        "        if not lock.exists() or not files.in_place():\n",
        "        if not files.in_place():\n",
        (f"{_LOCKS}::test_a_warm_writer_notices_a_deleted_lock_file_before_it_writes",),
    ),
    Mutant(
        "a replaced log is not noticed",
        "log/writer.py",
        "        if not lock.exists() or not files.in_place():\n",
        "        if not lock.exists():\n",
        ("tests/faults/test_replaced_logs.py", "-k", "taken_away"),
    ),
    Mutant(
        "what others appended is not read",
        "log/writer.py",
        "            if size != end.position.offset:\n",
        "            if size < end.position.offset:\n",
        (f"{_AT_ONCE}::test_a_writer_that_opened_earlier_overwrites_nothing",),
    ),
    Mutant(
        "one fixed temporary name",
        "log/names.py",
        '    return f".tmp-{base}-{os.getpid()}-{os.urandom(8).hex()}"\n',
        '    return f".tmp-{base}-1-0000000000000000"\n',
        (f"{_AT_ONCE}::test_two_processes_that_begin_the_same_session_make_one_whole_file",
         "tests/unit/log/test_names.py"),
    ),
    Mutant(
        "a child of a fork keeps its parent's lock",
        "log/disk.py",
        "        _not_inherited.add(self)\n",
        "",
        ("tests/faults/test_fork.py",),
    ),
    Mutant(
        "two compactors of one session",
        "backend/local/compact.py",
        "    lock.acquire(timeout)\n    try:\n",
        "    try:\n",
        ("tests/faults/test_locks.py::test_a_second_compactor_is_refused_and_breaks_nothing",),
    ),
    Mutant(
        "a deleted session is written to",
        "log/writer.py",
        "        if DELETED not in end.shut:\n            return end\n",
        "        if True:\n            return end\n",
        (_DELETION,),
    ),
    Mutant(
        "the name of a session in the trash is given away",
        "log/writer.py",
        "        if files.root.in_trash(files.name):\n            # Deleted since",
        "        if False:\n            # Deleted since",
        (f"{_DELETION}::test_a_name_in_the_trash_is_not_given_to_a_new_session",),
    ),
    Mutant(
        "a purge does not hold the lock of the session while it looks for forks",
        "backend/local/backend.py",
        "            with log.holding():\n                if",
        "            if True:\n                if",
        ("tests/contract/test_staging.py", "tests/faults/test_forks_at_once.py"),
    ),
    Mutant(
        "a fork does not check its parent under the lock",
        "backend/contract.py",
        "    if head is None or head.seq < forked.seq or",
        "    if False and",
        ("tests/unit/test_forks.py",),
    ),
    Mutant(
        "a fork does not hold its parent's lock",
        "log/writer.py",
        "self._files.root.holding(self._files.name, self._wait) as there,",
        "contextlib.nullcontext(enter_result=True) as there,",
        ("tests/faults/test_forks_at_once.py",),
    ),
    Mutant(
        "a fork locks its parent before it knows that its name is free",
        "backend/local/backend.py",
        "            if head is not None:\n                raise session_exists",
        "            if False:\n                raise session_exists",
        ("tests/faults/test_forks_at_once.py",),
    ),
    Mutant(
        "sessions that change are not marked for the index",
        "log/change_marks.py",
        "        if disk.write(file, line) != len(line):\n",
        '        if disk.write(file, b"") != 0:\n',
        ("tests/unit/log/test_change_marks.py",),
    ),
    Mutant(
        "a lone append leaves no mark for the index",
        "log/writer.py",
        "            if files.marked != files.numbers[0]:\n                files.mark()\n"
        "            files.end = None\n",
        "            files.end = None\n",
        ("tests/unit/log/test_change_marks.py::test_a_lone_append_by_the_fast_path_leaves_a_mark",),
    ),
)  # fmt: skip
