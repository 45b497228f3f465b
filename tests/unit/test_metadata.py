"""Metadata and titles: what they hold, and whose title counts."""

import pytest

import hansard
from hansard import Session, Store
from hansard.backend.contract import LogReader
from hansard.state.view import KnownState


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
