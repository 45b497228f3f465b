"""The entry point: `hansard …`, `python -m hansard …`, `python -m hansard.cli …`."""

import sys

from hansard.cli import VERSION


def main() -> int:
    """Do what the words of the call say; return the exit code."""
    words = sys.argv[1:]
    if words in (["--version"], ["-V"]):
        # Answered before anything else is imported: this is what scripts ask, over and over.
        print(f"hansard {VERSION}")  # noqa: T201 - the screen is not there yet
        return 0
    try:
        from hansard.cli.app import run
    except KeyboardInterrupt:
        return 130  # nothing was begun
    return run(words)


if __name__ == "__main__":
    sys.exit(main())
