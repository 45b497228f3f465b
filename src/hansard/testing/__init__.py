"""FOR YOUR TESTS: what the store's own tests use, shipped for those who build on it.

- `faults`: make the disk fail on purpose, and see what your program does.
- `crashes`: rebuild every state that a power cut may leave of a run, and open it.
- `histories`: let many processes use a store at once, kill some, and check all that they were told.
- `contract`: the promises of a backend as checks, for those who write one.
"""
