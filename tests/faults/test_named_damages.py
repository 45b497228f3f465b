"""Damages that have a name, done to a small store with one file of each kind, and bits flipped in it."""

import random
import tempfile
from collections.abc import Iterator

import pytest

from tools.crash.damaged import plain_log
from tools.crash.damages import DAMAGES
from tools.crash.rows import cut_files, flipped_bits
from tools.crash.specimen import forget, specimen


@pytest.fixture(scope="module", autouse=True)
def _specimen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Create the store, and the plain log next to it, once, and remove them at the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("specimen")))
        specimen()
        yield
        forget()
        plain_log.cache_clear()


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damage_with_a_name_is_noticed_or_harmless(name: str) -> None:
    """N-26, N-30, N-31, N-34, F-32: the answer is right, refused or an earlier one, as the table says."""
    assert DAMAGES[name].check() == ""


def test_there_are_25_of_them() -> None:
    """N-34: what backups, editors, copies and disks are known to do is in the table."""
    assert len(DAMAGES) >= 25


@pytest.mark.slow
def test_flipped_bits_of_every_kind_of_file_are_noticed_or_harmless(rng: random.Random) -> None:
    """N-30, N-34, F-109: no bit of any file makes an answer wrong; what is spare is not missed."""
    cases = [case for case in flipped_bits.cases(900, rng) if case.kind != "log"]
    outcomes = [case.run() for case in cases]
    assert [outcome for outcome in outcomes if not outcome.ok] == []
    assert len(outcomes) > 500
    harmless = [outcome for outcome in outcomes if outcome.detail]
    assert len(harmless) < len(outcomes) / 20


@pytest.mark.slow
def test_files_of_every_kind_that_were_cut_are_noticed(rng: random.Random) -> None:
    """N-31, N-33, F-32: a file that ends too early, at any byte, makes no answer wrong."""
    found = [case for case in cut_files.cases(2_000, rng) if isinstance(case, cut_files.CutFile)]
    cases = [case for case in found if case.kind != "log"][:400]
    assert [outcome for case in cases if not (outcome := case.run()).ok] == []
    assert len(cases) > 200
