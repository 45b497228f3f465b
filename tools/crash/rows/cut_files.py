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
        """The file and the offset."""
        return f"{self.kind}, cut at byte {self.length}"

    def run(self) -> Outcome:
        """Truncate it, read everything, and restore the rest."""
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
        """Damage a copy of the store, and check it."""
        wrong = DAMAGES[self.name].check()
        return Outcome(not wrong, self.label, wrong)


def cases(count: int, rng: random.Random) -> Iterator[Case]:
    """Yield the named damages, and cuts: all, up to the count."""
    yield from [NamedDamage(name) for name in DAMAGES][:count]
    # Any log may lose complete appends at its end. The cases of the plain log cover that.
    kinds = {kind: size for kind, size in sizes().items() if kind != "log of a fork"}
    cuts = [CutFile(kind, length) for kind, size in kinds.items() for length in range(size)]
    left = max(count - len(DAMAGES), 0)
    # Mixed, like the flipped bits.
    yield from rng.sample(cuts, min(left, len(cuts)))
