"""Mutants that answer wrongly: missing checks, ignored conditions and events."""

from tools.crash.mutants.mutant import Mutant

_DAMAGE = "tests/faults/test_damage.py"
_AT_ONCE = "tests/faults/test_writers_at_once.py"
_SYNC_FAILURE = "tests/faults/test_sync_failure.py"

MEANING = (
    Mutant(
        "checksums are not checked",
        "log/format.py",
        """    return crc32(trailer, check) if trailer == b',"crc":"%08x"}\\n' % check else None\n""",
        "    return crc32(trailer, check)\n",
        (f"{_DAMAGE}::test_no_line_can_be_moved_doubled_or_lost",),
    ),
    Mutant(
        "checksums may be in capitals",
        "log/format.py",
        """ if trailer == b',"crc":"%08x"}\\n' % check else None\n""",
        """ if trailer.lower() == b',"crc":"%08x"}\\n' % check else None\n""",
        (f"{_DAMAGE}::test_no_flipped_bit_passes_in_a_log_without_notes",),
    ),
    Mutant(
        "a last line that is damaged passes for a torn tail",
        "log/segment_reader.py",
        "        if crc is None:\n            raise segment_scan.first_damage(segment, start, complete)\n"
        "        position = Position(start.offset + cut, line.seq, crc)\n",
        "        if crc is None:\n            return LogEnd(start, 0, (), size, '')\n"
        "        position = Position(start.offset + cut, line.seq, crc)\n",
        (f"{_DAMAGE}::test_no_line_can_be_moved_doubled_or_lost",),
    ),
    Mutant(
        "seqs need not follow one another",
        "log/segment_reader.py",
        '        if line.seq != start.seq + complete.count(b"\\n"):\n',
        "        if line.seq < 0:\n",
        (f"{_DAMAGE}::test_a_seq_given_out_twice_is_found_though_its_checksum_is_right",),
    ),
    Mutant(
        "the key of an append is ignored",
        "log/writer.py",
        "            if known is not None:\n                append.result",
        "            if False:\n                append.result",
        ("tests/contract/test_appending.py", "-k", "key"),
    ),
    Mutant(
        "keys in sealed segments are forgotten",
        "log/writer.py",
        "                known = chain.find_key(request.key)\n",
        "                known = None\n",
        ("tests/unit/test_compaction.py", "tests/contract/test_compaction.py", "-k", "key"),
    ),
    Mutant(
        "a redaction of a stream leaves the segments of its parts alone",
        "backend/contract.py",
        "msgspec.json.encode((before, changed, self.streams))",
        "msgspec.json.encode((before, changed))",
        ("tests/unit/test_forgetting.py",),
    ),
    Mutant(
        "the expected seq is ignored",
        "log/write_batch.py",
        "        if self.expected_seq is not None and self.expected_seq != seq:\n",
        "        if self.expected_seq is not None and seq < 0:\n",
        (f"{_AT_ONCE}::test_of_two_processes_that_expect_the_same_seq_exactly_one_appends",),
    ),
    Mutant(
        "a revert is ignored",
        "state/view.py",
        "            if event.kind == kinds.SESSION_REVERTED:\n",
        "            if False:\n",
        ("tests/unit/test_paths.py", "-k", "revert"),
    ),
    Mutant(
        "a redaction is ignored",
        "state/redaction.py",
        "        if event.kind != MESSAGE_REDACTED:\n",
        "        if True:\n",
        ("tests/unit/state", "tests/unit/test_forgetting.py", "-k", "redact or forg"),
    ),
    Mutant(
        "a reason to be shut is ignored",
        "log/writer.py",
        "        if tail.shut or files.session_id in files.root.failed:\n",
        "        if files.session_id in files.root.failed:\n",
        (f"{_SYNC_FAILURE}::test_a_failed_sync_shuts_the_session_for_every_process",),
    ),
    Mutant(
        "the log of another session is read",
        "log/segment_reader.py",
        "        if session_id is not None and self.session_id != session_id:\n",
        "        if session_id is not None and self.session_id == '':\n",
        ("tests/unit/log/test_segment.py::test_a_header_that_is_not_ours_is_damage",),
    ),
)  # fmt: skip
