"""Titles: one place, whoever gives them; a person's outlives a program's; naming is no activity."""

from collections.abc import Callable

import pytest

import hansard
from hansard import Session, Store


def titles(store: Store, session_id: str) -> set[object]:
    """Return the title as every way of asking tells it."""
    session = store.session(session_id)
    shared = [line["data"] for line in session.share() if line.get("kind") == "metadata.set"]
    listed = {info.id: info for info in store.sessions().items}
    return {
        session.title,
        session.metadata["title"],
        session.state().title,
        session.state().metadata["title"],
        listed[session_id].title,
        shared[-1]["metadata"]["title"],
    }


WAYS: dict[str, Callable[[Session], object]] = {
    "set_title": lambda session: session.set_title("T"),
    "automatic": lambda session: session.set_title("T", automatic=True),
    "set_metadata": lambda session: session.set_metadata(title="T"),
    "patch_metadata": lambda session: session.patch_metadata({"title": "T", "other": 1}),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_title_is_one_thing(way: str, store: Store) -> None:
    """N-53: given by any call, a title is what session, state, listing and export say; search is to come."""
    session = store.session("a")
    session.add_message({"n": 1})
    WAYS[way](session)
    assert titles(store, "a") == {"T"}
    assert session.fork("b").title == "T"


def test_a_person_s_title_stays(store: Store) -> None:
    """N-54: a program's title gives way to a person's, and never the other way round."""
    session = store.session("a")
    session.set_title("guess", automatic=True)
    session.set_title("better guess", automatic=True)
    assert session.title == "better guess"
    assert not session.state().named
    session.set_title("Mine")
    assert session.set_title("guess again", automatic=True) is None
    assert (session.title, session.state().named) == ("Mine", True)
    # Taken away by the person, it is anybody's to give.
    session.set_metadata(title=None)
    session.set_title("guess", automatic=True)
    assert session.title == "guess"
    # The same words from the person are the person's.
    assert session.set_title("guess") is not None
    assert session.set_title("other", automatic=True) is None
    key = "sk-" + "proj-" + "Ab1" * 16
    session.set_metadata(title=None)
    session.set_title(f"About {key}", automatic=True)
    assert session.title is not None
    assert session.title.startswith("About [redacted")
    with pytest.raises(hansard.SecretRefused):
        session.set_title(f"About {key}")
    with pytest.raises(hansard.InvalidEvent, match="text"):
        session.set_title(7)  # type: ignore[arg-type]
