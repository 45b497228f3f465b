"""Costs are linear in what is new or shown: counted, not timed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.backend.local.log import LocalLog
from hansard.event import kinds
from hansard.log import disk
from hansard.state import fold, lineage
from tests.unit.disk_probe import Counted

MANY = 600

Grow = Callable[[hansard.Session, int], None]


both = pytest.mark.parametrize("store", ["memory", "os"], indirect=True)


def regenerate(session: hansard.Session, count: int) -> None:
    """Replace each of a number of answers by a revert."""
    for number in range(count):
        asked = session.add_message({"role": "user", "content": f"q{number}"})
        session.add_message({"role": "assistant", "content": "first"})
        session.revert(asked.seq, messages=[{"role": "assistant", "content": f"a{number}"}])


def expected(count: int) -> list[str]:
    """Return the contents of the model view after `regenerate`."""
    return [text for number in range(count) for text in (f"q{number}", f"a{number}")]


@both
def test_set_metadata_folds_one_event(
    session: hansard.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-77: each `set_metadata` folds its own event and the previous one."""
    counted = Counted(monkeypatch)
    counted.watch(fold, "_merge_into")
    for turn in range(MANY):
        session.set_metadata(turn=turn)
    assert counted.calls <= 2 * MANY
    assert session.metadata == {"turn": MANY - 1}
    assert counted.of(lambda: session.set_metadata(turn=MANY - 1)) <= 1, "nothing is new"


@both
def test_the_model_view_reads_a_log_with_many_reverts_once(
    session: hansard.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-77: `messages` parses each revert once, and reads each byte about once."""
    regenerate(session, MANY)
    session.messages()
    read, parsed = Counted(monkeypatch), Counted(monkeypatch)
    read.watch(disk, "read_at")
    parsed.watch(kinds, "read")
    size = sum(len(event.raw) + 100 for event in session.events())
    read.bytes = parsed.calls = 0
    assert [message["content"] for message in session.messages()] == expected(MANY)
    assert read.bytes <= 2 * size
    assert parsed.calls <= MANY, "parsed once"


@both
def test_the_last_message_costs_the_same_after_any_number_of_reverts(
    session: hansard.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-77: `last=1` reads back to one message only."""
    counted = Counted(monkeypatch)
    counted.watch(kinds, "read")
    counted.watch(disk, "read_at")
    costs = []
    for _ in range(2):
        regenerate(session, MANY // 2)
        session.messages(last=1)
        cost = counted.of(lambda: session.messages(last=1))
        costs.append(cost)
    assert costs[0] == costs[1]
    assert session.messages(last=1) == [{"role": "assistant", "content": f"a{MANY // 2 - 1}"}]


@both
def test_a_fork_keeps_what_it_knows(
    session: hansard.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-77: a fork folds the control events that it inherits once, and sees what is redacted later."""
    secret = session.add_message({"role": "user", "content": "secret"})
    regenerate(session, 50)
    child = session.fork("child")
    assert len(child.messages()) == 101
    counted = Counted(monkeypatch)
    counted.watch(kinds, "read")
    assert counted.of(lambda: child.set_metadata(a=1)) <= 5
    assert counted.of(lambda: child.set_metadata(a=2)) <= 5
    session.redact(secret.seq)
    assert [message["content"] for message in child.messages()] == expected(50)
    assert not [event for event in child.events() if b"secret" in event.raw]


def test_a_handle_forgets_a_purged_session_of_the_same_id(tmp_path: Path) -> None:
    """N-19: a handle discards its state when the session was purged and its id is used again."""
    with hansard.open(tmp_path / "s", durability="os") as store:
        session = store.session("a")
        session.set_title("old")
        session.add_message({"n": 1})
        session.revert(0)
        assert (session.title, session.messages(), session.state().seq) == ("old", [], 3)
        store.delete("a")
        store.purge("a")
        again = store.session("a")
        for number in range(5):
            again.add_message({"n": number})
        assert (session.title, len(session.messages())) == (None, 5)
        assert session.state().message_count == 5
        again.set_metadata(new=True)
        assert (session.title, session.metadata) == (None, {"new": True})


def plain(session: hansard.Session, number: int) -> None:
    """Add a message."""
    session.add_message({"role": "user", "content": f"word{number}"})


def redacting(session: hansard.Session, number: int) -> None:
    """Add a message, and scrub inherited ones and the inherited title."""
    plain(session, number)
    session.scrub(f"secret{number}")


def streaming(session: hansard.Session, number: int) -> None:
    """Add a message, and leave one unfinished."""
    plain(session, number)
    session.stream(gather=0).write(f"half{number}")


def family(store: hansard.Store, shape: str, count: int, grow: Grow) -> None:
    """Create forks: in a chain each is forked from the one before it, in a star all from the first."""
    root = last = store.session("s0")
    secrets = " ".join(f"secret{number}" for number in range(1, count))
    root.set_title(f"hello {secrets}")
    root.add_message({"role": "user", "content": f"hello {secrets}"})
    root.stream(gather=0).write("hello half")
    for number in range(1, count):
        last = (last if shape == "chain" else root).fork(f"s{number}")
        grow(last, number)


@pytest.mark.parametrize("grow", [plain, redacting, streaming])
def test_listing_and_searching_cost_the_same_for_a_chain_of_forks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grow: Grow
) -> None:
    """N-52: each fork costs a fixed number of reads of the ends of logs, in a chain as in a star.

    Whether it adds messages, redacts inherited ones, or inherits unfinished streams.
    """
    found: dict[str, list[int]] = {"chain": [], "star": []}
    for shape, counts in found.items():
        for count in (30, 60):
            path = tmp_path / f"{shape} {count}"
            with (
                hansard.open(path, durability="os", auto_compact=False) as store,
                monkeypatch.context() as patch,
            ):
                family(store, shape, count, grow)
                counted = Counted(patch)
                counted.watch(LocalLog, "look")
                assert store.count(prefix="s") == count
                assert store.search("word7")
                counts.append(counted.calls)
    for once, twice in found.values():
        assert twice <= 2.2 * once
    # Two at each session itself, for the listing and for the texts, and one at each parent. The first nine
    # forks redact what they inherit: each looks at its ancestors, up to nine, three times.
    assert found["chain"][1] <= 3 * 60 + 3 * sum(range(10))
    with hansard.open(tmp_path / "chain 30", durability="os") as store:
        last = store.session("s29")
        (info,) = store.sessions(prefix="s29").items
        assert (info.title, info.message_count) == (last.title, last.state().message_count)


def test_many_forks_of_one_session_read_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-52: a listing folds the events of a session once for all its forks."""
    with hansard.open(tmp_path / "s", durability="os", auto_compact=False) as store:
        root = store.session("root")
        root.add_messages([{"role": "user", "content": "hello"}] * MANY)
        for number in range(100):
            root.fork(f"s{number:03}", at=MANY - 100 + number)
        folded: list[int] = []
        real = fold.apply_all

        def counted(state: fold.State, events: list[Any]) -> fold.State:
            folded.append(len(events))
            return real(state, events)

        monkeypatch.setattr(fold, "apply_all", counted)
        assert store.count() == 101
        assert sum(folded) <= 3 * MANY
        assert [info.message_count for info in store.sessions(prefix="s").items] == [
            MANY - 100 + number for number in range(100)
        ]


def test_a_chain_of_forks_that_is_too_deep_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-52: beyond a maximum depth, a fork is refused, and no session is created."""
    monkeypatch.setattr(lineage, "MAX_DEPTH", 5)
    with hansard.open(tmp_path / "s", durability="os") as store:
        session = store.session("s0")
        session.add_message({"n": 0})
        for number in range(1, 6):
            session = session.fork(f"s{number}")
        with pytest.raises(hansard.InvalidEvent, match="5 is the limit"):
            session.fork("s6")
        assert store.count() == 6
        assert store.session("s2").fork("other").parent == "s2"
