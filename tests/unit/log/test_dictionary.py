"""A dictionary holds what several sessions say, proves itself, and is kept twice."""

import contextlib
import errno
import itertools
import random
import re
import shutil
import stat
from pathlib import Path

import pytest
import zstandard

import hansard
from hansard.log import dictionary
from hansard.log.root import Root
from tests.crashlab import faults

WORDS = [
    re.sub("[^a-z]", "", word)
    for word in (dictionary.__doc__ or "").lower().split() + (random.__doc__ or "").lower().split()
]


def sentence(rng: random.Random, count: int) -> str:
    """Return words, as people say them: the same ones follow each other again and again."""
    start = rng.randrange(len(WORDS))
    return " ".join(WORDS[(start + n) % len(WORDS)] for n in range(count))


def fill(path: Path, rng: random.Random, count: int = 66, extra: str = "") -> None:
    """Make sessions that have much in common, `extra` in the first of them."""
    with hansard.open(path, durability="os", auto_compact=False) as store:
        for n in range(count):
            said = [
                {"role": "user", "content": f"{rng.getrandbits(64):x} " + sentence(rng, 60)}
                for _ in range(20)
            ]
            if extra and n == 0:
                said.insert(3, {"role": "user", "content": f"my password is {extra}, keep it"})
            store.session(f"s{n:02d}").add_messages(said)


def compacted(path: Path) -> list[Path]:
    """Compact a store; return the files of its dictionaries."""
    with hansard.open(path, durability="os", auto_compact=False) as store:
        assert store.compact().failed == {}
    return files_of(path)


def files_of(path: Path) -> list[Path]:
    """Return the files of a store's dictionaries."""
    return sorted((path / "dictionaries").glob("1-*"))


def make_small(patch: pytest.MonkeyPatch) -> None:
    """Let dictionaries be smaller than real ones."""
    patch.setattr(dictionary, "SIZE", 16 * 1024)
    patch.setattr(dictionary, "SMALLEST", 8 * 1024)
    patch.setattr(dictionary, "_SHARE", 1)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store that was compacted with a dictionary, once: what is said in it is of no importance."""
    path = tmp_path_factory.mktemp("template") / "s"
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        fill(path, random.Random(1))
        assert len(compacted(path)) == 2
    return path


@pytest.fixture
def store(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a store of the test's own that was compacted with a dictionary."""
    make_small(monkeypatch)
    shutil.copytree(template, tmp_path / "s")
    dictionary._prepared.clear()
    return tmp_path / "s"


def messages(path: Path) -> list[object]:
    """Return what two sessions say."""
    dictionary._prepared.clear()
    with hansard.open(path, read_only=True) as store:
        return [store.session("s00").messages(), store.session("s65").messages()]


def findings(path: Path) -> list[tuple[str, str, str]]:
    """Return what `verify` says."""
    dictionary._prepared.clear()
    with hansard.open(path, read_only=True) as store:
        return [(f.severity, f.where, f.reason) for f in store.verify().findings]


def test_small_sessions_share_a_dictionary_that_is_kept_twice(store: Path) -> None:
    """F-88, F-89, N-13: two private files, with the content that their name is the hash of."""
    files = files_of(store)
    assert files[1].name == files[0].name + ".copy"
    for file in files:
        content = zstandard.ZstdDecompressor().decompress(file.read_bytes())
        assert dictionary.name_of(content) == files[0].name
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE((store / "dictionaries").stat().st_mode) == 0o700
    sealed = next((store / "sessions" / "s00").glob("*.zst"))
    assert files[0].name.encode() in sealed.read_bytes()
    assert findings(store) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "how"), [(0, "lost"), (1, "flipped"), (0, "emptied"), (1, "another")]
)
def test_one_of_two_files_is_enough(store: Path, which: int, how: str) -> None:
    """F-89: with either file lost or damaged all is read, `verify` notes it, and a compaction mends it."""
    before = messages(store)
    file = files_of(store)[which]
    data = file.read_bytes()
    spoil(file, how)
    assert messages(store) == before
    assert [(severity, where) for severity, where, _ in findings(store)] == [("note", str(file))]
    with hansard.open(store, durability="os", auto_compact=False) as opened:
        opened.session("s00").add_message({"n": 1})
        assert opened.compact().failed == {}
    assert findings(store) == []
    assert file.read_bytes() == data


def spoil(file: Path, how: str) -> None:
    """Damage a file."""
    data = file.read_bytes()
    file.unlink()
    if how == "flipped":
        file.write_bytes(data[:99] + bytes([data[99] ^ 1]) + data[100:])
    elif how == "emptied":
        file.write_bytes(b"")
    elif how == "another":
        file.write_bytes(zstandard.ZstdCompressor().compress(b"another"))


@pytest.mark.slow
def test_a_needed_one_that_is_lost_is_reported_for_what_it_is(store: Path) -> None:
    """F-90, N-31: who needs it says which one and which session; the others, and appends, go on."""
    with hansard.open(store, durability="os", auto_compact=False) as opened:
        opened.session("new").add_message({"n": 1})
    files = files_of(store)
    for file in files:
        file.unlink()
    dictionary._prepared.clear()
    with hansard.open(store, durability="os", auto_compact=False) as opened:
        assert opened.session("new").messages() == [{"n": 1}]
        with pytest.raises(hansard.Damaged, match=rf"{files[0].name}.*missing.*'s00' needs it"):
            opened.session("s00").messages()
        opened.session("s00").add_message({"n": 2})
        report = opened.verify()
        assert sum(not session.ok for session in report.sessions) == 66
        assert all(files[0].name in finding.where for finding in report.findings)
        opened.compact()


def test_one_that_nobody_needs_may_be_lost(tmp_path: Path) -> None:
    """F-90: sessions that were compacted without a dictionary do not miss one."""
    root = Root(str(tmp_path / "s"), create=True, read_only=False)
    name = dictionary.keep(root, b"of no use" * 100)
    with hansard.open(tmp_path / "s", auto_compact=False) as opened:
        opened.session("a").add_message({"n": 1})
    for file in (tmp_path / "s" / "dictionaries").iterdir():
        file.write_bytes(b"damaged")
    with hansard.open(tmp_path / "s", auto_compact=False) as opened:
        assert opened.compact().failed == {}
        assert opened.session("a").messages() == [{"n": 1}]
        report = opened.verify()
        assert report.ok
        assert {finding.severity for finding in report.findings} == {"note"}
    with pytest.raises(hansard.Damaged, match="damaged"):
        root.dictionary(name)


@pytest.mark.slow
def test_what_one_session_said_is_in_no_dictionary(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-91, N-65: a secret that is redacted after others were compacted with a dictionary is in no file."""
    monkeypatch.setattr(dictionary, "SIZE", 16 * 1024)
    monkeypatch.setattr(dictionary, "SMALLEST", 8 * 1024)
    monkeypatch.setattr(dictionary, "_SHARE", 1)
    secret = "xyzzy plugh-4711 swordfish"  # noqa: S105 - it is made up
    path = tmp_path / "s"
    fill(path, rng, extra=secret)
    assert len(compacted(path)) == 2
    with hansard.open(path, durability="os", auto_compact=False) as opened:
        session = opened.session("s00")
        (seq,) = [e.seq for e in session.events() if secret.encode() in e.raw]
        session.redact(seq)
        opened.compact()
    raw = [unpacked(file, path) for file in path.rglob("*") if file.is_file()]
    assert len(raw) > 66
    for word in (secret, "xyzzy", "plugh-4711", "swordfish"):
        assert not any(word.encode() in text for text in raw), word
    assert any(b'"redacted":true' in text for text in raw)


def unpacked(file: Path, store: Path) -> bytes:
    """Return all that a file says, compressed or not."""
    data = file.read_bytes()
    found = [data]
    known = None
    for kept in (store / "dictionaries").glob("*[0-9a-f]"):
        if kept != file:
            known = zstandard.ZstdCompressionDict(
                zstandard.ZstdDecompressor().decompress(kept.read_bytes())
            )
    if file.suffix == ".zst" or file.parent.name == "dictionaries":
        with file.open("rb") as stream:
            kind = zstandard.ZstdDecompressor(dict_data=known)
            found.append(kind.stream_reader(stream, read_across_frames=True).read())
    return b"\0".join(found)


def test_every_word_of_a_dictionary_was_said_in_three_sessions(rng: random.Random) -> None:
    """F-91: what is trained on holds no word, and no two that follow one another, that fewer say."""
    samples = [
        "".join(f"w{rng.randrange(100, 150)}{rng.choice(', ')}" for _ in range(1500)).encode()
        for _ in range(12)
    ]
    common = dictionary.shared(samples)
    assert 1000 < sum(map(len, common)) < 0.9 * sum(map(len, samples))
    for text in common:
        for line in text.split(b"\n"):
            words = re.findall(rb"[0-9a-z]+[, ]", line)
            assert b"".join(words) == line
            for run in (words[at : at + count] for at in range(len(words)) for count in (1, 2)):
                said = sum(b"".join(run) in sample for sample in samples)
                assert said >= dictionary.SHARED_BY, run
    assert dictionary.shared([b"only here, and here only"] * 2) == [b"", b""]


@pytest.mark.slow
def test_what_has_little_in_common_gets_no_dictionary(tmp_path: Path, rng: random.Random) -> None:
    """F-88: neither few sessions nor such as say nothing alike are worth one."""
    fill(tmp_path / "few", rng, count=63)
    assert compacted(tmp_path / "few") == []
    assert dictionary.train(rng.randbytes(5000) for _ in range(100)) == b""


def test_a_dictionary_is_whole_or_not_there(tmp_path: Path) -> None:
    """F-89, N-29, N-39: whatever fails, and wherever it dies, each file is whole or absent."""
    content = b"content" * 50
    for how in ("fail", "kill"):
        for at in itertools.count(1):
            path = tmp_path / f"{how}{at}"
            root = Root(str(path), create=True, read_only=False)
            fault = faults.kill(at=at) if how == "kill" else faults.fail(errno.ENOSPC, at=at)
            with fault, contextlib.suppress(hansard.DiskFailed, faults.Killed):
                dictionary.keep(root, content)
                assert len(list(path.glob("dictionaries/1-*"))) == 2
            for file in path.glob("dictionaries/1-*"):
                assert zstandard.ZstdDecompressor().decompress(file.read_bytes()) == content
            root = Root(str(path), create=False, read_only=False)
            assert root.dictionary(dictionary.keep(root, content)) == content
            if not fault.fired:
                break
        assert at > 5


def test_a_link_or_a_bomb_in_its_place_is_refused(tmp_path: Path) -> None:
    """F-4, N-11, N-74: neither is followed or unpacked; the copy is read."""
    root = Root(str(tmp_path / "s"), create=True, read_only=False)
    name = dictionary.keep(root, b"content" * 50)
    file = tmp_path / "s" / "dictionaries" / name
    file.rename(tmp_path / "away")
    file.symlink_to(tmp_path / "away")
    assert root.dictionary(name) == b"content" * 50
    (tmp_path / "s" / "dictionaries" / f"{name}.copy").write_bytes(
        zstandard.ZstdCompressor().compress(bytes(100 << 20))
    )
    with pytest.raises(hansard.Damaged, match=r"unreadable.*damaged"):
        root.dictionary(name)
    with pytest.raises(hansard.Damaged, match="not the name"):
        root.dictionary("../../hansard.json")


@pytest.mark.slow
def test_a_dictionary_that_cannot_be_kept_stops_no_compaction(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-88, F-4, N-11: with a link in the place of the directory, sessions are compacted without one."""
    monkeypatch.setattr(dictionary, "SIZE", 16 * 1024)
    monkeypatch.setattr(dictionary, "SMALLEST", 8 * 1024)
    monkeypatch.setattr(dictionary, "_SHARE", 1)
    path = tmp_path / "s"
    fill(path, rng)
    (tmp_path / "away").mkdir()
    (path / "dictionaries").symlink_to(tmp_path / "away")
    with hansard.open(path, durability="os", auto_compact=False) as opened:
        report = opened.compact()
        assert (report.sessions, report.failed) == (66, {})
    assert list((tmp_path / "away").iterdir()) == []
