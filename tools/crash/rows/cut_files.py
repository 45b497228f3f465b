"""Row 9: files truncated at every byte, and named damages."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from tools.crash.damaged import LOG, check, plain_log
from tools.crash.damages import DAMAGES
from tools.crash.row import Case, Outcome, Row
from tools.crash.rows.flipped_bits import sizes
from tools.crash.specimen import specimen

ROW = Row(9, f"truncation at every byte; {len(DAMAGES)} named damages", 8_000, 8_000)


@dataclass
class CutFile:
    """A file that ends too early."""

    kind: str
    length: int

    @property
    def label(self) -> str:
        """Which one, and where."""
        return f"{self.kind}, cut at byte {self.length}"

    def run(self) -> Outcome:
        """Cut it, read everything, and put the rest back."""
        if self.kind == LOG:
            wrong = plain_log().check_cut(self.length)
        else:
            file = specimen().file(self.kind)
            wrong, _ = check(file, (specimen().path / file.path).read_bytes()[: self.length])
        return Outcome(not wrong, self.label, wrong)


@dataclass
class NamedDamage:
    """One of the damages that have a name."""

    name: str

    @property
    def label(self) -> str:
        """Its name."""
        return self.name

    def run(self) -> Outcome:
        """Do it to a copy of the store, and look."""
        wrong = DAMAGES[self.name].check()
        return Outcome(not wrong, self.label, wrong)


def cases(count: int, rng: random.Random) -> Iterator[Case]:
    """Yield the named damages, and cuts: all, or as many as the count has room for."""
    yield from [NamedDamage(name) for name in DAMAGES][:count]
    # A fork's log may lose whole appends at its end, as any log may: that is the plain log's part.
    kinds = {kind: size for kind, size in sizes().items() if kind != "log of a fork"}
    cuts = [CutFile(kind, length) for kind, size in kinds.items() for length in range(size)]
    left = max(count - len(DAMAGES), 0)
    # Mixed, as the flipped bits are.
    yield from rng.sample(cuts, min(left, len(cuts)))
