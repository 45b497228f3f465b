"""Deliberate bugs in a copy of our own source are caught: some of them each time, all by the campaign."""

import random
import re
import shutil
from pathlib import Path

import pytest

from tools.crash.mutants import MUTANTS
from tools.crash.mutants.mutant import CHECKOUT, Mutant, Outdated, apply, examine
from tools.crash.rows.lock_situations import SITUATIONS

#: Of the kinds that are caught within a few seconds.
QUICK = (
    "records are not synced", "a torn tail is cut off", "no lock for the lone append",
    "the expected seq is ignored", "checksums are not checked", "the log of another session is read",
    "a failed sync is tried again", "two compactors of one session",
)  # fmt: skip


def test_every_mutant_fits_the_source(tmp_path: Path) -> None:
    """N-17, N-37: of each mutant the text is in the source once, and what comes out of it is a program."""
    assert len(MUTANTS) >= 25
    for mutant in MUTANTS.values():
        path = tmp_path / "hansard" / mutant.file
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / "src" / "hansard" / mutant.file, path)
        apply(mutant, tmp_path)
        compile(path.read_text(encoding="utf-8"), str(path), "exec")


def test_named_tests_exist() -> None:
    """Each test that a mutant or a situation of a lock (row 11) names is there."""
    named = {test for mutant in MUTANTS.values() for test in mutant.tests} | {*SITUATIONS.values()}
    for test in sorted(test for test in named if test.startswith("tests/")):
        file, _, function = test.partition("::")
        assert (CHECKOUT / file).exists(), test
        if function:
            text = (CHECKOUT / file).read_text(encoding="utf-8")
            assert f"def {function.partition('[')[0]}(" in text, test


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_some_mutants_are_caught(rng: random.Random) -> None:
    """N-17, N-37: the tests notice a store with a bug in it; `tools/crash/campaign --rows 14` tries all."""
    for name in rng.sample(QUICK, 2):
        verdict = examine(MUTANTS[name])
        assert verdict.caught, verdict.told


@pytest.mark.slow
def test_what_is_no_bug_is_not_caught_and_what_does_not_fit_is_an_error(tmp_path: Path) -> None:
    """N-17: an unchanged source passes the tests of a mutant, so it is the bug that they catch."""
    real = MUTANTS["the expected seq is ignored"]
    same = Mutant("none", real.file, real.old, real.old, real.tests)
    assert not examine(same).caught
    changed = tmp_path / "hansard" / real.file
    changed.parent.mkdir(parents=True)
    changed.write_text("another text\n")
    with pytest.raises(Outdated, match=f"0 times in {re.escape(real.file)}"):
        apply(real, tmp_path)
