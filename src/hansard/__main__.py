"""`python -m hansard` is the command `hansard`."""

import sys

from hansard.cli.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
