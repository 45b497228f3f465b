"""Row 8: every bit of a small log, sealed segments, checkpoint and marker file flipped."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from tools.crash.damaged import LOG, check, plain_log
from tools.crash.row import Outcome, Row
from tools.crash.specimen import specimen

ROW = Row(8, "every bit of a small log, segment, checkpoint flipped", 9_000, 60_000)


@dataclass
class FlippedBit:
    """One bit of one file."""

    kind: str
    at: int
    bit: int

    @property
    def label(self) -> str:
        """Which one."""
        return f"{self.kind}, byte {self.at}, bit {self.bit}"

    def run(self) -> Outcome:
        """Flip it, read everything, and flip it back."""
        plain = self.kind == LOG
        file = None if plain else specimen().file(self.kind)
        data = plain_log().log.data if file is None else (specimen().path / file.path).read_bytes()
        bad = data[: self.at] + bytes([data[self.at] ^ 1 << self.bit]) + data[self.at + 1 :]
        if file is None:
            wrong = plain_log().check_flipped(bad, self.at)
            return Outcome(not wrong, self.label, wrong)
        wrong, noticed = check(file, bad)
        told = "" if noticed or file.spare else "harmless: every answer is as before"
        return Outcome(not wrong, self.label, wrong or told)


def sizes() -> dict[str, int]:
    """Return how long each file is."""
    found = specimen()
    own = {file.kind: (found.path / file.path).stat().st_size for file in found.files}
    return {LOG: len(plain_log().log.data), **own}


def cases(count: int, rng: random.Random) -> Iterator[FlippedBit]:
    """Yield all bits of all files, up to the count, spread over the files."""
    # The cases of the plain log cover its last newline: there the expected answer without it is known.
    active = {file.kind for file in specimen().files if file.active}
    found = [
        [FlippedBit(kind, at, bit) for at in range(size - (kind in active)) for bit in range(8)]
        for kind, size in sizes().items()
    ]
    # All bits of short files, then as many bits of long ones as the count allows.
    found.sort(key=len)
    chosen: list[FlippedBit] = []
    for number, bits in enumerate(found):
        share = min(len(bits), count // (len(found) - number))
        count -= share
        chosen += rng.sample(bits, share)
    # Mixed: a campaign that is ended early has cases of each file.
    rng.shuffle(chosen)
    yield from chosen
