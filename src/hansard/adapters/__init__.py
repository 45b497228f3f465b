"""Adapters for agent frameworks, each an extra, over the public API only.

    from hansard.adapters.openai_agents import HansardSession

    session = HansardSession("support/42", "data")

`import hansard` imports nothing of this package, and no adapter imports another. They share
three modules: `opening` (a store or the path of one), `session_projection` (folds a session's events), and
`hansard.message.origin`. The last one has the stored form of a framework's message, which the others and the
search can read.
"""
