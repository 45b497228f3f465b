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
        self._deeds: list[Callable[[], object]] = [
            *[self.say] * 4,
            self.describe,
            self.describe,
            self.name,
            self.name_automatically,
            self.use,
            self.use,
            self.put_away,
            self.fork,
            self.fork,
            self.delete,
            self.restore,
            self.redact,
            self.belong,
            self.compact,
            self.forget,
        ]

    def do(self, count: int = 1) -> None:
        """Make some calls; ignore refused ones."""
        for _ in range(count):
            with contextlib.suppress(hansard.HansardError):
                self.rng.choice(self._deeds)()

    def any_id(self) -> str:
        """Return an id, of an existing session or not."""
        return self.rng.choice(IDS)

    def session(self) -> hansard.Session:
        """Return a session, existing or not."""
        return self.store.session(self.any_id())

    def say(self) -> None:
        """Add messages."""
        count = self.rng.randrange(1, 4)
        self.session().add_messages([{"role": "user", "content": "x" * 20}] * count)

    def describe(self) -> None:
        """Set or remove metadata."""
        key = self.rng.choice(KEYS)
        self.session().patch_metadata({key: self.rng.choice([*VALUES, None])})

    def name(self) -> None:
        """Set a title."""
        self.session().set_title(self.rng.choice(TITLES))

    def name_automatically(self) -> None:
        """Set an automatic title, or a title by metadata."""
        title = self.rng.choice(TITLES)
        if self.rng.random() < 0.5:
            self.session().set_title(title, automatic=True)
        else:
            self.session().set_metadata(title=self.rng.choice([title, 7, None]))

    def use(self) -> None:
        """Record usage of a model."""
        self.session().record_usage(
            model=self.rng.choice("mn"), input_tokens=self.rng.randrange(9), cost=0.5
        )

    def put_away(self) -> None:
        """Archive, close, or undo it."""
        session = self.session()
        self.rng.choice([session.archive, session.unarchive, session.close, session.reopen])()

    def fork(self) -> None:
        """Fork a session at a random seq."""
        session = self.session()
        session.fork(
            self.any_id(), at=self.rng.randrange(1, session.seq + 1) if session.seq else None
        )

    def delete(self) -> None:
        """Delete a session; its forks stay."""
        self.store.delete(self.any_id())

    def restore(self) -> None:
        """Restore or purge a deleted session."""
        deleted = self.store.trash()
        if deleted:
            self.rng.choice([self.store.restore, self.store.restore, self.store.purge])(
                self.rng.choice(deleted)
            )

    def redact(self) -> None:
        """Redact a message."""
        session = self.session()
        session.redact(self.rng.randrange(1, session.seq + 2))

    def forget(self) -> None:
        """Scrub a title."""
        self.session().scrub(self.rng.choice(["Refund", "refund of"]))

    def belong(self) -> None:
        """Set or remove the workspace."""
        if self.rng.random() < 0.2:
            self.session().patch_metadata({"workspace": None})
        else:
            self.session().set_workspace(self.rng.choice(self.folders))

    def compact(self) -> None:
        """Compact a session, or all."""
        if self.rng.random() < 0.3:
            self.store.compact()
        else:
            self.session().compact()
