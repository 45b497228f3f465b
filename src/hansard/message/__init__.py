"""WHAT WAS SAID: messages of any framework, as JSON, and nothing of a store.

Read in this order: `parse` (a message's parts), `tool_calls` (pairs and repair), `window`, `search_text`.
"""
