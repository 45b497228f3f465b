"""The command line: inspect, edit, maintain and transfer a store without writing Python.

`__main__` → `app` (finds the command) → `command` (common options) → `commands/<name>` → `screen` (output).
"""

#: The answer to `hansard --version`. A test compares it with pyproject.toml.
VERSION = "0.1.0"
