"""`hansard compact`: what is rewritten, sizes before and after, progress."""

import random
from pathlib import Path

import hansard as library
from tests.cli.running import hansard
from tests.unit.disk_probe import tree


def grow(path: Path, names: list[str]) -> None:
    """Fill sessions with text that does not compress to nothing."""
    rng = random.Random(1)
    with library.open(path, durability="os", auto_compact=False) as store:
        for name in names:
            store.session(name).add_messages(
                [{"role": "user", "content": rng.randbytes(300).hex()} for _ in range(200)]
            )


def on_disk(path: Path, name: str) -> int:
    """Return the bytes of a session's files."""
    return sum(file.stat().st_size for file in (path / "sessions" / name).iterdir())


def test_sessions_get_smaller_and_say_the_same(tmp_path: Path) -> None:
    """N-45: named sessions, or all, are compacted and get smaller; no event changes."""
    grow(tmp_path, ["a", "b"])
    before = [hansard("replay", name, "--json", store=tmp_path).out for name in ("a", "b")]
    sizes = [on_disk(tmp_path, "a")]
    done = hansard("compact", "a", "--json", store=tmp_path)
    assert done.code == 0
    assert done.json["sessions"] == 1
    sizes.append(on_disk(tmp_path, "a"))
    assert [done.json["before"], done.json["after"]] == sizes
    assert done.json["after"] < 0.8 * done.json["before"]
    # Files need no --vacuum.
    told = hansard("compact", "--all", "--vacuum", store=tmp_path)
    assert told.code == 0
    assert told.out.startswith("1 session rewritten: ")
    assert told.out.count("KiB") == 2
    assert [hansard("replay", n, "--json", store=tmp_path).out for n in ("a", "b")] == before
    assert hansard("verify", store=tmp_path).code == 0


def test_a_session_that_would_grow_is_left_alone(tmp_path: Path) -> None:
    """Short sessions keep their one file: compressing them would add more bytes than it saves."""
    with library.open(tmp_path, durability="os") as store:
        for number in range(20):
            messages = [{"role": role, "content": "hi"} for role in ("user", "assistant")]
            store.session(f"s{number}").add_messages(messages)
        # As in README.md.
        session = store.session("refund")
        session.add_message({"role": "user", "content": "Where is my refund?"}, key="turn-1")
        session.add_message({"role": "assistant", "content": "Let me look."}, key="turn-2")
        session.set_metadata(title="Refund", user="u7")
        session.snapshot("before tools")
        session.add_message({"role": "user", "content": "Never mind."})
        session.revert("before tools")
    before = tree(tmp_path / "sessions")
    for words in (["--all"], ["s3"]):
        done = hansard("compact", *words, store=tmp_path)
        assert (done.code, done.err) == (0, "")
        assert (
            done.out == "nothing was rewritten: there is nothing to erase, and no bytes to save\n"
        )
        assert tree(tmp_path / "sessions") == before
    with library.open(tmp_path, durability="os") as store:
        store.session("s3").redact(1)
    done = hansard("compact", "--all", store=tmp_path)
    assert done.out.startswith("1 session rewritten: ")
    assert done.out.endswith(", 1 event emptied\n")
