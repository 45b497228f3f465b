"""HOW A FRAMEWORK REACHES IT: one file per framework, each an extra, over the public API alone.

    from hansard.adapters.openai_agents import HansardSession

    session = HansardSession("support/42", "data")

Nothing here is imported by `import hansard`, and no adapter imports another. What they share: `opening` (a
store, or the path of one), `projection` (what a session's events add up to) and `common` (how a framework's
own message is stored, so that every other one, and the search, can read it). docs/guides/frameworks.md says
what to change in a program that has a store already.
"""
