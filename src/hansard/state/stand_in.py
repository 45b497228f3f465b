"""Say that a call has no result, in the shape in which its framework expects one.

Above: `repair`.  Below: `pairing` (the shapes).
Where a shape has room for text, it says so in words. Where it has only codes, the one that claims least
is taken; a screenshot says it as a picture. Nothing here depends on the time or on chance: the same call
gets the same stand-in, so that a prompt stays the same from turn to turn.
"""

from typing import Any

from hansard.state.pairing import Shape

Json = dict[str, Any]

#: What a call is answered with if the log has no result for it.
NO_RESULT = "No result was recorded for this call."

#: The same sentence as a picture, 238 by 23 pixels, for calls that are answered with a screenshot.
NO_RESULT_IMAGE = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAO4AAAAXCAAAAAApGCwvAAABI0lEQVR42u1XXW/EMAizp/3/v+w95MPQprmcNm0PI1KqKuUAG8y1"
    "FP7T+kDBLbgFt+AW3IL7h+vz/Z8QgADi23/ZhH083Sdz+dEufMuw57muLgmSJ0nqx95MtL7nJoROsmjPVhahuhQViSVEtN0IA6BJ"
    "Kk0wIYrRUmsP4+pzhPNQm1nH6TVEpCsXCxijnGp3uEJvh7EJKLMl0ycz0S2XHnz1RjjPnrNVjKhZ/hgr+j+CKy5axxTuOp2jFjdL"
    "xdbQ5dxK23b8rrNTLL0AezSZJT1IZcRKw0O6IeiN8UCY3hgGvIuUMZ1X85OpGS7atT6IOexCo9q0y/4yUJLCknatV3mMWqOwdqMW"
    "m+D7mLgOL2JZWyUGWB+ABbfgFtyCW3AL7q+tL1N0pBUIcQEUAAAAAElFTkSuQmCC"
)

#: What an item holds besides its type and its call's id, where that is not a text in `output`.
_ITEM_OUTPUTS: dict[str, Json] = {
    "computer_call": {"output": {"type": "computer_screenshot", "image_url": NO_RESULT_IMAGE}},
    "shell_call": {
        # An outcome is an exit code or a timeout, and no exit was seen.
        "output": [{"stdout": "", "stderr": NO_RESULT, "outcome": {"type": "timeout"}}],
        "status": "incomplete",
    },
    "apply_patch_call": {"output": NO_RESULT, "status": "failed"},
    "tool_search_call": {"tools": [], "execution": "client", "status": "incomplete"},
}

#: Anthropic's own tools whose results are not named after them.
_SERVER_TOOLS = {"tool_search_tool_regex": "tool_search", "tool_search_tool_bm25": "tool_search"}
#: Of their errors, those that may carry a text.
_WITH_MESSAGE = {"text_editor_code_execution", "tool_search"}
#: Of their results, those that name the program which called.
_WITH_CALLER = {"web_search", "web_fetch"}
#: Their names in Pydantic AI, which sends back what stands in `content`.
_ANTHROPIC_PARTS = {
    "web_search",
    "web_fetch",
    "code_execution",
    "bash_code_execution",
    "text_editor_code_execution",
    "advisor",
}


def stand_in(call: Json, shape: Shape) -> Json:
    """Return the result of a call that has none: a message, an item, a block or a part.

    Args:
        call: what calls: an entry of `tool_calls`, an item, a block or a part.
        shape: which of them.
    """
    return _MAKERS[shape](call)


def _chat(call: Json) -> Json:
    return {"role": "tool", "tool_call_id": call["id"], "content": NO_RESULT}


def _item(call: Json) -> Json:
    kind = call["type"]
    output = "tool_search_output" if kind == "tool_search_call" else f"{kind}_output"
    made: Json = {"type": output, "call_id": call["call_id"]}
    # A program that called the tool is given the result, not the model.
    if call.get("caller") is not None:
        made["caller"] = call["caller"]
    made.update(_copied(_ITEM_OUTPUTS.get(kind, {"output": NO_RESULT})))
    return made


def _block(call: Json) -> Json:
    made = {
        "type": "tool_result",
        "tool_use_id": call["id"],
        "content": NO_RESULT,
        "is_error": True,
    }
    if call.get("toolset_name") is not None:
        made["toolset_name"] = call["toolset_name"]
    return made


def _server_block(call: Json) -> Json:
    if call["type"] == "mcp_tool_use":
        return _block(call) | {"type": "mcp_tool_result"}
    tool = _server_tool(call.get("name"))
    made = {
        "type": f"{tool}_tool_result",
        "tool_use_id": call["id"],
        "content": _server_error(tool),
    }
    if call.get("caller") is not None and tool in _WITH_CALLER:
        made["caller"] = call["caller"]
    return made


def _part(call: Json) -> Json:
    return {
        "part_kind": "tool-return",
        "tool_name": call.get("tool_name", ""),
        "tool_call_id": call["tool_call_id"],
        "content": NO_RESULT,
        "outcome": "failed",
    }


def _server_part(call: Json) -> Json:
    made = _part(call) | {"part_kind": "builtin-tool-return"}
    provider = call.get("provider_name")
    if provider is not None:
        made["provider_name"] = provider
    if provider == "anthropic" and made["tool_name"] in _ANTHROPIC_PARTS:
        made["content"] = _server_error(made["tool_name"])
    return made


def _server_tool(name: object) -> str:
    return _SERVER_TOOLS.get(name, name) if isinstance(name, str) else "server"


def _server_error(tool: str) -> Json:
    error = {"type": f"{tool}_tool_result_error", "error_code": "unavailable"}
    return error | {"error_message": NO_RESULT} if tool in _WITH_MESSAGE else error


def _copied(value: Any) -> Any:
    """Return a copy of a table's value: what a caller changes must not change the table."""
    if isinstance(value, dict):
        return {name: _copied(member) for name, member in value.items()}
    return [_copied(member) for member in value] if isinstance(value, list) else value


_MAKERS = {
    Shape.CHAT: _chat,
    Shape.ITEM: _item,
    Shape.BLOCK: _block,
    Shape.SERVER_BLOCK: _server_block,
    Shape.PART: _part,
    Shape.SERVER_PART: _server_part,
}
