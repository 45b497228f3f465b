"""`hansard doctor`: how the store is, and what needs attention."""

from pathlib import Path

from tests.cli.running import hansard


def test_a_sound_store(store: Path) -> None:
    """A valid store exits with 0, and its contents are listed."""
    done = hansard("doctor", store=store)
    assert (done.code, done.err) == (0, "")
    assert f"store        {store}, format 1\n" in done.out
    assert "sessions     2, and 0 in the trash\n" in done.out
    assert "store from HANSARD_STORE" in done.out
    assert done.out.endswith("no problems\n")


def test_what_needs_attention(store: Path) -> None:
    """N-13, N-85: problems exit with 1, each with place, reason and advice; with --json, each with a code."""
    log = store / "sessions" / "agent+1" / "log.jsonl"
    log.chmod(0o644)
    (store / f".tmp-staged-4194305-{'0' * 16}").write_bytes(b"x" * 2048)
    done = hansard("doctor", store=store)
    assert (done.code, done.err) == (1, "")
    assert f"{'0' * 16}: left by a process that has died, 2,048 bytes in all" in done.out
    assert f"problem  {store}/.tmp-staged-4194305-{'0' * 16} (and 1 more): other users" in done.out
    assert "chmod -R go=" in done.out
    assert done.out.endswith("1 problem\n")
    document = hansard("doctor", "--json", store=store).json
    assert document["ok"] is False
    assert [diagnostic["code"] for diagnostic in document["diagnostics"]] == [
        "loose-mode",
        "leftover",
    ]
    assert log.stat().st_mode & 0o777 == 0o644
