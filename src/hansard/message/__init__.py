"""Messages of any framework, as JSON: pure functions that read no store.

Read in this order: `parse` (a message's parts), `tool_calls` (pairs and repair), `window`, `search_text`.
"""
