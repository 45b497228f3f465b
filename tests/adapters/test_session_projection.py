"""A projection holds the same as if all events were read each time."""

import random
from typing import Any

import hansard
from hansard.adapters import session_projection as projection


class Texts(projection.AdapterProjection):
    """The texts of a session, and how often they were read from the first event."""

    begun = 0

    def _begin(self) -> None:
        self.texts: list[Any] = []
        self.begun += 1

    def _add(self, event: hansard.Event) -> None:
        if event.message is not None:
            self.texts.append(event.message["content"])


def _step(session: hansard.Session, rng: random.Random, number: int) -> hansard.Session:
    """Change a session at random, and return it, or a fork of it."""
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


def test_a_projection_equals_the_model_view(rng: random.Random) -> None:
    """N-40, N-49: after any reverts, clears, redactions and forks, it holds what the model view shows."""
    with hansard.open("memory:") as store:
        for _ in range(10):
            session = store.session()
            session.add_message({"role": "user", "content": "first"})
            kept = [Texts(store, session.id)]
            for number in range(rng.randrange(100)):
                session = _step(session, rng, number)
                if session.id != kept[-1].handle.id:
                    kept.append(Texts(store, session.id))
                for one in kept:
                    if rng.randrange(3):
                        shown = [message["content"] for message in one.handle.messages()]
                        with one.fresh():
                            assert (one.seq, one.texts) == (one.handle.seq, shown)


def test_a_fork_notices_what_its_ancestors_lose() -> None:
    """A redaction in an ancestor, made after the fork was read, also applies to the fork."""
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
        # Ancestors in the trash cannot be followed: all events are read each time.
        store.delete("t/second")
        store.delete("t/first")
        assert said(5) == ["b"]
        store.restore("t/first").redact(2)
        store.delete("t/first")
        assert said(6) == []
