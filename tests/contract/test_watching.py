"""Checks of what an index needs: to be told which sessions have changed, or to be able to find out."""

from collections.abc import Callable

from hansard.backend.contract import Backend
from tests.contract.backends import Context, append, message, two_handles


class _Consumer:
    """Goes over the sessions again and again, as an index does."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._watch = backend.watch()
        self._known = ""
        self._stamps: dict[str, str] = {}

    def news(self, *, keep: bool = True) -> set[str]:
        """Return the sessions that may have changed since the last pass that was kept."""
        if self._watch.quiet(self._known):
            return set()
        changed = self._watch.begin(self._known)
        found = set(changed.ids)
        stamps = self._backend.stamps()
        if changed.every:
            for session_id in stamps.keys() | self._stamps.keys():
                if stamps.get(session_id) != self._stamps.get(session_id):
                    found.add(session_id)
        elif changed.names:
            found |= set(self._watch.ids()) ^ self._stamps.keys()
        said = self._watch.done()
        if keep:
            self._known, self._stamps = said, stamps
            self._watch.consumed()
        return found


def _told(context: Context, do: Callable[[], object], what: str) -> None:
    """Check that a consumer who knows everything hears of something that is done to the session s."""
    consumer = _Consumer(context.backend)
    consumer.news()
    do()
    assert "s" in consumer.news(keep=False), f"nobody was told of {what}"
    assert "s" in consumer.news(), f"{what} was told once, though nobody kept it"


def test_stamps_change_with_each_append(context: Context) -> None:
    """A session has a stamp, another one after each append, and others keep theirs."""
    log, other = context.log("s"), context.log("t")
    for one in (log, other):
        append(one, [message(1)])
    seen = set()
    before = context.backend.stamps()
    assert sorted(before) == ["s", "t"], "sessions with a stamp"
    for number in range(5):
        seen.add(context.backend.stamps()["s"])
        append(log, [message(number)])
    after = context.backend.stamps()
    seen.add(after["s"])
    assert len(seen) == 6, "different stamps after five appends"
    assert after["t"] == before["t"], "the stamp of a session that nobody appended to"


def test_stamps_are_of_those_that_were_asked_for(context: Context) -> None:
    """Asked for some sessions, a backend gives the stamps of those of them that exist, and of no others."""
    for name in "abc":
        append(context.log(name), [message(1)])
    every = context.backend.stamps()
    asked = context.backend.stamps(["c", "missing", "a"])
    assert asked == {name: every[name] for name in "ac"}, "stamps of three, of which one is missing"
    context.backend.delete("a")
    assert sorted(context.backend.stamps()) == ["b", "c"], "sessions with a stamp, one deleted"


def test_whoever_watches_hears_of_every_change(context: Context) -> None:
    """A first event, another one, a deletion and a return: each is told in the next pass."""
    backend = context.backend
    _told(context, lambda: append(context.log(), [message(1)]), "a first event")
    _told(context, lambda: append(context.log(), [message(2)]), "an append")
    _told(context, lambda: backend.delete("s"), "a deletion")
    _told(context, lambda: backend.restore("s"), "a return from the trash")


def test_a_pass_that_was_kept_is_not_told_again_for_ever(context: Context) -> None:
    """Of what nobody has changed for two passes, one who keeps what he reads hears no more."""
    append(context.log(), [message(1)])
    consumer = _Consumer(context.backend)
    assert "s" in consumer.news(), "nobody was told of a session that was there before"
    consumer.news()
    assert consumer.news() == set(), "what has changed since, although nothing has"


@two_handles
def test_changes_by_others_are_told_too(context: Context) -> None:
    """What another handle on the same backend appends is told like one's own."""
    other = context.other()
    _told(context, lambda: append(other.log("s"), [message(1)]), "another's first event")
    _told(context, lambda: append(other.log("s"), [message(2)]), "another's append")
    _told(context, lambda: other.delete("s"), "another's deletion")
