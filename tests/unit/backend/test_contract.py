"""The contract of a backend stays small: every method is one that each backend must keep."""

import pytest

from hansard.backend.contract import Backend, InternalLog, Log, LogReader


@pytest.mark.parametrize(
    ("interface", "most"), [(Backend, 17), (Log, 10), (InternalLog, 2), (LogReader, 6)]
)
def test_the_contract_has_few_methods(interface: type, most: int) -> None:
    """A new method needs a reason, and a promise in tests/contract: then raise this number."""
    methods = [
        name for name in vars(interface) if callable(vars(interface)[name]) and name[0] != "_"
    ]
    assert len(methods) <= most, methods
