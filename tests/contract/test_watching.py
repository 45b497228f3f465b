"""A backend reports which sessions changed, or lets the index find out by their stamps."""

from collections.abc import Callable

from hansard.backend.contract import Backend
from tests.contract.backends import Context, append, message, two_handles


class _Consumer:
    """Refreshes again and again, as an index does."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._since = ""
        self._stamps: dict[str, str] = {}

    def news(self, *, keep: bool = True) -> set[str]:
        """Return the sessions that may have changed since the last refresh that was committed."""
        if self._since and self._backend.version() == self._since:
            return set()
        changed = self._backend.changed(self._since)
        found = set(changed.ids)
        stamps = self._backend.stamps()
        if changed.every:
            for session_id in stamps.keys() | self._stamps.keys():
                if stamps.get(session_id) != self._stamps.get(session_id):
                    found.add(session_id)
        elif changed.present is not None:
            found |= changed.present ^ self._stamps.keys()
        if keep:
            self._since, self._stamps = changed.since, stamps
            changed.done()
        return found


def _check_reported(context: Context, do: Callable[[], object], what: str) -> None:
    """Check that a change of the session s is reported until the refresh is committed."""
    consumer = _Consumer(context.backend)
    consumer.news()
    do()
    assert "s" in consumer.news(keep=False), f"{what} was not reported"
    assert "s" in consumer.news(), f"{what} was reported once, although it was not committed"


def test_stamps_change_with_each_append(context: Context) -> None:
    """Each append changes the stamp of its session, and of no other."""
    log, other = context.log("s"), context.log("t")
    for one in (log, other):
        append(one, [message(1)])
    seen = set()
    before = context.backend.stamps()
    assert sorted(before) == ["s", "t"]
    assert context.backend.stamps() == before
    for number in range(5):
        seen.add(context.backend.stamps()["s"])
        append(log, [message(number)])
    after = context.backend.stamps()
    seen.add(after["s"])
    assert len(seen) == 6
    assert after["t"] == before["t"]


def test_stamps_are_of_the_requested_sessions(context: Context) -> None:
    """A backend returns the stamps of those requested sessions that exist, and of no others."""
    for name in "abc":
        append(context.log(name), [message(1)])
    every = context.backend.stamps()
    asked = context.backend.stamps(["c", "missing", "a"])
    assert asked == {name: every[name] for name in "ac"}
    context.backend.delete("a")
    assert sorted(context.backend.stamps()) == ["b", "c"]


def test_every_change_is_reported(context: Context) -> None:
    """A first event, another one, a deletion and a restoration are reported by the next refresh."""
    backend = context.backend
    _check_reported(context, lambda: append(context.log(), [message(1)]), "a first event")
    _check_reported(context, lambda: append(context.log(), [message(2)]), "an append")
    _check_reported(context, lambda: backend.delete("s"), "a deletion")
    _check_reported(context, lambda: backend.restore("s"), "a restoration")


def test_a_committed_change_is_not_reported_again(context: Context) -> None:
    """Two refreshes after the last change, nothing is reported."""
    append(context.log(), [message(1)])
    consumer = _Consumer(context.backend)
    assert "s" in consumer.news()
    consumer.news()
    assert consumer.news() == set()


@two_handles
def test_changes_by_another_handle_are_reported(context: Context) -> None:
    """Appends and deletions through another handle are reported alike."""
    other = context.other()
    _check_reported(context, lambda: append(other.log("s"), [message(1)]), "another's first event")
    _check_reported(context, lambda: append(other.log("s"), [message(2)]), "another's append")
    _check_reported(context, lambda: other.delete("s"), "another's deletion")
