"""A substitute for the Claude Code command: it speaks the SDK's protocol, and answers by a script.

The SDK starts it instead of the real command, which needs an account and a network. Like the real one, it
keeps transcripts in files under CLAUDE_CONFIG_DIR, resumes from them, and mirrors each line to the SDK. For
speed it imports nothing of the SDK: the environment names the project.
"""

import json
import os
import sys
import uuid
from pathlib import Path
from typing import Any


class Transcript:
    """A transcript's file, and its mirror."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.parent.mkdir(parents=True, exist_ok=True)
        known = path.read_text("utf-8").splitlines() if path.exists() else []
        self.entries: list[dict[str, Any]] = [json.loads(line) for line in known]

    def add(self, *entries: dict[str, Any]) -> None:
        """Write entries, each with a uuid and its parent's, and mirror them."""
        for entry in entries:
            if entry["type"] in {"user", "assistant"}:
                said = [one for one in self.entries if "uuid" in one]
                parent = said[-1]["uuid"] if said else None
                entry.update(uuid=str(uuid.uuid4()), parentUuid=parent, sessionId=self.path.stem)
            self.entries.append(entry)
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in entries)
        tell({"type": "transcript_mirror", "filePath": str(self.path), "entries": list(entries)})


def tell(message: dict[str, Any]) -> None:
    """Send a message to the SDK."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def said(role: str, content: object) -> dict[str, Any]:
    """Return an entry with a message."""
    when = "2026-01-31T12:00:00.000Z"
    return {"type": role, "timestamp": when, "message": {"role": role, "content": content}}


def answer(transcript: Transcript, prompt: str) -> None:
    """Answer a prompt with the number of known messages; call a tool first if it names the weather."""
    known = sum(entry["type"] in {"user", "assistant"} for entry in transcript.entries)
    transcript.add(said("user", prompt), {"type": "last-prompt", "lastPrompt": prompt})
    if "weather" in prompt:
        call = {"type": "tool_use", "id": f"t{known}", "name": "look", "input": {"where": "here"}}
        transcript.add(said("assistant", [call]))
        inner = Transcript(transcript.path.with_suffix("") / "subagents" / "agent-7.jsonl")
        inner.add(said("user", "look at it"), said("assistant", [{"type": "text", "text": "18"}]))
        result = {"type": "tool_result", "tool_use_id": f"t{known}", "content": "18 °C"}
        transcript.add(said("user", [result]))
    text = f"{known} known"
    transcript.add(said("assistant", [{"type": "text", "text": text}]))
    name = transcript.path.stem
    message = {"role": "assistant", "model": "m", "content": [{"type": "text", "text": text}]}
    tell({"type": "assistant", "message": message, "session_id": name, "parent_tool_use_id": None})
    done = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1}
    tell({**done, "duration_ms": 1, "duration_api_ms": 1, "session_id": name, "result": text})


def main() -> None:
    """Answer the SDK until it closes the pipe."""
    arguments = sys.argv[1:]
    resumed = [arguments[at + 1] for at, word in enumerate(arguments) if word == "--resume"]
    name = resumed[0] if resumed else os.environ["STAND_IN_SESSION"]
    projects = Path(os.environ["CLAUDE_CONFIG_DIR"]) / "projects" / os.environ["STAND_IN_PROJECT"]
    transcript = Transcript(projects / f"{name}.jsonl")
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] == "control_request":
            response = {"subtype": "success", "request_id": message["request_id"], "response": {}}
            tell({"type": "control_response", "response": response})
        elif message["type"] == "user":
            answer(transcript, message["message"]["content"])


if __name__ == "__main__":
    main()
