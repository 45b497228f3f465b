"""Checks of large content: kept once, read whole, and removed when nobody refers to it."""

from collections.abc import Iterator
from typing import Any

import pytest

from hansard.backend.contract import Backend, Log
from hansard.errors import Closed, SeqConflict
from hansard.event import codec
from hansard.event.kinds import MESSAGE_ADDED
from tests.contract.backends import Context, contents, everything, message, two_handles

#: What the backends of these checks keep once.
LIMIT = 1000

BIG = "large content " * 100
OTHER = "äöü " * 400


def _context(context: Context) -> Context:
    """Return the context, with a backend that keeps large content once."""
    _limit(context.backend, LIMIT)
    return context


def _limit(backend: Backend, limit: int | None) -> None:
    """Change what a backend keeps apart from now on."""
    setattr(backend, "large_content", limit)  # noqa: B010 - a backend may have slots of its own


def _referred(logs: Iterator[Log]) -> set[str]:
    """Return what sessions refer to."""
    return {
        reference.sha256
        for log in logs
        for chunk in log.read()
        for gaps in chunk.gaps().values()
        for reference in gaps.references
    }


def _shown(log: Log) -> list[Any]:
    """Return the contents of all messages, as whoever shows them puts them together."""
    found = []
    for chunk in log.read():
        gaps = chunk.gaps()
        as_json = dict(chunk.messages_json())
        for seq, one in chunk.messages():
            whole = gaps[seq].fill_message(one) if seq in gaps else one
            raw = gaps[seq].fill_json(as_json[seq]) if seq in gaps else as_json[seq]
            assert codec.decode(raw) == whole, "a message as JSON, and as a dict"
            found.append(whole["content"])
    return found


def test_large_content_comes_back(context: Context) -> None:
    """Large content comes back as it was, from `append`, by key, in events and in messages."""
    log = _context(context).log()
    drafts = [message(BIG), message("small"), message([{"data": OTHER}, BIG])]
    added = log.append(drafts, key="k")
    assert [event.raw for event in added] == [draft.data for draft in drafts], "events of an append"
    assert log.append(drafts, key="k") == added, "events of an append that was there"
    found = everything(log)
    assert [event.raw for event in found] == [draft.data for draft in drafts], "events"
    assert contents(found) == [BIG, "small", [{"data": OTHER}, BIG]], "contents of events"
    assert _shown(log) == [BIG, "small", [{"data": OTHER}, BIG]], "contents of messages"
    backwards = [event for chunk in log.read_back() for event in chunk.events()]
    assert [event.raw for event in backwards] == [draft.data for draft in drafts], (
        "events, read back"
    )
    first = log.first()
    assert (first.raw if first else b"") == drafts[0].data, "the first event"


def test_large_content_is_kept_once(context: Context) -> None:
    """A text that several messages of several sessions hold is kept once; one below the limit is not."""
    backend = _context(context).backend
    for name in ("s", "t"):
        backend.log(name).append([message(BIG), message([BIG, BIG]), message("x" * LIMIT)])
    assert [kept.bytes for kept in backend.contents()] == [len(BIG.encode())], (
        "sizes of what is kept"
    )
    head = backend.log("s").head()
    assert head is not None
    assert head.size < 2 * len(BIG) + LIMIT, "the session holds its large content"


def test_without_a_limit_nothing_is_taken_out(context: Context) -> None:
    """A backend that was not asked to keep large content apart keeps messages as they are, and reads all."""
    backend = context.backend
    assert backend.large_content is None, "the limit of a backend that was not given one"
    backend.log("s").append([message(BIG)])
    assert backend.contents() == [], "large content"
    _context(context).log().append([message(BIG)])
    _limit(backend, None)
    backend.log("s").append([message(BIG)])
    assert len(backend.contents()) == 1, "large content"
    assert _shown(backend.log("s")) == [BIG] * 3, "messages"


def test_only_what_nobody_refers_to_is_collected(context: Context) -> None:
    """Content stays while a session, be it in the trash, refers to it, and can then be collected."""
    backend = _context(context).backend
    for name in ("s", "t"):
        backend.log(name).append([message(BIG), message(OTHER if name == "t" else "small")])
    assert backend.collect(_referred) == [], "collected while all is referred to"
    backend.delete("t")
    assert backend.collect(_referred) == [], "collected while it is in the trash"
    backend.purge("t")
    doomed = backend.collect(_referred, dry_run=True)
    assert [kept.bytes for kept in doomed] == [len(OTHER.encode())], "what would be collected"
    assert len(backend.contents()) == 2, "contents after a dry run"
    assert backend.collect(_referred) == doomed, "collected"
    assert [kept.bytes for kept in backend.contents()] == [len(BIG.encode())], "contents"
    assert _shown(backend.log("s")) == [BIG, "small"], "messages after a collection"
    assert backend.collect(_referred) == [], "collected once more"
    backend.log("t").append([message(OTHER)])
    assert _shown(backend.log("t")) == [OTHER], "content that is said again"


def test_a_collection_that_cannot_tell_removes_nothing(context: Context) -> None:
    """If it cannot be found out what is referred to, all content stays."""
    backend = _context(context).backend
    backend.log("s").append([message(BIG)])

    def cannot_tell(logs: Iterator[Log]) -> set[str]:
        list(logs)
        raise SeqConflict("made up", expected=1, actual=2)

    with pytest.raises(SeqConflict):
        backend.collect(cannot_tell)
    assert _shown(backend.log("s")) == [BIG], "messages"


def test_what_is_said_during_a_collection_stays(context: Context) -> None:
    """Content to which a message refers that came while the sessions were looked through is not removed."""
    backend = _context(context).backend
    backend.log("s").append([message(BIG), message(OTHER)])
    backend.delete("s")
    backend.purge("s")

    def say_it_again(logs: Iterator[Log]) -> set[str]:
        found = _referred(logs)
        backend.log("late").append([message(BIG)])
        return found

    assert [kept.bytes for kept in backend.collect(say_it_again)] == [len(OTHER.encode())], (
        "collected"
    )
    assert _shown(backend.log("late")) == [BIG], "what was said meanwhile"


def test_a_refused_append_refers_to_nothing(context: Context) -> None:
    """Content of an append that was refused can be collected; that of one that was not stays."""
    backend = _context(context).backend
    backend.log("s").append([message(BIG)])
    with pytest.raises(SeqConflict):
        backend.log("s").append([message(OTHER)], expected_seq=5)
    backend.collect(_referred)
    assert [kept.bytes for kept in backend.contents()] == [len(BIG.encode())], "contents"


def test_a_closed_backend_gives_no_content(context: Context) -> None:
    """After `close`, listing, collecting and looking at what an event holds raise `Closed`."""
    backend = _context(context).backend
    backend.log("s").append([message(BIG)])
    (event,) = everything(backend.log("s"))
    assert event.kind == MESSAGE_ADDED, "the event is no message"
    backend.close()
    with pytest.raises(Closed):
        backend.contents()
    with pytest.raises(Closed):
        backend.collect(_referred)


@two_handles
def test_handles_share_large_content(context: Context) -> None:
    """What one handle keeps apart another one reads, with or without a limit, and does not keep again."""
    backend = _context(context).backend
    backend.log("s").append([message(BIG)])
    other = context.other()
    _limit(other, None)
    assert _shown(other.log("s")) == [BIG], "read by another handle"
    _limit(other, LIMIT)
    other.log("t").append([message(BIG)])
    assert len(backend.contents()) == 1, "contents"
    backend.delete("s")
    backend.purge("s")
    assert backend.collect(_referred) == [], "collected while another handle's session refers to it"
    assert _shown(other.log("t")) == [BIG], "read by the other handle"
