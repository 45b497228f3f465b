"""FOR YOUR TESTS: what the store's own tests use, shipped for those who build on it.

- `faults`: make the disk fail on purpose, and see what your program does.
- `contract`: the promises of a backend as checks, for those who write one.
"""
