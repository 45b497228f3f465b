"""The command: inspect, edit, maintain and transfer a store without writing Python.

`__main__` → `app` (which command) → `command` (its words) → `commands/<name>` → `screen` (what is shown).
"""

#: What `hansard --version` says, known without looking anything up. A test compares it with pyproject.toml.
VERSION = "0.1.0"
