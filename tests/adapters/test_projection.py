"""What a session adds up to: the same as if everything had been read each time."""

import random
from typing import Any

import hansard
from hansard.adapters import projection


def _add(value: dict[str, Any], event: hansard.Event) -> None:
    message = event.message
    if message is not None:
        value["texts"] = [*value["texts"], message["content"]]


def texts(store: hansard.Store, session: hansard.Session) -> projection.Sum:
    """Return what was said in a session."""
    return projection.Sum(store, session.id, lambda: {"texts": []}, _add)


def _step(session: hansard.Session, rng: random.Random, number: int) -> hansard.Session:
    """Do something at random, and return the session to go on with: a fork, perhaps."""
    kinds = ["say", "say much", "revert", "clear", "redact", "title", "fork"]
    kind = rng.choices(kinds, [60, 3, 4, 1, 2, 9, 1])[0]
    if kind == "say":
        session.add_message({"role": "user", "content": f"{number}"})
    elif kind == "say much":
        session.add_messages([{"role": "user", "content": f"{more}"} for more in range(90)])
    elif kind == "revert":
        session.revert(rng.randrange(session.seq + 1))
    elif kind == "clear":
        session.clear()
    elif kind == "redact":
        session.redact(1)
    elif kind == "title":
        session.set_title(f"title {number}")
    else:
        parent, session = session, session.fork()
        parent.redact(1)
    return session


def test_a_sum_that_is_kept_is_that_of_the_model_view(rng: random.Random) -> None:
    """N-40, N-49: after any reverts, clears, redactions and forks, a sum is that of the model view."""
    with hansard.open("memory:") as store:
        for _ in range(10):
            session = store.session()
            session.add_message({"role": "user", "content": "first"})
            kept = [texts(store, session)]
            for number in range(rng.randrange(100)):
                session = _step(session, rng, number)
                if session.id != kept[-1].handle.id:
                    kept.append(texts(store, session))
                for one in kept:
                    if rng.randrange(3):
                        shown = [message["content"] for message in one.handle.messages()]
                        assert one.value() == (one.handle.seq, {"texts": shown})
                events = projection.shown(session.events())
                found = [event.message["content"] for event in events if event.message is not None]
                assert found == [message["content"] for message in session.messages()]


def test_what_a_caller_does_with_a_sum_changes_nothing() -> None:
    """A caller may change the value that it is given."""
    with hansard.open("memory:") as store:
        session = store.session("s")
        session.add_message({"role": "user", "content": "a"})
        known = texts(store, session)
        known.value()[1]["texts"].clear()
        assert known.value() == (1, {"texts": ["a"]})


class Texts(projection.Projection):
    """What was said, as long as nothing was taken out; and how often it was begun."""

    begun = 0

    def _begin(self) -> None:
        self.texts: list[Any] = []
        self.begun += 1

    def _add(self, event: hansard.Event) -> None:
        if event.message is not None:
            self.texts.append(event.message["content"])


def test_what_is_kept_is_read_anew_only_if_it_does_not_hold() -> None:
    """N-40: new events are added; after a redaction, or if the id is another session's, all is read anew."""
    with hansard.open("memory:") as store:
        session = store.session("s")
        known = Texts(store, session.id)
        for texts in (["a"], ["a", "b"], ["a", "b", "c"]):
            session.add_message({"role": "user", "content": texts[-1]})
            known.refresh()
            assert (known.texts, known.begun) == (texts, 2)
        session.redact(session.numbered()[0][0])
        known.refresh()
        assert (known.texts, known.begun) == (["b", "c"], 3)
        store.delete("s")
        known.refresh()
        assert (known.texts, known.seq) == ([], 0)
        store.purge("s")
        store.session("s").add_message({"role": "user", "content": "new"})
        known.refresh()
        assert known.texts == ["new"]


def test_a_fork_notices_what_its_ancestors_lose() -> None:
    """A redaction in the parent, or in its parent, made after the fork was read, holds in the fork."""
    with hansard.open("memory:") as store:
        first = store.session("t/first")
        first.add_messages([{"role": "user", "content": text} for text in "ab"])
        second = first.fork("t/second")
        second.add_message({"role": "user", "content": "c"})
        third = second.fork("t/scope/third")
        known = [Texts(store, third.id), Texts(store.scoped("t/scope/"), third.id)]

        def said(begun: int) -> list[Any]:
            for one in known:
                one.refresh()
            assert known[0].begun == begun
            assert known[0].texts == known[1].texts
            return known[0].texts

        assert said(2) == ["a", "b", "c"]
        second.add_message({"role": "user", "content": "not inherited"})
        assert said(2) == ["a", "b", "c"]
        second.redact(4)
        assert said(3) == ["a", "b"]
        first.redact(1)
        assert said(4) == ["b"]
        assert said(4) == ["b"]
        # In the trash nothing can be watched: all is read each time.
        store.delete("t/second")
        store.delete("t/first")
        assert said(5) == ["b"]
        store.restore("t/first").redact(2)
        store.delete("t/first")
        assert said(6) == []


def test_the_projections_used_last_are_kept() -> None:
    """The 64 that were used last are kept; one that is forgotten is made anew."""
    recent: projection.Recent[object] = projection.Recent()

    def make(_: str) -> object:
        return object()

    first, second = recent.of("0", make), recent.of("1", make)
    for number in range(2, 65):
        recent.of("0", make)
        recent.of(f"{number}", make)
    assert recent.of("0", make) is first
    assert recent.of("1", make) is not second
    recent.forget("0")
    assert recent.of("0", make) is not first
