"""What was redacted, scrubbed or superseded is in no file after a compaction, and no view changes by it."""

from pathlib import Path

import pytest

from hansard import Store
from tests.unit.sample_messages import HIDDEN, said, talk
from tools.crash.erasure import leaks

pytestmark = pytest.mark.parametrize("store", ["os"], indirect=True)


def test_redacted_bytes_are_in_no_file_afterwards(store: Store, root: Path) -> None:
    """N-45: a redacted message is in no file, whether it was compressed before, joined since, or neither."""
    session = store.session("s")
    secrets = [f"{HIDDEN}-{n}" for n in range(6)]
    places = []
    for number, secret in enumerate(secrets):
        talk(session, 20 * number, 4)
        places.append(session.add_message({"role": "user", "content": secret}).seq)
        if number % 2:
            session.compact()
    assert all(leaks(root, secret) for secret in secrets)
    for number, place in enumerate(places):
        session.redact(place)
        before = said(session)
        assert session.compact().blanked >= 1
        assert not any(leaks(root, secret) for secret in secrets[: number + 1])
        assert said(session) == before
    assert session.compact().sessions == 0
    assert session.verify().ok


def test_what_a_session_was_created_with_can_be_scrubbed(store: Store, root: Path) -> None:
    """N-66: metadata of the first event are erased from its record, and from later segment headers."""
    session = store.create("s", metadata={"note": HIDDEN})
    talk(session, 0, 3)
    session.compact()
    session.scrub(HIDDEN)
    before = said(session)
    session.compact()
    assert not leaks(root, HIDDEN)
    assert said(session) == before


def test_stream_parts_stay_until_they_are_redacted(store: Store, root: Path) -> None:
    """F-100: compaction keeps the parts of a finished message, and erases all of a redacted one."""
    session = store.session("s")
    streams = [session.stream(gather=0, role="assistant", name=name) for name in ("Ada", "Bob")]
    for place in range(3):
        for stream in streams:
            stream.write(f"{HIDDEN}-{stream.id}-{place} ")
        session.add_messages([{"n": number} for number in range(10 ** (3 - place))])
        session.compact()
    ends = [stream.finish().seq for stream in streams]
    session.compact()
    # So little is not joined with what is before it.
    assert len(list(root.glob("sessions/s/*.zst"))) == 4
    half = f"{HIDDEN}-{streams[0].id}-0 {HIDDEN}-{streams[0].id}-1 "
    assert half in [message.get("content") for message in session.messages(at=1003)]
    for stream, end in zip(streams, ends, strict=True):
        assert leaks(root, f"{HIDDEN}-{stream.id}")
        session.redact(end)
        shown = session.messages(view="history")
        assert session.compact().blanked == 4
        assert session.messages(view="history") == shown
        assert leaks(root, f"{HIDDEN}-{stream.id}") == []
    assert session.compact().sessions == 0
