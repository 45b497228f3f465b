"""Old facts are said in today's words."""

from collections.abc import Callable

import msgspec
import pytest

from hansard import Event
from hansard.event.upcast import UPCASTS, upcast

OLD = Event(3, "2026-01-01T00:00:00.000000Z", "note.made", b'{"text":"hi"}', "k")


def renamed(kind: str) -> Callable[[Event], Event]:
    """Return a translator into another kind."""
    return lambda event: msgspec.structs.replace(event, kind=kind)


def test_there_is_nothing_to_translate_yet() -> None:
    """Version 1 is the first: every event is in today's words, also one of an unknown kind."""
    assert dict(UPCASTS) == {}
    assert upcast(OLD) is OLD


def test_a_translation_may_lead_to_another() -> None:
    """Translations are followed to the end; seq, time and key stay."""
    steps = {"note.made": renamed("note.added"), "note.added": renamed("x.note")}
    new = upcast(OLD, steps)
    assert new.kind == "x.note"
    assert (new.seq, new.stamp, new.key, new.raw) == (OLD.seq, OLD.stamp, OLD.key, OLD.raw)


def test_a_circle_is_noticed() -> None:
    """Translations that lead back to where they began are an error, not an endless loop."""
    with pytest.raises(AssertionError, match="circles"):
        upcast(OLD, {"note.made": renamed("other"), "other": renamed("note.made")})
