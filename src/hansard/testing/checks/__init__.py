"""The checks of the backend contract, one file for each side of it.

Read `base` first (what a check is, and what it may use); `contract` beside this folder runs them.
"""
