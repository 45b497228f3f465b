"""Mutants that lose acknowledged events on a power cut, a disk failure or a short write."""

from tools.crash.mutants.mutant import Mutant

_ORDER = "tests/faults/test_durability.py"
_POWER_CUT = f"{_ORDER}::test_after_any_power_cut_all_that_was_acknowledged_is_there"
_SYNC_FAILURE = "tests/faults/test_sync_failure.py"
_SHORT = "tests/faults/test_disk_faults.py::test_a_short_write_is_completed_or_an_error"

DURABILITY = (
    Mutant(
        "records are not synced",
        "log/writer.py",
        "                disk.sync(segment.descriptor)\n                segment.durable",
        "                segment.durable",
        (f"{_ORDER}::test_sync_appends_are_written_and_synced_before_they_return",),
    ),
    Mutant(
        "a lone append is acknowledged before it is synced",
        "log/writer.py",
        "                if target is not None:\n",
        "                if target is None:\n",
        (f"{_ORDER}::test_sync_appends_are_written_and_synced_before_they_return",),
    ),
    Mutant(
        "a group is acknowledged before it is synced",
        "log/writer.py",
        "        if self._syncs and any(append.request.durable for append in appends):\n",
        "        if self._syncs and not any(append.request.durable for append in appends):\n",
        (f"{_POWER_CUT}[life cycle]",),
    ),
    Mutant(
        "no directory is synced for a new session",
        "log/writer.py",
        "                disk.sync_directory(directory)\n"
        "                disk.sync_directory(parent)\n",
        "                pass\n",
        (f"{_POWER_CUT}[two writers]",),
    ),
    Mutant(
        "a session's directory is synced, and not the one above it",
        "log/writer.py",
        "                disk.sync_directory(parent)\n",
        "",
        (f"{_POWER_CUT}[two writers]",),
    ),
    Mutant(
        "the names of a new store are not synced",
        "log/store_directory.py",
        "            disk.sync_directory(self.descriptor)\n"
        "            disk.sync_above(self.descriptor)\n",
        "            pass\n",
        (f"{_POWER_CUT}[second try]",),
    ),
    Mutant(
        "a new log gets its name before it is synced",
        "log/segment.py",
        '            disk.sync(descriptor)\n            operation = "rename"\n',
        '            operation = "rename"\n',
        (f"{_ORDER}::test_after_any_power_cut_an_os_store_is_a_prefix[two writers]",),
    ),
    Mutant(
        "the error of a sync is ignored",
        "log/writer.py",
        "        except OSError as error:\n            raise self._fail(error) from error\n"
        "        self._check_kept(segment)\n",
        "        except OSError:\n            pass\n        self._check_kept(segment)\n",
        (f"{_SYNC_FAILURE}::test_this_store_loses_nothing_that_it_acknowledged",),
    ),
    Mutant(
        "a failed sync is tried again",
        "log/writer.py",
        "                disk.sync(segment.descriptor)\n                segment.durable",
        "                try:\n                    disk.sync(segment.descriptor)\n"
        "                except OSError:\n                    disk.sync(segment.descriptor)\n"
        "                segment.durable",
        (f"{_SYNC_FAILURE}::test_this_store_loses_nothing_that_it_acknowledged",),
    ),
    Mutant(
        "a failed sync is not told to other processes",
        "log/writer.py",
        "                    self._locked(self._write_failed)\n",
        "                    pass\n",
        (f"{_SYNC_FAILURE}::test_a_failed_sync_shuts_the_session_for_every_process",),
    ),
    Mutant(
        "a short write passes for a complete one",
        "log/disk.py",
        "    if written == len(data):\n        return\n",
        "    if written:\n        return\n",
        (_SHORT,),
    ),
    Mutant(
        "a short write of a lone append passes for a complete one",
        "log/writer.py",
        "            if disk.write(descriptor, line) != len(line):\n",
        "            if disk.write(descriptor, line) < 0:\n",
        (_SHORT,),
    ),
    Mutant(
        "a torn tail is cut off",
        "log/writer.py",
        "        batch = self._batch_after(tail)\n"
        "        if any(append.request.key is not None for append in appends):\n",
        "        import os\n\n"
        "        batch = WriteBatch(tail.position, tail.ctl)\n"
        "        os.ftruncate(self._reader().segment.descriptor, tail.position.offset)\n"
        "        if any(append.request.key is not None for append in appends):\n",
        ("tests/faults/test_torn_tails.py::test_nul_bytes_at_the_end_are_a_torn_tail",),
    ),
    Mutant(
        "the sealed segment is not synced before the next one refers to it",
        "log/writer.py",
        "            disk.sync(segment.descriptor)\n        except OSError as error:\n"
        "            raise self._fail(error) from error\n        previous = ",
        "            pass\n        except OSError as error:\n"
        "            raise self._fail(error) from error\n        previous = ",
        (
            f"{_ORDER}::test_what_is_appended_while_a_segment_is_sealed_is_synced_before_the_next_refers_to_it",
        ),
    ),
    Mutant(
        "the next segment gets its name before it is synced",
        "log/segment.py",
        '            disk.sync(descriptor)\n            operation = "rename"\n',
        '            operation = "rename"\n',
        (f"{_POWER_CUT}[sealing and joining]",),
    ),
    Mutant(
        "the second name of a sealed segment is not synced before the first one goes",
        "log/segment.py",
        "    _sync_names(directory, segment)\n    disk.move(directory, temporary,",
        "    disk.move(directory, temporary,",
        (f"{_POWER_CUT}[sealing and joining]",),
    ),
    Mutant(
        "what a repair replaced is still there when the next segment is sealed",
        "log/segment.py",
        "        disk.remove(directory, leftover)\n",
        "        pass\n",
        (
            "tests/faults/test_repair.py::test_leftovers_of_a_repair_are_ignored_and_removed_by_the_next_seal",
        ),
    ),
    Mutant(
        "a damaged file is replaced before its copy is synced",
        "backend/local/repair.py",
        "        disk.sync(target)\n        disk.publish(",
        "        disk.publish(",
        ("tests/faults/test_repair.py::test_what_was_damaged_is_durable_first",),
    ),
    Mutant(
        "a compressed segment gets its name before it is synced",
        "log/sealed_writer.py",
        "self._tail())\n        disk.sync(self.descriptor)\n",
        "self._tail())\n",
        (f"{_POWER_CUT}[sealing and joining]",),
    ),
    Mutant(
        "old segments go before the new one's name is synced",
        "backend/local/compact.py",
        "            disk.sync_directory(self.directory)\n        self._remove({",
        "        self._remove({",
        (f"{_POWER_CUT}[sealing and joining]",),
    ),
    Mutant(
        "a deletion is not synced",
        "log/store_directory.py",
        "            disk.sync_directory(self._trash)\n            disk.sync_directory(self.sessions)\n",
        "            pass\n",
        (f"{_ORDER}::test_deleting_and_restoring_are_durable",),
    ),
    Mutant(
        "a fork does not make durable what it inherits",
        "session.py",
        "        self._log.sync()\n",
        "",
        ("tests/faults/test_forks_at_once.py::test_a_fork_makes_its_parent_durable_first",),
    ),
    Mutant(
        "an import gets its name before it is synced",
        "log/write_batch.py",
        "        self._flush(0)\n        disk.sync(self._descriptor)\n",
        "        self._flush(0)\n",
        ("tests/faults/test_moving.py::test_what_is_staged_is_synced_before_it_has_its_name",),
    ),
)
