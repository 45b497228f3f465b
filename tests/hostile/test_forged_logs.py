"""A log with valid checksums and forged lines may be refused, and must do no other harm.

A process that can write a session's files can forge them (F-20). That must affect only that session: no hang,
no error except hansard's, no broken listing.
"""

from pathlib import Path

import pytest

import hansard
from tests.hostile.forge_files import (
    TIME,
    Forged,
    ask_everything,
    nested,
    plant,
    with_a_good_session,
)


def deep_metadata(depth: int) -> Forged:
    """Return a log with metadata that are nested deeper than can be stored."""
    return Forged().control(1, "metadata.set", f'{{"metadata":{{"a":{nested(depth)}}}}}').record(2)


HARMFUL = {
    "seqs below zero": Forged(seq=-5).record(-4).record(-3),
    "seqs beyond 64 bits": Forged(seq=1 << 63).record((1 << 63) + 1),
    "a seq of thirty digits": Forged(seq=10**30).record(10**30 + 1),
    "a place beyond 64 bits": Forged().record(1).record(2, extra=f',"ctl":{10**26}'),
    "a place below zero": Forged().record(1).record(2, extra=',"ctl":-5'),
    "a place inside of the header": Forged().record(1).record(2, extra=',"ctl":7'),
    "a batch without an end": Forged().record(1, extra=f',"key":"k","more":{10**12}'),
    "a batch that is longer than the log": Forged().record(1,
        extra=f',"key":"k","more":{10**12}').record(2),
    "a batch of fewer than none": Forged().record(1, extra=',"more":-1').record(2),
    "data that are a list": Forged().record(1, "[]"),
    "data that are null": Forged().record(1, "null"),
    "control data that are text": Forged().control(1, "metadata.set", '"a"'),
    "control data that are a number": Forged().record(1).control(2, "session.reverted", "5"),
    "a message that is null": Forged().record(1, '{"message":null}'),
    "a message that is a number": Forged().record(1, '{"message":7}').record(2),
    "no message": Forged().record(1, "{}"),
    "a time that is none": Forged().record(1, time="yesterday"),
    "a time with an escape": Forged().record(1, time="\\u001b[2J"),
    "a kind with an escape": Forged().record(1, kind="x.\\u001b[2J"),
    "a first record that is none": Forged(previous={"seq": 0, "crc": 0, "time": ""}, created=TIME,
        first={}).record(1),
    "a first record that is a list": Forged(seq=5, previous={"seq": 5, "crc": 0, "time": ""}, created=TIME,
        first=[]).record(6),
    "a segment before that is far away": Forged(seq=5, previous={"seq": 10**30, "crc": -1, "time": "x"},
        created="x").record(6),
    "a fork of itself": Forged(seq=1).control(2, "session.forked", '{"parent":"a-fork-of-itself","seq":1}'),
    "a fork of an id that is none": Forged(seq=1).control(2, "session.forked",
        '{"parent":"\\u0000","seq":1}'),
    "a fork after the end": Forged(seq=10**12).control(10**12 + 1, "session.forked",
        f'{{"parent":"good","seq":{10**12}}}'),
    "a note that shuts it with an escape": Forged()
    .record(1)
    .line('{"log":"zzz","seq":1,"time":"x","data":{"shut":["\\u001b[31m"]}'),
    "a note that is not an object": Forged().record(1).line('{"log":"z","seq":1,"time":"x","data":5'),
    "tokens beyond 64 bits": Forged().record(1, f'{{"model":"m","input_tokens":{10**30}}}',
        "usage.recorded"),
    "a lone surrogate": Forged().record(1, '{"message":{"role":"user","content":"\\ud800"}}'),
    "metadata 600 levels deep": deep_metadata(600),
    "metadata 900 levels deep": deep_metadata(900),
    "metadata 100,000 levels deep": deep_metadata(100_000),
    "a message 900 levels deep": Forged().record(1,
        f'{{"message":{{"role":"user","content":{nested(900)}}}}}'),
}  # fmt: skip

NOT_UTF8 = "\udcff"

#: Logs with a byte that is not UTF-8, and how many records are valid.
MALFORMED = {
    "a message": (Forged().record(1).record(2, f'{{"message":{{"role":"{NOT_UTF8}"}}}}'), 1),
    "application data": (Forged().record(1, f'{{"{NOT_UTF8}":1}}', "x.a").record(2), 1),
    "metadata": (
        Forged().control(1, "metadata.set", f'{{"metadata":{{"title":"{NOT_UTF8}"}}}}').record(2),
        1,
    ),
    "the name of a parent": (
        Forged(seq=1).control(2, "session.forked", f'{{"parent":"{NOT_UTF8}","seq":1}}'),
        0,
    ),
    "an unknown member": (Forged().record(1, extra=f',"x":"{NOT_UTF8}"').record(2), 1),
    "a note that shuts it": (
        Forged().record(1).line(f'{{"log":"z","seq":1,"time":"x","data":{{"shut":["{NOT_UTF8}"]}}'),
        1,
    ),
    "a note about a fragment": (
        Forged()
        .record(1)
        .line(f'{{"log":"recovered","seq":1,"time":"x","data":{{"bytes":"{NOT_UTF8}"}}')
        .record(2),
        2,
    ),
}


@pytest.mark.parametrize("place", MALFORMED)
def test_bytes_that_are_no_text_are_damage(place: str, tmp_path: Path) -> None:
    """N-35, F-13: a line that is not UTF-8 is damage, with any checksum; repair removes it."""
    store = with_a_good_session(tmp_path / "store")
    log, valid = MALFORMED[place]
    plant(store, log)
    ask_everything(store, ["evil"])
    with hansard.open(store, durability="os") as opened:
        session = opened.session("evil")
        assert not session.verify().ok
        session.repair()
        assert session.verify().ok
        said = [message["content"] for message in session.messages(view="history")]
        assert said.count("hello") == valid


@pytest.mark.slow
def test_forged_logs_harm_no_other_session(tmp_path: Path) -> None:
    """N-35, N-74, F-20, F-32: forged lines cause only errors of hansard, and other sessions are found."""
    store = with_a_good_session(tmp_path / "store")
    names = {harm.replace(" ", "-").replace(",", ""): log for harm, log in HARMFUL.items()}
    for name, log in names.items():
        plant(store, log, name)
    refused = ask_everything(store, names)
    assert {line.split(":")[0] for line in refused} >= {"seqs-below-zero", "data-that-are-a-list"}


def test_data_that_are_no_object_are_damage(tmp_path: Path) -> None:
    """F-14, F-32, N-34: a record whose data are not an object is reported by `verify`, with its offset."""
    store = with_a_good_session(tmp_path / "store")
    log = Forged().record(1)
    offset = len(log.log_of("evil"))
    plant(store, log.record(2, "[]", "x.list"))
    with hansard.open(store, durability="os") as opened:
        (finding,) = opened.session("evil").verify().findings
        assert (finding.severity, finding.offset) == ("damage", offset)
        with pytest.raises(hansard.Damaged, match="data is not an object") as caught:
            list(opened.session("evil").events())
        assert caught.value.offset == offset
