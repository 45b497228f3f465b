"""`hansard stats`: what a store adds up to, and its plots."""

from datetime import date
from pathlib import Path

import pytest

import hansard as library
from hansard.cli.commands import stats as plots
from tests.cli.conftest import OpenTerminal
from tests.cli.running import hansard


def test_the_sums_are_those_of_the_library(store: Path) -> None:
    """`stats --json` has every sum that the library gives, the compression, and the largest sessions."""
    with library.open(store) as opened:
        stats = opened.stats()
        sizes = {info.id: info.bytes for info in opened.sessions().items}
    shown = hansard("stats", "--json", store=store).json
    for field in ("sessions", "forks", "events", "messages", "bytes", "raw_bytes", "workspaces"):
        assert shown[field] == getattr(stats, field)
    assert shown["compression"] == stats.compression
    assert shown["models"]["m"]["input_tokens"] == 1000
    assert sum(day["messages"] for day in shown["days"].values()) == stats.messages
    assert shown["largest"] == [{"id": id, "bytes": sizes[id]} for id in ("agent/1", "agent/1-b")]
    part = hansard("stats", "--json", "--prefix", "agent/1-", "--top", "0", store=store).json
    assert (part["sessions"], part["messages"], part["largest"]) == (1, 1, [])


def test_a_pipe_gets_numbers(store: Path) -> None:
    """In a pipe there are tables with every day, in plain numbers, and no plot."""
    told = hansard("stats", store=store)
    assert (told.code, told.err) == (0, "")
    lines = told.out.splitlines()
    assert lines[:2] == ["2 sessions (1 fork)", "6 messages in 14 events"]
    assert ["DAY", "SESSIONS", "EVENTS", "MESSAGES"] in [line.split() for line in lines]
    assert ["m", "1", "1000", "0", "0", "20", "0", "0.5"] in [line.split() for line in lines]
    assert "█" not in told.out
    assert hansard("stats", "--model", "m", "--json", store=store).json["models"].keys() == {"m"}
    assert "MODEL" not in hansard("stats", "--model", "x", store=store).out


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_plots_fit_the_terminal(width: int, store: Path, terminal: OpenTerminal) -> None:
    """On a terminal of any width there are plots of growth, sizes and usage, and no line is wrapped."""
    shown = terminal("stats", store=store, columns=width, rows=40)
    assert shown.wait() == 0
    text = shown.text
    assert "Messages per day" in text
    assert "█" in text
    heads = [text.index(head) for head in ("Largest sessions", "Tokens by model")]
    assert heads == sorted(heads)
    section = text[heads[0] : heads[1]].splitlines()
    assert len([line for line in section if line]) == 3
    if width >= 40:
        assert "1,020 in 1 call, cost 0.5" in text


def test_every_kind_of_token_is_shown(tmp_path: Path, terminal: OpenTerminal) -> None:
    """`stats`, `show` and `replay` name cached, cache-write and reasoning tokens."""
    with library.open(tmp_path / "s", durability="os") as opened:
        opened.session("a").record_usage(
            model="m",
            input_tokens=9,
            cached_tokens=4,
            cache_write_tokens=3,
            output_tokens=5,
            reasoning_tokens=2,
        )
    told = "9 tokens in (4 cached, 3 cache-write), 5 out (2 reasoning)"
    assert told in hansard("show", "a", store=tmp_path / "s").out
    assert told in hansard("replay", "a", store=tmp_path / "s").out
    shown = terminal("stats", store=tmp_path / "s")
    shown.wait_for("14 (4 cached, 3 cache-write, 2 reasoning) in 1 call")


def test_growth_is_gathered_into_weeks() -> None:
    """All days are in the growth, gaps as 0, gathered so that they fit; a column is as high as its share."""
    assert plots.growth({}, 10) is None
    short = plots.growth({"2026-02-27": 3, "2026-03-02": 4}, 10)
    assert short == ("day", date(2026, 2, 27), date(2026, 3, 2), [3, 0, 0, 4])
    weeks = plots.growth({"2026-01-01": 1, "2026-01-08": 2, "2026-01-20": 3}, 10)
    assert weeks is not None
    assert (weeks.span, weeks.values) == ("week", [1, 2, 3])
    assert plots.columns([0, 1, 4, 8], 2) == ["   █", " ▂██"]
    assert plots.bar(5, 10, 3) == "█▌"
