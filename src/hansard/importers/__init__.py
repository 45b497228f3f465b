"""Import sessions that other programs wrote; one module per foreign format.

    import hansard
    from hansard import importers

    report = importers.import_sessions(hansard.open("data"), "claude-code", "~/.claude/projects")

The command is `hansard import KIND PATH`; docs/guides/move.md describes each format.
"""

from hansard.errors import NothingToImport
from hansard.importers.run import KINDS, Report, import_sessions
from hansard.importers.session_writer import ImportedSession
from hansard.importers.source import Skipped

__all__ = ["KINDS", "ImportedSession", "NothingToImport", "Report", "Skipped", "import_sessions"]
