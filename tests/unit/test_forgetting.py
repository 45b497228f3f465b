"""What was redacted, scrubbed or superseded is in no file after a compaction, and no view changes by it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import hansard
from hansard import Store
from tests.unit.sample_messages import HIDDEN, said, talk
from tools.crash.erasure import leaks


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Return an empty store."""
    with hansard.open(tmp_path / "store", durability="os") as store:
        yield store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return its directory."""
    return tmp_path / "store"


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


def test_a_bare_seq_in_the_middle_of_a_stream_shows_what_it_began_with(
    store: Store, root: Path
) -> None:
    """F-101: compaction removes the text of finished parts, and keeps what the message began with."""
    session = store.session("s")
    stream = session.stream(gather=0, role="assistant", name="Ada", big=2**63)
    for word in ("one ", "two ", "three "):
        stream.write(word)
    stream.finish()
    before = {seq: session.messages(at=seq) for seq in range(1, 5)}
    states = [session.state(at=seq) for seq in range(5)]
    session.compact()
    begun = {"role": "assistant", "name": "Ada", "big": 2**63, "content": "", "partial": True}
    for seq in (1, 2, 3):
        assert session.messages(at=seq) == [begun]
        assert [{**before[seq][0], "content": ""}] == [begun]
    assert session.messages(at=4) == before[4]
    assert [session.state(at=seq) for seq in range(5)] == states
    assert leaks(root, '"text":"two ') == []
    assert session.compact().sessions == 0
