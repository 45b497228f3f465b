"""Claims about recorded usage: exact costs, counts of tokens, and what is refused."""

import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import Session, Store


def test_costs_are_stored_as_text_and_summed_exactly(session: Session, store: Store) -> None:
    """Ten costs of 0.1 are 1, in the session, the listing and the statistics."""
    costs: list[float | str | Decimal] = [0.1, "0.1", Decimal("0.1"), *[0.1] * 7]
    for cost in costs:
        event = session.record_usage(model="m", input_tokens=1, cost=cost)
        assert event.data == {"model": "m", "input_tokens": 1, "output_tokens": 0, "cost": "0.1"}
    assert session.usage["m"].cost == 1
    assert store.sessions().items[0].cost == 1
    assert store.stats().models["m"] == session.usage["m"]
    session.compact()
    session.record_usage(model="m", cost="1e-7")
    assert session.usage["m"].cost == store.stats().models["m"].cost == Decimal("1.0000001")


def test_large_and_small_costs_do_not_swallow_each_other(session: Session, store: Store) -> None:
    """A sum has more digits than a float or a default decimal context keeps; orders compare it."""
    for cost in ("999999999999", "0.000000000000000001", "-0.5"):
        session.record_usage(model="m", cost=cost)
    store.session("t").record_usage(model="m", cost=2)
    assert store.stats().models["m"].cost == Decimal("1000000000000.500000000000000001")
    assert [info.id for info in store.sessions(order="cost").items] == ["t", "s"]


def test_cached_written_and_reasoning_tokens_are_summed_by_model(
    session: Session, store: Store
) -> None:
    """Each count is the sum of the calls of its model; a fork's are those of its parent."""
    for _ in range(2):
        session.record_usage(
            model="m",
            input_tokens=100,
            output_tokens=20,
            cached_tokens=60,
            cache_write_tokens=30,
            reasoning_tokens=5,
        )
    session.record_usage(model="n", output_tokens=1)
    used = hansard.Usage(2, 200, 40, 120, 60, 10)
    assert session.usage == {"m": used, "n": hansard.Usage(1, 0, 1)}
    assert session.fork("f").usage["m"] == used == store.stats().models["m"]


@pytest.mark.parametrize(
    "given",
    [
        {"input_tokens": -1},
        {"output_tokens": -1},
        {"cached_tokens": -1},
        {"cache_write_tokens": -1},
        {"reasoning_tokens": -1},
        {"input_tokens": 1.0},
        {"reasoning_tokens": True},
        {"output_tokens": 10**12 + 1},
        {"input_tokens": 10**30},
        {"cost": 1e300},
        {"cost": "much"},
        {"cost": "Infinity"},
        {"cost": float("nan")},
        {"cost": True},
        {"cost": 10**13},
        {"model": 7},
        {"response_id": 7},
    ],
)
@pytest.mark.parametrize("store", ["memory"], indirect=True)
def test_a_count_that_is_not_one_is_refused(session: Session, given: dict[str, Any]) -> None:
    """`InvalidEvent` names the argument, and nothing is stored, also in a batch."""
    data = {"model": "m", **given}
    with pytest.raises(hansard.InvalidEvent, match=next(iter(given))):
        session.record_usage(**data)
    with pytest.raises(hansard.InvalidEvent):
        session.append_all([("message.added", {"message": {}}), ("usage.recorded", data)])
    assert session.seq == 0


def test_an_addition_to_a_call_is_not_another_call(session: Session) -> None:
    """With `calls=0`, tokens are added to those of an earlier event, and the number of calls stays."""
    session.record_usage(model="m", output_tokens=1, response_id="r")
    session.record_usage(model="m", output_tokens=8, response_id="r", calls=0)
    assert session.usage["m"] == hansard.Usage(1, 0, 9)


def test_usage_with_a_credential_is_refused(session: Session) -> None:
    """What is stored with usage is searched like metadata, in a batch too."""
    data: dict[str, Any] = {"model": "m", "note": "sk-ant-api03-" + "x" * 40}
    with pytest.raises(hansard.SecretRefused):
        session.record_usage(**data)
    with pytest.raises(hansard.SecretRefused):
        session.append_all([("usage.recorded", data)])


def test_prices_fill_in_the_costs_of_known_models(tmp_path: Path) -> None:
    """With `prices=True`, usage without a cost gets the list price; a given cost and 0 stay."""
    genai_prices = pytest.importorskip("genai_prices")
    counts = genai_prices.Usage(input_tokens=1000, cache_read_tokens=200, output_tokens=10)
    price = genai_prices.calc_price(counts, model_ref="gpt-5").total_price
    called: dict[str, Any] = {"input_tokens": 1000, "cached_tokens": 200, "output_tokens": 10}
    with hansard.open(tmp_path, durability="os", prices=True) as store:
        session = store.scoped("tenant/").session("tenant/s")
        session.record_usage(model="gpt-5", **called)
        session.append_all([("usage.recorded", {"model": "gpt-5", **called})])
        assert session.usage["gpt-5"].cost == 2 * price > 0
        for cost in (0, "1"):
            session.record_usage(model="gpt-5", **called, cost=cost)
        assert session.usage["gpt-5"].cost == 2 * price + 1
        event = session.record_usage(model="unheard-of", **called)
        assert "cost" not in event.data
        # More cached tokens than there are cannot be priced.
        assert "cost" not in session.record_usage(model="gpt-5", cached_tokens=5).data
    with hansard.open("memory:") as store:
        assert "cost" not in store.session("s").record_usage(model="gpt-5", **called).data


@pytest.mark.parametrize(
    ("model", "known"),
    [
        ("openai:gpt-5", True),  # Pydantic AI
        ("openai/gpt-5", True),  # LiteLLM
        ("litellm/openai/gpt-5", True),  # OpenAI Agents with LiteLLM
        ("ollama/gpt-5", False),  # a provider without a price list
        ("openai:", False),
        (":gpt-5", False),
        ("/", False),
        ("", False),
    ],
)
def test_prices_know_names_with_a_provider(model: str, *, known: bool) -> None:
    """A provider before the name decides the price; a model of an unknown provider gets none."""
    pytest.importorskip("genai_prices")
    with hansard.open("memory:", prices=True) as store:
        session = store.session("s")
        event = session.record_usage(model=model, input_tokens=1000)
        plain = session.record_usage(model="gpt-5", input_tokens=1000)
        assert event.data.get("cost") == (plain.data["cost"] if known else None)


def test_prices_name_the_extra_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package, the error of `open` names what to install, before anything is created."""
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    with pytest.raises(ImportError, match=r"hansard\[prices\]"):
        hansard.open("memory:", prices=True)
