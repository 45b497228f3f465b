"""Claims about what hansard reads and did not write: no wrong answer, no other error than ours, no hang.

Each run feeds some thousand inputs; `tools/crash/campaign --rows 13` runs for ten minutes.
"""

import random
from collections.abc import Iterator

import pytest

from hansard.log import format
from tools.crash.fuzz import fuzz, try_one
from tools.crash.fuzz_targets import BY_NAME, TARGETS, Bench, Target
from tools.crash.struck import Wrong

targets = pytest.mark.parametrize("target", TARGETS, ids=[target.name for target in TARGETS])


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """Return a store whose files are exchanged for others."""
    made = Bench()
    yield made
    made.close()


@targets
def test_what_hansard_wrote_is_read_as_it_was_written(bench: Bench, target: Target) -> None:
    """N-33: without an alteration the answer is right, and a checksum that is made again is the same."""
    for data in target.seeds(bench):
        try_one(bench, target, data)
        if target.reseal is not None and target.name not in {"record", "token"}:
            assert target.reseal(data) == data


def test_a_reader_that_does_not_check_is_found_out(
    bench: Bench, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N-33: without the checksum of records, the fuzzer finds a wrong answer."""

    def believe(lines: bytes, crc: int) -> int:
        return format.crc_after(lines, crc)

    with monkeypatch.context() as patch:
        patch.setattr(format, "checked_crc", believe)
        with pytest.raises(Wrong, match="other events than were said"):
            fuzz(bench, BY_NAME["log"], 1_000, rng)
