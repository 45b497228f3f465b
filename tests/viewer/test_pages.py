"""What the pages read from a store, without a server."""

import re
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

import hansard
from hansard.cli.screen import rounded
from hansard.viewer import bundle, pages
from hansard.viewer.pages import Site
from tests.viewer.stores import call, said


@pytest.fixture
def store() -> Iterator[hansard.Store]:
    """Return an empty store."""
    with hansard.open("memory:") as opened:
        yield opened


def _call(id: str, name: str = "shell", arguments: str = "{}") -> dict[str, Any]:
    return said("assistant", None, tool_calls=[call(id, name, arguments)])


def _result(id: str) -> dict[str, Any]:
    return said("tool", "ok", tool_call_id=id)


def test_what_the_model_saw_before_a_streamed_answer(store: hansard.Store) -> None:
    """It has no part of the answer, also if other events came between the parts."""
    session = store.session("a")
    session.add_message(said("user", "say it"))
    with session.stream(role="assistant") as stream:
        stream.write("first")
        stream.flush()
        session.append("x.todo", {"n": 1})
        stream.write("second")
        stream.flush()
    last = session.seq
    shown = pages.session(Site(store, ""), {"id": "a", "saw": f"{last}"})
    assert [item.seq for item in shown["items"]] == [1]
    assert (shown["at"], shown["view"], shown["model_view"]["messages"]) == ("1", "model", 1)
    whole = pages.session(Site(store, ""), {"id": "a", "view": "model"})
    assert whole["model_view"]["messages"] == 2
    plain = session.add_message(said("assistant", "third"))
    shown = pages.session(Site(store, ""), {"id": "a", "saw": f"{plain.seq}"})
    assert (shown["at"], shown["model_view"]["messages"]) == (f"{last}", 2)


@pytest.mark.parametrize("query", [{}, {"after": "0"}, {"before": "60"}, {"around": "31"}])
def test_the_calls_of_a_tool_have_their_results(
    store: hansard.Store, query: dict[str, str]
) -> None:
    """A filter by tool keeps the results, which do not name it, also where a page ends between them."""
    session = store.session("a")
    session.add_message(said("user", "go"))
    for number in range(30):
        session.add_messages([_call(f"c{number}"), _result(f"c{number}")])
        if number % 3 == 0:
            session.add_messages([_call(f"d{number}", "other"), _result(f"d{number}")])
    for window in (4, 5):
        shown = pages.session(Site(store, "", window=window), {"id": "a", "tool": "shell", **query})
        items = shown["items"]
        assert {(part.kind, part.name) for item in items for part in item.parts} == {
            ("call", "shell")
        }
        called = [(item.seq, item.parts[0].result_seq) for item in items]
        assert called == sorted(called)
        assert [result for _, result in called[:-1]] == [seq + 1 for seq, _ in called[:-1]]


def test_a_page_begins_with_a_call_and_not_with_its_results(store: hansard.Store) -> None:
    """Results and usage at the beginning of a page bring what they belong to; the pages still add up."""
    session = store.session("a")
    for number in range(6):
        calls = [call(f"{number}-{n}") for n in range(4)]
        session.add_message(said("assistant", None, tool_calls=calls))
        session.add_messages([_result(f"{number}-{n}") for n in range(4)])
        session.record_usage(model="m", input_tokens=1, output_tokens=1)
    site = Site(store, "", window=4)
    shown = pages.session(site, {"id": "a"})
    seqs = [item.seq for item in shown["items"]]
    while shown["earlier"]:
        shown = pages.session(site, {"id": "a", "before": str(shown["earlier"])})
        assert [part.result_seq > 0 for item in shown["items"] for part in item.parts] == [True] * 4
        seqs = [*(item.seq for item in shown["items"]), *seqs]
    assert seqs == [1, 7, 13, 19, 25, 31]


def test_a_long_call_is_not_a_pause(store: hansard.Store) -> None:
    """The time of a call is at the call; a pause is what passed after the result. A filter has neither."""
    session = store.session("a")
    times = (0, 1, 101, 102, 202)
    messages = (said("user", "go"), _call("c"), _result("c"), said("assistant", "ok"))
    for seconds, message in zip(times, (*messages, messages[0]), strict=True):
        now = (1_790_000_000 + seconds) * 10**9
        clock = SimpleNamespace(
            time_ns=lambda now=now: now, strftime=time.strftime, gmtime=time.gmtime
        )
        with mock.patch("hansard.log.format.clock", clock):
            session.add_message(message)
    lane = pages.session(Site(store, ""), {"id": "a"})["lane"]
    known = {item: lane.gaps[item] for item in (1, 2, 4, 5) if item in lane.gaps}
    assert (known, lane.calls) == ({5: 100.0}, {3: 100.0})
    lane = pages.session(Site(store, ""), {"id": "a", "role": "user"})["lane"]
    assert (lane.gaps, lane.turns) == ({}, {})


def test_a_call_says_that_it_failed(store: hansard.Store) -> None:
    """A failure is shown at its call, and the rest of its result is not shown as a message."""
    session = store.session("a")
    use = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}}
    failure = {"type": "tool_result", "tool_use_id": "t", "content": "no", "is_error": True}
    session.add_message({"role": "assistant", "content": [use]})
    session.add_message({"role": "user", "content": [failure]})
    (item,) = pages.session(Site(store, ""), {"id": "a"})["items"]
    assert item.parts[0].failed
    (alone,) = pages.session(Site(store, ""), {"id": "a", "role": "tool"})["items"]
    assert [(part.kind, part.failed) for part in alone.parts] == [("result", True)]
    assert (alone.role, alone.speaker, alone.prompt) == ("tool", "tool", False)
    assert pages.session(Site(store, ""), {"id": "a", "role": "user"})["items"] == []


def test_a_summary_is_not_a_prompt(store: hansard.Store) -> None:
    """Neither for the keys, nor in focus, nor for the times of turns."""
    session = store.session("a")
    session.add_message(said("user", "go"))
    session.add_message(said("assistant", "gone"))
    session.summarize(upto=2, message=said("user", "a summary"))
    shown = pages.session(Site(store, ""), {"id": "a", "focus": "on"})
    assert [item.prompt for item in shown["items"]] == [True, False, False]
    assert [[item.seq for item in run] for seen, run in shown["groups"] if seen] == [[1, 2]]


def test_a_turn_shows_its_tokens_and_its_cost(store: hansard.Store) -> None:
    """The usage of all calls of a turn adds up, exactly; a call without a cost has none."""
    session = store.session("a")
    session.add_message(said("assistant", "one"))
    session.record_usage(model="m", input_tokens=10, output_tokens=2, cost=0.1)
    session.record_usage(model="m", input_tokens=10, output_tokens=2, cost=0.2)
    session.add_message(said("assistant", "two"))
    session.record_usage(model="m", input_tokens=4, output_tokens=1)
    rail = pages.session(Site(store, ""), {"id": "a"})["rail"]
    assert [turn[:3] for turn in rail] == [(1, 24, Decimal("0.3")), (4, 5, Decimal(0))]


def test_a_partial_message_is_marked_on_every_page(store: hansard.Store) -> None:
    """A stream that was not finished is marked on the pages of the session, of time, and of a comparison."""
    session = store.session("a")
    stream = session.stream()
    stream.write("half")
    stream.flush()
    store.session("b").add_message(said("user", "whole"))
    site = Site(store, "")
    shown = [
        *pages.session(site, {"id": "a"})["items"],
        *pages.time(site, {"id": "a"})["items"],
        *pages.compare(site, {"a": "a", "b": "b"})["sides"][0]["items"],
    ]
    assert [(item.unfinished, item.note) for item in shown] == [(True, "unfinished")] * 3
    stream.discard()


def test_a_comparison_waits_for_its_other_side(store: hansard.Store) -> None:
    """One session without a point is not compared with itself; a session that is missing is an error."""
    session = store.session("a")
    session.add_messages([said("user", "x")] * 2)
    site = Site(store, "")
    assert pages.compare(site, {"a": "a"})["found"] is None
    assert pages.compare(site, {"a": "a", "a_at": "1"})["found"].same == 1
    with pytest.raises(hansard.SessionNotFound):
        pages.compare(site, {"a": "b"})


def test_ticks_are_code() -> None:
    """What is between ticks in a reason is code; everything is escaped."""
    assert pages.code("run `verify <id>` & `x") == "run <code>verify &lt;id&gt;</code> &amp; `x"


def test_a_note_is_shown_at_its_message(store: hansard.Store) -> None:
    """Also at a result, if it came long after, and if a filter hides other events; not before it was made."""
    session = store.session("a")
    session.add_messages([_call("c"), _result("c")])
    for number in range(40):
        session.add_message(said("user", f"{number}"))
    session.append("x.note", {"text": "one", "seq": 2})
    session.append("x.note", {"text": "two", "seq": 30})
    session.append("x.note", {"text": "three", "seq": [30]})
    site = Site(store, "", window=5)

    def notes(**query: str) -> dict[int, list[int]]:
        items = pages.session(site, {"id": "a", **query})["items"]
        return {item.seq: [note.seq for note in item.notes] for item in items if item.notes}

    assert notes(after="0") == {1: [43]}
    assert notes(around="30") == {30: [44]}
    assert notes(around="30", role="user") == {30: [44]}
    assert notes(around="30", at="43") == {}
    assert notes() == {43: [43], 44: [44], 45: [45]}


@pytest.mark.parametrize(
    ("arguments", "preview"),
    [
        ('{"path": "src", "pattern": "def main"}', "def main"),
        ('{"file_path": "a.py", "content": "x"}', "a.py"),
        ('{"command": "ls -l", "description": "list"}', "ls -l"),
        ('{"n": 1}', '{ "n": 1 }'),
        ('{"command": "%s"}' % ("ls " * 99), "ls " * 36 + "l…"),
    ],
)
def test_a_folded_call_shows_its_most_telling_argument(
    store: hansard.Store, arguments: str, preview: str
) -> None:
    """What was looked for tells more than where; a call without a known argument shows all of them."""
    store.session("a").add_message(_call("c", arguments=arguments))
    (item,) = pages.session(Site(store, ""), {"id": "a"})["items"]
    assert item.parts[0].preview == preview


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("0", "–"),
        ("0.07200000000000001", "0.072"),
        ("0.00003", "0.00003"),
        ("12.5", "12.5"),
        ("1234567.89", "1,234,567.89"),
    ],
)
def test_costs_are_shown_as_the_command_shows_them(amount: str, text: str) -> None:
    """No exponent and no trailing zeros."""
    assert pages.money(Decimal(amount)) == text


def test_numbers_are_abbreviated_without_a_thousand_thousands() -> None:
    """What rounds to the next unit has the next unit."""
    found = [rounded(number) for number in (9_999, 10_000, 999_999, 1_000_000, 999_999_999)]
    assert found == ["9,999", "10.0k", "1.0M", "1.0M", "1.0G"]


def test_the_index_of_exported_pages_has_no_other_page(
    store: hansard.Store, tmp_path: Path
) -> None:
    """A store with more sessions than a page of the list has gives one index, of those that were chosen."""
    for number in range(60):
        store.session(f"s{number}").add_message(said("user", "x"))
    bundle.write(store, {"s7": "s7", "s59": "s59"}, tmp_path)
    index = (tmp_path / "index.html").read_text("utf-8")
    assert sorted(re.findall(r'class="title" href="([^"]+)"', index)) == ["s59.html", "s7.html"]
    assert "cursor" not in index
    assert "Next page" not in index
