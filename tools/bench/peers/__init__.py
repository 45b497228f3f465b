"""Other systems that store sessions: one small class for each, with its operations.

`KNOWN` lists them; a system is imported only when its class is requested.
"""

import importlib
from typing import Final, NamedTuple

from tools.bench.peers.peer import Peer


class Entry(NamedTuple):
    """A system that can be measured."""

    #: Its name in the report.
    title: str
    module: str
    class_name: str
    #: Its distribution; empty if it is part of Python or hansard.
    package: str = ""
    #: Whether it starts fast, so that it can be measured in turn with hansard, several times.
    light: bool = False


KNOWN: Final[dict[str, Entry]] = {
    "hansard_os": Entry('hansard "os"', "ours", "OsHansard", light=True),
    "hansard_sync": Entry('hansard "sync"', "ours", "SyncHansard", light=True),
    "sqlite_normal": Entry("sqlite3 by hand, NORMAL", "sqlite", "NormalSqlite", light=True),
    "sqlite_full": Entry("sqlite3 by hand, FULL", "sqlite", "FullSqlite", light=True),
    "lmdb_os": Entry("LMDB, no sync", "lmdb", "OsLmdb", "lmdb", light=True),
    "lmdb_sync": Entry("LMDB", "lmdb", "SyncLmdb", "lmdb", light=True),
    "openai": Entry("OpenAI Agents SQLiteSession", "openai_agents", "OpenAi", "openai-agents"),
    "langgraph": Entry(
        "LangGraph SqliteSaver", "langgraph", "LangGraph", "langgraph-checkpoint-sqlite"
    ),
    "adk": Entry("ADK SqliteSessionService", "adk", "Adk", "google-adk"),
    "strands": Entry("Strands FileSessionManager", "strands", "Strands", "strands-agents"),
    "pydantic_file": Entry(
        "Pydantic AI harness FileStepStore", "pydantic_ai", "FileSteps", "pydantic-ai-harness"
    ),
    "pydantic_sqlite": Entry(
        "Pydantic AI harness SqliteStepStore", "pydantic_ai", "SqliteSteps", "pydantic-ai-harness"
    ),
    "praisonai_file": Entry(
        "PraisonAI HierarchicalSessionStore", "praisonai", "FileStore", "praisonaiagents"
    ),
    "praisonai_sqlite": Entry(
        "PraisonAI SqliteTranscriptStore", "praisonai", "SqliteStore", "praisonaiagents"
    ),
    "eventsourcing": Entry(
        "eventsourcing SQLite recorder", "eventsourcing", "Recorder", "eventsourcing", light=True
    ),
}


def class_of(name: str) -> type[Peer]:
    """Import a system, and return its class."""
    entry = KNOWN[name]
    module = importlib.import_module(f"tools.bench.peers.{entry.module}")
    found: type[Peer] = getattr(module, entry.class_name)
    return found
