"""HOW A FOREIGN FILE GETS IN: one file per foreign format.

    import hansard
    from hansard import importers

    report = importers.bring(hansard.open("data"), "claude-code", "~/.claude/projects")

`source` says what an importer hands over, and reads files with care; `bringing` goes through them, and
`landing` lets each be a session: staged, whole, once. The command is `hansard import KIND PATH`;
docs/guides/importing.md says what becomes of each format.
"""

from typing import Final

from hansard.errors import NothingToImport
from hansard.importers.bringing import bring
from hansard.importers.report import Brought, Report
from hansard.importers.source import Skipped

#: The kinds, the module of each, and what it is in a few words.
KINDS: Final[dict[str, tuple[str, str]]] = {
    "a3s-code": ("a3s_code", "a3s-code sessions (SessionData JSON)"),
    "claude-code": ("claude_code", "Claude Code transcripts"),
    "codex": ("codex", "Codex rollouts, also .zst"),
    "langgraph": ("langgraph", "LangGraph checkpoints in SQLite"),
    "openai-agents": ("openai_agents", "OpenAI Agents sessions in SQLite"),
    "openclaw": ("openclaw", "OpenClaw sessions.json or sessions.d, with transcripts"),
    "praisonai": ("praisonai", "PraisonAI sessions, default and hierarchical"),
    "pydantic-ai": ("pydantic_ai", "Pydantic AI messages and step stores"),
    "workspace": ("workspace", "workspace session files, <hash>_<time>.json"),
}

__all__ = ["KINDS", "Brought", "NothingToImport", "Report", "Skipped", "bring"]
