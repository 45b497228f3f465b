"""How often a call reads the end of a log."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from hansard import Session, Store
from hansard.log.session_files import SessionFiles

USER = {"role": "user", "content": "hello"}

pytestmark = pytest.mark.parametrize("store", ["os"], indirect=True)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the sessions that were looked at, one entry for each look."""
    found: list[str] = []
    real = SessionFiles.refresh

    def counted(self: SessionFiles, **options: bool) -> object:
        found.append(self.session_id)
        return real(self, **options)

    monkeypatch.setattr(SessionFiles, "refresh", counted)
    return found


READS: dict[str, Callable[[Session], object]] = {
    "messages": lambda session: session.messages(),
    "last messages": lambda session: session.messages(last=1),
    "messages at a seq": lambda session: session.messages(at=1),
    "messages at a label": lambda session: session.messages(at="here"),
    "messages at a time": lambda session: session.messages(at=datetime.now(UTC)),
    "messages_json": lambda session: session.messages_json(),
    "numbered": lambda session: session.numbered(),
    "window": lambda session: session.window(messages=3, keep_first=True),
    "state": lambda session: session.state(),
    "state at a label": lambda session: session.state(at="here"),
    "metadata": lambda session: session.metadata,
    "snapshots": lambda session: session.snapshots,
    "usage": lambda session: session.usage,
    "events": lambda session: list(session.events()),
    "share": lambda session: list(session.share()),
    "export": lambda session: list(session.export()),
    "transcript": lambda session: list(session.export("markdown")),
}


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("how", ["plain", "compacted", "forked"])
def test_a_read_takes_one_look(store: Store, looks: list[str], name: str, how: str) -> None:
    """A call reads the end of a log once, however many questions it asks; a fork's before its ancestors'."""
    session, expected = store.session("a"), ["a"]
    session.add_messages([USER] * 5)
    session.set_metadata(title="t")
    session.snapshot("here")
    session.redact(2)
    if how == "compacted":
        session.compact()
    if how == "forked":
        session = session.fork("b").fork("c")
        expected = ["c", "b", "a"]
    session.add_message(USER)
    for _ in range(2):
        looks.clear()
        READS[name](session)
        assert looks == expected
