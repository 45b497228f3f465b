"""What a crash leaves at the end of a log: read past, reported, ended by the next append, never cut off."""

import pytest

import hansard
from tests.faults.logs import ID, Bench, Log, Truth

NEW = {"role": "user", "content": "after the crash"}


def check_reading(session: hansard.Session, truth: Truth) -> None:
    """Fail unless every way to read returns exactly what was appended before the tear."""
    assert session.messages() == truth.messages
    assert session.messages(last=2) == truth.messages[-2:]
    assert session.seq == truth.seq
    assert session.metadata == truth.metadata
    assert [event.seq for event in session.events()] == list(range(1, truth.seq + 1))
    assert session.state().message_count == len(truth.messages)


def check_torn(bench: Bench, data: bytes, truth: Truth, *, go_on: bool = True) -> None:
    """Fail unless a log that ends in a torn tail is read, reported, and, if it shall `go_on`, appended to."""
    bench.put(data)
    with bench.reader() as store:
        check_reading(store.session(ID), truth)
        assert store.exists(ID)
        report = store.session(ID).verify()
        assert report.ok
        torn = len(data) - truth.offset
        found = [(finding.severity, finding.offset, finding.length) for finding in report.findings]
        discarded = found[: -1 if torn else None]
        assert found == discarded + ([("note", truth.offset, torn)] if torn else [])
        assert len(discarded) == data[: truth.offset].count(b'\n{"log":"recovered"')
    assert bench.file.read_bytes() == data, "reading wrote"
    if not go_on:
        return
    with bench.writer() as store:
        session = store.session(ID)
        if truth.shut:
            with pytest.raises(hansard.SyncFailed):
                session.add_message(NEW)
            assert session.verify().ok
        # Once by the ordinary way, which ends the torn tail, and once by the short one.
        session.add_message(NEW)
        session.add_message(NEW)
        after = Truth(0, [*truth.messages, NEW, NEW], truth.metadata, truth.seq + 2)
        check_reading(session, after)
    grown = bench.file.read_bytes()
    assert grown.startswith(data), "something was cut off or changed"
    with bench.reader() as store:
        check_reading(store.session(ID), after)
        notes = store.session(ID).verify().findings
        assert len(notes) == len(discarded) + bool(torn)
        if torn:
            assert notes[-1].offset == truth.offset, "what was torn is reported as discarded"
            assert {note.severity for note in notes} == {"note"}
    # The new record begins a line: nothing was glued to the fragment.
    assert grown.splitlines()[-1].startswith(b'{"seq":%d,' % (truth.seq + 2))
    assert (b'"log":"recovered"' in grown[len(data) :]) == bool(torn)


@pytest.mark.slow
def test_a_log_cut_at_any_byte_loses_only_what_was_cut(log: Log, bench: Bench, seed: int) -> None:
    """N-33, F-27 to F-30: cut at every byte, a log keeps every append before it, and can be appended to.

    The log holds single records, batches, control records, abandoned lines and notes, so that the cuts
    fall into all of these: into the last record, the last batch, `~torn`, and an unfinished recovery.
    Every cut is read. Those next to a newline are appended to, and every third of the others, by the seed.
    """
    for cut in range(log.start, len(log.data) + 1):
        go_on = b"\n" in log.data[cut - 2 : cut + 2] or (cut + seed) % 3 == 0
        check_torn(bench, log.data[:cut], log.at(cut), go_on=go_on)


@pytest.mark.parametrize("count", [1, 2, 511, 512, 4096, 70_000])
def test_nul_bytes_at_the_end_are_a_torn_tail(log: Log, bench: Bench, count: int) -> None:
    """N-33, F-28: a file that was given its size and not its data ends in NUL bytes, and is not damaged."""
    check_torn(bench, log.data + bytes(count), log.whole)


def test_nul_bytes_instead_of_the_end_of_the_last_record(log: Log, bench: Bench) -> None:
    """N-33, F-28: a last record that turns into NUL bytes anywhere, and never ends, was never there."""
    before = log.truths[-2]
    for begin in range(before.offset, len(log.data), 7):
        check_torn(bench, log.data[:begin] + bytes(len(log.data) - begin), before)
        check_torn(bench, log.data[:begin] + bytes(3) + log.data[begin + 3 : -1], before)


def test_a_torn_tail_longer_than_any_window(log: Log, bench: Bench) -> None:
    """N-33, F-27, F-41: an unfinished batch of 400 KB is passed over and recovered like a short one."""
    bench.put(log.data)
    with bench.writer() as store:
        store.session(ID).add_messages([{"n": n, "text": "x" * 2000} for n in range(200)])
    whole = bench.file.read_bytes()
    assert len(whole) > 400_000
    last = whole.rindex(b"\n", 0, -1) + 1
    for cut in (last, last + 50, len(whole) - 1, len(log.data) + 100_000):
        check_torn(bench, whole[:cut], log.whole)


def test_a_torn_first_record_leaves_an_empty_session(log: Log, bench: Bench) -> None:
    """N-33, F-25: a header with nothing complete after it is a session without events, which continues."""
    check_torn(bench, log.data[: log.start + 30], log.truths[0])


@pytest.mark.slow
def test_a_reader_sees_only_prefixes_while_a_writer_writes(log: Log, bench: Bench) -> None:
    """N-20, F-28, F-41: at each byte of a write, old and new readers see complete appends only."""
    seen = -1
    bench.put(log.data[: log.start])
    with bench.reader() as old, bench.file.open("ab", buffering=0) as file:
        warm = old.session(ID)
        for offset in range(log.start, len(log.data)):
            file.write(log.data[offset : offset + 1])
            truth = log.at(offset + 1)
            assert truth.seq >= seen
            seen = truth.seq
            check_reading(warm, truth)
            with bench.reader() as new:
                assert new.session(ID).messages() == truth.messages
                assert new.session(ID).seq == truth.seq
    assert seen == log.whole.seq
