"""Count what `event.secrets` finds in Python source, where nearly nothing is a credential.

    python tools/secret_finds.py            the standard library and the installed packages
    python tools/secret_finds.py DIR …      other directories
    python tools/secret_finds.py --list     also print every find that is not shaped like a key

A find counts as false unless it is shaped like a key: documents are full of examples of keys, and a program
cannot tell an example from the real one. The goal is at most 10 false finds in 10 MB.
"""

import argparse
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from hansard.event import secrets

MEGABYTE = 1_000_000


def main(arguments: list[str]) -> int:
    """Print a line for each directory; return 1 if one has too many false finds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", nargs="*", type=Path)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args(arguments)
    paths = sysconfig.get_paths()
    places = options.directory or [Path(paths["stdlib"]), Path(paths["purelib"])]
    failed = False
    for place in places:
        size = total = 0
        false = []
        for path, text in sources(place):
            size += len(text.encode(errors="replace"))
            for found in secrets.find(text):
                total += 1
                value = text[found.start : found.end]
                if not secrets.is_random(value):
                    line = text.count("\n", 0, found.start) + 1
                    false.append(f"{path.relative_to(place)}:{line}: {found.what}: {value!r:.80}")
        rate = len(false) / max(size, 1) * 10 * MEGABYTE
        failed |= rate > 10  # noqa: PLR2004 - the goal
        print(
            f"{place}: {size / MEGABYTE:.1f} MB, {total} finds, {len(false)} not shaped like a key: "
            f"{rate:.1f} in 10 MB"
        )
        if options.list:
            print("".join(f"  {one}\n" for one in false), end="")
    return int(failed)


def sources(place: Path) -> Iterator[tuple[Path, str]]:
    """Yield source files; of the standard library without its tests and what others installed."""
    for path in sorted(place.rglob("*.py")):
        inside = path.relative_to(place).parts
        if not {"test", "tests", "idle_test", "site-packages"}.intersection(inside):
            yield path, path.read_text(errors="replace")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
