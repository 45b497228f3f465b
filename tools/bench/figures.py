"""The figures of a run, by system and name, and their ratios."""

import statistics
from collections import defaultdict
from typing import Any, Final

#: Figures with the number of things that they count; others are not compared.
_COUNTS: Final = {
    "load_ms": "loaded",
    "memory_mb": "loaded",
    "last_us": "loaded",
    "again_ms": "seen_at",
    "fork_ms": "forked_at",
    "list_ms": "listed",
}
#: How much two numbers may differ and still count as the same size.
_NEAR: Final = 0.05


class Figures:
    """Values by system and figure, one for each round."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))

    def add(self, system: str, found: dict[str, Any]) -> None:
        """Add the figures of one process."""
        for name, value in found.items():
            self.values[system][name].append(value)

    def get(self, system: str, name: str) -> float | None:
        """Return the median of a figure; None if there is none."""
        found = self.values.get(system, {}).get(name)
        return statistics.median(found) if found else None

    def one(self, system: str, name: str) -> Any:
        """Return the first value of a figure that is not a number; None if there is none."""
        found = self.values.get(system, {}).get(name)
        return found[0] if found else None

    def rate(self, system: str, name: str) -> float | None:
        """Return the median rate of a workload of writers."""
        found = self.values.get(system, {}).get(name)
        return statistics.median(value["rate"] for value in found) if found else None

    def total(self, system: str, name: str, part: str) -> int:
        """Return a count of a workload of writers, over all rounds."""
        return sum(value[part] for value in self.values.get(system, {}).get(name, ()))

    def ratio(self, ours: str, theirs: str, name: str) -> float | None:
        """Return the median over the rounds of a figure of one system over that of another."""
        mine = self.values.get(ours, {}).get(name, [])
        other = self.values.get(theirs, {}).get(name, [])
        if mine and isinstance(mine[0], dict):
            mine = [value["rate"] for value in mine]
            other = [value["rate"] for value in other]
        pairs = [a / b for a, b in zip(mine, other, strict=False) if b]
        return statistics.median(pairs) if pairs else None

    def alike(self, ours: str, theirs: str, name: str) -> bool:
        """Return whether the figures of two systems are of equal numbers of messages or sessions."""
        if name not in _COUNTS:
            return True
        mine, other = self.get(ours, _COUNTS[name]), self.get(theirs, _COUNTS[name])
        return mine is not None and other is not None and abs(mine - other) <= _NEAR * mine

    def best(self, ours: str, systems: list[str], name: str) -> str | None:
        """Return which of some systems has the lowest figure, of those of the same size as ours."""
        systems = [system for system in systems if self.alike(ours, system, name)]
        known = [
            (value, system) for system in systems if (value := self.get(system, name)) is not None
        ]
        return min(known)[1] if known else None
