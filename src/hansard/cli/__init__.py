"""THE COMMAND: look into a store, change it, mend it, move it, without writing Python.

`__main__` → `app` (which command) → `command` (its words) → `commands/<name>` → `screen` (what is shown).
"""

#: What `hansard --version` says, known without looking anything up. A test compares it with pyproject.toml.
VERSION = "0.1.0"
