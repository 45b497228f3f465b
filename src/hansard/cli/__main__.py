"""The entry point: `hansard …`, `python -m hansard …`, `python -m hansard.cli …`."""

import gc
import sys

from hansard.cli import VERSION


def main() -> int:
    """Run the command and return the exit code."""
    arguments = sys.argv[1:]
    if arguments in (["--version"], ["-V"]):
        # Before anything else is imported: scripts call this often.
        print(f"hansard {VERSION}")  # noqa: T201 - without the screen
        return 0
    # Imports create many objects and no garbage: collect less often.
    gc.set_threshold(10_000)
    try:
        from hansard.cli.app import run
    except KeyboardInterrupt:
        return 130  # nothing was started
    code = run(arguments)
    # Python's last collections would visit every module again: a tenth of a short command.
    gc.freeze()
    return code


if __name__ == "__main__":
    sys.exit(main())
