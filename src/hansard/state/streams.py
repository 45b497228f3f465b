"""Put together what was streamed and never finished.

Above: `views`.  Below: `backend.contract`.
While a message is streamed, its parts are events. When it is done, one event adds it whole, and the parts
say nothing more. If that event never comes, the parts are all there is: the view shows them as one message,
at the place of the last of them, marked as partial.
"""

from collections import deque
from typing import Any, Final

from hansard.backend.contract import Streamed

#: What marks a message in a view as unfinished.
PARTIAL: Final = "partial"

#: The message of a stream whose first part is not in the view.
_UNKNOWN: Final = {"role": "assistant"}


class Streams:
    """Streams as a reader meets them, going forwards or backwards; messages that are over are passed over."""

    __slots__ = ("_hidden", "_over", "_parts")

    def __init__(self, hidden: frozenset[str]) -> None:
        self._hidden = hidden
        self._over: set[str] = set()
        self._parts: dict[str, deque[Streamed]] = {}

    def forwards(self, said: list[Streamed]) -> None:
        """Take in what comes next."""
        for one in said:
            if one.over:
                self._over.add(one.stream)
                self._parts.pop(one.stream, None)
            elif one.stream not in self._over and one.stream not in self._hidden:
                self._parts.setdefault(one.stream, deque()).append(one)

    def backwards(self, said: list[Streamed]) -> list[Streamed]:
        """Take in what came before; return the last parts of messages that were never finished."""
        last = []
        for one in reversed(said):
            if one.over:
                self._over.add(one.stream)
            elif one.stream not in self._over and one.stream not in self._hidden:
                if one.stream not in self._parts:
                    last.append(one)
                self._parts.setdefault(one.stream, deque()).appendleft(one)
        last.reverse()
        return last

    def complete(self, said: list[Streamed]) -> None:
        """Take in earlier parts of messages of which later ones are known."""
        for one in reversed(said):
            parts = self._parts.get(one.stream)
            if parts is not None and parts[0].message is None and not one.over:
                parts.appendleft(one)

    def cut(self) -> bool:
        """Say whether the beginning of a message is still to be found, further back."""
        return any(parts[0].message is None for parts in self._parts.values())

    def unfinished(self) -> list[tuple[int, dict[str, Any]]]:
        """Return the messages that were never finished, each with the seq of its last part, in order."""
        found = [(parts[-1].seq, _message(parts)) for parts in self._parts.values()]
        return sorted(found, key=lambda pair: pair[0])


def _message(parts: deque[Streamed]) -> dict[str, Any]:
    begun = parts[0].message if parts[0].message is not None else _UNKNOWN
    return {**begun, "content": "".join(part.text for part in parts), PARTIAL: True}
