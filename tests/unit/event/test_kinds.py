"""The kinds of events: their names are on disk for ever."""

import msgspec
import pytest

from hansard.errors import InvalidEvent
from hansard.event import kinds
from hansard.event.kinds import CONTROL, KINDS, check_kind

#: Written down here, because a name that is on disk can never change (F-46).
NAMES = {
    "message.added", "message.part", "message.redacted", "metadata.set", "session.created",
    "session.forked", "session.snapshotted", "session.reverted", "summary.added",
    "usage.recorded", "session.cleared", "session.archived", "session.closed",
}  # fmt: skip

#: Those of the audit log, which are in no session.
AUDITED = {
    "session.deleted", "session.pruned", "session.restored", "session.purged", "session.kept",
}  # fmt: skip


def test_the_names_never_change() -> None:
    """F-46: a kind that was ever written is known for ever; new ones may come."""
    assert set(KINDS) >= NAMES | AUDITED


def test_messages_parts_and_usage_are_not_control() -> None:
    """F-19: what is many is not in the chain of control records; all else that we know is."""
    assert {"message.added", "message.part", "usage.recorded"} == NAMES - CONTROL
    assert set(KINDS) - AUDITED >= CONTROL


@pytest.mark.parametrize("name", sorted(NAMES | AUDITED))
def test_a_kind_reads_data_of_the_future(name: str) -> None:
    """N-43, F-46: a field that a kind does not know is passed over when its struct is read."""
    struct = KINDS[name]
    required = [field.name for field in msgspec.structs.fields(struct) if field.required]
    samples = {"seq": 1, "upto": 1, "older_than": 1.5, "record": 1}
    data: dict[str, object] = {
        name: {} if name in {"message", "metadata"} else samples.get(name, "text")
        for name in required
    }
    value = msgspec.convert(data | {"unknown": {"later": 1}}, struct)
    assert isinstance(value, struct)


@pytest.mark.parametrize("good", ["x.a", "a", "X" * 100, "!#[]~", "session.created", "x.{}", "-"])
def test_names_that_a_record_can_carry(good: str) -> None:
    """F-13: a kind is 1 to 100 printable ASCII characters without space, quote and backslash."""
    assert check_kind(good) == good


@pytest.mark.parametrize(
    "bad", ["", "a b", 'a"', "a\\", "a\n", "\ta", "é", "a" * 101, "\x7f", "a\0", None, 7, b"a"]
)
def test_names_that_a_record_cannot_carry(bad: object) -> None:
    """F-13: any other kind is refused, with the rule."""
    with pytest.raises(InvalidEvent, match="printable ASCII"):
        check_kind(bad)


def test_the_application_s_own_prefix_is_no_kind_of_ours() -> None:
    """No kind of ours begins as the application's own do."""
    assert not [name for name in NAMES if name.startswith(kinds.APPLICATION)]
