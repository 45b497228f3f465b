"""A session: messages are returned unchanged, in every form that a caller can request."""

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

import hansard
from hansard import Session, Store
from hansard.backend.contract import LogReader
from hansard.state.view import KnownState


def said(session: Session) -> list[Any]:
    """Return the texts of a session's messages."""
    return [message["n"] for message in session.messages()]


def test_messages_are_added_all_or_none(session: Session) -> None:
    """`add_messages` takes any iterable; after one invalid message none is appended (N-89)."""
    events = session.add_messages({"n": number} for number in range(3))
    assert [event.seq for event in events] == [1, 2, 3]
    assert session.add_messages([]) == []
    with pytest.raises(hansard.InvalidEvent):
        session.add_messages([{"n": 3}, {"n": float("inf")}])
    assert said(session) == [0, 1, 2]


def test_messages_and_own_events_are_appended_together(session: Session) -> None:
    """`append_all` appends kinds and data in order, all or none (N-89), with a key (N-56) and a seq."""
    both: list[tuple[str, dict[str, Any]]] = [
        ("x.step", {"n": 1}),
        ("message.added", {"message": {"n": 1}}),
        ("x.step", {"n": 2}),
    ]
    events = session.append_all(both, key="step-1", expected_seq=0)
    assert [(event.seq, event.kind, event.data) for event in events] == [
        (seq, kind, data) for seq, (kind, data) in enumerate(both, 1)
    ]
    assert session.append_all(both, key="step-1") == events
    assert session.append_all([]) == []
    with pytest.raises(hansard.SeqConflict):
        session.append_all(both, expected_seq=1)
    for kind, data in (
        ("message.added", {"n": 2}),
        ("message.added", {"message": {"n": 2}, "more": 1}),
        ("message.added", {"message": "text"}),
        ("metadata.set", {"metadata": {}}),
        ("x.", {}),
        ("x.step", {"n": float("nan")}),
    ):
        with pytest.raises(hansard.InvalidEvent):
            session.append_all([*both, (kind, data)])
    assert session.seq == 3
    assert said(session) == [1]


BAD: list[tuple[str, Callable[[Session], object], str]] = [
    ("no dict", lambda s: s.add_message(["n"]), "must be a dict"),  # type: ignore[arg-type]
    ("None", lambda s: s.add_message(None), "must be a dict"),  # type: ignore[arg-type]
    ("text", lambda s: s.add_messages("text"), "must be a dict"),  # type: ignore[arg-type]
    ("one of them", lambda s: s.add_messages({"n": 1}), "must be a dict"),  # type: ignore[dict-item]
    ("bytes", lambda s: s.add_message({"n": b"x"}), r"message\['n'\]"),
    ("empty key", lambda s: s.add_message({}, key=""), "key"),
    ("long key", lambda s: s.add_message({}, key="k" * 1025), "1,024"),
    ("NUL key", lambda s: s.add_message({}, key="a\0"), "NUL"),
    ("no key", lambda s: s.add_message({}, key=7), "key"),  # type: ignore[arg-type]
    ("surrogate key", lambda s: s.add_message({}, key="\ud800"), "surrogate"),
    ("minus seq", lambda s: s.add_message({}, expected_seq=-1), "expected_seq"),
    ("true seq", lambda s: s.add_message({}, expected_seq=True), "expected_seq"),
    ("half seq", lambda s: s.append("x.a", {}, expected_seq=1.5), "expected_seq"),  # type: ignore[arg-type]
    (
        "known kind",
        lambda s: s.append("message.added", {"message": {}}),
        "is not an application event",
    ),
    ("unknown kind", lambda s: s.append("todo", {}), "begin with 'x.'"),
    ("bare prefix", lambda s: s.append("x.", {}), "begin with 'x.'"),
    ("space in kind", lambda s: s.append("x.a b", {}), "kind"),
    ("quote in kind", lambda s: s.append('x."', {}), "kind"),
    ("line in kind", lambda s: s.append("x.a\n", {}), "kind"),
    ("long kind", lambda s: s.append("x." + "a" * 99, {}), "kind"),
    ("no kind", lambda s: s.append(None, {}), "kind"),  # type: ignore[arg-type]
    ("data no dict", lambda s: s.append("x.a", [1]), "must be a dict"),  # type: ignore[arg-type]
    ("set metadata", lambda s: s.set_metadata(a={1}), r"metadata\['a'\]"),
    ("list of metadata", lambda s: s.patch_metadata([1]), "must be a dict"),  # type: ignore[arg-type]
    ("number keys", lambda s: s.patch_metadata({1: 2}), "keys are text"),  # type: ignore[dict-item]
]


@pytest.mark.parametrize(("call", "says"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_bad_argument_appends_nothing(
    call: Callable[[Session], object], says: str, store: Store
) -> None:
    """What cannot be stored raises an `InvalidEvent` that names it, and no session is created."""
    with pytest.raises(hansard.InvalidEvent, match=says):
        call(store.session("new"))
    assert not store.exists("new")
    session = store.session("old")
    session.add_message({"n": 1})
    with pytest.raises(hansard.InvalidEvent, match=says):
        call(session)
    assert session.seq == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"last": -1}, "last"),
        ({"last": 1.0}, "last"),
        ({"last": True}, "last"),
        ({"after": -1}, "after"),
        ({"after": None}, "after"),
        ({"at": -1}, "at"),
        ({"at": "now"}, "at"),
        ({"view": "window"}, "model, history"),
        ({"view": None}, "view"),
    ],
)
def test_a_bad_range_is_refused(options: dict[str, Any], says: str, session: Session) -> None:
    """An invalid range raises a ValueError that names the option, with and without events."""
    for _ in range(2):
        for call in (session.messages, session.messages_json):
            with pytest.raises(ValueError, match=says):
                call(**options)
        if "at" in options:
            with pytest.raises(ValueError, match=says):
                session.state(**options)
        if "after" in options:
            with pytest.raises(ValueError, match=says):
                session.events(**options)
        session.add_message({"n": 1})


def test_events_can_be_followed(store: Store) -> None:
    """`events(follow=True)` yields stored events, and then those that others append, once each."""
    session = store.session("s")
    following = session.events(follow=True)

    def speak() -> None:
        for number in range(20):
            store.session("s").add_message({"n": number})

    speaker = threading.Thread(target=speak)
    speaker.start()
    heard = [next(following) for _ in range(20)]
    speaker.join()
    assert [event.seq for event in heard] == list(range(1, 21))
    assert heard == list(session.events())
    session.append("x.last", {})
    assert next(following).kind == "x.last"
    later = session.events(after=20, follow=True)
    assert next(later).seq == 21
    store.delete("s")
    with pytest.raises(hansard.SessionDeleted):
        next(later)


def test_a_title_from_a_program_may_hold_a_key_and_is_redacted(store: Store) -> None:
    """N-65: a key in a program's title is redacted, in a person's it is refused; other types are too."""
    session = store.session("a")
    key = "sk-" + "proj-" + "Ab1" * 16
    session.set_title(f"About {key}", automatic=True)
    assert session.title is not None
    assert session.title.startswith("About [redacted")
    with pytest.raises(hansard.SecretRefused):
        session.set_title(f"About {key}")
    with pytest.raises(hansard.InvalidEvent, match="title must be a string"):
        session.set_title(7)  # type: ignore[arg-type]


def test_a_title_that_a_person_sets_first_stays(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-54: a person's title that is set between a program's read and its append stays."""
    session, person = store.session("s"), store.session("s")
    session.add_message({"role": "user", "content": "what is 6 × 7?"})
    look = Session._known

    def look_and_be_late(self: Session, log: LogReader) -> KnownState:
        found = look(self, log)
        if self is session:
            person.set_title("Mine")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Session, "_known", look_and_be_late)
        assert session.set_title("guessed", automatic=True) is not None
    for seen in (session, person, store.session("s"), session.fork("c")):
        assert seen.title == seen.state().title == "Mine"
    assert store.sessions(prefix="s").items[0].title == "Mine"


def test_the_last_are_the_end_of_all(session: Session) -> None:
    """`last` returns the end of what is returned without it, even if chunks have no messages."""
    session.append_all([("x.before", {})] * 10)
    session.add_messages({"n": number} for number in range(3_500))
    session.append_all([("x.after", {})] * 2_500)
    everything = session.messages()
    assert len(everything) == 3_500
    for count in (0, 1, 999, 1_000, 1_001, 3_500, 9_999):
        expected = everything[3_500 - min(count, 3_500) :]
        assert session.messages(last=count) == expected
        assert json.loads(session.messages_json(last=count)) == expected
    assert session.messages(at=12, after=10) == everything[:2]
    assert session.messages(last=5, after=3_508) == everything[-2:]
    assert session.messages(last=5, at=10) == []
