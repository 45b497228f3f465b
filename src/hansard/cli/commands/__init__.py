"""One module for each command, named after it; each one's `command` is what `app` loads."""
