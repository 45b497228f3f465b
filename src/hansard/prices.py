"""List prices of model calls, from the package `genai-prices`, which the extra `prices` installs."""

import re
from contextlib import suppress
from decimal import Decimal

from hansard.event.kinds import UsageRecorded


def check_installed() -> None:
    """Raise ImportError if the package is missing."""
    try:
        import genai_prices  # noqa: F401 - an optional dependency
    except ImportError as error:
        raise ImportError(
            "prices=True needs the package genai-prices: pip install '/path/to/hansard[prices]'"
        ) from error


def price_of(usage: UsageRecorded) -> Decimal | None:
    """Return the list price of a call in US dollars; None for an unknown model or impossible counts."""
    from genai_prices import Usage, calc_price

    counts = Usage(
        input_tokens=usage.input_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
    )
    # Frameworks also write "openai:gpt-5" and "bedrock/anthropic…"; a model of another provider has no price.
    provider, *model = re.split("[:/]", usage.model, maxsplit=1)
    for name, seller in [(usage.model, None), *((name, provider) for name in model)]:
        with suppress(LookupError, ValueError):
            return calc_price(counts, model_ref=name, provider_id=seller).total_price
    return None
