"""A row of the campaign: a kind of fault, and its cases.

A module `tools/crash/rows/<name>.py` has `ROW: Row`, or `ROWS: tuple[Row, ...]` if its cases count for
more than one, and `cases(count, rng)`, which yields about `count` cases, chosen only with `rng`: the same
count and seed give the same cases with the same labels. A case is small, can be pickled, and cleans up
after itself.
"""

from typing import NamedTuple, Protocol


class Row(NamedTuple):
    """A kind of fault, and its number of cases: in a sample, and on demand."""

    number: int
    title: str
    per_run: int
    on_demand: int


class Outcome(NamedTuple):
    """The result of a case."""

    ok: bool
    label: str
    #: The error, or a note.
    detail: str = ""
    #: Why it could not run here: neither passed nor failed.
    skipped: str = ""


class Case(Protocol):
    """One fault in one place. Its label is the same in each run with the same seed."""

    @property
    def label(self) -> str:
        """Its name."""
        ...

    def run(self) -> Outcome:
        """Run the case, check the result, and return whether every promise was kept."""
        ...
