"""Adapters for agent frameworks: one or two modules per framework, each an extra, over the public API alone.

    from hansard.adapters.openai_agents import HansardSession

    session = HansardSession("support/42", "data")

`import hansard` imports nothing of this package, and no adapter imports another. They share `opening` (a
store or the path of one), `projection` (what a session's events add up to) and `hansard.message.origin` (how
a framework's message is stored, so that the others and the search can read it).
"""
