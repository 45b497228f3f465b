"""Claims about taking long texts out of an event's data and putting them back. F-70 to F-72, N-64."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hansard
from hansard.event import codec, large
from hansard.event.envelope import Draft, Event
from hansard.event.kinds import MESSAGE_ADDED, SUMMARY_ADDED
from hansard.event.large import Gaps, LargeEvent, Reference

LIMIT = 256

SMALL = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
#: Around the threshold, in bytes and in characters, and well above it.
LONG = st.builds(
    lambda text, times: (text or "x") * times,
    SMALL,
    st.sampled_from([1, 63, 64, 65, 127, 128, 400]),
)
TEXTS = SMALL | LONG | st.sampled_from(["a" * 256, "a" * 257, "é" * 128, "é" * 129, "\0" * 300])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
MESSAGES = st.dictionaries(TEXTS, VALUES, max_size=5)


def encoded(message: object, **more: object) -> bytes:
    """Return the data of an event that adds a message."""
    return msgspec.json.encode({"message": message, **more})


def shelf(taken: large.Taken) -> Callable[[Reference], str]:
    """Return a way to fetch what was taken out."""
    return lambda reference: taken.contents[reference.sha256].decode()


def gaps_of(taken: large.Taken) -> Gaps:
    """Return the gaps that were left."""
    return Gaps(json.loads(taken.references), shelf(taken), "log")


def long_texts(value: Any, way: tuple[str | int, ...]) -> dict[tuple[str | int, ...], str]:
    """Return, by the ways to them, the texts that are worth a reference; keys are no texts."""
    if isinstance(value, str):
        content = value.encode()
        reference = msgspec.json.encode({"at": way, "sha256": "0" * 64, "bytes": len(content)})
        return {way: value} if len(content) > max(LIMIT, len(reference)) else {}
    found: dict[tuple[str | int, ...], str] = {}
    if isinstance(value, dict | list):
        for step, item in value.items() if isinstance(value, dict) else enumerate(value):
            found.update(long_texts(item, (*way, step)))
    return found


@given(message=MESSAGES)
def test_what_is_taken_out_comes_back_byte_for_byte(message: dict[str, Any]) -> None:
    """F-70 to F-72, N-64: whatever a message holds, its bytes come back, however they are asked for."""
    data = encoded(message, stream="s")
    taken = large.take_out(data, LIMIT)
    if taken is None:
        return
    gaps = gaps_of(taken)
    assert gaps.fill(taken.data) == data
    gapped = json.loads(taken.data)
    assert gapped["stream"] == "s"
    filled = gaps.fill_message(codec.decode(taken.data)["message"])
    assert msgspec.json.encode(filled) == msgspec.json.encode(message)
    raw = msgspec.json.encode(gapped["message"])
    assert gaps.fill_json(raw) == msgspec.json.encode(message)
    assert len(taken.data) + len(taken.references) <= len(data) + 1


@given(message=MESSAGES)
def test_every_long_text_is_taken_out_and_no_other(message: dict[str, Any]) -> None:
    """F-70, F-71: all texts above the threshold are taken out, unless the reference would be longer."""
    taken = large.take_out(encoded(message), LIMIT)
    contents = {} if taken is None else taken.contents
    references = [] if taken is None else json.loads(taken.references)
    for sha256, content in contents.items():
        assert hashlib.sha256(content).hexdigest() == sha256
    found = {tuple(one["at"]): contents[one["sha256"]].decode() for one in references}
    assert len(found) == len(references)
    assert found == long_texts(message, ("message",))
    assert [one["bytes"] for one in references] == [
        len(contents[one["sha256"]]) for one in references
    ]


def test_a_text_at_the_threshold_stays_and_one_above_it_goes() -> None:
    """F-70: the threshold counts the bytes of a text, not its characters, and itself is not above it."""
    for text, goes in [
        ("a" * 256, False),
        ("a" * 257, True),
        ("é" * 128, False),
        ("é" * 129, True),
    ]:
        taken = large.take_out(encoded({"content": text, "pad": "b" * 200}), LIMIT)
        assert (taken is not None) == goes, text[:3]


def test_a_text_is_left_where_a_reference_to_it_would_be_longer() -> None:
    """F-72: behind long names a reference takes more than the text, so nothing is taken out."""
    assert large.take_out(encoded({"k" * 400: "v" * 300}), LIMIT) is None


def test_data_in_another_form_stay_as_they_are() -> None:
    """F-72: data that would come back with other bytes, such as with white space, are not touched."""
    spaced = json.dumps({"message": {"content": "x" * 500}}).encode()
    assert large.take_out(spaced, LIMIT) is None
    assert large.take_out(spaced.replace(b" ", b""), LIMIT) is not None


def test_the_same_text_twice_is_one_content() -> None:
    """F-73: a text that stands in two places, in one message or in two, is kept once."""
    text = "same" * 100
    drafts = [
        Draft(MESSAGE_ADDED, encoded({"a": text, "b": [text]}), control=False),
        Draft(MESSAGE_ADDED, encoded({"c": text}), control=False),
    ]
    gapped, contents = large.take_out_all(drafts, LIMIT)
    assert list(contents.values()) == [text.encode()]
    assert [len(json.loads(draft.large)) for draft in gapped] == [2, 1]


def test_only_messages_are_taken_apart() -> None:
    """F-70: summaries and the application's own events are kept as they are, and so are short messages."""
    long = {"message": {"content": "x" * 500}}
    drafts = [
        Draft(SUMMARY_ADDED, msgspec.json.encode({"upto": 1, **long}), control=True),
        Draft("x.own", msgspec.json.encode(long), control=False),
        Draft(MESSAGE_ADDED, encoded({"content": "short"}), control=False),
    ]
    assert large.take_out_all(drafts, LIMIT) == (drafts, {})
    assert large.take_out_all(drafts, None) == (drafts, {})


BAD: dict[str, Any] = {
    "no list": {"at": ["message"]},
    "no hash": [{"at": ["message", "content"], "bytes": 3}],
    "no way": [{"at": [], "sha256": "0" * 64, "bytes": 3}],
    "a way to nothing": [{"at": ["message", "else"], "sha256": "0" * 64, "bytes": 3}],
    "a way through a text": [{"at": ["message", "role", 0], "sha256": "0" * 64, "bytes": 3}],
    "a way to a text that is there": [{"at": ["message", "role"], "sha256": "0" * 64, "bytes": 3}],
    "an index that is none": [{"at": ["message", "parts", 7], "sha256": "0" * 64, "bytes": 3}],
}


@pytest.mark.parametrize("references", BAD.values(), ids=BAD.keys())
def test_a_reference_that_leads_to_no_gap_is_damage(references: object) -> None:
    """F-70, F-74: references that do not fit the data are an error, and put nothing anywhere."""
    data = encoded({"role": "user", "content": "", "parts": []})
    with pytest.raises(hansard.Damaged, match=r"log: .*large content"):
        Gaps(references, lambda _: "text", "log").fill(data)
    with pytest.raises(hansard.Damaged, match=r"log: .*large content"):
        Gaps(references, lambda _: "text", "log").fill_message(codec.decode(data)["message"])


def test_data_that_look_like_references_are_data() -> None:
    """F-70: what somebody says about places and hashes is said, and stands for nothing."""
    message = {
        "large": [{"at": ["message", "content"], "sha256": "0" * 64, "bytes": 9}],
        "content": "",
    }
    store = hansard.open("memory:", large_content=LIMIT)
    session = store.session("s")
    session.add_message({**message, "long": "x" * 300})
    session.add_message(message)
    assert session.messages() == [{**message, "long": "x" * 300}, message]


class Shelf:
    """Texts, and how often they were asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def fetch(self, reference: Reference) -> str:
        """Return a text."""
        self.asked += 1
        return "t" * reference.bytes


def test_an_event_fetches_its_texts_only_when_somebody_looks() -> None:
    """F-74: seq, kind and stored data cost nothing; `raw`, `data` and `message` are whole; so is a copy."""
    shelf = Shelf()
    references = [{"at": ["message", "content"], "sha256": "0" * 64, "bytes": 5}]
    gaps = Gaps(references, shelf.fetch, "log")
    event = LargeEvent(
        7, "2026-01-01T00:00:00.000000Z", MESSAGE_ADDED, encoded({"content": ""}), "k", gaps=gaps
    )
    assert (event.seq, event.kind, event.key, event.time.year) == (7, MESSAGE_ADDED, "k", 2026)
    assert large.stored(event) == encoded({"content": ""})
    assert shelf.asked == 0
    assert event.message == {"content": "ttttt"}
    assert event.raw == encoded({"content": "ttttt"})
    whole = large.whole(event)
    assert type(whole) is Event
    assert whole == Event(event.seq, event.stamp, event.kind, encoded({"content": "ttttt"}), "k")
    assert large.whole(whole) is whole
    assert large.stored(whole) == whole.raw
    asked = shelf.asked
    assert hash(event) == hash(
        LargeEvent(event.seq, event.stamp, event.kind, large.stored(event), "k", gaps=gaps)
    )
    assert gaps == Gaps(references, shelf.fetch, "elsewhere")
    assert shelf.asked == asked
