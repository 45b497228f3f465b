"""What every adapter does: one row of a table each."""

import subprocess
import sys

import pytest

from tools.crash.rows import erasure

#: What is imported from where, what of it is not installed, and what the error names.
MISSING = {
    "adk.HansardSessionService": ("google.adk", "google-adk", "google-adk"),
    "claude_agent.HansardSessionStore": ("claude_agent_sdk", "claude-agent-sdk", "claude-agent"),
    "langchain.HansardChatMessageHistory": ("langchain_core", "langchain-core 1", "langchain"),
    "langgraph.HansardSaver": ("langgraph", "langgraph", "langgraph"),
    "openai_agents.HansardSession": ("agents", "openai-agents", "openai-agents"),
    "pydantic_ai.SessionPersistence": ("pydantic_ai", "pydantic-ai-slim", "pydantic-ai"),
    "pydantic_ai.HansardStepStore": (
        "pydantic_ai_harness",
        "pydantic-ai-harness for its step store",
        "pydantic-ai",
    ),
    "strands.HansardRepository": ("strands", "strands-agents", "strands"),
}


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_framework_is_named(name: str) -> None:
    """The adapter of a framework that is not installed names the extra to install."""
    module, _, imported = name.partition(".")
    gone, package, extra = MISSING[name]
    code = f"import sys; sys.modules[{gone!r}] = None; from hansard.adapters.{module} import {imported}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    wanted = f"hansard.adapters.{module} needs {package}: pip install 'hansard[{extra}]'"
    assert f"ImportError: {wanted}" in done.stderr


def test_the_capability_does_without_the_harness() -> None:
    """Pydantic AI's capability needs only the framework; its step store needs the harness."""
    code = (
        "import sys; sys.modules['pydantic_ai_harness'] = None; import hansard.adapters.pydantic_ai"
    )
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)


@pytest.mark.parametrize("adapter", erasure.ADAPTERS)
def test_nothing_is_left_of_what_was_forgotten(adapter: str) -> None:
    """N-45, N-66: after redact or scrub, and compaction, no byte of a text is left, in a fork neither."""
    ways = ["scrub"] if adapter == "LangGraph" else ["redact", "scrub"]
    for way in ways:
        outcome = erasure.Case("files", way, adapter, "inherited by a fork", 1).run()
        assert (outcome.ok, outcome.detail, outcome.skipped) == (True, "", "")
