"""The limits of the machine and of Python: the bare calls that every store makes."""

import fcntl
import os
from pathlib import Path

import msgspec

from tools.bench.workload import median_us, messages, seconds

_LINE = b"x" * 850 + b"\n"


def measure(directory: Path) -> dict[str, float]:
    """Return the limits, in microseconds, and in milliseconds for 10,000 messages."""
    said = messages(2_000)
    encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode
    lines = [encode(message) for message in said]
    path = directory / "file"
    data = b"\n".join(lines * 5)
    path.write_bytes(data)
    file = os.open(path, os.O_RDWR | os.O_APPEND)
    lock = os.open(directory / "lock", os.O_CREAT | os.O_RDWR)

    def locked(_: int) -> None:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.fstat(file)
        os.write(file, _LINE)
        fcntl.flock(lock, fcntl.LOCK_UN)

    def synced(_: int) -> None:
        os.write(file, _LINE)
        os.fdatasync(file)

    decode_lines = msgspec.json.Decoder().decode_lines
    try:
        return {
            "bare write, µs": median_us(lambda _: os.write(file, _LINE), 3_000),
            "flock + fstat + write + unlock, µs": median_us(locked, 3_000),
            "write + fdatasync, µs": median_us(synced, 200),
            "msgspec encode, µs": median_us(lambda i: encode(said[i % 2_000]), 4_000),
            "msgspec decode, µs": median_us(lambda i: decode(lines[i % 2_000]), 4_000),
            "msgspec decode_lines of 10,000, ms": min(
                seconds(lambda: decode_lines(data)) * 1000 for _ in range(5)
            ),
            "sequential read of 10,000, ms": min(seconds(path.read_bytes) * 1000 for _ in range(5)),
        }
    finally:
        os.close(file)
        os.close(lock)
