"""What is forgotten is forgotten by dictionaries, too, and no segment loses the one it needs."""

import contextlib
import os
import random
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import zstandard

import hansard
from hansard.backend import local
from hansard.log import dictionary, retirement
from hansard.log.root import Root
from hansard.log.sealed import Sealed
from hansard.upkeep.compaction import _sample
from tests.crashlab import faults
from tests.faults.scenes import do_not_wait_for_the_disk

SECRET = "the launch code is xyzzy plugh swordfish-4711 and nothing else"  # noqa: S105 - made up
SAYERS = ("s00", "s01", "s02", "s03")
COUNT = 12


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few and short sessions be worth a dictionary."""
    monkeypatch.setattr(dictionary, "SIZE", 4 * 1024)
    monkeypatch.setattr(dictionary, "SMALLEST", 2 * 1024)
    monkeypatch.setattr(dictionary, "_SHARE", 1)
    for module in (dictionary, local):
        monkeypatch.setattr(module, "FEWEST", 8)
    do_not_wait_for_the_disk(monkeypatch)
    dictionary._prepared.clear()


@pytest.fixture
def path(tmp_path: Path, rng: random.Random) -> Path:
    """Return a store with a dictionary, in which some sessions have said a secret."""
    fill(tmp_path / "s", rng)
    with opened(tmp_path / "s") as store:
        assert store.compact().dictionaries == 0
    assert SECRET[16:40].encode() in said_by(tmp_path / "s" / "dictionaries")
    return tmp_path / "s"


def opened(path: Path, **how: Any) -> hansard.Store:
    """Open a store for a test."""
    dictionary._prepared.clear()
    return hansard.open(path, durability="os", auto_compact=False, **how)


def fill(path: Path, rng: random.Random) -> None:
    """Make sessions that have much in common."""
    common = [f"{rng.getrandbits(64):x} is what we all say, again and again" for _ in range(12)]
    with opened(path) as store:
        for number in range(COUNT):
            name = f"s{number:02d}"
            texts = [rng.choice(common) for _ in range(30)]
            if name in SAYERS:
                texts[3:3] = [SECRET] * 8
            store.session(name).add_messages([{"role": "user", "content": text} for text in texts])


def said_by(path: Path) -> bytes:
    """Return all that the files below a directory say, compressed or not."""
    store = path if (path / "hansard.json").exists() else path.parent
    root = Root(str(store), create=False, read_only=True)
    found = []
    for file in sorted(path.rglob("*")):
        if file.is_file():
            found.append(file.read_bytes())
            if file.suffix == ".zst":
                sealed = Sealed(os.open(file, os.O_RDONLY), str(file), None, root.dictionary)
                found.append(sealed.read(0, sealed.index.size))
                found += [bytes(line.data) for line in sealed.controls()]
            elif file.name.startswith("1-") and not file.suffix.startswith((".r", ".d")):
                found.append(zstandard.ZstdDecompressor().decompress(file.read_bytes()))
    root.close()
    return b"\0".join(found)


def says(path: Path, text: str = SECRET) -> list[str]:
    """Return which words of a text are still to be found somewhere in a store."""
    everything = said_by(path)
    words = [text[at : at + 12] for at in range(0, len(text) - 12, 4)]
    return [word for word in words if word.encode() in everything]


def redact(store: hansard.Store, names: tuple[str, ...] = SAYERS) -> None:
    """Take the secret out of sessions."""
    for name in names:
        session = store.session(name)
        for event in list(session.events()):
            if SECRET.encode() in event.raw:
                session.redact(event.seq)


def everything(path: Path) -> dict[str, list[Any]]:
    """Return what each session says, for one who knows nothing yet."""
    dictionary._prepared.clear()
    with hansard.open(path, read_only=True) as store:
        assert store.verify().ok, store.verify().findings
        return {info.id: store.session(info.id).messages() for info in store.sessions().items}


def files(path: Path) -> dict[str, tuple[int, int]]:
    """Return inode and time of change of each file of a store."""
    found = {str(p): p.stat() for p in path.rglob("*") if p.is_file()}
    return {name: (status.st_ino, status.st_mtime_ns) for name, status in found.items()}


def kept(path: Path) -> list[str]:
    """Return the names of the dictionaries, of what is doubted and of what is retired."""
    return sorted(file.name for file in (path / "dictionaries").glob("1-*"))


def test_what_all_who_said_it_redacted_is_in_no_dictionary(path: Path) -> None:
    """N-45, N-65: redacted wherever it was said, it is in no file afterwards, dictionaries included."""
    before = kept(path)
    with opened(path) as store:
        redact(store)
        shown = {f"s{n:02d}": store.session(f"s{n:02d}").messages() for n in range(COUNT)}
        report = store.compact()
        assert (report.dictionaries, report.failed) == (1, {})
        assert report.blanked == 8 * len(SAYERS)
    assert says(path) == []
    assert not set(kept(path)) & set(before)
    assert len(kept(path)) == 2, "another one was trained"
    assert everything(path) == shown
    with opened(path) as store:
        still = files(path)
        assert (report := store.compact()).sessions == 0, report
    assert files(path) == still


def test_one_session_at_a_time_leaves_a_doubt_for_the_next_compaction_of_all(path: Path) -> None:
    """N-45: what single compactions forget is not forgotten until all are compacted, and then it is."""
    with opened(path) as store:
        redact(store)
        for name in SAYERS:
            store.session(name).compact()
    assert says(path) != []
    assert any(".doubt-" in name for name in kept(path))
    assert SECRET.encode() not in b"".join(
        file.read_bytes() for file in (path / "dictionaries").glob("*.doubt-*")
    )
    with opened(path) as store:
        assert store.compact().dictionaries == 1
    assert says(path) == []
    everything(path)


def test_what_purged_sessions_said_is_in_no_dictionary(path: Path) -> None:
    """N-65, N-87: purged, and the store compacted, their bytes are gone from what all share as well."""
    with opened(path) as store:
        for name in SAYERS:
            store.delete(name)
            store.purge(name)
        assert store.compact().dictionaries == 1
    assert says(path) == []
    assert len(everything(path)) == COUNT - len(SAYERS)


def test_what_others_still_say_is_theirs(path: Path) -> None:
    """N-76: if enough sessions still say it, the dictionary stays, and nobody else is written anew."""
    with opened(path) as store:
        names = kept(path)
        redact(store, SAYERS[:1])
        others = {name: what for name, what in files(path).items() if "/s00/" not in name}
        report = store.compact()
        assert (report.dictionaries, report.sessions) == (0, 1)
    now = files(path)
    assert {name: now[name] for name in others} == others
    assert kept(path) == names
    with opened(path) as store:
        assert store.compact().sessions == 0


def test_one_that_the_trash_needs_stays_until_it_does_not(path: Path) -> None:
    """F-90: a deleted session that needs a retired dictionary can be restored; then, or purged, it goes."""
    with opened(path) as store:
        before = store.session("s09").messages()
        store.delete("s09")
        store.delete("s10")
        redact(store)
        assert store.compact().dictionaries == 0
        assert store.restore("s09").messages() == before
        assert store.compact().dictionaries == 0
        store.purge("s10")
        assert store.compact().dictionaries == 1
        assert store.session("s09").messages() == before
    assert says(path) == []
    everything(path)


def test_a_session_that_cannot_be_read_puts_everything_in_doubt(path: Path) -> None:
    """N-65: what a damaged session said that is purged is not known, so a dictionary may not stay."""
    with opened(path) as store:
        for name in SAYERS:
            store.delete(name)
            (sealed,) = (path / "trash" / name).glob("*.zst")
            sealed.write_bytes(sealed.read_bytes()[:-1])
            store.purge(name)
        assert store.compact().dictionaries == 1
    assert says(path) == []


def forget(path: Path, how: str) -> None:
    """Forget what was redacted, or deleted, and let the dictionary forget it."""
    with opened(path) as store:
        for name in list(store.trash()) if how == "purged" else ():
            store.purge(name)
        store.compact()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["redacted", "purged"])
def test_whoever_dies_in_between_loses_nothing_and_keeps_nothing(
    path: Path, tmp_path: Path, rng: random.Random, how: str
) -> None:
    """N-23, N-39, F-90: killed at any call, every session is read, and the next one forgets it all."""
    with opened(path) as store:
        if how == "redacted":
            redact(store)
        for name in SAYERS if how == "purged" else ():
            store.delete(name)
    expected = everything(path)
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    with faults.record() as recorded:
        forget(copy, how)
    shutil.rmtree(copy)
    calls = [call for call in recorded.calls if call.operation in faults.MUTATING]
    struck = [at for at, call in enumerate(calls, 1) if "dictionaries" in call.place]
    assert len(struck) > 20
    # Those at the dictionaries are what this is about; and some of all the others.
    for at in sorted({*rng.sample(struck, 5), *rng.sample(range(1, len(calls)), 2)}):
        shutil.copytree(path, copy)
        with contextlib.suppress(faults.Killed), faults.kill(at=at) as fault:
            forget(copy, how)
        assert fault.fired
        assert everything(copy) == expected, at
        # This process stands for one that has died: what it was about to remove is nobody's.
        for left in (copy / "trash").glob(f".tmp-purged-{os.getpid()}-*"):
            left.rename(left.with_name(left.name.replace(f"-{os.getpid()}-", "-4194305-")))
        forget(copy, how)
        assert everything(copy) == expected, at
        assert says(copy) == [], at
        shutil.rmtree(copy)


@pytest.mark.parametrize("locked", [True, False])
def test_one_that_is_in_use_is_not_taken_away(
    path: Path, monkeypatch: pytest.MonkeyPatch, locked: bool
) -> None:
    """F-90, N-17: who compresses with one keeps it, and without the lock between the two would lose it."""
    if not locked:
        monkeypatch.setattr(retirement, "using", lambda *_: contextlib.nullcontext())
    (name,) = dictionary.kept(root := Root(str(path), create=False, read_only=False))
    with opened(path) as store:
        for number in range(COUNT):
            store.delete(f"s{number:02d}")
            store.purge(f"s{number:02d}")
        session = store.session("new")
        session.add_message({"role": "user", "content": SECRET})
        taken: list[int] = []

        def retire(call: faults.Call, *_: object) -> None:
            # The new segment is written, and has no name yet.
            if call.operation == "sync" and ".zst" in call.place and not taken:
                taken.append(-1)
                (path / "dictionaries" / f"{name}.retired").touch()
                with contextlib.suppress(hansard.LockTimeout):
                    taken.append(retirement.remove_unneeded(root, 0.05))

        with faults.record(watch=retire):
            session.compact()
        assert taken[0] == -1
    dictionary._prepared.clear()
    if locked:
        assert len(taken) == 1
        assert list(everything(path)) == ["new"]
        with opened(path) as store:
            assert store.compact().dictionaries == 1
        assert kept(path) == []
        assert list(everything(path)) == ["new"]
    else:
        with opened(path) as store, pytest.raises(hansard.Damaged, match="needs it"):
            store.session("new").messages()


@pytest.mark.parametrize("locked", [True, False])
def test_what_is_forgotten_while_one_is_trained_is_doubted(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, locked: bool
) -> None:
    """N-17, N-65: who forgets waits for who trains; without the lock it would leave no doubt."""
    path = tmp_path / "s"
    fill(path, rng)
    if not locked:
        monkeypatch.setattr(retirement, "_locked", lambda *_, **__: contextlib.nullcontext())
    with opened(path) as store, opened(path) as other:

        def redact_all() -> None:
            redact(other)
            for name in SAYERS:
                other.session(name).compact()

        forgetter = threading.Thread(target=redact_all)
        seen: list[str] = []

        def sample(session_id: str) -> bytes:
            found = _sample(store._backend, session_id)
            seen.append(session_id)
            if len(seen) == COUNT:
                forgetter.start()
                # Until it is done, or waits; there is nothing to see of the latter but that it is not done.
                forgetter.join(60 if not locked else 1)
            return found

        store._backend.learn([f"s{n:02d}" for n in range(COUNT)], sample)
        forgetter.join(60)
        assert retirement.doubts(Root(str(path), create=False, read_only=True)).keys() == (
            set(dictionary.kept(Root(str(path), create=False, read_only=True))) if locked else set()
        )
        store.compact()
    assert (says(path) == []) is locked


def test_who_reads_slowly_finds_what_took_the_place_of_a_segment(path: Path) -> None:
    """N-20, F-105: a segment that loses name and dictionary just as it is opened is looked for again."""
    with opened(path) as store, opened(path, read_only=True) as reader:
        redact(store)
        expected = store.session("s09").messages()
        real = Sealed.prepare
        opens: list[str] = []

        def prepare(sealed: Sealed) -> None:
            if not opens:
                opens.append(sealed.path)
                store.compact()
                dictionary._prepared.clear()
            real(sealed)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Sealed, "prepare", prepare)
            assert reader.session("s09").messages() == expected
        assert opens
        assert says(path) == []


def test_pieces_are_found_wherever_they_stand(rng: random.Random) -> None:
    """F-91: every eight bytes of what is forgotten that a dictionary holds are in doubt, and no others."""
    # No dot beside a piece, or it would rightly be found as a part of it.
    noise = rng.randbytes(1000).replace(b".", b",")
    content = noise[:500] + b"abcdefghijkl" + noise[500:] + b"12345678"
    assert retirement._pieces(content, [b"..abcdefghijkl..", b"12345678"]) == [(500, 12), (1012, 8)]
    assert retirement._pieces(content, [b"abcdefg", b"1234567", b""]) == []
    assert retirement._pieces(content, [bytes(retirement.MOST + 1)]) == [(0, len(content))]
