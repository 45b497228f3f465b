"""Write a log by hand, from docs/format.md alone: nothing here knows the code that reads it.

A second, independent reading of the format. What it writes, the store must read; what the store
writes, `lines` must be able to check.
"""

import json
import re
import zlib
from typing import Any

TIME = "2026-01-01T12:00:00.000000Z"

_TRAILER = re.compile(rb'^(.*),"crc":"([0-9a-f]{8})"\}\n$', re.DOTALL)


class HandwrittenLog:
    """The bytes of a segment, as they grow."""

    def __init__(self, session: str = "s", **header: Any) -> None:
        self.data = b""
        self.seq = 0
        self.note("header", {"version": 1, "session": session, **header})

    def line(self, body: str) -> "HandwrittenLog":
        """Add a line: its text up to the trailer (F-20)."""
        check = zlib.crc32(self.data + body.encode())
        self.data += body.encode() + b',"crc":"%08x"}\n' % check
        return self

    def record(
        self, data: dict[str, Any], kind: str = "x.test", *, extra: str = "", seq: int | None = None
    ) -> "HandwrittenLog":
        """Add a record; `extra` is between `kind` and `data`."""
        self.seq = self.seq + 1 if seq is None else seq
        head = f'{{"seq":{self.seq},"time":"{TIME}","kind":"{kind}"'
        return self.line(f'{head}{extra},"data":{_json(data)}')

    def message(self, message: dict[str, Any], extra: str = "") -> "HandwrittenLog":
        """Add a message."""
        return self.record({"message": message}, "message.added", extra=extra)

    def note(self, word: str, data: dict[str, Any], extra: str = "") -> "HandwrittenLog":
        """Add a note."""
        head = f'{{"log":"{word}","seq":{self.seq},"time":"{TIME}"'
        return self.line(f'{head}{extra},"data":{_json(data)}')

    def torn(self, fragment: bytes) -> "HandwrittenLog":
        """Add what a crash left, and its recovery (F-29)."""
        offset = len(self.data)
        self.data += fragment + b"~torn\n"
        return self.note("recovered", {"offset": offset, "bytes": len(self.data) - offset})


def _json(data: dict[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def lines(data: bytes) -> list[dict[str, Any]]:
    """Decode a log as the format page specifies, and check each checksum; discarded fragments are None."""
    found: list[dict[str, Any]] = []
    done = 0
    for raw in data.splitlines(keepends=True):
        if not raw.endswith(b"~torn\n"):
            match = _TRAILER.match(raw)
            assert match is not None, raw
            assert b"%08x" % zlib.crc32(data[:done] + match[1]) == match[2], raw
            found.append(json.loads(raw))
        done += len(raw)
    return found
