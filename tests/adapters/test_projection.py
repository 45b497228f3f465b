"""What a session adds up to, kept or noted: the same as if everything had been read."""

import random
from typing import Any

import hansard
from hansard.adapters import projection


def _add(value: dict[str, Any], event: hansard.Event) -> None:
    message = event.message
    if message is not None:
        value["texts"] = [*value["texts"], message["content"]]


TEXTS = projection.Noted("x.texts", lambda: {"texts": []}, _add)


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


def test_a_sum_is_the_same_with_and_without_notes(rng: random.Random) -> None:
    """N-40, N-49: after any reverts, clears, redactions and forks, a sum is that of the model view."""
    with hansard.open("memory:") as store:
        for _ in range(10):
            session = store.session()
            session.add_message({"role": "user", "content": "first"})
            for number in range(rng.randrange(100)):
                before = session.seq
                session = _step(session, rng, number)
                # Sometimes twice, sometimes not at all.
                for _ in range(rng.randrange(3)):
                    TEXTS.note(session, before, session.seq)
                shown = [message["content"] for message in session.messages()]
                assert TEXTS.of(session) == (session.seq, {"texts": shown})
                events = projection.shown(session.events())
                found = [event.message["content"] for event in events if event.message is not None]
                assert found == shown


def test_a_note_that_was_scrubbed_is_not_believed() -> None:
    """N-40: a note that no longer says what it said is passed over, and so is one of another shape."""
    with hansard.open("memory:") as store:
        session = store.session("s")
        session.add_messages([{"role": "user", "content": f"{number}"} for number in range(40)])
        TEXTS.note(session, 0, 40)
        session.append("x.texts", {"upto": "all", "value": {"texts": ["not so"]}})
        session.append("x.texts", {"redacted": True})
        assert TEXTS.of(session).value["texts"] == [f"{n}" for n in range(40)]
        session.scrub("13")
        assert TEXTS.of(session).value["texts"][12:15] == ["12", "[redacted]", "14"]


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
        known = Texts(session)
        for texts in (["a"], ["a", "b"], ["a", "b", "c"]):
            session.add_message({"role": "user", "content": texts[-1]})
            known.refresh()
            assert (known.texts, known.begun) == (texts, 1)
        session.redact(session.numbered()[0][0])
        known.refresh()
        assert (known.texts, known.begun) == (["b", "c"], 2)
        store.delete("s")
        known.refresh()
        assert (known.texts, known.seq) == ([], 0)
        store.purge("s")
        store.session("s").add_message({"role": "user", "content": "new"})
        known.refresh()
        assert known.texts == ["new"]


def test_the_projections_used_last_are_kept() -> None:
    """The 64 that were used last are kept; one that is forgotten is made anew."""
    recent: projection.Recent[object] = projection.Recent()
    first, second = recent.of("0", object), recent.of("1", object)
    for number in range(2, 65):
        recent.of("0", object)
        recent.of(f"{number}", object)
    assert recent.of("0", object) is first
    assert recent.of("1", object) is not second
    recent.forget("0")
    assert recent.of("0", object) is not first
