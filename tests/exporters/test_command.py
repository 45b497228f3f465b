"""Claims about `hansard export --as KIND` and `import KIND`, through the real entry point."""

from pathlib import Path

import hansard as library
from tests.cli.running import hansard


def test_a_session_goes_out_for_another_program_and_comes_back(tmp_path: Path) -> None:
    """N-88: `import codex` reads what `export --as codex` writes; a second import changes nothing."""
    with library.open(tmp_path / "store") as store:
        session = store.session("support/42")
        session.add_message({"role": "user", "content": "Will it rain?"})
        session.add_message({"role": "assistant", "content": "No."})
    path = tmp_path / "out" / "rollout.jsonl"
    done = hansard("export", "support/42", "--as", "codex", "-o", path, store=tmp_path / "store")
    assert done.code == 0, done.err
    done = hansard("import", "codex", path, "--json", store=tmp_path / "other")
    assert done.code == 0, done.err
    with library.open(tmp_path / "other", read_only=True) as store:
        (only,) = store.sessions().items
        assert only.message_count == 2
    again = hansard("import", "codex", path, store=tmp_path / "other")
    assert again.code == 0, again.err
