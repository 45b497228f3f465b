"""A page of a transcript is a part of the complete transcript, and costs little else."""

import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest

import hansard
from hansard import Session, TranscriptEntry
from hansard.state.view import View
from hansard.transfer.transcript import Transcript


def grown(session: Session, rng: random.Random, count: int) -> None:
    """Append messages, streams of which some are killed, reverts, summaries, redactions and more."""
    for number in range(count):
        said, place = _said(f"message {number}"), rng.randrange(session.seq + 1)
        with contextlib.suppress(hansard.InvalidEvent):  # there is no message at that place
            calls: list[Callable[[], object]] = [
                *[lambda: session.add_message(said)] * 5,  # noqa: B023 - called at once
                lambda: session.revert(place),  # noqa: B023
                lambda: session.summarize(upto=place, message=said),  # noqa: B023
                lambda: session.redact(place),  # noqa: B023
                lambda: _streamed(session, rng),
                lambda: _streamed(session, rng),
                lambda: session.append("x.todo", said),  # noqa: B023
                lambda: session.set_metadata(title=said["content"]),  # noqa: B023
                lambda: session.clear() if rng.random() < 0.2 else None,
            ]
            rng.choice(calls)()


def _streamed(session: Session, rng: random.Random) -> None:
    stream = session.stream(gather=0)
    for word in ("one", "two", "three"):
        stream.write(word)
        if rng.random() < 0.3:
            session.add_message(_said("between"))
    if rng.random() < 0.6:
        (stream.finish if rng.random() < 0.7 else stream.discard)()


def _said(text: str) -> dict[str, object]:
    return {"role": "user", "content": text}


def complete(session: Session, view: View, *, events: bool) -> list[TranscriptEntry]:
    """Return all entries."""
    reader = session._reader()
    shown = Transcript(reader, session.id, session.seq, redact=True, view=view, events=events)
    return [*shown.entries()]


@pytest.mark.parametrize("view", ["history", "model"])
@pytest.mark.parametrize("events", [True, False])
def test_pages_add_up_to_the_transcript(
    tmp_path: Path, rng: random.Random, view: View, *, events: bool
) -> None:
    """Pages backwards from the end, and forwards from the beginning, have each entry once, in order."""
    with hansard.open(tmp_path / "s", durability="os") as store:
        for number in range(12):
            session = store.session(f"s{number}")
            session.add_message(_said("first"))
            grown(session, rng, rng.randrange(60))
            if number % 3 == 2:
                session = store.session(f"s{number - 1}").fork()
                grown(session, rng, 20)
            wanted = complete(session, view, events=events)
            count = rng.randrange(1, 9)
            page = session.transcript(count, view=view, events=events)
            assert page.later is None
            found = page.entries
            while page.earlier is not None:
                page = session.transcript(count, before=page.earlier, view=view, events=events)
                assert page.later is not None
                found = [*page.entries, *found]
            assert found == wanted
            page = session.transcript(count, after=0, view=view, events=events)
            assert page.earlier is None
            found = page.entries
            while page.later is not None:
                page = session.transcript(count, after=page.later, view=view, events=events)
                assert page.earlier is not None
                found = [*found, *page.entries]
            assert found == wanted
        assert store.verify().ok
