"""Claims about `hansard.aio`: the same names, awaited, and nothing that blocks the event loop."""
