"""Random calls on a store, for comparing a listing with the logs."""

import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hansard
from hansard import Store

#: Ids with common prefixes, hashed ids, and ids that SQLite might sort differently.
IDS = ["a/1", "a/2", "a/10", "b/1", "b/é", "b/😀", "B", "c", "UPPER/" + "x" * 150, "a"]

TITLES = ["Refund", "refund of Müller", "STRASSE", "straße", '100% "quoted" _a_', "", "😀", "a\nb"]

VALUES: list[Any] = [1, 1.0, True, "1", 2.5, {"b": 1, "a": [1, 2.0]}, [], "x" * 3000, "user", False]

KEYS = ["user", "k", "with space", "ключ"]


class RandomStore:
    """Makes random calls on the sessions of a store."""

    def __init__(self, store: Store, rng: random.Random, folders: list[Path]) -> None:
        self.store = store
        self.rng = rng
        self.folders = folders

    def do(self, count: int = 1) -> None:
        """Make some calls, on existing sessions and others; ignore refused ones."""
        for _ in range(count):
            with contextlib.suppress(hansard.HansardError):
                session = self.store.session(self.rng.choice(IDS))
                self.rng.choice(self._calls(session))()

    def _calls(self, session: hansard.Session) -> list[Callable[[], object]]:
        pick, number, store = self.rng.choice, self.rng.randrange, self.store
        message = {"role": "user", "content": "x" * 20}
        return [
            *[lambda: session.add_messages([message] * number(1, 4))] * 4,
            *[lambda: session.patch_metadata({pick(KEYS): pick([*VALUES, None])})] * 2,
            lambda: session.set_title(pick(TITLES)),
            lambda: session.set_title(pick(TITLES), automatic=True),
            lambda: session.set_metadata(title=pick([*TITLES, 7, None])),
            *[lambda: session.record_usage(model=pick("mn"), input_tokens=number(9), cost=0.5)] * 2,
            pick([session.archive, session.unarchive, session.close, session.reopen]),
            *[lambda: session.fork(pick(IDS), at=number(session.seq) + 1 if session.seq else None)]
            * 2,
            lambda: store.delete(session.id),
            lambda: pick([store.restore, store.restore, store.purge])(pick(store.trash() or [""])),
            lambda: session.redact(number(1, session.seq + 2)),
            lambda: session.scrub(pick(["Refund", "refund of"])),
            *[lambda: session.set_workspace(pick(self.folders))] * 4,
            lambda: session.patch_metadata({"workspace": None}),
            pick([store.compact, session.compact, session.compact]),
        ]
