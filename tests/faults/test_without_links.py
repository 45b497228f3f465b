"""Sealing where a file system knows no second names: by a copy, and nothing is lost on the way."""

import contextlib
import errno
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import hansard
from tests.crashlab import faults
from tests.faults.fault_scenarios import do_not_wait_for_the_disk, temporaries

NUMBERS = [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK]
SAID = [{"role": "user", "content": f"said {number}"} for number in range(5)]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    do_not_wait_for_the_disk(monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """Return a store with a session."""
    with hansard.open(tmp_path / "store") as store:
        store.session("s").add_messages(SAID)
    yield tmp_path / "store"
    assert temporaries(tmp_path / "store") == []


def without_links(number: int) -> faults.Faults:
    """Let the file system refuse every second name."""
    return faults.fail(number, only=("link",), lasting=True)


def read(path: Path) -> list[object]:
    """Return what a stranger reads, and verify it."""
    with hansard.open(path, read_only=True) as store:
        assert store.session("s").verify().ok
        return list(store.session("s").messages())


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: errno.errorcode[number])
def test_a_segment_is_sealed_without_links(path: Path, number: int) -> None:
    """F-85, N-39: it is copied, durably, before the next one takes its place; appends and readers go on."""
    with hansard.open(path) as store, hansard.open(path, read_only=True) as reader:
        session = store.session("s")
        assert reader.session("s").messages() == SAID
        with without_links(number) as fault:
            for count in range(1, 4):
                assert session.compact().sessions == 1
                session.add_message({"n": count}, key=f"k{count}")
                assert reader.session("s").messages() == session.messages()
        assert fault.fired
        assert session.add_message({}, key="k1").seq == len(SAID) + 1
    assert read(path) == [*SAID, {"n": 1}, {"n": 2}, {"n": 3}]


def test_another_error_is_an_error_and_appends_go_on(path: Path) -> None:
    """N-29: a link that fails for another reason is reported; nothing is lost, and the next one succeeds."""
    with hansard.open(path) as store:
        session = store.session("s")
        with without_links(errno.EIO), pytest.raises(hansard.DiskFailed):
            session.compact()
        session.add_message({"n": 1})
    assert read(path) == [*SAID, {"n": 1}]


@pytest.mark.parametrize("when", ["before", "after"])
def test_who_dies_while_it_is_copied_loses_nothing(
    path: Path, tmp_path: Path, when: faults.When
) -> None:
    """F-85, F-86, N-39: killed at any call, all is there, even where links work again."""
    for at in itertools.count(1):
        copy = tmp_path / f"copy-{at}"
        shutil.copytree(path, copy)
        with (
            contextlib.suppress(faults.Killed),
            faults.kill(at=at, when=when) as fault,
            without_links(errno.EPERM),
            hansard.open(copy) as store,
        ):
            store.session("s").compact()
        assert read(copy) == SAID, at
        for links in (True, False):
            with hansard.open(copy) as store:
                with contextlib.nullcontext() if links else without_links(errno.EPERM):
                    store.session("s").add_message({"links": links})
                    store.session("s").compact()
                assert store.session("s").verify().findings == []
        assert read(copy) == [*SAID, {"links": True}, {"links": False}], at
        directory = copy / "sessions" / "s"
        assert list(directory.glob("*.jsonl")) == [directory / "log.jsonl"], at
        if not fault.fired:
            break
    assert at > 8
