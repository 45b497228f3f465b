"""Claims about readers of a session that is deleted, purged and created again concurrently. N-28, N-31."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard.errors import SessionDeleted, SessionNotFound
from hansard.log import disk
from tests.faults.workers import open_store

Read = Callable[[hansard.Session], set[str]]

#: The calls at which another process may come in between.
CALLS = ("open_directory", "open_file", "names", "read_at", "status", "present", "identity", "size")


def _say(store: hansard.Store, who: str) -> None:
    """Let a session have sealed segments and an active one, in which all messages are by one."""
    session = store.session("s")
    for part in range(2):
        session.add_messages([{"by": who, "part": part, "number": n} for n in range(3)])
        session.compact()
    session.set_metadata(title=who)
    session.add_message({"by": who, "part": 2})


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where two stores are that have the same session, each with its own history."""
    path = tmp_path_factory.mktemp("templates")
    for who in ("one", "another"):
        with open_store(str(path / who), "os") as store:
            _say(store, who)
    return path


def _purge(path: Path, _: Path) -> None:
    with open_store(str(path), "os") as store:
        store.delete("s")
        store.purge("s")


def _purge_and_begin_again(path: Path, templates: Path) -> None:
    _purge(path, templates)
    shutil.copytree(templates / "another" / "sessions" / "s", path / "sessions" / "s")


@contextmanager
def _strike(at: int, do: Callable[[], None]) -> Iterator[list[int]]:
    """Do something before the call of this number."""
    seen = [0]

    def counted(name: str) -> Callable[..., Any]:
        real = getattr(disk, name)

        def call(*args: Any, **options: Any) -> Any:
            seen[0] += 1
            if seen[0] == at:
                do()
            return real(*args, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(disk, name, counted(name))
        yield seen


def _messages(session: hansard.Session) -> set[str]:
    return {message["by"] for message in session.messages()}


def _last(session: hansard.Session) -> set[str]:
    return {message["by"] for message in session.messages(last=5)}


def _title(session: hansard.Session) -> set[str]:
    return {session.title} if session.title else set()


def _verify(session: hansard.Session) -> set[str]:
    assert session.verify().ok
    return set()


def _dump(session: hansard.Session) -> set[str]:
    assert all(not record.problem for record in session.dump())
    return set()


@pytest.mark.parametrize("read", [_messages, _last, _title, _verify, _dump])
@pytest.mark.parametrize("do", [_purge, _purge_and_begin_again])
def test_a_session_that_is_deleted_while_it_is_read_is_not_damaged(
    tmp_path: Path, templates: Path, read: Read, do: Callable[[Path, Path], None]
) -> None:
    """N-17, N-28, N-31, F-166: at every call, a reader of a deleted session gets all of it, or an error."""
    at, heard = 0, 0
    while True:
        at += 1
        path = tmp_path / str(at)
        shutil.copytree(templates / "one", path)
        with hansard.open(path, read_only=True) as store:
            with _strike(at, partial(do, path, templates)) as seen:
                try:
                    assert len(read(store.session("s"))) <= 1
                except (SessionDeleted, SessionNotFound):
                    heard += 1
            struck = seen[0] >= at
        if not struck:
            break
    assert heard or read is _dump, "some of them notice"
