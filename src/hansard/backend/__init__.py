"""WHERE IT LIVES: the contract that every backend keeps, and the backends.

Read `contract` first; then `local` (files) and `memory`.
"""
