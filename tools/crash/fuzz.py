"""Give altered data to every reader.

An input is data that hansard wrote, altered: flipped bits, pieces cut out, duplicated, moved or
exchanged, huge numbers; half of the time its checksum is corrected. The result must be a right answer or
an error of hansard, soon: never a wrong answer, another exception, or an endless loop.

    python -m tools.crash.fuzz sealed --seconds 60
    python -m tools.crash.fuzz sealed --atheris --seconds 60     guided by coverage
"""

import argparse
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

from tools.crash.fuzz_targets import BY_NAME, Bench, Target
from tools.crash.struck import Hung, Wrong, patience

_NUMBERS = (b"0", b"-1", b"18446744073709551616", b"9223372036854775807", b"1e999", b"4294967296")
_PIECES = (
    b"\n",
    b"\0",
    b"{}",
    b"[]",
    b"null",
    b'"',
    b"}",
    b"\xff\xff\xff\xff",
    b"\\ud800",
    b"~torn\n",
    b"[" * 200,
)


def mutate(data: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    """Return a slightly altered input."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        begin = rng.randrange(len(found) + 1)
        end = min(len(found), begin + rng.choice((1, 2, 4, 8, 30, 200)))
        piece = bytes(found[begin:end])
        match rng.randrange(9):
            case 0 if piece:
                found[begin] ^= 1 << rng.randrange(8)
            case 1 if piece:
                found[begin] = rng.randrange(256)
            case 2:
                del found[begin:end]
            case 3:
                found[begin:begin] = piece * rng.choice((1, 2, 50))
            case 4:
                at = rng.randrange(len(found) + 1)
                found[at : at + len(piece)] = piece
            case 5:
                found[begin:begin] = rng.choice(_PIECES)
            case 6:
                _replace_number(found, rng)
            case 7:
                other = rng.choice(others)
                at = rng.randrange(len(other) + 1)
                found[begin:end] = other[at : at + rng.choice((1, 8, 60, 400))]
            case _:
                del found[begin:]
    return bytes(found)


def _replace_number(found: bytearray, rng: random.Random) -> None:
    """Replace a number by another."""
    digits = [at for at, byte in enumerate(found) if 0x30 <= byte <= 0x39]  # noqa: PLR2004 - 0 to 9
    if digits:
        begin = end = rng.choice(digits)
        while end < len(found) and 0x30 <= found[end] <= 0x39:  # noqa: PLR2004 - 0 to 9
            end += 1
        found[begin:end] = rng.choice(_NUMBERS)


def try_one(bench: Bench, target: Target, data: bytes, *, sealed: bool = False) -> None:
    """Give one input; raise `Wrong` unless the result is right."""
    if sealed and target.reseal is not None:
        try:
            data = target.reseal(data)
        except (ValueError, IndexError, KeyError, TypeError, RecursionError):
            sealed = False  # altered so much that no checksum can be corrected
    try:
        with patience():
            target.feed(bench, data, sealed)
    except Wrong as wrong:
        raise Wrong(f"{target.name}: {wrong}: {data!r}") from wrong
    except Hung:
        raise Wrong(f"{target.name}: hung: {data!r}") from None
    except Exception as error:
        raise Wrong(f"{target.name}: {type(error).__name__}: {error}: {data!r}") from error


def fuzz(bench: Bench, target: Target, inputs: int, rng: random.Random) -> None:
    """Give several inputs, then unaltered data, which must be read correctly."""
    seeds = target.seeds(bench)
    try:
        for _ in range(inputs):
            data = mutate(rng.choice(seeds), seeds, rng)
            try_one(bench, target, data, sealed=rng.random() < 0.5)  # noqa: PLR2004 - half of them
        for data in seeds:
            try_one(bench, target, data)
    finally:
        bench.rest()


def _own_functions() -> Iterator[FunctionType]:
    """Yield the functions of hansard: to instrument all loaded modules would take minutes."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "hansard":
            continue
        spaces: list[Mapping[str, Any]] = [vars(module)]
        spaces += [vars(one) for one in spaces[0].values() if isinstance(one, type)]
        for space in spaces:
            for one in list(space.values()):
                if isinstance(one, FunctionType) and one.__module__ == name:
                    yield one


def _with_atheris(bench: Bench, target: Target, seconds: int) -> None:
    """Let atheris choose the inputs. It does not return."""
    import atheris  # type: ignore[import-untyped,import-not-found,unused-ignore]

    directory = Path(bench.directory, "atheris")
    directory.mkdir()
    for number, data in enumerate(target.seeds(bench)):
        Path(directory, str(number)).write_bytes(data)
    for function in _own_functions():
        atheris.instrument_func(function)
    atheris.Setup(
        [
            sys.argv[0],
            f"-max_total_time={seconds}",
            "-rss_limit_mb=4096",
            "-timeout=30",
            str(directory),
        ],
        lambda data: try_one(bench, target, data),
    )
    atheris.Fuzz()


def main() -> None:
    """Fuzz one target, or all, for a number of seconds."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target", nargs="?", default="all", choices=["all", *BY_NAME])
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--atheris", action="store_true", help="one target only")
    asked = parser.parse_args()
    targets = list(BY_NAME.values()) if asked.target == "all" else [BY_NAME[asked.target]]
    bench = Bench()
    try:
        if asked.atheris:
            _with_atheris(bench, targets[0], asked.seconds)
        for target in targets:
            rng = random.Random(f"{asked.seed} {target.name}")
            end = time.monotonic() + asked.seconds / len(targets)
            count = wrong = 0
            while time.monotonic() < end:
                try:
                    fuzz(bench, target, target.inputs, rng)
                except Wrong as found:
                    wrong += 1
                    print(found, file=sys.stderr)
                count += target.inputs
            print(f"{target.name}: {count} inputs, {wrong} wrong")
    finally:
        bench.close()


if __name__ == "__main__":
    main()
