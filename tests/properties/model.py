"""A session as anybody would draw it: a list. What the real one is compared with.

Written from docs and api, not from the code: no checksum, no chunk, no chain of control records.
"""

from typing import Any, NamedTuple

Json = dict[str, Any]


class Fact(NamedTuple):
    """One event."""

    kind: str
    data: Json
    key: str | None = None

    @property
    def message(self) -> Json | None:
        """The message, if it is one."""
        return self.data["message"] if self.kind == "message.added" else None


class ModelSession:
    """A list of facts, and whether it lies in the trash."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.deleted = False
        #: The last seq of each append, by its first.
        self._ends: dict[int, int] = {}

    def with_key(self, key: str) -> list[tuple[int, Fact]]:
        """Return seq and fact of the append with this key."""
        for seq, fact in enumerate(self.facts, 1):
            if fact.key == key:
                whole = range(seq, self._ends[seq] + 1)
                return [(part, self.facts[part - 1]) for part in whole]
        return []

    def append(self, facts: list[Fact]) -> None:
        """Append all facts."""
        self._ends[len(self.facts) + 1] = len(self.facts) + len(facts)
        self.facts += facts

    def messages(
        self, last: int | None = None, after: int = 0, at: int | None = None
    ) -> list[Json]:
        """Return the messages of a range."""
        upto = len(self.facts) if at is None else min(at, len(self.facts))
        found = [
            fact.message
            for seq, fact in enumerate(self.facts, 1)
            if after < seq <= upto and fact.message is not None
        ]
        return found if last is None else found[max(0, len(found) - last) :]

    def metadata(self, at: int | None = None) -> Json:
        """Return what the metadata events add up to."""
        metadata: Json = {}
        for fact in self.facts[:at]:
            if fact.kind in {"metadata.set", "session.created"}:
                metadata = patched(metadata, fact.data.get("metadata", {}))
        return metadata


def patched(target: Any, patch: Any) -> Any:
    """Return RFC 7396's MergePatch(target, patch), word for word."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = patched(result.get(name), value)
    return result
