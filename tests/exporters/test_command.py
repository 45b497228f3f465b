"""Claims about `hansard export --as KIND` and `import KIND`, through the real entry point."""

import sqlite3
from contextlib import closing
from pathlib import Path

import hansard as library
from tests.cli.running import hansard

_TABLES = """
CREATE TABLE agent_sessions (session_id TEXT PRIMARY KEY, created_at TIMESTAMP, updated_at TIMESTAMP);
CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id TEXT, message_data TEXT, created_at TEXT);
INSERT INTO agent_messages VALUES (1, 'a', '{"role": "user", "content": "hi"}', '2026-01-02 03:04:05');
INSERT INTO agent_messages VALUES (2, 'a', '{"role": "us', '2026-01-02 03:04:06');
"""


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


def test_a_damaged_row_is_named_and_the_exit_code_is_1(tmp_path: Path) -> None:
    """N-81: an unreadable row is named on stderr with its table; the rest is imported."""
    path = tmp_path / "agents.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(_TABLES)
    done = hansard("import", "openai-agents", path, store=tmp_path / "store")
    assert done.code == 1
    assert "agents.db:agent_messages:2" in done.err
    with library.open(tmp_path / "store", read_only=True) as store:
        assert [message["content"] for message in store.session("a").messages()] == ["hi"]
