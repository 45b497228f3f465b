"""Conversations as each framework writes them, and the rules that its provider checks."""

import itertools
from collections.abc import Iterator
from typing import Any

Message = dict[str, Any]
Talk = list[Message]


class Chat:
    """OpenAI chat messages."""

    @staticmethod
    def turn(text: str, ids: list[str], _hosted: list[str]) -> Iterator[Message]:
        """Yield the messages of the user, the model and the tools."""
        yield {"role": "user", "content": text}
        if ids:
            calls = [{"id": i, "type": "function", "function": {"name": "f"}} for i in ids]
            yield {"role": "assistant", "content": None, "tool_calls": calls}
        for call_id in ids:
            yield {"role": "tool", "tool_call_id": call_id, "content": "4"}
        yield {"role": "assistant", "content": text}

    @staticmethod
    def broken(talk: Talk) -> list[str]:
        """Each run of `tool` messages answers the message directly before it, call for call."""
        faults = []
        expected: set[str] = set()
        for message in [*talk, {"role": "user"}]:
            if message["role"] == "tool":
                if message["tool_call_id"] not in expected:
                    faults.append(f"unexpected: {message}")
                expected.discard(message["tool_call_id"])
                continue
            if expected:
                faults.append(f"unanswered before {message}: {expected}")
            expected = {call["id"] for call in message.get("tool_calls", [])}
        return faults


class Responses:
    """OpenAI Responses items."""

    @staticmethod
    def turn(text: str, ids: list[str], hosted: list[str]) -> Iterator[Message]:
        """Yield the messages of the user, the model and the tools."""
        yield {"role": "user", "content": text}
        for call_id in hosted:
            yield {"type": "web_search_call", "id": call_id, "status": "completed"}
        if ids:
            yield {"type": "reasoning", "id": "rs", "summary": []}
        kinds = [
            "function_call", "custom_tool_call", "computer_call", "shell_call", "local_shell_call",
        ]  # fmt: skip
        for kind, call_id in zip(itertools.cycle(kinds), ids, strict=False):
            yield {"type": kind, "id": "fc", "call_id": call_id, "name": "f"}
        for kind, call_id in zip(itertools.cycle(kinds), ids, strict=False):
            yield {"type": f"{kind}_output", "call_id": call_id, "output": "4"}
        yield {"role": "assistant", "type": "message", "content": text}

    @staticmethod
    def broken(talk: Talk) -> list[str]:
        """Calls follow their reasoning, and their outputs follow the calls."""
        faults = []
        expected: set[str] = set()
        before = "message"
        for item in [*talk, {"type": "message"}]:
            kind = item.get("type", "message")
            if kind.endswith("_call") and "call_id" in item:
                if before == "output" and expected:
                    faults.append(f"a call before the outputs of {expected}")
                expected.add(item["call_id"])
                before = "call"
            elif kind.endswith("_output"):
                if item["call_id"] not in expected:
                    faults.append(f"unexpected: {item}")
                expected.discard(item["call_id"])
                before = "output"
            else:
                if expected:
                    faults.append(f"no output before {item}: {expected}")
                expected, before = set(), kind
        return faults


class Anthropic:
    """Anthropic content blocks."""

    @staticmethod
    def turn(text: str, ids: list[str], hosted: list[str]) -> Iterator[Message]:
        """Yield the messages of the user, the model and the tools."""
        yield {"role": "user", "content": text}
        blocks: list[Message] = [{"type": "thinking", "thinking": text, "signature": "s"}]
        blocks.append({"type": "text", "text": text})
        for call_id in hosted:
            blocks.append({"type": "server_tool_use", "id": call_id, "name": "web_search"})
            blocks.append({"type": "web_search_tool_result", "tool_use_id": call_id, "content": []})
        blocks += [{"type": "tool_use", "id": i, "name": "f", "input": {}} for i in ids]
        yield {"role": "assistant", "content": blocks}
        if ids:
            found = [{"type": "tool_result", "tool_use_id": i, "content": "4"} for i in ids]
            yield {"role": "user", "content": [*found, {"type": "text", "text": text}]}
            yield {"role": "assistant", "content": text}

    @staticmethod
    def broken(talk: Talk, *, server: bool = True) -> list[str]:
        """The message after a `tool_use` is the user's and begins with the results, each once."""
        faults = []
        expected: list[str] = []
        for message in [*talk, {"role": "user", "content": "end"}]:
            content = message["content"]
            blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
            kinds = [block["type"] for block in blocks]
            found = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
            if sorted(found) != sorted(set(expected)):
                faults.append(f"expected {expected}, found {found}")
            if found and (message["role"] != "user" or "tool_result" in kinds[len(found) :]):
                faults.append(f"results that do not begin a message of the user's: {message}")
            if not blocks:
                faults.append("an empty message")
            expected = [block["id"] for block in blocks if block["type"] == "tool_use"]
            used = [block["id"] for block in blocks if block["type"] == "server_tool_use"]
            done = [b["tool_use_id"] for b in blocks if b["type"] == "web_search_tool_result"]
            if server and used != done:
                faults.append(f"a server's tool without its result: {message}")
        return faults


class Pydantic:
    """Pydantic AI parts."""

    @staticmethod
    def turn(text: str, ids: list[str], hosted: list[str]) -> Iterator[Message]:
        """Yield the messages of the user, the model and the tools."""
        yield {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": text}]}
        parts: list[Message] = [{"part_kind": "text", "content": text}]
        for call_id in hosted:
            one = {"tool_name": "web_search", "tool_call_id": call_id}
            parts.append({"part_kind": "builtin-tool-call", **one})
            parts.append({"part_kind": "builtin-tool-return", "content": [], **one})
        parts += [{"part_kind": "tool-call", "tool_name": "f", "tool_call_id": i} for i in ids]
        yield {"kind": "response", "parts": parts}
        if ids:
            kinds = itertools.cycle(["tool-return", "retry-prompt"])
            found: list[Message] = [
                {"part_kind": kind, "tool_name": "f", "tool_call_id": call_id, "content": "4"}
                for kind, call_id in zip(kinds, ids, strict=False)
            ]
            found.insert(1, {"part_kind": "user-prompt", "content": text})
            yield {"kind": "request", "parts": found}
            yield {"kind": "response", "parts": [{"part_kind": "text", "content": text}]}

    @staticmethod
    def broken(talk: Talk, *, server: bool = True) -> list[str]:
        """The message after a `tool-call` is a request with the results, each once."""
        faults = []
        expected: list[str] = []
        for message in [*talk, {"kind": "request", "parts": [{"part_kind": "user-prompt"}]}]:
            by_kind: dict[str, list[str]] = {}
            for part in message["parts"]:
                by_kind.setdefault(part["part_kind"], []).append(part.get("tool_call_id", ""))
            found = by_kind.get("tool-return", []) + by_kind.get("retry-prompt", [])
            if sorted(found) != sorted(set(expected)) or (found and message["kind"] != "request"):
                faults.append(f"expected {expected}, found {message}")
            if not message["parts"]:
                faults.append("an empty message")
            expected = by_kind.get("tool-call", [])
            used, done = (by_kind.get(f"builtin-tool-{half}") for half in ("call", "return"))
            if server and used != done:
                faults.append(f"a server's tool without its result: {message}")
        return faults


class Bedrock:
    """Blocks of Bedrock's Converse."""

    @staticmethod
    def turn(text: str, ids: list[str], _hosted: list[str]) -> Iterator[Message]:
        """Yield the messages of the user, the model and the tools."""
        yield {"role": "user", "content": [{"text": text}]}
        calls = [{"toolUse": {"toolUseId": i, "name": "f", "input": {}}} for i in ids]
        yield {"role": "assistant", "content": [{"text": text}, *calls]}
        if ids:
            found = [{"toolResult": {"toolUseId": i, "content": [{"text": "4"}]}} for i in ids]
            yield {"role": "user", "content": [*found, {"text": text}]}
            yield {"role": "assistant", "content": [{"text": text}]}

    @staticmethod
    def broken(talk: Talk, **_: bool) -> list[str]:
        """The message after a `toolUse` is the user's and has the results, each once."""
        faults = []
        expected: list[str] = []
        for message in [*talk, {"role": "user", "content": [{"text": "end"}]}]:
            blocks = message["content"]
            found = [b["toolResult"]["toolUseId"] for b in blocks if "toolResult" in b]
            if sorted(found) != sorted(set(expected)) or (found and message["role"] != "user"):
                faults.append(f"expected {expected}, found {message}")
            if not blocks:
                faults.append("an empty message")
            expected = [b["toolUse"]["toolUseId"] for b in blocks if "toolUse" in b]
        return faults


class Google:
    """Google's contents. Calls have names and no ids."""

    @staticmethod
    def turn(text: str, ids: list[str], _hosted: list[str]) -> Iterator[Message]:
        """Yield the turns of the user and the model; a name is used again, as in parallel calls."""
        yield {"role": "user", "parts": [{"text": text}]}
        names = [f"f{number // 2}" for number, _ in enumerate(ids)]
        yield {
            "role": "model",
            "parts": [{"text": text}, *({"functionCall": {"name": name}} for name in names)],
        }
        if names:
            found = [{"functionResponse": {"name": n, "response": {"result": 4}}} for n in names]
            yield {"role": "user", "parts": found}
            yield {"role": "model", "parts": [{"text": text}]}

    @staticmethod
    def broken(talk: Talk, **_: bool) -> list[str]:
        """The turn after calls has as many responses, with the same names, and nothing else."""
        faults = []
        expected: list[str] = []
        for message in [*talk, {"role": "user", "parts": [{"text": "end"}]}]:
            parts = message["parts"]
            found = [p["functionResponse"]["name"] for p in parts if "functionResponse" in p]
            if sorted(found) != sorted(expected) or (found and len(found) < len(parts)):
                faults.append(f"expected {expected}, found {message}")
            if not parts:
                faults.append("an empty message")
            expected = [p["functionCall"]["name"] for p in parts if "functionCall" in p]
        return faults
