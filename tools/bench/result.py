"""The result of a measurement, and its line in a report."""

from collections.abc import Callable
from typing import NamedTuple


class Result(NamedTuple):
    """One line of the report."""

    name: str
    claim: str
    ours: str
    limit: str
    ratio: float
    target: float
    #: Whether a higher ratio is better.
    more: bool = False
    #: Notes, in sentences.
    note: str = ""

    @property
    def met(self) -> bool:
        """Whether the ratio is within its target."""
        return self.ratio >= self.target if self.more else self.ratio <= self.target


def claim_of(function: Callable[..., object]) -> str:
    """Return what a measurement compares, from its docstring."""
    return (function.__doc__ or "").strip().rstrip(".")


def table(results: list[Result]) -> str:
    """Return results as a table, with their notes."""
    lines = [
        "| what | hansard | limit | ratio | target | met |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for result in results:
        sign = "≥" if result.more else "≤"
        lines.append(
            f"| {result.claim} | {result.ours} | {result.limit} | {result.ratio:.2f} | "
            f"{sign} {result.target:g} | {'yes' if result.met else 'NO'} |"
        )
    notes = [f"- {result.name}: {result.note}" for result in results if result.note]
    return "\n".join(lines + (["", *notes] if notes else []))
