"""Damaged bytes are always noticed and located, and never overwritten.

Every way to read a damaged log must raise `Damaged`, or `UnknownFormat` where the byte is the version's.
The one exception is the last newline: without it the last line is a torn tail, which a crash could
have left, and readers see the exact prefix before it.
"""

import itertools
import random
from collections.abc import Callable, Iterator

import pytest

import hansard
from hansard.log import format
from hansard.log.format import TORN
from tests.faults.logs import ID, Bench, Log

NEW = {"role": "user", "content": "new"}

#: Every way to read a session; what it returns can be compared.
READINGS: dict[str, Callable[[hansard.Session], object]] = {
    "messages": lambda session: session.messages(),
    "last": lambda session: session.messages(last=1),
    "after": lambda session: session.messages(after=2),
    "json": lambda session: session.messages_json(),
    "events": lambda session: list(session.events()),
    "metadata": lambda session: session.metadata,
    "seq": lambda session: session.seq,
    "state": lambda session: session.state(),
}

Answers = dict[str, object]


def answers(bench: Bench, data: bytes) -> Answers:
    """Return what each way to read returns for a valid log."""
    bench.put(data)
    with bench.reader() as store:
        return {name: read(store.session(ID)) for name, read in READINGS.items()}


def check_reading(bench: Bench, session: hansard.Session, name: str, *allowed: Answers) -> None:
    """Fail unless one way to read a damaged log is refused, or answered by one of the truths allowed."""
    try:
        answer = READINGS[name](session)
    except hansard.Damaged as error:
        where, offset = error.path, error.offset
    except hansard.UnknownFormat:
        assert b'"version":1,' not in bench.file.read_bytes()
        return
    else:
        assert answer in [truth[name] for truth in allowed], name
        return
    assert not allowed, name
    assert where == str(bench.file)
    assert 0 <= offset <= bench.file.stat().st_size


#: Damage is tried thousands of times: each time messages are read, and one other way in turn.
IN_TURN = itertools.cycle(READINGS)


def check_damaged(bench: Bench, data: bytes, *allowed: Answers) -> None:
    """Fail unless every read of a damaged log, and every append, is refused.

    `allowed` are alternative answers, where the damage cannot be distinguished from a crash.
    """
    bench.put(data)
    with bench.writer() as store:
        session = store.session(ID)
        check_reading(bench, session, "messages", *allowed)
        check_reading(bench, session, next(IN_TURN), *allowed)
        assert store.exists(ID)
        if allowed:
            assert session.verify().ok
            return
        try:
            report = session.verify()
        except hansard.UnknownFormat:
            pass
        else:
            assert not report.ok
            assert {finding.where for finding in report.findings} == {str(bench.file)}
        with pytest.raises((hansard.Damaged, hansard.UnknownFormat)):
            session.add_message(NEW)
    assert bench.file.read_bytes() == data, "a refused append wrote"


def altered(data: bytes, at: int, turn: int = 0, of: int = 1) -> Iterator[bytes]:
    """Yield a log with one byte altered: bits flipped, and at every sixth byte LF, NUL and no text.

    Each bit, or every `of`-th, by `turn`. A flipped bit 5 turns the lower-case digits of a checksum into
    upper case.
    """
    values = {data[at] ^ 1 << bit for bit in range(8) if (bit + at + turn) % of == 0}
    if (at + turn) % 6 == 0:
        values |= {0x0A, 0x00, 0xFF}
    for value in sorted(values - {data[at]}):
        yield data[:at] + bytes([value]) + data[at + 1 :]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(2))
def test_no_altered_byte_passes(log: Log, bench: Bench, part: int, seed: int) -> None:
    """N-30, N-34, F-20, F-32: each byte, with a bit of it flipped, is noticed by every way to read.

    Two bits of each byte, which two by the run's seed; `tools/crash/campaign --rows 8` takes all.
    """
    data = log.data
    last = len(data) - 1
    for at in range(part, last, 2):
        for bad in altered(data, at, seed, of=4):
            check_damaged(bench, bad)
    before = answers(bench, data[: log.truths[-2].offset])
    for bad in altered(data, last):
        check_damaged(bench, bad, before)


def test_no_flipped_bit_passes_in_a_log_without_notes(bench: Bench) -> None:
    """N-30, N-34, F-20: records alone are read by a shorter way, which is as strict, to the last digit."""
    with bench.writer() as store:
        # The checksum of the last one has a letter in it, which could be in capitals.
        while not set(b"abcdef") & set(bench.file.read_bytes()[-11:-3]):
            store.session(ID).add_message({"n": 1})
    data = bench.file.read_bytes()
    begin = data.rindex(b"\n", 0, -1) + 1
    before = answers(bench, data[:begin])
    for at in range(begin, len(data)):
        for bit in range(8):
            bad = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
            check_damaged(bench, bad, *([before] if at == len(data) - 1 else []))


@pytest.mark.slow
def test_no_missing_and_no_extra_byte_passes(log: Log, bench: Bench, seed: int) -> None:
    """N-30, N-34, F-32: a byte taken out or put in, at any place before the end, is noticed."""
    data = log.data
    for at in range(len(data) - 1):
        own = data[at : at + 1]
        instead = (b"", b"\n" + own, own + own)
        check_damaged(bench, data[:at] + instead[(at + seed) % 3] + data[at + 1 :])
    before = answers(bench, data[: log.truths[-2].offset])
    check_damaged(bench, data[:-1], before)


def test_no_line_can_be_moved_doubled_or_lost(log: Log, bench: Bench) -> None:
    """N-26, N-34, F-15, F-20: lines removed, doubled, swapped, moved or put in are noticed."""
    lines = log.data.splitlines(keepends=True)
    count = len(lines)
    for at in range(count - 1):
        check_damaged(bench, b"".join(lines[:at] + lines[at + 1 :]))
    for at, to in itertools.product(range(count), repeat=2):
        if at != to:
            moved = lines[:at] + lines[at + 1 :]
            moved.insert(to, lines[at])
            check_damaged(bench, b"".join(moved))
    for at, to in itertools.product(range(count), range(1, count + 1)):
        # A discarded fragment at the very end is a torn tail: a recovery may have been interrupted.
        crashed = lines[at].endswith(TORN) and to == count
        valid = [answers(bench, log.data)] if crashed else []
        check_damaged(bench, b"".join([*lines[:to], lines[at], *lines[to:]]), *valid)
    for foreign in (b"\n", b"{}\n", b"null\n", b"[]\n", b"\0\n", b"~torn\n", b"text~torn\n"):
        for at in range(count):
            check_damaged(bench, b"".join([*lines[:at], foreign, *lines[at:]]))


def test_a_seq_given_out_twice_is_found_though_its_checksum_is_right(bench: Bench) -> None:
    """N-26, F-15: a record whose checksum runs on but whose seq was given out before is damage."""
    data = bench.file.read_bytes()
    crc = format.crc32(data)
    for seq in (1, 2):
        # The second follows the first: the wrong one must be found before a right one, too.
        line, crc = format.record(seq, format.now(), b"message.added", b'{"message":{}}', crc)
        data += line
    check_damaged(bench, data)


NO_LOGS = {
    "empty": b"",
    "a newline": b"\n",
    "binary": bytes(range(256)) * 8,
    "not UTF-8": '{"log":"header","seq":0,"time":"é"}\n'.encode("latin-1"),
    "null": b"null\n",
    "list": b"[]\n",
    "object": b"{}\n",
    "text": b"hello\nworld\n",
    "NUL bytes": bytes(4096),
    "one long line": b"x" * 100_000,
    "deep JSON": b"[" * 50_000 + b"\n",
    "a header without its end": b'{"log":"header","seq":0,"time":"2026-01-01T00:00:00.000000Z"',
    "a record first": b'{"seq":1,"time":"2026","kind":"x.a","data":{},"crc":"00000000"}\n',
}


@pytest.mark.parametrize("data", NO_LOGS.values(), ids=list(NO_LOGS))
def test_what_is_no_log_is_damage_and_not_absence(bench: Bench, data: bytes) -> None:
    """N-31, F-25: a log.jsonl that is none is damaged, exists, is listed as such, and is left alone."""
    bench.put(data)
    with bench.writer() as store:
        for read in READINGS.values():
            with pytest.raises(hansard.Damaged):
                read(store.session(ID))
        assert store.exists(ID)
        assert [(info.id, bool(info.damaged)) for info in store.sessions().items] == [(ID, True)]
        assert not store.verify().ok
        for write in (
            lambda: store.session(ID).add_message(NEW),
            lambda: store.session(ID).add_messages([NEW, NEW], key="k"),
            lambda: store.session(ID).set_metadata(title="T"),
            lambda: store.create(ID),
        ):
            with pytest.raises(hansard.Damaged):
                write()
    assert bench.file.read_bytes() == data


def offsets(bench: Bench, data: bytes) -> list[int]:
    """Return where `verify` finds damage."""
    bench.put(data)
    with bench.reader() as store:
        report = store.session(ID).verify()
    assert all(finding.severity == "damage" for finding in report.findings)
    return [finding.offset for finding in report.findings]


def starts(data: bytes) -> list[int]:
    """Return where each line begins."""
    lengths = [len(line) for line in data.splitlines(keepends=True)]
    return [0, *itertools.accumulate(lengths)][:-1]


@pytest.mark.slow
def test_verify_names_the_damaged_line_and_no_other(log: Log, bench: Bench) -> None:
    """N-34, F-20: one flipped bit, wherever it is in a line, is one finding, at the line's offset."""
    data = log.data
    for begin, end in itertools.pairwise(starts(data)):
        # A discarded fragment has no checksum: that of the next line detects the change.
        abandoned = data[begin:end].endswith(TORN)
        for at in range(begin, end - 1):
            value = data[at] ^ (0x20 if at % 2 else 0x01)
            if data[begin:at].endswith(b'version":'):
                continue
            found = offsets(bench, data[:at] + bytes([value]) + data[at + 1 :])
            assert found == [begin] or (abandoned and found == [end]), (at, found)


def test_verify_lists_all_damage(log: Log, bench: Bench, rng: random.Random) -> None:
    """N-34, F-20: of several damaged lines every one is listed, and no valid line between them."""
    data = log.data
    valid = [at for at in starts(data) if not data[at : data.index(b"\n", at) + 1].endswith(TORN)]
    for _ in range(200):
        # Not two in a row: after a line that cannot be trusted at all, one line cannot be checked.
        hit = sorted(rng.sample(range(0, len(valid), 2), rng.randint(2, 5)))
        bad = bytearray(data)
        for line in hit:
            bad[rng.randrange(valid[line] + 1, valid[line] + 60)] ^= 1 << rng.randrange(3)
        assert offsets(bench, bytes(bad)) == [valid[line] for line in hit]


@pytest.fixture(scope="module")
def long_log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return a log of more than a mebibyte, with control records and a batch here and there."""
    bench = Bench(tmp_path_factory.mktemp("long") / "store")
    with bench.writer() as store:
        session = store.session(ID)
        for turn in range(600):
            session.add_messages(
                [{"turn": turn, "text": "x" * 900}, {"turn": turn, "text": "y" * 900}]
            )
            if turn % 50 == 0:
                session.set_metadata(turn=turn)
    data = bench.file.read_bytes()
    assert len(data) > 1 << 20
    return data


@pytest.mark.slow
def test_damage_anywhere_in_a_long_log_never_gives_a_wrong_answer(
    long_log: bytes, bench: Bench, rng: random.Random
) -> None:
    """N-34, N-77, F-41: a reader that does not need the damaged part is right; others report the damage."""
    truth = answers(bench, long_log)
    refused = dict.fromkeys(READINGS, 0)
    for _ in range(60):
        # After the header: another version in it would not be damage.
        at = rng.randrange(long_log.index(b"\n"), len(long_log) - 1)
        bad = long_log[:at] + bytes([long_log[at] ^ 1 << rng.randrange(8)]) + long_log[at + 1 :]
        bench.put(bad)
        for name, read in READINGS.items():
            with bench.reader() as store:
                try:
                    assert read(store.session(ID)) == truth[name], (name, at)
                except hansard.Damaged:
                    refused[name] += 1
        with bench.writer() as store:
            assert not store.session(ID).verify().ok
            try:
                store.session(ID).add_message(NEW)
            except hansard.Damaged:
                assert bench.file.read_bytes() == bad
            else:
                # The end of the log is valid, and that is all an append needs; nothing before it changes.
                assert bench.file.read_bytes().startswith(bad)
    assert refused["messages"] == refused["events"] == refused["state"] == 60
    assert refused["last"] < 40
