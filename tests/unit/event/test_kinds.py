"""The kinds of events: their names are on disk permanently."""

import threading
import time
from typing import Any

import msgspec
import pytest

from hansard.errors import InvalidEvent
from hansard.event import kinds
from hansard.event.kinds import CONTROL, KINDS, check_kind

#: Repeated here, because a name that is on disk can never change (F-46).
NAMES = {
    "message.added", "message.part", "message.redacted", "metadata.set", "session.created",
    "session.forked", "session.snapshotted", "session.reverted", "summary.added",
    "usage.recorded", "session.cleared", "session.archived", "session.closed",
    "session.held", "session.released",
}  # fmt: skip

#: Those of the audit log, which are in no session.
AUDITED = {
    "session.deleted", "session.pruned", "session.restored", "session.purged", "session.kept",
}  # fmt: skip


def test_the_names_never_change() -> None:
    """F-46: a kind that was ever written stays known; new ones may be added."""
    assert set(KINDS) >= NAMES
    assert {value for value in vars(kinds).values() if isinstance(value, str)} >= AUDITED


def test_messages_parts_and_usage_are_not_control() -> None:
    """F-19: messages, parts and usage are not control events; all other kinds are."""
    assert {"message.added", "message.part", "usage.recorded"} == NAMES - CONTROL
    assert set(KINDS) >= CONTROL


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_kind_reads_data_of_the_future(name: str) -> None:
    """N-43, F-46: reading a struct ignores unknown fields."""
    struct = KINDS[name]
    required = [field.name for field in msgspec.structs.fields(struct) if field.required]
    samples = {"seq": 1, "upto": 1}
    data: dict[str, object] = {
        name: {} if name in {"message", "metadata"} else samples.get(name, "text")
        for name in required
    }
    value = msgspec.convert(data | {"unknown": {"later": 1}}, struct)
    assert isinstance(value, struct)


@pytest.mark.parametrize("good", ["x.a", "a", "X" * 100, "!#[]~", "session.created", "x.{}", "-"])
def test_valid_names(good: str) -> None:
    """F-13: a kind is 1 to 100 printable ASCII characters without space, quote and backslash."""
    assert check_kind(good) == good


@pytest.mark.parametrize(
    "bad", ["", "a b", 'a"', "a\\", "a\n", "\ta", "é", "a" * 101, "\x7f", "a\0", None, 7, b"a"]
)
def test_invalid_names(bad: object) -> None:
    """F-13: any other kind is refused, with the rule."""
    with pytest.raises(InvalidEvent, match="printable ASCII"):
        check_kind(bad)


def test_decoders_are_made_by_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Msgspec crashes the process if two threads use a struct while its first decoder is made."""
    inside: list[str] = []
    most = 0

    def make(struct: Any) -> object:
        nonlocal most
        inside.append(struct.__name__)
        most = max(most, len(inside))
        # Lets the other threads run, as the import of a type's module may.
        time.sleep(0.01)
        inside.pop()
        return decoder(struct)

    decoder = msgspec.json.Decoder
    monkeypatch.setattr(msgspec.json, "Decoder", make)
    kinds._decoder.cache_clear()
    threads = [threading.Thread(target=kinds.read, args=(kind, b"{}")) for kind in sorted(NAMES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
